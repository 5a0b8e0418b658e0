"""Random models and rollouts of given sizes, and a method's update on them, for the training benchmarks."""

import argparse
import contextlib
import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AttentionInterface

from benchmarks._support import shapes
from benchmarks._support.flops import Work, forward_flops, training_flops
from benchmarks._support.lines import Lines
from benchmarks._support.shapes import Where
from dph.config import LossConfig, OptimConfig
from dph.models.attention import IMPLEMENTATIONS, using
from dph.models.batch import by_prompt, microbatches, packed_microbatches
from dph.models.device import computed_in
from dph.models.policy import Policy
from dph.models.sharing import NAME, shared_prefix_attention
from dph.objective import Objective
from dph.process.distributed import World
from dph.training.optim import Optimizer
from dph.training.rows import Row, collate
from dph.training.update import Updater, split_by_gradient

METHODS = {
    "GRPO": LossConfig(eta=0.0),
    "RKL": LossConfig(eta=0.0, kl="k3", kl_coef=0.01),
    "DPH-F": LossConfig(eta=0.01, divergence="forward_kl"),
    "DPH-JS": LossConfig(eta=0.2, divergence="js"),
    "DPH-JS by definition": LossConfig(eta=0.2, divergence="js", estimator="definition"),
}


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of one optimizer step."""

    prompts: int = 8
    n: int = 16
    """Rollouts per prompt."""
    prompt: int = 512
    """Tokens per prompt."""
    response: int = 64
    """Tokens per response."""
    stored: int = 16
    """Rehearsal rows; by default one per eight rollouts, as in the paper."""
    stored_per_prompt: int = 1
    """Rehearsal rows with the same prompt."""
    model: str = "3.4M"


def rows(size: Size) -> tuple[list[Row], list[Row]]:
    """Rollouts with advantages, and rehearsal rows; random tokens, equal for every method."""
    generator, vocabulary = torch.Generator().manual_seed(0), shapes.settings(size.model).vocab_size

    def tokens(count: int) -> list[int]:
        return torch.randint(3, vocabulary, (count,), generator=generator).tolist()

    chance = [-math.log(vocabulary)] * size.response  # about what a model with random weights gives
    rollouts = [
        Row(prompt, tokens(size.response), chance, advantage=1.0 if index % 2 else -1.0)
        for prompt in (tokens(size.prompt) for _ in range(size.prompts))
        for index in range(size.n)
    ]
    prompts = [tokens(size.prompt) for _ in range(-(-size.stored // size.stored_per_prompt))]
    rehearsal = [
        Row(prompts[index // size.stored_per_prompt], tokens(size.response), (), chance, is_rehearsal=True)
        for index in range(size.stored)
    ]
    return rollouts, rehearsal


def _model(size: Size, shared: bool, where: Where) -> Policy:
    model = shapes.random_model(shapes.settings(size.model), where).eval()
    tokenizer: Any = SimpleNamespace(eos_token_id=1)
    policy = Policy(model, tokenizer, precision=computed_in(where.precision), shared_prefix=shared)
    policy.keep_less()
    return policy


class Update:
    """One method's optimizer step on the same rollouts."""

    def __init__(self, method: str, size: Size, *, shared: bool, budget: int, where: Where) -> None:
        """budget: tokens per micro-batch."""
        loss = METHODS[method]
        rollouts, stored = rows(size)
        self._groups = by_prompt(rollouts + (stored if loss.eta else []))
        self._steps = 0
        self._policy = _model(size, shared, where)
        objective = Objective(loss)
        reference = _model(size, shared, where) if objective.needs_reference else None
        optimizer = Optimizer(self._policy.trainable(), OptimConfig(lr=1e-9), 1000)  # no step changes the work
        self._updater = Updater(
            self._policy,
            objective,
            optimizer,
            temperature=1.0,
            token_budget=budget,
            own_reference=reference,
            world=World(),
        )

    def __call__(self) -> dict[str, float]:
        """Take a step; returns its metrics."""
        self._steps += 1
        if self._steps == 2 and _COMPILED:  # the first step made the trials
            AttentionInterface.register(NAME, torch.compiler.disable(shared_prefix_attention))
            for layer in self._policy.causal_lm.get_decoder().layers:
                layer.compile(backend=_COMPILED[0], dynamic=True)
        return self._updater.update([self._groups], recompute_old=False)

    def timed(self, clock: Callable[[], float]) -> float:
        """Take a step; returns the seconds."""
        started = clock()
        self()
        return clock() - started

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for _, parameter in self._policy.trainable())


def _work(chosen: Sequence[Row], shared: bool, budget: int) -> Work:
    parts = packed_microbatches(by_prompt(chosen), budget) if shared else microbatches(chosen, budget)
    return sum((Work.of(collate(part, shared=shared)) for part in parts), start=Work(0, 0, 0))


def update_flops(method: str, size: Size, *, shared: bool = True, budget: int = 1 << 40) -> float:
    """Operations of a method's step: forward and backward through the policy, forward through the reference model.

    By default each prompt is computed once, which is the least work.
    """
    loss, config = METHODS[method], shapes.settings(size.model)
    rollouts, stored = rows(size)
    groups = by_prompt(rollouts + (stored if loss.eta else []))
    moving, still = ([row for g in some for row in g] for some in split_by_gradient(groups, Objective(loss)))
    total = training_flops(config, _work(moving, shared, budget))
    for chosen in (still, rollouts if Objective(loss).needs_reference else []):
        total += forward_flops(config, _work(chosen, shared, budget))
    return total


def alternated(updates: Sequence[Update], rounds: int, clock: Callable[[], float]) -> list[list[float]]:
    """Seconds of each update in each round. All take turns, so that other load on the machine affects all alike."""
    for update in updates:
        for _ in range(1 + len(_COMPILED)):  # warms up
            update()
    return [[update.timed(clock) for update in updates] for _ in range(rounds)]


def alone_on_gpu(make: Callable[[], Update], rounds: int, clock: Callable[[], float]) -> tuple[list[float], int]:
    """Seconds of an update in each round, and the peak of the GPU's memory in bytes; nothing else is kept there.

    If the memory does not suffice, both are NaN and 0.
    """
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        update = make()
        for _ in range(2):  # warms up; the optimizer's moments exist after the first step
            update()
        return [update.timed(clock) for _ in range(rounds)], torch.cuda.max_memory_allocated()
    except torch.OutOfMemoryError:
        return [math.nan] * rounds, 0


def parser(description: str) -> argparse.ArgumentParser:
    """Options that the training benchmarks share."""
    found = argparse.ArgumentParser(description=description)
    shapes.add_options(found)
    found.add_argument("--models", nargs="+", choices=shapes.MODELS, default=["3.4M"], help="sizes of the model")
    found.add_argument("--threads", type=int, default=2, help="threads of torch")
    found.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is not idle")
    found.add_argument("--rounds", type=int, default=3, help="rounds; all cases take turns in each")
    found.add_argument("--budget", type=int, default=2048, help="tokens per micro-batch")
    found.add_argument("--attention", choices=tuple(IMPLEMENTATIONS), help="over shared prompts; default: by trial")
    found.add_argument("--compile", metavar="BACKEND", help="compile each layer, attention left out: an experiment")
    found.add_argument("--smoke", action="store_true", help="smallest sizes, to check that everything works")
    found.add_argument("--out", type=Path, help="folder for results as JSON, and figures")
    found.add_argument("--lines", type=Path, help="file that gets each result at once, as a line of JSON")
    return found


_ATTENTION = contextlib.ExitStack()
"""Held open to the end of the process."""
_COMPILED: list[str] = []
"""The backend that compiles layers, if one does."""


def prepare(options: argparse.Namespace) -> Callable[[], float]:
    """Apply the shared options; returns the clock."""
    torch.set_num_threads(options.threads)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    if options.attention:
        _ATTENTION.enter_context(using(options.attention))
    if options.compile:
        _COMPILED.append(options.compile)
    return Where.chosen(options).clock(options.clock)


def results(options: argparse.Namespace) -> Lines:
    """Where each result goes at once."""
    return Lines(options.lines, **environment(options))


def sized(size: Size, lengths: str) -> Size:
    """The size with other lengths, "PROMPT+RESPONSE"."""
    prompt, response = (int(part) for part in lengths.split("+"))
    return replace(size, prompt=prompt, response=response)


def smallest(size: Size) -> Size:
    """Sizes for a run that only checks that everything works."""
    return replace(size, prompts=2, n=3, prompt=min(size.prompt, 8), response=4, stored=2, model="0.8M")


def environment(options: argparse.Namespace) -> dict[str, Any]:
    """Settings that the numbers depend on."""
    facts = {"threads": options.threads, "clock": options.clock, "budget": options.budget}
    facts["attention"] = (options.attention or "by trial") + (", layers compiled" if options.compile else "")
    return Where.chosen(options).facts() | facts
