"""Run directories as a report reads them: evaluations, and the metrics of training runs."""

import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dph.config import read_settings
from dph.config.checks import unfinished
from dph.config.text import read_json
from dph.errors import RunError, SettingsError
from dph.measure.metrics import DIVERSITY_METRICS, METRICS, metric, summarise
from dph.measure.passk import mean_at_k, pass_at_k
from dph.process.places import check_links
from dph.runs.coverage import are_counts
from dph.runs.directory import RunDir, read_metrics, step_lines
from dph.runs.parquet import read_parquet, rows_of
from dph.tasks.tables import read_rows
from dph.types import UNSCORED, Outcome
from dph.verifiers import RULES

VERDICTS = "verdicts.jsonl"
"""The file of a run of `dph verify` that one of `dph eval` does not have."""
OF_FIGURES = "made by dph"
"""A mark in every figure, so that the picture of somebody else is not replaced."""
LAUNCH = "verl.toml"
"""The file of a launch of `dph verl` that a run directory of `dph train` does not have."""
_ROUNDING, _LARGEST_METRIC = 1e-6, 1e12
EVALUATE_AGAIN = "delete the run's directory and run `dph eval` again, or name the other runs only"


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A metric with its 95 % interval. low and high are NaN if no interval was computed."""

    mean: float
    low: float = math.nan
    high: float = math.nan
    problems: int = 0
    """The number of problems with the metric, over which the mean is taken; 0 if it is unknown."""
    of: int = 0
    """The number of all problems that were asked."""

    @property
    def over(self) -> str:
        """The number of problems, as "35 of 40", if some lack the metric."""
        return f"{self.problems} of {self.of}" if self.problems < self.of else ""


def range_of(name: str) -> tuple[float, float]:
    """The range of a metric. No interval leaves it."""
    return (0.0, metric(name).highest)


@dataclass(frozen=True, slots=True)
class Split:
    """The results of one evaluation on one split."""

    problems: int
    samples: int
    """The number of samples drawn for each problem."""
    metrics: Mapping[str, MetricValue]
    pass_curve: Mapping[int, MetricValue]
    style_shares: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class EvalRun:
    """A run directory of `dph eval`."""

    path: Path
    label: str
    model: Path
    """The model that was evaluated."""
    splits: Mapping[str, Split]
    problems: Sequence[Mapping[str, Any]]
    """Rows of problems.parquet: split, id, kind, a hash of the problem's content, samples, correct, greedy, styles,
    styles_correct and, if they were stored, prompt, answer and the measures of diversity."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """The versions of the rules of judging, by their names in the manifest of the run; empty without a manifest."""


@dataclass(frozen=True, slots=True)
class TrainRun:
    """A run directory of `dph train`, or a launch of `dph verl` that was trained."""

    path: Path
    label: str
    metrics: Sequence[Mapping[str, float]]
    """The lines of metrics.jsonl, oldest first."""


Answer = tuple[str, str, str, int, bool]
"""A distinct completion of a problem: text, outcome, style and reason of the verdict, count, whether it is greedy."""


def read_runs(paths: Sequence[Path]) -> tuple[list[EvalRun], list[TrainRun]]:
    """The evaluations and the training runs among directories, each in the given order. Raises UserError if a directory
    is missing, damaged or of another kind, and if none is an evaluation."""
    evals: list[EvalRun] = []
    trains: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise RunError(f"there is no run directory {path}; correct its path, or name the other runs only")
        check_links(path)
        if (path / "scores.json").exists():
            evals.append(read_eval(path))
        elif (path / "metrics.jsonl").exists():
            trains.append(path)
        else:
            wrong = f"{path} is not a finished run of `dph eval`, `dph verify` or `dph train`{unfinished(path)}"
            logs = sorted(log for name in ("scores.json", "metrics.jsonl") for log in path.glob(f"**/{name}"))
            inside = " ".join(shlex.quote(str(run)) for run in dict.fromkeys(log.parent for log in logs))
            raise RunError(f"{wrong}; {f'name the runs in it: {inside}' if inside else 'name the other runs only'}")
    if not evals:
        raise SettingsError("a report needs at least one run directory of `dph eval`; name one too")
    return evals, [_read_train(path, evals) for path in trains]


def read_eval(path: Path) -> EvalRun:
    """The run in a directory of `dph eval` or `dph verify`. Raises UserError if it is damaged."""
    file = path / "scores.json"
    scores = read_json(file, EVALUATE_AGAIN)
    if (path / VERDICTS).is_file():
        return _read_verify(path, scores)
    try:
        splits = {str(name): _read_split(split) for name, split in scores["splits"].items()}
        label, model = str(scores["label"]), Path(str(scores["model"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RunError(f"{file} is damaged ({type(error).__name__}: {error}); {EVALUATE_AGAIN}") from error
    if not splits:
        raise RunError(f"{file} holds no split; {EVALUATE_AGAIN}")
    columns = ["split", "id", "kind", "content", "samples", "correct", "greedy", "styles", "styles_correct"]
    problems = read_problems(
        path / "problems.parquet", columns, ("prompt", "answer", *DIVERSITY_METRICS), EVALUATE_AGAIN
    )
    return EvalRun(path, label, model, splits, problems, _rules(path))


def _rules(path: Path) -> dict[str, str]:
    """The versions of the rules of judging that the manifest of a run records."""
    if not (path / "manifest.json").is_file():
        return {}
    manifest = read_json(path / "manifest.json", EVALUATE_AGAIN)
    versions = manifest.get("versions") if isinstance(manifest, dict) else None
    return (
        {name: str(versions[name]) for name in RULES.values() if name in versions} if isinstance(versions, dict) else {}
    )


def _read_verify(path: Path, scores: Any) -> EvalRun:
    """A run of `dph verify` as an evaluation with one split, without greedy responses, styles and prompts."""
    by_id: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(path / VERDICTS, texts=("id", "outcome", "prediction")):
        by_id.setdefault(row["id"], []).append(row)
    try:
        split = str(scores["split"])
        problems = [{"split": split, "id": id} | _judged(rows) for id, rows in by_id.items()]
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged ({type(error).__name__}: {error}); run `dph verify` again") from error
    summary = _read_split(summarise(problems, max(map(len, by_id.values()))))
    predictions = Path(str(scores.get("predictions", "")))
    return EvalRun(path, path.name, predictions, {split: summary}, problems, _rules(path))


def _judged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    outcomes = [Outcome(row["outcome"]) for row in rows]
    scored = [outcome for outcome in outcomes if outcome not in UNSCORED]
    counts = {"samples": len(scored), "correct": outcomes.count(Outcome.CORRECT)}
    kind, answer = str(rows[0].get("difficulty") or ""), str(rows[0].get("gold"))
    return {"kind": kind, "content": "", **counts, "answer": answer}


def _read_split(split: Mapping[str, Any]) -> Split:
    problems = int(split["problems"])
    if wrong := [k for k in split["pass_curve"] if not _SAMPLES.fullmatch(k)]:
        raise ValueError(f"there is no pass@{wrong[0]:.100}")
    if wrong := [name for name in split["metrics"] if name.startswith(("pass@", "mean@")) and not _OF.fullmatch(name)]:
        raise ValueError(f"there is no metric {wrong[0]:.100}")
    curve = {int(k): _share(_value(value, problems)) for k, value in split["pass_curve"].items()}
    return Split(
        problems=problems,
        samples=int(split["samples"]),
        metrics={name: _value(value, problems) for name, value in split["metrics"].items()},
        pass_curve=dict(sorted(curve.items())),
        style_shares={
            name: _share(MetricValue(_finite(float(x)))).mean for name, x in split.get("style_shares", {}).items()
        },
    )


_SAMPLES, _OF = re.compile(r"[1-9][0-9]{0,6}"), re.compile(r"(pass|mean)@[1-9][0-9]{0,6}")


def _share(value: MetricValue) -> MetricValue:
    """The value, if it lies from 0 to 1 up to rounding. Raises ValueError otherwise."""
    if not -_ROUNDING <= value.mean <= 1 + _ROUNDING:
        raise ValueError(f"{value.mean:g} is no share")
    return value


def values_of(rows: Sequence[Sequence[Mapping[str, Any]]], metric: str) -> np.ndarray:
    """A metric of every problem in every run, [runs, problems]. metric: "pass@k", "mean", "mean@n", or a column of
    problems.parquet. The value is NaN for a problem without the metric."""
    name, _, k = metric.partition("@")
    if name not in ("pass", "mean"):
        return column(rows, lambda row: math.nan if row.get(metric) is None else float(row[metric]))
    samples, correct = (column(rows, lambda row, key=key: row[key]) for key in ("samples", "correct"))
    values = np.full(samples.shape, math.nan)
    if (enough := samples >= (int(k) if name == "pass" else 1)).any():
        counts = samples[enough], correct[enough]
        values[enough] = pass_at_k(*counts, int(k)) if name == "pass" else mean_at_k(*counts)
    return values


def _value(value: Mapping[str, Any], of: int) -> MetricValue:
    """A metric as scores.json has it, of a split with `of` problems."""
    mean, low, high = (_finite(float(value[end])) for end in ("mean", "low", "high"))
    over = int(value.get("problems", of))  # resamples of one problem are all equal
    return MetricValue(mean, low, high, over, of) if over != 1 else MetricValue(mean, problems=over, of=of)


def _finite(value: float) -> float:
    if not abs(value) <= _LARGEST_METRIC:
        raise ValueError(f"{value} is neither a share nor a metric")
    return value


def read_problems(
    file: Path,
    columns: Sequence[str],
    optional: Sequence[str],
    remedy: str,
    only: tuple[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """The rows of a table about problems or completions. Columns that are `optional` may be absent. Raises UserError
    with the remedy if the file is missing or damaged."""
    try:
        rows = rows_of(read_parquet(file, columns, optional, only))
    except FileNotFoundError as error:
        raise RunError(f"{file} is missing; {remedy}") from error
    except (OSError, ValueError) as error:
        raise RunError(f"{file} is damaged ({error}); {remedy}") from error
    for number, row in enumerate(rows, 1):
        for name, types in _TYPES.items():
            if name in row and not isinstance(row[name], types):
                raise RunError(f"{file} is damaged (row {number}: {name} is {row[name]!r:.100}); {remedy}")
        if "correct" in row and not are_counts(row["correct"], row["samples"]):
            counts = f"{row['correct']} of {row['samples']} samples are correct"
            raise RunError(f"{file} is damaged (row {number}: {counts}); {remedy}")
    return rows


_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("split", "id", "text", "outcome"), (str,)),
    **dict.fromkeys(("kind", "style", "detail"), (str, type(None))),
    **dict.fromkeys(("samples", "correct", "sample", "seed"), (int,)),
    **dict.fromkeys((entry.name for entry in METRICS), (int, float, type(None))),
    "greedy": (bool, type(None)),
}
"""The types of the values in each column of the tables of an evaluation."""


def _read_train(path: Path, evals: Sequence[EvalRun]) -> TrainRun:
    launched = (path / LAUNCH).is_file()
    if not launched:
        RunDir.open(path, "train")
    metrics = _read_verl(path) if launched else read_metrics(path)
    if not metrics:
        raise RunError(f"{path / 'metrics.jsonl'} has no lines yet; wait for the first step, or leave {path} out")
    # A training run has the label under which its model was evaluated.
    inside = [run.label for run in evals if _real(run.model).is_relative_to(_real(path))]
    settings = path / (LAUNCH if launched else "config.toml")
    label = inside[0] if inside else str(read_settings(settings).get("method") or path.name)
    return TrainRun(path, label, metrics)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike Path.resolve, this also resolves links that lead to each other


_OF_VERL = re.compile(r"val-core/(?:(?P<set>monitor/[^/]+)|[^/]+)/(?:acc|reward)/(?P<name>(?:pass|mean)@\d+)")


def _read_verl(launch: Path) -> list[dict[str, float]]:
    """The metrics that verl logged in a launch of `dph verl`, before and after it was started again. The validation
    metrics get the names that `dph train` gives them."""
    steps: dict[int, dict[str, float]] = {}
    for file in ("metrics-before.jsonl", "metrics.jsonl"):
        for line, row in step_lines(launch / file):
            if not isinstance(row.get("data"), Mapping):
                raise RunError(f"{launch / file} is not what verl writes: {line:.80}; name the other runs only")
            named = {
                f"{match['set'] or 'eval'}/{match['name']}" if (match := _OF_VERL.fullmatch(name)) else name: value
                for name, value in row["data"].items()
            }
            steps.setdefault(row["step"], {"step": row["step"]}).update(named)
    return [steps[step] for step in sorted(steps)]


def read_answers(run: EvalRun, split: str) -> dict[str, list[Answer]]:
    """The completions of each problem. Equal ones are counted together. Correct completions come first. Among these,
    and among the others, the greedy completion comes first, and then the most frequent."""
    counts: dict[str, Counter[tuple[str, str, str]]] = {}
    greedy: dict[str, tuple[str, str, str]] = {}
    for row in _completions(run, split):
        key = (row["text"], row["outcome"], " · ".join(filter(None, (row["style"], row.get("detail")))))
        if row["sample"] < 0:
            greedy[row["id"]] = key
        else:
            counts.setdefault(row["id"], Counter())[key] += 1
    answers: dict[str, list[Answer]] = {}
    for problem in counts.keys() | greedy.keys():
        drawn = counts.get(problem, Counter())
        best = greedy.get(problem)
        first: list[Answer] = [(*best, drawn.pop(best, 0), True)] if best is not None else []
        remaining = [(*key, count, False) for key, count in drawn.most_common()]
        answers[problem] = sorted(first + remaining, key=lambda answer: answer[1] != Outcome.CORRECT)
    return answers


def _completions(run: EvalRun, split: str) -> list[dict[str, Any]]:
    """The completions of a split with their outcomes and, if they were stored, the reasons of the outcomes."""
    if (run.path / VERDICTS).is_file():
        rows = read_rows(run.path / VERDICTS, texts=("id", "outcome", "prediction"))
        return [row | {"text": row["prediction"], "style": "", "sample": number} for number, row in enumerate(rows)]
    columns, of_split = ["split", "id", "sample", "text", "outcome", "style"], ("split", [split])
    return read_problems(run.path / "completions.parquet", columns, ("detail",), EVALUATE_AGAIN, of_split)


def monitored_metric(trains: Sequence[TrainRun], prefix: str = "eval/") -> str:
    """The metric of a set to show through training: pass@8, or the largest measured pass@k below it; "" without one."""
    measured = {name.removeprefix(prefix) for run in trains for row in run.metrics for name in row}
    return next((f"pass@{k}" for k in (8, 4, 2, 1) if f"pass@{k}" in measured), "")


def monitored_prefixes(trains: Sequence[TrainRun]) -> list[str]:
    """The prefixes of the metrics of all sets that were measured through training: "eval/", "monitor/NAME/"."""
    names = dict.fromkeys(name for run in trains for row in run.metrics for name in row)
    found = [re.match(r"(eval/|monitor/[^/]+/)pass@", name) for name in names]
    return list(dict.fromkeys(match[1] for match in found if match))


def by_label(runs: Sequence[EvalRun]) -> dict[str, list[EvalRun]]:
    """The runs by label, in the order of first appearance. Runs with one label are seeds of one method."""
    labels = dict.fromkeys(run.label for run in runs)
    return {label: [run for run in runs if run.label == label] for label in labels}


def aligned_rows(runs: Sequence[EvalRun], split: str) -> list[list[Mapping[str, Any]]]:
    """The problem rows of several runs, in the order of their ids. Raises RunError if the runs have other problems."""
    rows = [sorted((row for row in run.problems if row["split"] == split), key=lambda row: row["id"]) for run in runs]
    for run, problems in zip(runs[1:], rows[1:], strict=True):
        if [row["id"] for row in problems] != [row["id"] for row in rows[0]]:
            both = f"{run.path} and {runs[0].path} were not evaluated on the same problems of {split!r}"
            raise RunError(f"{both}; evaluate both with the same task settings")
    return rows


def check_contents(runs: Sequence[EvalRun]) -> None:
    """Raise RunError if problems with one id have another prompt, answer, verifier or database in two runs."""
    seen: dict[tuple[str, str], tuple[EvalRun, Mapping[str, Any]]] = {}
    for run in runs:
        for row in run.problems:
            first, before = seen.setdefault((row["split"], row["id"]), (run, row))
            # a run of `dph verify` has no prompts, and so no hash of the whole problem
            compared = "content" if row["content"] and before["content"] else "answer"
            if row.get(compared) != before.get(compared):
                raise RunError(
                    f"{run.path} and {first.path} were evaluated on different problems: {row['id']!r} of "
                    f"{row['split']!r} has another prompt, answer, verifier or database; evaluate both on the same data"
                )


def unlike_rules(runs: Sequence[EvalRun]) -> str:
    """A sentence on runs that were judged by different versions of the rules of a verifier, so that their scores cannot
    be compared; "" if there are none. A run that records no version is left out."""
    unlike = list[str]()
    for name in RULES.values():
        of_version: dict[str, EvalRun] = {}
        for run in runs:
            if name in run.rules:
                of_version.setdefault(run.rules[name], run)
        if len(of_version) > 1:
            unlike.append(f"{name} " + " but ".join(f"{version} in {run.path}" for version, run in of_version.items()))
    if not unlike:
        return ""
    return f"the runs were judged by different rules ({'; '.join(unlike)}): evaluate them again with one version"


def column(rows: Sequence[Sequence[Mapping[str, Any]]], value: Callable[[Mapping[str, Any]], float]) -> np.ndarray:
    """A number for every problem of every run, [runs, problems]."""
    return np.array([[value(row) for row in run] for run in rows], dtype=float)
