"""Samplers by name: built-in samplers, a plug-in, and the message for an unknown name."""

import pytest

from dph.build import make_sampler
from dph.config import ModelConfig, SamplerConfig
from dph.errors import SettingsError
from dph.sampling.hf import HFSampler
from dph.sampling.protocol import Sampler, register_sampler
from dph.types import Completion, SamplingParams
from helpers import tiny_policy


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
