"""Which failure is my run? Five ways in which training with verifiable rewards fails, told by what the trainer logged.

Each has a rule on numbers of the log, which are shown. The first and the last fifth of the logged steps are compared,
by their medians. The rules are rules of thumb: what they find should be looked at, and what they do not find may be
there.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from dph.measure.curves import Group, TrainerLog

State = Literal["found", "not seen", "not known"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What the log says about one failure."""

    name: str
    state: State
    detail: str
    """The numbers that show it, or what the log lacks."""
    page: str
    """The page that helps."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The medians of a curve over the first and the last fifth of its steps."""

    first: float
    last: float
    steps: int
    """How many steps have a value."""
    lowest: float
    highest: float


def ends_of(curve: Mapping[int, float]) -> Ends:
    values = [curve[step] for step in sorted(curve)]
    part = max(1, len(values) // 5)
    return Ends(median(values[:part]), median(values[-part:]), len(values), min(values), max(values))


LESS_ENTROPY, LOW_ENTROPY = 0.3, 0.02
"""Entropy that fell below this share of its beginning, or, in nats, below this value, has collapsed."""
FEWER_RESPONSES = 0.5
"""So have groups with less than this share of different responses, if they had twice as many."""
LONGER, CUT = 1.5, 0.1
"""Responses ran away if they are this many times as long, and at least this share is cut off."""
MOSTLY_CUT = 0.3
DEAD = 0.8
"""Groups are dead if at least this share of them has one reward only."""
NOTHING_PAID, UNREAD = 0.01, 0.2
"""The judge cannot read if it pays less than this in the mean, or if this share of what it does not pay ends with the
right answer."""
GAP, GROWN_GAP = 0.05, 0.02
"""The sampler drifts if its log-probabilities are this far from the trainer's, in nats; or this far, and twice as far
as in the beginning."""


def diagnose(log: TrainerLog) -> list[Failure]:
    """The five failures, each with its state."""
    ends = {name: ends_of(curve) for name, curve in log.curves.items()}
    return [
        _collapse(ends),
        _length(ends),
        _dead(ends),
        _unread(ends, log.groups),
        _drift(ends),
    ]


Curves = Mapping[str, Ends]


def _told(
    name: str, page: str, curves: Curves, needed: tuple[str, ...], rule: Callable[[], tuple[bool, list[str]]]
) -> Failure:
    """The failure by its rule, or what the log lacks for it. needed: curves of which one is enough."""
    if not any(each in curves for each in needed):
        return Failure(
            name, "not known", f"the log has no {' and no '.join(name.partition(',')[0] for name in needed)}", page
        )
    found, details = rule()
    return Failure(name, "found" if found else "not seen", "; ".join(details), page)


def _collapse(curves: Curves) -> Failure:
    def rule() -> tuple[bool, list[str]]:
        found, details = False, []
        if entropy := curves.get("entropy, nats"):
            less = entropy.steps > 1 and entropy.last < LESS_ENTROPY * entropy.first
            found |= less or entropy.last < LOW_ENTROPY
            details.append(_change("entropy", entropy, "nats per token"))
        if different := curves.get("different responses"):
            found |= different.last < FEWER_RESPONSES and 2 * different.last <= different.first
            details.append(_change("different responses of a group", different, share=True))
        for name, curve in curves.items():
            if name.startswith("pass@") and curve.steps > 1:
                details.append(_change(name, curve, share=True))
        return found, details

    needed = ("entropy, nats", "different responses")
    return _told("collapse onto one answer", "docs/guides/methods.md#which-method-should-i-use", curves, needed, rule)


def _length(curves: Curves) -> Failure:
    def rule() -> tuple[bool, list[str]]:
        length, unit = curves.get("response length"), "tokens"
        if length is None:
            length, unit = curves.get("response length, characters"), "characters"
        cut = curves.get("cut responses")
        details = [_change("mean response", length, unit)] if length else []
        details += [_change("cut off", cut, share=True)] if cut else []
        longer = length is not None and length.steps > 1 and length.last >= LONGER * length.first
        share = cut.last if cut else 0.0
        return (longer and share >= CUT) or share >= MOSTLY_CUT or (longer and not cut), details

    needed = ("response length", "cut responses", "response length, characters")
    return _told("length run-away", "docs/guides/troubleshooting.md#during-a-run", curves, needed, rule)


def _dead(curves: Curves) -> Failure:
    def rule() -> tuple[bool, list[str]]:
        constant = curves["constant groups"]
        details = [_change("groups with one reward only, which give no gradient,", constant, share=True)]
        if reward := curves.get("reward"):
            details.append(_change("reward", reward))
        return constant.last >= DEAD, details

    page = "docs/guides/troubleshooting.md#during-a-run"
    return _told("dead groups", page, curves, ("constant groups",), rule)


def _unread(curves: Curves, groups: list[Group]) -> Failure:
    def rule() -> tuple[bool, list[str]]:
        found, details = False, []
        if reward := curves.get("reward"):
            found = reward.highest < NOTHING_PAID
            details.append(f"mean reward at most {reward.highest:.3g}" if found else _change("reward", reward))
        if unread := curves.get("unread answers"):
            found |= unread.last >= UNREAD
            details.append(_change("answers that it could not read", unread, share=True))
        unpaid, right = unpaid_with_gold(groups)
        if unpaid >= 10:
            found |= right >= UNREAD * unpaid
            details.append(f"{right} of {unpaid} responses that got the least end with the right answer")
        return found, details

    page = "docs/guides/verdicts.md#try-any-judge"
    return _told("judge that cannot read", page, curves, ("reward", "unread answers"), rule)


def _drift(curves: Curves) -> Failure:
    def rule() -> tuple[bool, list[str]]:
        gap = curves["sampler's gap"]
        grown = gap.last >= GROWN_GAP and gap.steps > 1 and gap.last >= 2 * gap.first
        return gap.last >= GAP or grown, [_change("distance of the sampler's (log-)probability", gap)]

    return _told("sampler that drifts", "docs/guides/hardware.md#precision", curves, ("sampler's gap",), rule)


def unpaid_with_gold(groups: list[Group]) -> tuple[int, int]:
    """How many responses got the least reward where the right answer is known, and in how many of them it stands in
    the last line."""
    known = [group for group in groups if group.gold.strip()]
    rewards = [reward for group in known for reward in group.rewards if not math.isnan(reward)]
    if not rewards:
        return 0, 0
    least = min(rewards)
    unpaid = [
        (group.gold.strip(), response)
        for group in known
        for response, reward in zip(group.responses, group.rewards, strict=True)
        if reward == least
    ]
    return len(unpaid), sum(_ends_with(response, gold) for gold, response in unpaid)


def _ends_with(response: str, gold: str) -> bool:
    """Whether a text, and no longer word or number, stands in the last line of a response."""
    line = next((line for line in reversed(response.splitlines()) if line.strip()), "")[-200:]
    return bool(re.search(rf"(?<![\w.,]){re.escape(gold)}(?![\w]|[.,]\d)", line))


def _change(name: str, ends: Ends, unit: str = "", *, share: bool = False) -> str:
    shown = [f"{100 * value:.0f} %" if share else f"{value:.3g}" for value in (ends.first, ends.last)]
    behind = f" {unit}" if unit else ""
    return f"{name} {shown[0]} → {shown[1]}{behind}" if ends.steps > 1 else f"{name} {shown[0]}{behind}"


def as_text(name: str, log: TrainerLog, failures: list[Failure]) -> str:
    """The curves and the failures in words."""
    steps = log.steps
    over = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    lines = [f"{name}: {', '.join(log.sources)}; {over}", ""]
    rows = [("medians of", "the first fifth", "the last fifth", "steps")]
    for curve, values in log.curves.items():
        ends = ends_of(values)
        rows.append((curve, f"{ends.first:.3g}", f"{ends.last:.3g}", str(ends.steps)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.append("")
    for failure in failures:
        lines.append(f"{failure.state:<9}  {failure.name}: {failure.detail}")
        lines += [f"{'':<11}→ {failure.page}"] if failure.state == "found" else []
    return "\n".join(lines)


def as_json(name: str, log: TrainerLog, failures: list[Failure]) -> dict[str, Any]:
    """The same, with every value of each curve."""
    return {
        "run": name,
        "sources": log.sources,
        "curves": {curve: sorted(map(list, values.items())) for curve, values in log.curves.items()},
        "failures": [
            {"name": each.name, "state": each.state, "detail": each.detail, "page": each.page} for each in failures
        ],
    }
