# pyright: reportMissingImports=false
"""What the scripts of this folder share: the same training by TRL's trainer and with shared prompts, compared.

A script is written as users write it, with TRL's defaults, and says in `make` how a trainer is made. Everything here is
seen from outside: tokens by a hook on the embedding, log-probabilities by a hook on the model.
"""

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

TEXTS = ["easy 1 easy 2 easy 3 hard 4 easy 5 hard 6", "hard 2 easy 7 hard 3", "easy 4 hard 1 easy 6 hard 5 easy 2"]
RATIO = 1.5
"""Largest error of shared prompts relative to TRL's own, both against fp32."""


class Recorder(TrainerCallback):
    """Rows, tokens and log-probabilities of the passes with gradients of one trainer."""

    def __init__(self, made: Any) -> None:
        self.made, self.tokens, self.packed = made, 0, 0
        self.groups: dict[tuple[int, str], list[int]] = {}
        """Lengths of the responses to a prompt, by generation and prompt."""
        self.rows: list[tuple[str, list[int]]] = []
        """Prompts and responses of the first generation."""
        self.start = None if any(isinstance(x, DTensor) for x in made.model.parameters()) else copy.deepcopy(made.model)
        self.logprobs: list[torch.Tensor] = []
        self.first: torch.Tensor | None = None
        """Log-probabilities of the first optimizer step, sorted: rows are in another order with shared prompts."""
        made.add_callback(self)
        made.model.get_input_embeddings().register_forward_hook(self._count)
        made.model.register_forward_hook(self._note, with_kwargs=True)
        made.reward_funcs[0].recorder = self

    def _count(self, _: Any, inputs: tuple[torch.Tensor], __: Any) -> None:
        self.tokens += inputs[0].numel() * torch.is_grad_enabled()

    def _note(self, _: Any, __: Any, given: dict[str, Any], output: Any) -> None:
        if torch.is_grad_enabled() and getattr(output, "log_probs", None) is not None:
            self.packed += "prefix_layout" in given
            self.logprobs.append(output.log_probs.detach().float()[output.log_probs != 0])

    @torch.no_grad()
    def exact(self) -> torch.Tensor:
        """What transformers computes in fp32 for the first step, row by row, sorted."""
        assert self.start is not None
        model, found = self.start.float().eval(), []
        for prompt, response in self.rows:
            ids = torch.tensor([[*self.made.processing_class(prompt)["input_ids"], *response]])
            logprobs = model(input_ids=ids).logits[0, -len(response) - 1 : -1].log_softmax(-1)
            found.append(logprobs.gather(1, ids[0, -len(response) :, None]).squeeze(1))
        return torch.cat(found).sort().values

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if self.first is None:
            self.first = torch.cat(self.logprobs).sort().values


class Reward:
    """Some reward that differs between responses."""

    __name__ = "reward"
    recorder: Recorder | None = None
    calls = 0

    def __call__(self, prompts: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        if self.recorder is not None and self.recorder.made.model.training:
            self.calls += 1
            if self.calls == 1:
                self.recorder.rows = list(zip(map(str, prompts), completion_ids, strict=True))
            for prompt, ids in zip(prompts, completion_ids, strict=True):
                self.recorder.groups.setdefault((self.calls, str(prompt)), []).append(len(ids))
        return [float(ids[0] % 3) + 0.01 * len(ids) for ids in completion_ids]


def layout_tokens(recorder: Recorder) -> int:
    """Tokens of the packed layout: each prompt once without its last token, and one for each response token."""
    tokenizer = recorder.made.processing_class
    return sum(
        len(tokenizer(prompt)["input_ids"]) - 1 + sum(lengths) for (_, prompt), lengths in recorder.groups.items()
    )


def train(made: Any, **options: Any) -> Recorder:
    """A trainer's recorder after its training."""
    recorder = Recorder(made)
    made.train(**options)
    return recorder


def accept(make: Callable[[type], Any], ours: type, stock: type, iterations: int = 1, least: float = 0.4) -> Any:
    """Train with both trainers. Returns ours.

    Args:
        make: returns a trainer of a class; its reward function is a `Reward`, its prompts are of TEXTS.
        iterations: passes over each rollout.
        least: share of TRL's tokens that must be saved.
    """
    theirs, found = train(make(stock)), train(make(ours))
    report = found.made.shared_prefix_report()
    print(report, file=sys.stderr)
    assert not report.reasons, report
    assert found.packed and not theirs.packed
    assert found.tokens <= 1.05 * iterations * layout_tokens(found), (found.tokens, layout_tokens(found))
    assert found.tokens < (1 - least) * theirs.tokens, (found.tokens, theirs.tokens)
    assert theirs.first is not None and found.first is not None and theirs.rows == found.rows
    if found.start is None:  # sharded
        difference, allowed = (theirs.first - found.first).abs().max(), 0.03
    else:
        pairs = ((found, found.first), (theirs, theirs.first))
        difference, allowed = ((first - one.exact()).abs().max() for one, first in pairs)
    assert difference <= RATIO * allowed + 1e-5, (difference, allowed)
    logs = [one.made.state.log_history for one in (theirs, found)]
    first, other = (next(line for line in log if "loss" in line) for log in logs)  # when the weights are equal
    assert abs(first["grad_norm"] - other["grad_norm"]) < 0.05 * first["grad_norm"], (first, other)
    assert "shared_prefix/saved" in other and "shared_prefix/saved" not in first
    errors = f"log-probabilities to {difference:.1e} nats, TRL's to {allowed:.1e}"
    print(f"accepted: {found.tokens} of {theirs.tokens} tokens, {errors}")
    return found.made
