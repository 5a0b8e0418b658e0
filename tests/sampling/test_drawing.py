"""Tests of drawing tokens: inverse cumulative distribution, nucleus, large vocabularies."""

import itertools
import math

import pytest
import torch

from dph.sampling import hf as module
from dph.sampling.hf import draw
from dph.sampling.seeding import uniforms
from dph.types import SamplingParams


def test_draw_inverts_the_cumulative_distribution(monkeypatch):
    probs = torch.tensor([0.1, 0.4, 0.0, 0.3, 0.2], dtype=torch.float64)
    logits = probs.log().float()[None]

    def at(number, top_p=1.0):
        monkeypatch.setattr(module, "uniforms", lambda keys, _: torch.full((len(keys),), number, dtype=torch.float64))
        chosen, logprob = draw(logits, SamplingParams(top_p=top_p), torch.tensor([0]), 0)
        assert float(logprob) == pytest.approx(math.log(probs[int(chosen)]), abs=1e-6)
        return int(chosen)

    # cumulative probabilities of tokens 0, 1, 3, 4: .1 .5 .8 1
    cases = {0.0: 0, 0.09: 0, 0.11: 1, 0.49: 1, 0.51: 3, 0.79: 3, 0.81: 4, 1 - 2**-53: 4}
    assert {number: at(number) for number in cases} == cases
    # cumulative by falling probability, 1, 3, 4, 0: .4 .7 .9 1; the smallest set to reach .75 is {1, 3, 4}, of mass .9
    cases = {0.0: 1, 0.44: 1, 0.45: 3, 0.77: 3, 0.78: 4, 1 - 2**-53: 4}
    assert {number: at(number, 0.75) for number in cases} == cases
    assert {at(number, 0.3) for number in (0.0, 0.5, 1 - 2**-53)} == {1}
    assert {at(number, 1e-9) for number in (0.0, 0.5, 1 - 2**-53)} == {1}


def test_ties_in_the_nucleus_are_broken_the_same_way_in_every_row():
    logits = torch.zeros(1, 4)
    chosen = [
        draw(logits.expand(rows, -1), SamplingParams(top_p=0.4), torch.arange(40, 40 + rows), 0)[0].tolist()
        for rows in (1, 3, 64)
    ]
    assert all(a == b for x, y in itertools.pairwise(chosen) for a, b in zip(x, y, strict=False))
    assert set(chosen[-1]) == {0, 1}


@pytest.mark.parametrize("size", [511, 512, 513, 768, 1100, 49152])
def test_a_large_vocabulary_is_inverted_as_running_sums_in_double_precision_do(size):
    """The oracle: one running sum over all tokens in float64."""
    generator = torch.Generator().manual_seed(size)
    logits = 4 * torch.randn(40, size, generator=generator)
    logits[:, 7:300] = -torch.inf  # a block without any weight
    keys = torch.randint(0, 1 << 62, (40,), generator=generator)
    probs = logits.double().softmax(-1)
    same = 0
    for step in range(25):
        chosen, logprobs = draw(logits, SamplingParams(), keys, step)
        assert torch.allclose(logprobs.double(), probs.gather(1, chosen[:, None]).squeeze(1).log(), atol=2e-6, rtol=0)
        numbers = uniforms(keys, torch.tensor(step))
        sums = probs.cumsum(-1)
        expected = torch.searchsorted(sums, numbers[:, None], right=True).squeeze(1)
        same += int((chosen == expected).sum())
        # float32 moves the bounds between tokens a little: the number lies between the chosen token's, give or take
        above, below = (x.gather(1, chosen[:, None]).squeeze(1) for x in (sums, sums - probs))
        assert bool(((below - 1e-6 <= numbers) & (numbers <= above + 1e-6)).all())
    assert same >= 990  # of 1000


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("token", [0, 255, 256, 999])
def test_a_token_without_weight_is_never_chosen(monkeypatch, number, token):
    monkeypatch.setattr(module, "uniforms", lambda keys, _: torch.full((len(keys),), number, dtype=torch.float64))
    logits = torch.full((1, 1000), -torch.inf)
    logits[0, token] = 0.3
    chosen, logprob = draw(logits, SamplingParams(), torch.tensor([0]), 0)
    assert (int(chosen), float(logprob)) == (token, 0.0)


@pytest.mark.parametrize("scale", [4.0, 0.0, 0.5])  # few candidates suffice, all tokens are equal, many are needed
def test_a_large_nucleus_is_the_one_that_sorting_all_tokens_gives(scale, monkeypatch):
    logits = (scale * torch.randn(30, 20000, generator=torch.Generator().manual_seed(1))).round(decimals=1)  # with ties
    keys = torch.arange(30)
    found = [draw(logits, SamplingParams(top_p=0.9), keys, step)[0].tolist() for step in range(20)]
    monkeypatch.setattr(module, "CANDIDATES", ())
    assert found == [draw(logits, SamplingParams(top_p=0.9), keys, step)[0].tolist() for step in range(20)]


@pytest.mark.parametrize("size", [300, 1000, 1024])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("logit", [math.nan, -math.inf])
def test_logits_of_a_diverged_model_give_a_token_without_a_probability(size, top_p, logit):
    chosen, logprobs = draw(torch.full((2, size), logit), SamplingParams(top_p=top_p), torch.tensor([1, 2]), 0)
    assert bool((chosen >= 0).all()) and bool((chosen < size).all()) and bool(logprobs.isnan().all())
