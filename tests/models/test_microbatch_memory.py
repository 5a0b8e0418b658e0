"""How many tokens pass through a model at once, and what supervised training takes with a large vocabulary."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dph.models import fitting as module
from dph.models.batch import Tokens, collate_tokens
from dph.models.fitting import fitting_tokens, kept_per_token
from dph.process.memory import resident
from helpers import random_policy

_STEP = """
import sys

import torch
from helpers import random_policy

from dph.config import OptimConfig
from dph.models.batch import Tokens
from dph.process.distributed import World
from dph.process.memory import resident
from dph.stages.sft import supervised_step
from dph.training.optim import Optimizer

torch.set_num_threads(1)
policy = random_policy("llama", vocab_size=49152, max_position_embeddings=128)
optimizer = Optimizer(policy.trainable(), OptimConfig(), 10)
draw = torch.Generator().manual_seed(0)
rows = [Tokens([3] * 10, torch.randint(2, 49152, (110,), generator=draw).tolist()) for _ in range(32)]
supervised_step(policy, optimizer, rows[:1], 4096, World.join())
before = resident()
supervised_step(policy, optimizer, rows, 4096, World.join())
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak as Linux reports it")
def test_supervised_training_never_holds_all_logits_of_a_large_vocabulary() -> None:
    logits = 32 * 110 * 49152 * 4  # 692 MB, of which a plain loss holds three copies
    script = [sys.executable, "-c", _STEP]
    tests = {"PYTHONPATH": f"{Path(__file__).parents[2] / 'src'}:{Path(__file__).parents[1]}"}
    ran = subprocess.run(script, capture_output=True, text=True, env={"OMP_NUM_THREADS": "1", **tests}, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 0.9 * logits, f"{int(ran.stdout) / 2**20:.0f} MiB"


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_what_a_token_keeps_is_what_a_large_microbatch_keeps(name: str) -> None:
    policy = random_policy(name, max_position_embeddings=512, hidden_size=64)
    kept: dict[int, torch.Tensor] = {}
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = found = tensor.detach()
        return found

    plain = policy.head is not None
    rows = [Tokens([3] * (249 if plain else 1), [4] * (1 if plain else 249)) for _ in range(6)]
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        policy.logprobs(collate_tokens(rows))
    found = sum(t.untyped_storage().nbytes() for address, t in kept.items() if address not in weights)
    assert kept_per_token(policy) * 1500 == pytest.approx(found, rel=0.25)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_trials_stay_within_a_context_that_is_no_round_number(name: str) -> None:
    short, long = (random_policy(name, max_position_embeddings=context) for context in (100, 512))
    assert kept_per_token(short) == pytest.approx(kept_per_token(long), rel=0.1)


def test_a_microbatch_fits_into_the_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = random_policy("llama", max_position_embeddings=512)
    each, trained = kept_per_token(policy), sum(p.numel() for _, p in policy.trainable())
    for free, expected in ((1 << 40, 16384), (12 * trained + 2000 * each, 1000), (0, 256)):
        monkeypatch.setattr(module, "free_memory", lambda free=free: free)
        assert fitting_tokens(policy) == expected
    monkeypatch.setattr(module, "free_memory", lambda: None)
    monkeypatch.setattr(module, "KEPT_ON_CPU", 3000 * each)
    assert fitting_tokens(policy) == 3000, "a CPU gains nothing from more"


def test_recomputed_layers_keep_their_inputs() -> None:
    policy = random_policy("llama", max_position_embeddings=512)
    whole = kept_per_token(policy)
    model = policy.model  # transformers 5.2x renamed it
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    assert 4 * 32 * 2 <= kept_per_token(policy) < whole / 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory as Linux reports it")
def test_the_trial_leaves_nothing_behind() -> None:
    policy = random_policy("llama", max_position_embeddings=512, hidden_size=256, intermediate_size=2048)
    kept_per_token(policy)
    before = resident()
    for _ in range(20):
        kept_per_token(policy)
    assert resident() - before < 5 * 256 * kept_per_token(policy), "of 20 trials of 64 and 192 tokens"
