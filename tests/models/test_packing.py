"""Packed rows: by hand, and compared with each row on its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dph.models.packing import group_by_prompt, pack, packed_tokens
from dph.training.rows import Row

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
    for group in layout.branches:
        if group.tokens[0] <= place < sum(group.tokens):
            seen = list(range(group.stem[0], sum(group.stem))) + seen
    return seen


def test_packing_by_hand():
    rows = [
        Row([1, 2], [5, 6, 7], ()),
        Row([3], [4, 4], ()),
        Row([1, 2], [5, 8, 9, 9], ()),
        Row([1, 2], [5, 6, 7], ()),  # equals the first
        Row([1, 2], [5], ()),  # entirely in the stem
    ]
    packed = pack(rows)
    # stems: the prompt 1 2 with the common 5, and 3 with 4 (its last token predicts nothing); branches: 6 and 8 9
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
    # 5 predicts both 6 and 8, so that each branch has its own
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
    branches = sum(len({tuple(rows[index].response_ids) for index in group}) for group in groups)
    assert packed_tokens(rows) <= packed.input_ids.shape[1] <= packed_tokens(rows) + branches


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
    """Per prompt: branches are distinct, no token starts all branches, and a single response has no branch."""
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
