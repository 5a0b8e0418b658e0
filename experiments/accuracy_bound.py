"""What a trained model can have lost at most on problems that the base model masters, beside what it lost.

    python -m experiments.accuracy_bound STORED BASE RUN … --out FILE.csv     # measures
    python -m experiments.accuracy_bound --table FILE.csv --figure FILE.png   # prints and draws what was measured

STORED is a run of `dph presample` on the test problems (--task.split test): its near-perfect problems and the base
model's stored correct responses to them. BASE and RUN are runs of `dph eval` of the base model and of trained models on
the same problems, which chose none of them. docs/concepts/theory.md states and proves the bound.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from dph.cli.main import ending
from dph.config import ModelConfig
from dph.errors import UserError
from dph.models.policy import Policy
from dph.process.progress import progress, show_messages
from dph.rehearsal.presampled import Presampled
from dph.rehearsal.store import Rehearsal
from dph.report.data import EvalRun, read_eval
from dph.report.plots import canvas, tidy

TOKENS = 16_384
"""Tokens of a forward pass."""


@dataclass(frozen=True, slots=True)
class Point:
    """One trained model on the problems that its base model masters."""

    label: str
    problems: int
    base: float
    """Mean success of the base model."""
    trained: float
    divergence: float
    """K: mean of log π_base − log π of a correct response of the base model, summed over its tokens, in nats. Problems
    are weighted by the base model's success."""
    error: float
    """Standard error of K over problems."""

    @property
    def bound(self) -> float:
        """What the trained model's mean success is at least: base · e^−K."""
        return self.base * float(np.exp(-self.divergence))


def measure(stored: Path, base: Path, runs: Sequence[Path], temperature: float = 1.0) -> list[Point]:
    """A point for each run. Raises UserError if a run has other problems."""
    rows = Presampled.open(stored).stored
    mastered = sorted({row.problem_id for row in rows})
    before = _success(read_eval(base), mastered)
    points = []
    with progress("models", len(runs)) as shown:
        for run in map(read_eval, runs):
            gaps = divergences(Policy.load(ModelConfig(path=str(run.model))), rows, temperature)
            k = np.array([gaps[name] for name in mastered])
            after = _success(run, mastered)
            points.append(_point(run.label, before, after, k))
            shown.advance(1)
    return points


def divergences(policy: Policy, rows: Sequence[Rehearsal], temperature: float) -> dict[str, float]:
    """K of each problem: the mean over its stored responses of log π_ref − log π, summed over a response's tokens."""
    gaps: dict[str, list[float]] = defaultdict(list)
    for row, new in zip(rows, policy.response_logprobs(rows, temperature, TOKENS), strict=True):
        gaps[row.problem_id].append(sum(row.ref_logprobs) - sum(new))
    return {problem: float(np.mean(found)) for problem, found in gaps.items()}


def _point(label: str, before: np.ndarray, after: np.ndarray, k: np.ndarray) -> Point:
    weights = before / before.sum()
    mean = float(weights @ k)
    error = float(np.sqrt((weights**2 * (k - mean) ** 2).sum() * len(k) / (len(k) - 1)))
    return Point(label, len(k), float(before.mean()), float(after.mean()), mean, error)


def _success(run: EvalRun, problems: Sequence[str]) -> np.ndarray:
    rates = {row["id"]: row["correct"] / row["samples"] for row in run.problems}
    if missing := [name for name in problems if name not in rates]:
        raise UserError(f"{run.path} has no problem {missing[0]!r}; evaluate it on the problems of the presample run")
    return np.array([rates[name] for name in problems])


def table(points: Sequence[Point]) -> list[str]:
    """Markdown, the smallest divergence first."""
    lines = ["| model | K (nats) | success before | after | at least |", "|---|---:|---:|---:|---:|"]
    for point in sorted(points, key=lambda point: point.divergence):
        cells = (point.base, point.trained, point.bound)
        k = f"{point.divergence:.2f} ± {point.error:.2f}"
        lines.append(f"| {point.label} | {k} | " + " | ".join(f"{100 * cell:.1f}" for cell in cells) + " |")
    return lines


def figure(points: Sequence[Point], path: Path) -> None:
    """K against the success that is left, with the bound and Pinsker's as lines."""
    found = canvas(6.4, 4.4)
    axes = found.add_subplot()
    tidy(axes, "success on mastered problems that is left")
    k = np.linspace(0, max(1.0, *(1.3 * point.divergence for point in points)), 200)
    axes.plot(k, np.exp(-k), color="#222222", label="at least: exp(−K)")
    axes.plot(k, np.maximum(0, 1 - np.sqrt(k / 2)), color="#888888", linestyle="--", label="Pinsker: 1 − √(K/2)")
    left = [point.trained / point.base for point in points]
    axes.errorbar(
        [point.divergence for point in points],
        left,
        xerr=[1.96 * point.error for point in points],
        fmt="o",
        color="#0072B2",
        label="trained models",
    )
    axes.set_xlabel("K: divergence on the base model's correct responses (nats)", fontsize=10)
    axes.set_ylabel("share of the base model's success", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    found.savefig(path, dpi=150)


def write(points: Sequence[Point], path: Path) -> None:
    """As CSV, with a column for each field."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [item.name for item in fields(Point)])
        writer.writeheader()
        for point in points:
            writer.writerow({k: v if isinstance(v, str) else round(v, 5) for k, v in asdict(point).items()})


def read(path: Path) -> list[Point]:
    """Points as they were written. Raises UserError for another file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_parsed(row) for row in csv.DictReader(file)]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} holds no points of this command: {error}") from error


def _parsed(row: Mapping[str, str]) -> Point:
    return Point(row["label"], int(row["problems"]), *(float(row[item.name]) for item in fields(Point)[2:]))


def main(words: Sequence[str] | None = None) -> None:
    show_messages()
    parser = argparse.ArgumentParser("python -m experiments.accuracy_bound", description=__doc__)
    parser.add_argument("stored", type=Path, nargs="?")
    parser.add_argument("base", type=Path, nargs="?")
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args(words)
    if not options.table and not options.runs:
        parser.error("name STORED, BASE and a RUN, or --table FILE.csv")
    with ending("accuracy_bound"):
        points = read(options.table) if options.table else measure(options.stored, options.base, options.runs)
        if options.out:
            write(points, options.out)
        print(*table(points), sep="\n")
        if options.figure:
            figure(points, options.figure)


if __name__ == "__main__":
    main()
