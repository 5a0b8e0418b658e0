"""Summarises the verdicts of `dph verify`: totals with intervals, by difficulty and by outcome."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dph.config import VerifyConfig
from dph.evaluation.wilson import wilson_interval
from dph.types import UNPARSED, UNSCORED, Problem, Verdict
from dph.verifiers.sql.rules import get_rule

_LEVELS = ("easy", "simple", "medium", "moderate", "hard", "challenging", "extra")
"""The difficulty levels of Spider and BIRD, from easy to hard; other levels follow in alphabetical order."""


@dataclass(frozen=True, slots=True)
class JudgedProblem:
    """One problem's predictions with their verdicts."""

    problem: Problem
    texts: Sequence[str]
    verdicts: Sequence[Verdict]
    flags: Sequence[str]
    """Why the gold answer may judge wrongly."""

    @property
    def difficulty(self) -> str:
        return str(self.problem.meta.get("difficulty", ""))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per prediction."""
        for sample, (text, verdict) in enumerate(zip(self.texts, self.verdicts, strict=True)):
            yield {
                "id": self.problem.id,
                "sample": sample,
                "outcome": str(verdict.outcome),
                "correct": verdict.correct,
                "reward": verdict.reward,
                "detail": verdict.detail,
                "difficulty": self.difficulty,
                "db_id": self.problem.meta.get("db_id"),
                "gold_flags": [str(flag) for flag in self.flags],
                "prediction": text,
                "gold": self.problem.answer,
            }


def summarise(config: VerifyConfig, judged: Sequence[JudgedProblem], excluded: Mapping[str, str]) -> dict[str, Any]:
    """The content of scores.json (layout: docs/guides/verify.md)."""
    samples = max(len(item.verdicts) for item in judged)
    levels = sorted({item.difficulty for item in judged} - {""})
    levels.sort(key=lambda level: _LEVELS.index(level) if level in _LEVELS else len(_LEVELS))
    by_level = {level: [item for item in judged if item.difficulty == level] for level in levels}
    return {
        "predictions": config.predictions,
        "task": config.task.name,
        "split": config.task.split,
        "rules": _rules(config, judged),
        "problems": len(judged),
        "samples": samples,
        "metrics": _metrics(judged, samples),
        "by_difficulty": {
            level: {"problems": len(items), "metrics": _metrics(items, samples)} for level, items in by_level.items()
        },
        "outcomes": dict(Counter(str(verdict.outcome) for item in judged for verdict in item.verdicts).most_common()),
        "unparsed": sum(verdict.detail == UNPARSED for item in judged for verdict in item.verdicts),
        "gold_flags": dict(Counter(str(flag) for item in judged for flag in item.flags).most_common()),
        "excluded": dict(excluded),
    }


def _rules(config: VerifyConfig, judged: Sequence[JudgedProblem]) -> dict[str, str]:
    """The rule of each verifier that judged a problem."""
    rule = get_rule(config.verifier.comparator)
    sql = f"{rule.name}@{rule.version}" + (" keep_distinct" if config.verifier.keep_distinct else "")
    suite = ", on every test-suite database" if any("suite" in item.problem.meta for item in judged) else ""
    named = {"sql": sql + suite, "math": config.verifier.policy}
    names = sorted({item.problem.verifier for item in judged})
    return {name: named.get(name, name) for name in names}


def _metrics(items: Sequence[JudgedProblem], samples: int) -> dict[str, Any]:
    """With one prediction per problem: "accuracy" with a Wilson interval; else mean@n and pass@k with bootstrap
    intervals.

    A problem counts towards pass@k only if at least k of its predictions were judged, and towards the others only if
    one was; "problems" is the number of those that count, if some do not.
    """
    pairs = [(sum(v.scored for v in item.verdicts), sum(v.correct for v in item.verdicts)) for item in items]
    counts = [(scored, correct) for scored, correct in pairs if scored]
    if not counts:
        return {}
    if samples == 1:
        accuracy = wilson_interval(sum(correct for _, correct in counts), len(counts))
        intervals = {"accuracy": (accuracy, len(counts))}
    else:
        from dph.evaluation.intervals import bootstrap_interval  # which loads numpy
        from dph.evaluation.passk import sample_metrics

        metrics = sample_metrics(counts, samples)
        intervals = {name: (bootstrap_interval(values), len(values)) for name, values in metrics.items()}
    return {
        name: {"mean": interval.estimate, "low": interval.low, "high": interval.high}
        | ({"problems": problems} if problems < len(items) else {})
        for name, (interval, problems) in intervals.items()
    }


def table_of(summary: Mapping[str, Any]) -> str:
    """The summary as text: a row for all problems and one per difficulty, then outcomes and remarks on gold answers."""
    rules = ", ".join(f"{task} by {rule}" for task, rule in summary["rules"].items())
    each = f", up to {summary['samples']} predictions each" if summary["samples"] > 1 else ""
    lines = [f"{summary['task']} {summary['split']}: {summary['problems']} problems{each}; {rules}", ""]
    rows = {"all": {"problems": summary["problems"], "metrics": summary["metrics"]}, **summary["by_difficulty"]}
    names = list(summary["metrics"])
    cells = {name: [_cell(row["metrics"].get(metric)) for metric in names] for name, row in rows.items()}
    first, width = max(map(len, rows)), max([21, *(len(cell) for row in cells.values() for cell in row)])
    lines.append(f"{'':{first}}  problems" + "".join(f"  {name:>{width}}" for name in names))
    for name, row in rows.items():
        lines.append(f"{name:{first}}  {row['problems']:>8}" + "".join(f"  {cell:>{width}}" for cell in cells[name]))
    total = sum(summary["outcomes"].values())
    counted = [f"{name} {count} ({100 * count / total:.1f} %)" for name, count in summary["outcomes"].items()]
    lines += ["", "percent with 95 % intervals; outcomes: " + ", ".join(counted)]
    if summary["gold_flags"]:
        flagged = ", ".join(f"{count} {_FLAGS.get(name, name)}" for name, count in summary["gold_flags"].items())
        lines.append(f"doubtful gold queries: {flagged}")
    if summary["excluded"]:
        lines.append(f"{len(summary['excluded'])} problems are left out because their gold answer fails")
    unjudged = sum(summary["outcomes"].get(str(outcome), 0) for outcome in UNSCORED)
    if unjudged:
        lines.append(f"{unjudged} predictions could not be judged and are not counted")
    return "\n".join(lines)


_FLAGS = {
    "empty": "with an empty result",
    "changes": "that ask for the time or for random numbers",
    "limit_ties": "whose LIMIT cuts through a tie",
    "order_ties": "whose ORDER BY leaves a tie",
}


def _cell(value: Mapping[str, float] | None) -> str:
    if value is None:
        return "–"
    over = f"; {value['problems']} problems" if "problems" in value else ""
    return f"{100 * value['mean']:.1f} ({100 * value['low']:.1f}–{100 * value['high']:.1f}{over})"
