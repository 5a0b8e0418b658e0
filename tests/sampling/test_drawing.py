"""Tests of drawing tokens: inverse cumulative distribution, nucleus, large vocabularies. Samplers by name: built-in
samplers, a plug-in, and the message for an unknown name. How many responses are decoded together, if the settings
leave it open. The gate on a trainer's sampler, on worked numbers.
"""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from architectures import architecture
from dph.build import make_sampler
from dph.config import ModelConfig, SamplerConfig
from dph.config.sampling import SamplingParams
from dph.errors import SettingsError, UserError
from dph.integrations.sampler import check_sampler
from dph.models import fitting
from dph.models.fitting import MOST_ROWS, fitting_rows
from dph.process.distributed import World
from dph.runs.directory import RunDir
from dph.sampling import generate as module
from dph.sampling.generate import HFSampler, draw
from dph.sampling.protocol import Sampler, register_sampler
from dph.sampling.rollouts import Prompted, settled_rows
from dph.sampling.seeding import uniforms
from dph.sampling.shared_decode import SharedDecoder
from dph.sampling.static_decode import StaticDecoder
from dph.types import Completion, Problem
from helpers import presample_config, tiny_policy


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


@register_sampler("always_seven")
class AlwaysSeven(Sampler):
    def __init__(self, policy, config, *, model, longest, training):
        self.made_with = (config.rows, model.path, longest, training)

    def sample(self, prompts, params, keys):
        return [[Completion([7], [0.0], "stop")] * params.n for _ in prompts]


def test_a_plugged_in_sampler_is_made_from_the_settings():
    config = SamplerConfig(engine="always_seven", rows=3)
    sampler = make_sampler(config, tiny_policy(), ModelConfig(path="m"), 12, training=True)
    assert isinstance(sampler, AlwaysSeven)
    assert sampler.made_with == (3, "m", 12, True)
    [[only]] = sampler.sample([[1, 2]], SamplingParams(), [0])
    assert only.token_ids == [7]


def test_the_built_in_sampler_and_unknown_names():
    assert isinstance(make_sampler(SamplerConfig(), tiny_policy(), ModelConfig(), 12), HFSampler)
    with pytest.raises(SettingsError, match=r"known are: always_seven, .*vllm; if"):
        make_sampler(SamplerConfig(engine="vlm"), tiny_policy(), ModelConfig(), 12)


PLENTY = 1 << 50


def free(monkeypatch, memory):
    monkeypatch.setattr(fitting, "free_memory", lambda: memory)


def test_a_worked_number(monkeypatch):
    """Keys and values of 2 layers with 2 heads of 8 numbers; a prompt of 100 tokens, buffers for twice 120."""
    policy = tiny_policy()
    sizes = policy.config
    assert (sizes.num_hidden_layers, sizes.num_key_value_heads, sizes.head_dim) == (2, 2, 8), "the sizes of the example"
    keys_and_values = 2 * 2 * 2 * 8 * 4 * (100 + 2 * 120)
    each = keys_and_values + 16 * sizes.vocab_size
    free(monkeypatch, 32 << 20)
    assert fitting_rows(policy, 100, 120) == (16 << 20) // each
    policy.precision = "bf16"
    weights = sum(parameter.numel() for parameter in policy.model.parameters())
    each -= keys_and_values // 2
    assert fitting_rows(policy, 100, 120) == ((32 << 20) - 2 * weights) // 2 // each


def test_the_limits(monkeypatch):
    policy = tiny_policy()
    free(monkeypatch, PLENTY)
    assert fitting_rows(policy, 100, 100) == fitting_rows(policy, 100, 100, step=8) == MOST_ROWS["cpu"]
    assert fitting_rows(policy, 100, 100, step=2000) == 2000, "all responses of a step"
    monkeypatch.setenv("WORLD_SIZE", "2")
    free(monkeypatch, 64 << 20)
    half = fitting_rows(policy, 100, 120)
    monkeypatch.delenv("WORLD_SIZE")
    free(monkeypatch, 32 << 20)
    assert half == fitting_rows(policy, 100, 120), "processes share a machine's memory"
    free(monkeypatch, 1)
    assert fitting_rows(policy, 100, 100) == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("start", [SharedDecoder, StaticDecoder])
@pytest.mark.parametrize("name", ["llama", "cohere", "qwen3"])
def test_a_decoder_takes_no_more_than_was_counted(name, start, precision, monkeypatch):
    """Eight prompts with one response each, the longest that were asked for."""
    policy = architecture(name, vocab_size=18)
    policy.precision = precision
    prompt, response, rows = 40, 300, 8
    free(monkeypatch, 1 << 30)
    each = (1 << 29) / fitting_rows(policy, prompt, response, step=PLENTY)
    with torch.no_grad(), policy.autocast():
        decoder = start(policy, [[3] * prompt] * rows, 1)
        for _ in range(response):
            decoder.step(torch.full((rows,), 4))
    kept = [x for layer in decoder.layers for x in (layer.prompt_keys, layer.prompt_values, *layer.buffers)]
    taken = sum(x.nbytes for x in kept) + decoder.logits.nbytes
    assert 0.4 * each < taken / rows <= each


def test_a_run_keeps_its_number(tmp_path, monkeypatch):
    config = presample_config(tmp_path / "run")
    policy, items = tiny_policy(), [Prompted(Problem("1", "p", "a", "sql"), [3, 4, 5])]
    run = RunDir.start(config.out, "presample", config)
    free(monkeypatch, 1 << 20)
    first = settled_rows(config.sampler, policy, items, config.rollout, run, World())
    assert 1 < first.rows < MOST_ROWS["cpu"] and first == replace(config.sampler, rows=first.rows)
    free(monkeypatch, PLENTY)
    assert settled_rows(config.sampler, policy, items, config.rollout, RunDir.open(tmp_path / "run"), World()) == first
    assert settled_rows(SamplerConfig(rows=7), policy, items, config.rollout, run, World()).rows == 7


def test_the_line_has_the_mean_and_the_largest_difference_and_ratio() -> None:
    # Differences of log 2, −0.1 and 0: mean (log 2 + 0.1) / 3 = 0.2644
    line = check_sampler(torch.tensor([-1.0, -1.0, -3.0]), torch.tensor([math.log(2) - 1, -1.1, -3.0]), 0.27)
    assert "0.2644 nats" in line and "largest 0.693" in line and "ratio 2.000" in line


@pytest.mark.parametrize("wrong", [-1.3, math.nan])
def test_a_sampler_that_is_further_than_rounding_explains_is_refused(wrong: float) -> None:
    trained = torch.full((4,), -1.0)
    with pytest.raises(UserError, match="is given the trained adapters"):
        check_sampler(torch.tensor([-1.0, -1.0, -1.0, wrong]), trained, 0.05)
    assert check_sampler(torch.full((4,), -1.04), trained, 0.05)
