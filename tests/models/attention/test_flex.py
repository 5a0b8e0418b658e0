"""FlexAttention over packed rows. A CPU has no compiled backward kernel, so torch's plain mathematics runs instead."""

from itertools import pairwise

import pytest
import torch
from torch.nn.attention import flex_attention

from dph.models.attention import flex, using
from dph.models.batch import Tokens
from dph.models.packing import pack
from helpers import random_policy
from shared_rows import EXACT, SHARING, error, evaluated, grouped_rows, ungrouped_rows

BLOCK = 128  # tokens of a block of queries or keys, by torch's default
QUICK = ("llama", "qwen3")  # one with two query heads to a key head, one with four

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),  # by dynamo
]


@pytest.fixture(autouse=True)
def backward_on_a_cpu(monkeypatch):
    """torch refuses it on a CPU, for the lack of a kernel; its plain mathematics can do it."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SHARING]
)
def test_every_architecture_computes_the_same(name):
    policy, rows = random_policy(name, **SHARING[name]), grouped_rows()
    expected = evaluated(policy, rows, shared=False)
    with using("flex"):
        assert error(evaluated(policy, rows, shared=True), expected) <= EXACT


def test_rows_that_share_nothing():
    policy, rows = random_policy("llama"), ungrouped_rows()
    with using("flex"):
        assert error(evaluated(policy, rows, True), evaluated(policy, rows, False)) <= EXACT


def test_blocks_of_the_mask_hold_exactly_the_pairs_that_attend():
    """Compared with a mask of all pairs, which the layout's groups give directly."""
    rows = [Tokens([prompt] * prompt, [i] * 50) for prompt in (300, 140, 20) for i in range(3)] + [
        Tokens([1] * 77, [2])
    ]
    layout = pack(rows).layout
    count = layout.sequences.tokens
    assert count % BLOCK  # the last block is not full
    expected = torch.zeros(count, count, dtype=torch.bool)
    ends = layout.sequences.starts.tolist()
    for first, end in pairwise(ends):
        expected[first:end, first:end] = torch.ones(end - first, end - first, dtype=torch.bool).tril()
    for group in layout.suffixes:
        expected[group.tokens[0] : sum(group.tokens), group.prefix[0] : sum(group.prefix)] = True
    mask = flex.block_mask(layout)
    places = torch.arange(count)
    assert torch.equal(mask.mask_mod(0, 0, places[:, None], places[None]), expected)
    blocks = -(-count // BLOCK)
    padded = torch.zeros(blocks * BLOCK, blocks * BLOCK, dtype=torch.bool)
    padded[:count, :count] = expected
    tiles = padded.unflatten(1, (blocks, -1)).unflatten(0, (blocks, -1)).transpose(1, 2).flatten(2)
    kinds = {"part": tiles.any(-1) & ~tiles.all(-1), "whole": tiles.all(-1)}
    assert all(kind.any() for kind in kinds.values()) and not tiles.any(-1).all()
    listed = {"part": (mask.kv_num_blocks, mask.kv_indices), "whole": (mask.full_kv_num_blocks, mask.full_kv_indices)}
    for kind, (counts, indices) in listed.items():
        for row in range(blocks):
            chosen = indices[0, 0, row, : counts[0, 0, row]].tolist()
            assert sorted(chosen) == kinds[kind][row].nonzero().flatten().tolist()
