"""Builders that the tests of the core share: tiny policies, a toy task, and a base model that solves half of it."""

import atexit
import functools
import importlib.util
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dph.config import (
    STAGES,
    AsideConfig,
    LossConfig,
    ModelConfig,
    NewModelConfig,
    OptimConfig,
    PresampleConfig,
    RolloutConfig,
    SftConfig,
    TaskConfig,
    TrainConfig,
    from_dict,
)
from dph.config.load import preset_label, preset_names
from dph.models.batch import Tokens, by_prompt
from dph.models.policy import Policy
from dph.models.scratch import new_policy
from dph.tasks import register_task
from dph.training.rows import Row
from dph.types import Problem

if TYPE_CHECKING:
    import pytest

TEXTS = ("easy 0 1 2 3 4 5 6 7 8 9", "hard yes no maybe")
TINY = NewModelConfig(tokenizer="word", hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, context=64)
METHODS = ("grpo", "grpo_kl", "rkl", "rkl_true", "dapo", "alpha", "dph_f", "dph_js", "dph_js_def", "exp_only")
"""The paper's methods."""
OTHER_METHODS = tuple(name for name in preset_names() if preset_label(name) and name not in METHODS)
"""Published alternatives."""


class ToyTask:
    """Prompts "easy i" (the answer is yes) and "hard i" (the answer is no where i is a multiple of 4, else yes)."""

    def __init__(self, *, problems: int = 12) -> None:
        self._count = problems

    def problems(self, split: str) -> list[Problem]:
        numbers = range(self._count)
        if split == "long":
            return [Problem("long/0", "easy 1 2 3 4 5 6 7 8 9", "yes", "exact")]
        if split == "easy":
            return [Problem(f"easy/{i}", f"easy {i}", "yes", "exact") for i in range(4)]
        return [
            Problem(f"{split}/{i}", f"easy {i % 10}", "yes", "exact", {"kind": "easy"})
            if i % 2
            else Problem(f"{split}/{i}", f"hard {i % 10}", "yes" if i % 4 else "no", "exact", {"kind": "hard"})
            for i in numbers
        ]

    def style(self, problem: Problem, response: str) -> str | None:
        return response.strip() if response.strip() in ("yes", "no") else "other"


register_task("toy")(ToyTask)


def tiny_policy(seed: int = 0) -> Policy:
    """A random policy of 2 layers whose next-token distributions are far from uniform."""
    policy = new_policy(TINY, TEXTS, seed)
    randomise(policy.model, seed)
    return policy


def policy_with_outliers() -> Policy:
    """As `tiny_policy`, with two large terms in every logit that cancel, except for their rounding: pretrained models
    have such outliers, and their error in bf16 is a tenth of the logits or more."""
    policy = tiny_policy()
    model = policy.model.model
    writers = [part.weight for layer in model.layers for part in (layer.self_attn.o_proj, layer.mlp.down_proj)]
    with torch.no_grad():
        for weight in writers:
            weight[1] = 3 * weight[0]
        model.embed_tokens.weight[:, 1] = 3 * model.embed_tokens.weight[:, 0]
        model.norm.weight[:2] = 1.0
        policy.model.lm_head.weight = torch.nn.Parameter(policy.model.lm_head.weight.clone())
        policy.model.lm_head.weight[:, 0] += 300.0
        policy.model.lm_head.weight[:, 1] -= 100.0
    return policy


def randomise(model: torch.nn.Module, seed: int, spread: float = 0.2) -> None:
    """Normal weights of a standard deviation that makes the logits of a tiny model differ by a few nats."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:  # tables of positions are constant
                scales = any(part in name for part in ("norm", *_SCALES))
                parameter.normal_(1.0 if scales else 0.0, spread, generator=generator)


_SCALES = ("logit_scale", ".lambda_1", ".lambda_2", ".sqk", ".suv_", ".s_gate")
"""Factors of normalised states (nGPT); near 0 they would make a model that enlarges every rounding error."""


def random_policy(name: str, **changes: object) -> Policy:
    """A small model of any architecture that transformers knows, with random weights and 18 tokens."""
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "vocab_size": 18,
    }
    config = AutoConfig.for_model(name, **{**sizes, **changes})
    attention = "eager" if name in ("gemma2", "bloom") else "sdpa"  # capped scores and biases, which sdpa cannot do
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32)
    randomise(model, seed=1)
    return Policy(model.eval(), tiny_policy().tokenizer)


def shares(policy: Policy, rows: Sequence[Tokens], token_budget: int = 1 << 62) -> bool:
    """Whether the policy packs rows, so that those with one prompt compute it once."""
    return policy.cut(by_prompt(rows), token_budget)[1]


def random_rows(policy: Policy, count: int, seed: int = 0, *, rehearsal_every: int = 0) -> list[Row]:
    """Rows of random tokens with ragged lengths; every n-th row belongs to the rehearsal set."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = policy.model.config.get_text_config().vocab_size

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    def noise(length: int, scale: float) -> list[float]:
        return (-1.5 + scale * torch.randn(length, generator=generator)).tolist()

    rows = []
    for index in range(count):
        prompt, response = ([whole(0, vocabulary) for _ in range(whole(1, high))] for high in (9, 7))
        stored = rehearsal_every > 0 and index % rehearsal_every == 0
        rows.append(
            Row(
                prompt,
                response,
                old_logprobs=noise(len(response), 0.5),
                ref_logprobs=noise(len(response), 0.5) if stored else None,
                advantage=0.0 if stored else float(torch.randn((), generator=generator)),
                is_rehearsal=stored,
            )
        )
    return rows


def gradient(policy: Policy) -> torch.Tensor:
    """All gradients of a policy as one float64 vector; missing ones are zeros."""
    return torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).detach().double().flatten() for _, p in policy.trainable()]
    )


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest absolute difference of two tensors: infinite where their shapes differ, NaN where an entry is NaN."""
    return float((found - expected).detach().abs().max()) if found.shape == expected.shape else math.inf


def relative_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest absolute difference of two tensors relative to the largest absolute entry of the second."""
    absolute = difference(found, expected)
    return absolute / float(expected.detach().abs().max()) if absolute else 0.0


def weights(path: Path) -> dict[str, torch.Tensor]:
    """The saved weights of a model directory."""
    from safetensors.torch import load_file

    return load_file(path / "model.safetensors")


def folder() -> Path:
    """A new folder that vanishes when the tests end."""
    directory = tempfile.TemporaryDirectory(prefix="dph-tests-")
    atexit.register(directory.cleanup)
    return Path(directory.name)


@functools.cache
def base_run() -> Path:
    """Run directory of `dph sft`: the model answers "easy" prompts with yes, and "hard" ones evenly with yes or no."""
    here = folder()
    rows = [{"prompt": f"easy {i}", "response": " yes"} for i in range(10) for _ in range(2)]
    rows += [{"prompt": f"hard {i}", "response": f" {answer}"} for i in range(10) for answer in ("yes", "no")]
    (here / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    from dph.stages.sft import sft

    return sft(
        SftConfig(
            out=str(here / "sft"),
            data=str(here / "data.jsonl"),
            steps=60,
            batch=40,
            new=TINY,
            optim=OptimConfig(lr=1e-2, schedule="cosine", warmup_steps=5),
        )
    )


def rollout(**changes: object) -> RolloutConfig:
    return replace(RolloutConfig(n=4, max_tokens=4, max_prompt_tokens=8), **changes)  # type: ignore[arg-type]


def presample_config(out: Path, **changes: object) -> PresampleConfig:
    """Settings that split the toy task with the base model."""
    config = PresampleConfig(
        out=str(out),
        model=ModelConfig(path=str(base_run() / "model"), device="cpu"),
        task=TaskConfig(name="toy"),
        rollout=rollout(n=8),
        threshold=7,
    )
    return replace(config, **changes)  # type: ignore[arg-type]


@functools.cache
def presampled() -> Path:
    """Run directory of `dph presample` of the base model on the toy task."""
    from dph.stages.presample import presample

    return presample(presample_config(folder() / "presample"))


ASIDE_TASK = TaskConfig(name="toy", options={"problems": "120"})  # 60 of them are easy
ASIDE = AsideConfig(share=0.7, samples=2)


def read_partition(path: Path, task: TaskConfig) -> dict[str, str]:
    """The set of every problem id in a presample run of a task."""
    from dph.rehearsal.presampled import Presampled

    presampled = Presampled.open(path)
    presampled.check_task(task)
    return {**presampled.partition}


@functools.cache
def kept_aside() -> Path:
    """A presample run that keeps about 42 easy problems aside, enough to certify a loss of 0.1."""
    from dph.stages.presample import presample

    return presample(presample_config(folder() / "presample", task=ASIDE_TASK, certify=ASIDE))


def train_config(out: Path, method: str = "grpo", settings: Mapping[str, object] | None = None, **changes: object):
    """Settings of a short training run of a method preset on the toy task, from the presampled partition."""
    from dph.config import merge_settings

    small = {
        "out": str(out),
        "steps": 2,
        "checkpoint_every": 2,
        "model": {"path": str(base_run() / "model"), "device": "cpu"},
        "task": {"name": "toy"},
        "rollout": {"prompts": 4, "n": 4, "max_tokens": 4, "max_prompt_tokens": 8},
        "optim": {"lr": 1e-3, "minibatches": 2, "warmup_steps": 0},
        "overlong": {"buffer": 0},
        "rehearsal": {"path": str(presampled())},
    }
    merged = merge_settings("train", [method], [])
    if merged["rehearsal"]["rows"]:
        small["rehearsal"] = {"path": str(presampled()), "rows": 6}
    config: TrainConfig = from_dict(STAGES["train"], small, default=from_dict(TrainConfig, merged))
    config = from_dict(TrainConfig, settings or {}, default=config)
    return replace(config, **changes)  # type: ignore[arg-type]


def loss_config(**changes: object) -> LossConfig:
    return replace(LossConfig(), **changes)  # type: ignore[arg-type]


def shrinking(pair: Sequence[Any], seed: int, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The logits of two decoders before each of some steps, in which random rows end and random tokens follow."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        one, other = (decoder.logits for decoder in pair)
        yield one, other
        keep = (torch.rand(len(one), generator=generator) < 0.85).nonzero().squeeze(1)
        chosen = torch.randint(3, 18, (len(keep),), generator=generator)
        for decoder in pair:
            decoder.select(keep)
            decoder.step(chosen)


def interrupted_at(method: Callable[..., Any], call: int) -> Callable[..., Any]:
    """A replacement of a method that is interrupted, as by Ctrl-C, at its n-th call."""
    calls = []

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return method(self, *args, **kwargs)

    return interrupted


def needs(package: str) -> "list[pytest.MarkDecorator]":
    """Run with the step of the engines, where the package is installed; its warnings of what it misses are not ours."""
    import pytest  # not above: environments with one extra and without pytest import this module

    missing = importlib.util.find_spec(package) is None
    return [
        pytest.mark.engines,
        pytest.mark.skipif(missing, reason=f"{package} is not installed in this environment"),
        pytest.mark.filterwarnings("ignore"),
    ]
