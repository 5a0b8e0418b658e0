"""Collating rows and cutting mini-batches: no row is lost, and every tensor contains what its docstring says."""

import itertools
from dataclasses import astuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dph.models.batch import by_prompt, microbatches, packed_microbatches, padded_length
from dph.models.packing import packed_tokens
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
