"""A judge on trial: what it says to answers whose truth is known, counted by kind, in words and as JSON."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dph.errors import counted, one_line


@dataclass(frozen=True, slots=True)
class Tried:
    """An answer of known truth, and what the judge said to it."""

    type: str
    kind: str
    gold: str
    text: str
    right: bool
    paid: bool | None
    """None: the judge gave no verdict."""
    reward: float | None = None
    failure: str = ""
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        if self.paid is None:
            return "unjudged"
        return "as it should" if self.paid == self.right else "refused" if self.right else "paid"


@dataclass(frozen=True, slots=True)
class Tally:
    """The answers of one kind."""

    name: str
    right: int
    refused: int
    """Right answers that were not paid, although they were judged."""
    wrong: int
    paid: int
    """Wrong answers that were paid."""
    unjudged: int

    @staticmethod
    def of(name: str, tried: Sequence[Tried]) -> "Tally":
        outcomes = [one.outcome for one in tried]
        right = sum(one.right for one in tried)
        counts = (outcomes.count("refused"), outcomes.count("paid"), outcomes.count("unjudged"))
        return Tally(name, right, counts[0], len(tried) - right, counts[1], counts[2])


def tallies(tried: Sequence[Tried], by: str = "type") -> list[Tally]:
    """A tally of each type, or of each kind, those of most answers first, and one of all."""
    groups: dict[str, list[Tried]] = {}
    for one in tried:
        groups.setdefault(getattr(one, by), []).append(one)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [*(Tally.of(name, some) for name, some in ordered), Tally.of("all", tried)]


HARD = (
    "These answers are hard cases by design: right ones are written otherwise than the data set's, wrong ones are near "
    "misses. The shares compare judges; they are not those of a run."
)
_SHOWN = 5
"""Answers of each outcome that the text shows, from as many types as there are."""
_TOLD = ("type", "kind", "gold", "text", "reward", "failure")
_WIDTH = 100  # characters of an answer that are shown


def as_text(name: str, asked: str, tried: Sequence[Tried]) -> str:
    """The counts by type as a table, the failures, the time, and some answers that were judged wrongly.

    name: of the judge; asked: how it was asked, in words."""
    rows = [["answers by kind", "pairs", "right, refused", "wrong, paid", "not judged"]]
    for tally in tallies(tried):
        pairs = tally.right + tally.wrong
        refused, paid = _share(tally.refused, tally.right), _share(tally.paid, tally.wrong)
        rows.append([tally.name, str(pairs), refused, paid, _share(tally.unjudged, pairs)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{name}: {asked}", ""]
    lines += ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", *failures(tried), time_of(tried)]
    for outcome, title in (("paid", "wrong answers that are paid"), ("refused", "right answers that are refused")):
        some = _of_each_type([one for one in tried if one.outcome == outcome])
        lines += ["", f"{title}, for example:"] if some else []
        lines += [f"  {one.type}: {_short(one.text)}, where {_short(one.gold)} is right" for one in some]
    lines += ["", HARD]
    return "\n".join(lines)


def failures(tried: Sequence[Tried]) -> list[str]:
    """Why there is no verdict, the most frequent reason first; reasons that differ by a quotation or a number are
    one."""
    reasons: dict[str, list[str]] = {}
    for one in tried:
        if one.paid is None:
            reason = one.failure or "the function returned None"
            reasons.setdefault(re.sub(r"['\"].*['\"]|\d+", "", reason)[:40], []).append(reason)
    ordered = sorted(reasons.values(), key=len, reverse=True)
    lines = [f"not judged, {counted(len(some), 'time')}: {one_line(some[0], 160)}" for some in ordered[:_SHOWN]]
    rest = sum(map(len, ordered[_SHOWN:]))
    return [*lines, *([f"not judged, for other reasons: {counted(rest, 'time')}"] if rest else [])]


def time_of(tried: Sequence[Tried]) -> str:
    """How long the judge took for one answer, in words."""
    seconds = sorted(one.seconds for one in tried)
    late = seconds[min(len(seconds) - 1, len(seconds) * 99 // 100)]
    return (
        f"time of one answer: median {_milliseconds(median(seconds))}, 99 % below {_milliseconds(late)}, longest "
        f"{_milliseconds(seconds[-1])}; all {counted(len(seconds), 'answer')} {sum(seconds):.1f} s"
    )


def as_json(name: str, asked: str, tried: Sequence[Tried]) -> dict[str, Any]:
    """Everything that `as_text` has, by type and by kind, and every answer that was not judged as it should."""
    wrong = [one for one in tried if one.outcome != "as it should"]
    seconds = sorted(one.seconds for one in tried)
    return {
        "judge": name,
        "asked": asked,
        "by_type": [_plain(tally) for tally in tallies(tried)],
        "by_kind": [_plain(tally) for tally in tallies(tried, "kind")[:-1]],
        "seconds": {"median": median(seconds), "longest": seconds[-1], "all": sum(seconds)},
        "misjudged": [
            {"outcome": one.outcome}
            | {name: getattr(one, name) for name in ("type", "kind", "gold", "text", "reward", "failure")}
            for one in wrong
        ],
    }


def _plain(tally: Tally) -> dict[str, Any]:
    return {name: getattr(tally, name) for name in ("name", "right", "refused", "wrong", "paid", "unjudged")}


def _of_each_type(tried: Sequence[Tried]) -> list[Tried]:
    """Some of these, the first of each type before the second of any."""
    rank: dict[str, int] = {}
    ranked = []
    for one in tried:
        rank[one.type] = rank.get(one.type, 0) + 1
        ranked.append((rank[one.type], len(ranked), one))
    return [one for *_, one in sorted(ranked, key=lambda item: item[:2])[:_SHOWN]]


def _short(text: str) -> str:
    return one_line(text, _WIDTH)


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / of:.1f} %)" if of else "–"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"
