"""Collating rows and cutting mini-batches: no row is lost, and every tensor contains what its docstring says. Packed
rows: by hand, and compared with each row on its own.
"""

import itertools
from dataclasses import astuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dph.models.batch import by_prompt, microbatches, packed_microbatches, padded_length
from dph.models.packing import group_by_prompt, pack, packed_tokens
from dph.objective import LossCounts
from dph.training.rows import Row, collate
from dph.training.update import count_rows
from helpers import TINY, random_rows, tiny_policy

lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 20)), min_size=1, max_size=25)


def row(prompt, response, **extra):
    return Row([1] * prompt, [2] * response, old_logprobs=[-0.5] * response, **extra)


@given(lengths=lengths, budget=st.integers(1, 200))
def test_microbatches_partition_the_rows_within_the_budget(lengths, budget):
    rows = [row(*pair) for pair in lengths]
    parts = microbatches(rows, budget)
    assert sorted(id(r) for part in parts for r in part) == sorted(map(id, rows))
    for part in parts:
        assert len(part) == 1 or collate(part).input_ids.numel() <= budget
    # no two neighbours could have been merged: the longer part has no room for the next row
    for part, following in itertools.pairwise(parts):
        longer = collate([*part, following[0]]).input_ids
        assert longer.numel() > budget and part[-1].length >= following[0].length


@given(st.integers(1, 1 << 20))
def test_padding_takes_few_lengths(longest):
    length = padded_length(longest)
    assert longest <= length <= max(longest, longest * 1.125)
    assert padded_length(length) == length
    assert padded_length(longest, context=longest) == longest and padded_length(longest, context=length) == length


def test_between_two_powers_of_two_there_are_eight_lengths():
    assert [padded_length(longest) for longest in (1, 7, 15, 16, 17, 33, 127, 129)] == [1, 7, 15, 16, 18, 36, 128, 144]
    assert sorted({padded_length(longest) for longest in range(257, 513)}) == list(range(288, 513, 32))


def test_collate_by_hand():
    rows = [
        Row([5, 6], [7, 8, 9], [-0.1, -0.2, -0.3], advantage=1.5),
        Row([4], [3], [-0.4], ref_logprobs=[-0.5], is_rehearsal=True),
        Row([1, 2, 3], [], [], weight=0.0),
        Row([1], [2, 3], [-0.6, -0.7], weight=0.0),
    ]
    batch = collate(rows)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9], [4, 3, 0, 0, 0], [1, 2, 3, 0, 0], [1, 2, 3, 0, 0]]
    # tokens 1 to 3 of the first row predict 7, 8, 9; rows are 5 wide: the second starts at index 5, the fourth at 15
    assert batch.sources.tolist() == [1, 2, 3, 5, 15, 16] and batch.states.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.position_ids is None and batch.layout is None
    assert batch.response_ids.tolist() == [[7, 8, 9], [3, 0, 0], [0, 0, 0], [2, 3, 0]]
    assert batch.present.int().tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]]
    assert batch.response_mask.tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    old = torch.tensor([[-0.1, -0.2, -0.3], [-0.4, 0, 0], [0, 0, 0], [-0.6, -0.7, 0]])
    assert torch.equal(batch.old_logprobs, old)
    assert batch.ref_logprobs is not None
    assert torch.equal(batch.ref_logprobs, torch.tensor([[0, 0, 0], [-0.5, 0, 0], [0, 0, 0], [0, 0, 0]]))
    assert batch.advantages.tolist() == [1.5, 0, 0, 0] and batch.is_rehearsal.tolist() == [False, True, False, False]
    assert collate(rows[:1]).ref_logprobs is None


def test_padding_ends_where_the_context_ends():
    rows = [row(60, 37), row(3, 4)]
    assert collate(rows).input_ids.shape == (2, 104) and collate(rows, context=100).input_ids.shape == (2, 100)
    assert collate(rows, context=50).input_ids.shape == (2, 97)  # the model's check reports rows that are too long


def test_a_packed_batch_differs_only_in_the_model_inputs():
    rows = [row(3, 4), row(3, 2), row(2, 0, weight=0.0), row(3, 4, advantage=2.0)]
    padded, packed = collate(rows), collate(rows, shared=True)
    assert packed.input_ids.shape[0] == 1 and packed.layout is not None and packed.position_ids is not None
    for name in ("response_ids", "present", "response_mask", "old_logprobs", "advantages", "is_rehearsal"):
        assert torch.equal(getattr(packed, name), getattr(padded, name)), name
    assert len(packed.states) == len(padded.states) == 10


@given(lengths=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=25), budget=st.data())
def test_packed_microbatches_partition_the_rows_within_the_budget(lengths, budget):
    """Four prompts. A part over the budget is a single row, and a prompt's rows are split only if they must be."""
    budget = budget.draw(st.integers(1, 120))
    rows = [
        Row([kind] * (3 + 4 * kind), [index] * response, [-0.5] * response)
        for index, (kind, response) in enumerate(lengths)
    ]
    parts = packed_microbatches(by_prompt(rows), budget)
    assert sorted(id(r) for part in parts for r in part) == sorted(map(id, rows))
    for part in parts:
        assert len(part) == 1 or packed_tokens(part) <= budget
    for kind in range(4):
        group = [r for r in rows if r.prompt_ids[0] == kind]
        if group and packed_tokens(group) <= budget:
            assert sum(any(r.prompt_ids[0] == kind for r in part) for part in parts) == 1


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="empty"):
        collate([])


@given(lengths=lengths, data=st.data(), budget=st.integers(1, 120))
def test_counts_of_rows_equal_the_sum_over_any_microbatches(lengths, data, budget):
    rows = [
        row(*pair, is_rehearsal=data.draw(st.booleans()), weight=data.draw(st.sampled_from([0.0, 1.0])))
        for pair in lengths
    ]
    counts = [astuple(LossCounts.of(collate(part))) for part in microbatches(rows, budget)]
    assert astuple(count_rows(rows)) == tuple(map(sum, zip(*counts, strict=True)))


def test_the_random_rows_of_the_test_helpers_fit_the_tiny_model():
    policy = tiny_policy()
    rows = random_rows(policy, 30, rehearsal_every=3)
    assert sum(r.is_rehearsal for r in rows) == 10 and len({r.length for r in rows}) > 5
    assert max(r.length for r in rows) <= TINY.context


sequences = st.lists(st.integers(0, 2), max_size=6)
rows_of_few_tokens = st.lists(
    st.builds(lambda p, r: Row(p, r, old_logprobs=()), st.lists(st.integers(0, 1), min_size=1, max_size=3), sequences),
    min_size=1,
    max_size=12,
)


def seen_by(layout, place):
    """Packed indices that a token attends to, according to the layout."""
    seen = []
    for bucket in layout.buckets:
        width, every = bucket.shape[1], bucket.index.tolist()
        for slot in bucket.present.tolist():
            if every[slot] == place:
                seen += [every[other] for other in range(slot - slot % width, slot + 1)]
    for group in layout.suffixes:
        if group.tokens[0] <= place < sum(group.tokens):
            seen = list(range(group.prefix[0], sum(group.prefix))) + seen
    return seen


def test_packing_by_hand():
    rows = [
        Row([1, 2], [5, 6, 7], ()),
        Row([3], [4, 4], ()),
        Row([1, 2], [5, 8, 9, 9], ()),
        Row([1, 2], [5, 6, 7], ()),  # equals the first
        Row([1, 2], [5], ()),  # entirely in the prefix
    ]
    packed = pack(rows)
    # prefixes: the prompt 1 2 with the common 5, and 3 with 4 (its last token predicts nothing); suffixes: 6 and 8 9
    assert packed.input_ids.tolist() == [[1, 2, 5, 3, 4, 6, 8, 9]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 0, 1, 3, 3, 4]]
    # 5 6 7 are predicted from 2, 5, 6 at indices 1, 2, 5; 4 4 from indices 3, 4; 5 8 9 9 from indices 1, 2, 6, 7
    places = [1, 2, 5, 3, 4, 1, 2, 6, 7, 1, 2, 5, 1]
    assert packed.sources[packed.states].tolist() == places and packed.sources.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert packed.layout.longest == 6 and packed_tokens(rows) == 8
    assert seen_by(packed.layout, 7) == [0, 1, 2, 6, 7] and seen_by(packed.layout, 4) == [3, 4]


def test_one_target_by_hand():
    rows = [Row([1, 2], [5, 6, 7], ()), Row([1, 2], [5, 8], ()), Row([3], [4], ()), Row([9, 9], [], ())]
    packed = pack(rows, one_target=True, first_positions=[10, 10, 0, 3])
    # 5 predicts both 6 and 8, so that each suffix has its own
    assert packed.input_ids.tolist() == [[1, 2, 3, 9, 9, 5, 6, 5]]
    assert packed.position_ids.tolist() == [[10, 11, 0, 3, 4, 12, 13, 12]]
    assert packed.sources[packed.states].tolist() == [1, 5, 6, 1, 7, 2]
    assert seen_by(packed.layout, 7) == [0, 1, 7] and packed_tokens(rows) == 7


@given(rows_of_few_tokens)
def test_a_token_has_one_target_if_asked(rows):
    packed = pack(rows, one_target=True)
    targets = {}
    places = packed.sources[packed.states].tolist()
    for token in (token for row in rows for token in row.response_ids):
        assert targets.setdefault(places.pop(0), token) == token
    groups = group_by_prompt(rows)
    suffixes = sum(len({tuple(rows[index].response_ids) for index in group}) for group in groups)
    assert packed_tokens(rows) <= packed.input_ids.shape[1] <= packed_tokens(rows) + suffixes


@pytest.mark.parametrize("one_target", [False, True])
@given(rows=rows_of_few_tokens)
def test_every_token_sees_its_own_row_and_predicts_its_own_response(one_target, rows):
    packed = pack(rows, one_target=one_target)
    ids, positions = packed.input_ids[0].tolist(), packed.position_ids[0].tolist()
    places = packed.sources[packed.states].tolist()
    assert one_target or len(ids) == packed_tokens(rows)
    assert len(ids) <= sum(row.length for row in rows)
    for row in rows:
        whole = [*row.prompt_ids, *row.response_ids]
        for step in range(len(row.response_ids)):
            place, length = places.pop(0), len(row.prompt_ids) + step
            seen = seen_by(packed.layout, place)
            assert [ids[other] for other in seen] == whole[:length]
            assert [positions[other] for other in seen] == list(range(length))
    assert not places


@given(rows_of_few_tokens)
def test_common_prefixes_are_stored_once(rows):
    """Per prompt: suffixes are distinct, no token starts all suffixes, and a single response has no suffix."""
    for indices in group_by_prompt(rows):
        group = [rows[index] for index in indices]
        distinct = {tuple(row.response_ids) for row in group}
        inputs = {(*group[0].prompt_ids, *response[:-1]) for response in distinct}
        if len(distinct) == 1:
            assert packed_tokens(group) == len(inputs.pop())
        else:
            firsts = {response[:1] for response in distinct}
            if len(firsts) > 1:  # only the prompt is common
                expected = len(group[0].prompt_ids) + sum(max(0, len(response) - 1) for response in distinct)
                assert packed_tokens(group) == expected
            else:
                shorter = [Row([*row.prompt_ids, row.response_ids[0]], row.response_ids[1:], ()) for row in group]
                assert packed_tokens(group) == packed_tokens(shorter)
