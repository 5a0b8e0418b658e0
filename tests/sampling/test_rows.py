"""How many responses are decoded together, if the settings leave it open."""

from dataclasses import replace

import pytest
import torch

from architectures import architecture
from dph.config import SamplerConfig
from dph.models import batch
from dph.models.batch import MOST_ROWS, fitting_rows
from dph.process.distributed import World
from dph.runs.directory import RunDir
from dph.sampling.rollouts import Prompted, settled_rows
from dph.sampling.shared_decode import SharedDecoder, StaticDecoder
from dph.types import Problem
from helpers import presample_config, tiny_policy

PLENTY = 1 << 50


def free(monkeypatch, memory):
    monkeypatch.setattr(batch, "free_memory", lambda: memory)


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
