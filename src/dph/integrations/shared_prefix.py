"""Prompts computed once for all of their responses in the engines of other trainers: what the adapters of TRL and verl
have in common.

Rows of a micro-batch that have the same prompt are packed (see `dph.models.packing`) and go through the engine's own
call of the model. An adapter knows how its engine holds a batch, what its call of the model takes, and where it keeps
the values of response tokens. `PrefixSharing` refuses settings, tries a model, says why rows cannot be packed, and
counts what packing saves.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dph.engine import Packed, Sharing, Tokens, group_by_prompt, warn
from dph.errors import UserError


@dataclass
class SharedPrefixReport:
    """Tokens that sharing prompts saved in the passes for log-probabilities of one process, training and evaluation."""

    engine: str
    """The engine that would compute each prompt once for each response."""
    computed: int = 0
    """Tokens that went through the model."""
    stock: int = 0
    """Tokens that the engine itself passes through it."""
    passes: int = 0
    """Forward passes."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why passes computed the prompt once for each response, with their number."""
    scattered: str = ""
    """The reason if rows could be packed but no two rows of a micro-batch have the same prompt."""

    @property
    def saved(self) -> float:
        """Share of the engine's tokens that were not computed; 0 without a pass."""
        return (self.stock - self.computed) / max(1, self.stock)

    def __str__(self) -> str:
        alone = self.scattered and self.passes and self.computed == self.stock and not self.reasons
        reasons = {self.scattered: self.passes} if alone else self.reasons
        line = f"shared prompts: {self.computed:,} tokens computed, {self.stock:,} in {self.engine}"
        line += f" ({self.saved:.0%} saved)" if self.passes else ""
        return line + "".join(f"; not in {n} of {self.passes} passes, because {why}" for why, n in reasons.items())


class PrefixSharing:
    """Whether an engine may compute prompts once, in words for its users, and what this saves."""

    def __init__(self, engine: str, *, remedy: str, scattered: str = "", speaks: bool = True) -> None:
        """
        Args:
            engine: its name.
            remedy: what to do about a setting that is refused, after its reason.
            scattered: see SharedPrefixReport.
            speaks: whether this process prints messages.
        """
        self._remedy, self._speaks = remedy, speaks
        self._told: set[str] = set()
        self._trials: dict[int, list[Sharing]] = {}
        self.report = SharedPrefixReport(engine, scattered=scattered)

    def refuse(self, reasons: Mapping[str, bool]) -> None:
        """Raises UserError for the first reason that holds: with this setting packed rows would not be exact."""
        if reason := first_of(reasons):
            raise UserError(f"prompts cannot be shared: {reason}{self._remedy}")

    def tell(self, text: str, kind: str = "") -> None:
        """Warn, once of each kind, or of each text."""
        if (kind or text) not in self._told and self._speaks:
            warn(text)
        self._told.add(kind or text)

    def tell_saved(self) -> None:
        """Say, once, what was saved so far."""
        self.tell(str(self.report), kind="saved")

    def in_model(
        self, model: Any, examine: Callable[[], list[Sharing]], sizes: Sequence[int], over_ranks: Callable[..., Any]
    ) -> str | None:
        """Why rows of a model cannot be packed; None if they can. All processes call this together.

        Args:
            examine: makes the trials of the model, at the first call with it; all of them must pass.
            sizes: tokens of the longest row, and of the largest micro-batch, in this process.
            over_ranks: the largest of each size over all processes.
        """
        if id(model) not in self._trials:
            self._trials[id(model)] = examine()
        longest, tokens = over_ranks(sizes)
        reason = next(filter(None, (trial.obstacle(longest, tokens) for trial in self._trials[id(model)])), None)
        return reason and f"this model: {reason}"

    def count(self, passes: int, stock: int, computed: int, obstacle: str | None = None) -> None:
        """Note forward passes with their tokens, in the engine and as they were computed. obstacle: why all of these
        passes computed prompts once for each response, which is said once."""
        self.report.passes += passes
        self.report.stock += stock
        self.report.computed += computed
        if obstacle is not None:
            self.report.reasons[obstacle] += passes
            self.tell(f"prompts are computed once for each response, as in {self.report.engine}, because of {obstacle}")


def first_of(reasons: Mapping[str, bool]) -> str | None:
    """The first reason that holds; None if none does."""
    return next((reason for reason, holds in reasons.items() if holds), None)


def have_common_prompts(parts: Iterable[Sequence[Tokens]]) -> bool:
    """Whether any micro-batch has several rows with the same prompt."""
    return any(len(group_by_prompt(rows)) < len(rows) for rows in parts)


def packed_arguments(packed: Packed, device: torch.device | str) -> dict[str, Any]:
    """The arguments of a model's forward pass, inside `shared_attention`, for packed rows."""
    return {
        "input_ids": packed.input_ids.to(device),
        "position_ids": packed.position_ids.to(device),
        "prefix_layout": packed.layout.to(device),
    }
