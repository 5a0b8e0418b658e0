"""Counts of finished runs in one Parquet file, from which every table can be computed again without training.

A folder of counts holds a file for each study, named like its grid; a study from another start (base model, processor)
has a folder of its own. A published file is never rewritten. It has a row for each run, training seed (0 for a base
model) and problem:

    run, seed                        an arm, a base model, or BASE-again, the second evaluation of a base model
    split, id, kind, content         content: hash of the problem, where the evaluation recorded it
    samples, correct, greedy         judged samples, correct ones, whether the greedy response is correct
    styles, styles_correct           distinct styles among 32 samples, and among the correct ones of these
    style_counts                     JSON: how many of all correct samples have each style; in files since this was kept
    distinct_sql …                   the measures of diversity, to three decimals
    settings                         JSON: the settings of each stage that made the run, without the place of the data
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dph.config import to_dict
from dph.errors import RunError, UserError
from dph.measure.metrics import DIVERSITY_METRICS, powers_of_two
from dph.measure.passk import mean_at_k, pass_at_k
from dph.process.progress import say
from dph.report.data import EvalRun, MetricValue, Split, read_problems
from dph.runs.files import lock, unlock, written_atomically
from experiments.finished import Counts, Results
from experiments.plan import AGAIN, Choice, RunPaths, check_same, check_settings, settings_of, stages_of


@contextmanager
def waiting_for(folder: Path) -> Iterator[None]:
    """Hold the lock on a directory, waiting for its current owner first. Raises OSError as `lock` does."""
    said = False
    while True:
        try:
            lock(folder)
            break
        except RunError as error:
            if not said:
                say(f"waiting: {error}")
            said = True
            time.sleep(0.5)
    try:
        yield
    finally:
        unlock(folder)


_OPTIONAL = ("kind", "content", "style_counts", *DIVERSITY_METRICS)
_COLUMNS = (
    *("split", "id", "kind", "content", "samples", "correct", "greedy", "styles", "styles_correct", "style_counts"),
    *DIVERSITY_METRICS,
)
_DECIMALS = 3
_DICTIONARY_BYTES = 2**26
"""Room for the settings of all runs of a file, so that each is stored once."""
_COPY_AGAIN = "copy the file of counts again"


def counts_file(choice: Choice, folder: Path) -> Path:
    """The file of a study's counts."""
    return folder / f"{choice.grid.name}.parquet"


def write_counts(results: Results, paths: RunPaths, folder: Path, counts: Counts) -> None:
    """Write the counts of all runs that the results have, those read from counts among them, with their settings;
    nothing if no arm was run here. Base models that have counts keep them, and retired arms are left out.

    Raises UserError when the runs had other settings than the grid has now.
    """
    runs: dict[str, dict[int, EvalRun]] = {
        name: {0: run} | dict(counts.get(name, {}))
        for base, run in results.bases.items()
        for name, run in ((base, run), (_again(base), results.again.get(base)))
        if run is not None
    }
    arms = {name: dict(zip(results.seeds[name], found, strict=True)) for name, found in results.arms.items()}
    made = {name: tuple(seed for seed, run in found.items() if run.path.is_dir()) for name, found in arms.items()}
    made = {name: seeds for name, seeds in made.items() if seeds}
    if not made:
        return
    check_settings(replace(results.choice, arms=made), paths, "choose another --out")
    arms = {name: found for name, found in arms.items() if not results.arm(name).retired}
    every = replace(results.choice, arms={name: tuple(found) for name, found in arms.items()}, data="")
    settings = {name: json.dumps(stages) for name, stages in _settings(every).items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_table(counts_file(every, folder), runs | arms, settings)


def write_table(file: Path, runs: Mapping[str, Mapping[int, EvalRun]], settings: Mapping[str, str]) -> None:
    """Write evaluations by name and seed, with the settings of each name."""
    rows = [
        {"run": name, "seed": seed} | _rounded(row)
        for name, by_seed in runs.items()
        for seed, run in sorted(by_seed.items())
        for row in _with_styles(run)
    ]
    names = [name for name in ("run", "seed", *_COLUMNS) if any(name in row for row in rows)]
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    table = table.append_column("settings", pa.array([settings[row["run"]] for row in rows]).dictionary_encode())
    with written_atomically(file) as temporary:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            compression_level=19,
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
            row_group_size=len(rows),
        )


def styles_of(evaluation: Path) -> dict[tuple[str, str], dict[str, int]]:
    """How many correct samples of an evaluation have each style, by split and problem; {} without its completions."""
    if not (evaluation / "completions.parquet").exists():
        return {}
    columns, counts = ["split", "id", "sample", "outcome", "style"], dict[tuple[str, str], Counter[str]]()
    for row in pq.read_table(evaluation / "completions.parquet", columns=columns).to_pylist():
        own = counts.setdefault((row["split"], row["id"]), Counter())
        own[row["style"]] += row["sample"] >= 0 and row["outcome"] == "correct"
    return {key: {style: own[style] for style in sorted(own) if style and own[style]} for key, own in counts.items()}


def _with_styles(run: EvalRun) -> list[dict[str, Any]]:
    """The rows of the problems, with the counts of their styles if the completions are there."""
    styles = styles_of(run.path)
    found = {key: {"style_counts": json.dumps(own)} for key, own in styles.items()}
    return [dict(row) | found.get((row["split"], row["id"]), {}) for row in run.problems]


def _again(base: str) -> str:
    return f"{base}-again"


def _settings(choice: Choice) -> dict[str, dict[str, Any]]:
    """The settings of each stage that makes a run, by the name of the run; retired arms are left out."""
    grid, configs = choice.grid, settings_of(choice)
    runs = {base.name: stages_of(grid, base) for base in choice.bases()}
    runs |= {_again(name): stages for name, stages in runs.items()}
    arms = {name: grid.arms[name] for name in choice.arms if not grid.arms[name].retired}
    runs |= {name: stages_of(grid, grid.bases[arm.base], arm) for name, arm in arms.items()}
    return {
        run: {stage: to_dict(configs[stage, name]) for stage, name in stages.items()} for run, stages in runs.items()
    }


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, _DECIMALS) if isinstance(value, float) else value
        for name, value in ((name, row[name]) for name in _COLUMNS if name in row)
    }


def recorded_settings(file: Path) -> dict[str, dict[str, Any]]:
    """The settings of each run in a file of counts, by stage. Raises UserError when the file is missing or damaged."""
    try:
        columns = ["run", "settings"]
        table = pq.read_table(file, columns=columns, read_dictionary=columns).unify_dictionaries().combine_chunks()
        run, settings = (table.column(name).chunk(0) for name in columns)
        pairs = dict(zip(run.indices.to_pylist(), settings.indices.to_pylist(), strict=True))
        return {run.dictionary[one].as_py(): json.loads(settings.dictionary[at].as_py()) for one, at in pairs.items()}
    except FileNotFoundError as error:
        raise UserError(
            f"{file} is missing; name the folder of its counts: experiments/counts, or report/counts of a reproduction"
        ) from error
    except (OSError, pa.ArrowException, LookupError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error}); {_COPY_AGAIN}") from error


def read_counts(choice: Choice, folder: Path) -> Counts:
    """Evaluations by name and seed from a folder of counts, as far as a choice asks for them.

    Raises UserError for a folder without counts of these arms, damaged files, and counts of other settings.
    """
    file = counts_file(choice, folder)
    recorded = recorded_settings(file)
    names = [name for name in choice.arms if name in recorded]
    if not names:
        raise UserError(f"{file} holds no counts of {', '.join(choice.arms)}; it has {', '.join(recorded)}")
    choice = replace(choice, arms={name: choice.arms[name] for name in names}, data="")
    labels = {name: choice.grid.arms[name].label for name in names}
    for base in choice.bases():
        labels |= {base.name: base.label}
        if _again(base.name) in recorded:  # a study that was cut short has no second evaluation
            labels |= {_again(base.name): base.label + AGAIN}
    if missing := labels.keys() - recorded.keys():
        raise UserError(f"{file} is damaged (it has no {', '.join(sorted(missing))}); {_COPY_AGAIN}")
    _check(choice, recorded, file)
    return _read(file, labels)


def _check(choice: Choice, recorded: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Raises UserError for settings of runs that are not those of the grid now. Settings that this version does not
    have are not compared, because published files are never rewritten; `Arm.retired` is for arms that need one."""
    configs = settings_of(choice)
    for base in choice.bases():
        _check_run(stages_of(choice.grid, base), configs, recorded[base.name], file)
    for arm in (choice.grid.arms[name] for name in choice.arms):
        if not arm.retired:
            _check_run(stages_of(choice.grid, choice.grid.bases[arm.base], arm), configs, recorded[arm.name], file)


def _check_run(
    stages: Mapping[str, str], configs: Mapping[tuple[str, str], Any], recorded: Mapping[str, Any], file: Path
) -> None:
    for stage, name in stages.items():
        config = configs[stage, name]
        check_same(_shared(recorded.get(stage, {}), config), config, f"{file}: {stage} {name}", "leave out --counts")


def _shared(recorded: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """The recorded settings that a config has too."""
    values = {item.name: getattr(config, item.name) for item in fields(config) if item.name in recorded}
    return {
        name: _shared(recorded[name], value) if is_dataclass(value) else recorded[name]
        for name, value in values.items()
    }


def warn_of_other_bases(bases: Mapping[str, EvalRun], counts: Counts) -> None:
    """Say so if a base model answers otherwise here than it did when counts were taken: methods trained from both are
    then compared as if they had one base model."""
    for name, run in bases.items():
        before = counts.get(name, {}).get(0, run)
        one, other = ({(r["split"], r["id"]): r["correct"] for r in each.problems} for each in (run, before))
        if one != other:
            say(
                f"{run.path} and {before.path} are evaluations of different base models, so methods of the runs and of "
                "the counts started from different models (another processor or version may round differently)"
            )


def _read(file: Path, labels: Mapping[str, str]) -> dict[str, dict[int, EvalRun]]:
    """Evaluations by name and seed, of the runs that have a label here."""
    columns = [name for name in ("run", "seed", *_COLUMNS) if name not in _OPTIONAL]
    rows: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in labels}
    for row in read_problems(file, columns, _OPTIONAL, _COPY_AGAIN, ("run", list(labels))):
        rows[row.pop("run")].setdefault(row.pop("seed"), []).append({"kind": None} | row)
    return {
        name: {seed: _evaluation(file / name, labels[name], problems) for seed, problems in by_seed.items()}
        for name, by_seed in rows.items()
    }


def _evaluation(path: Path, label: str, rows: Sequence[dict[str, Any]]) -> EvalRun:
    """An evaluation of these problems, without the columns that other runs of the file have and this one has not."""
    absent = [
        name for name in ("content", "style_counts", *DIVERSITY_METRICS) if all(row.get(name) is None for row in rows)
    ]
    rows = [{name: value for name, value in row.items() if name not in absent} for row in rows]
    return EvalRun(path, label, path, _splits(rows), rows)


def _splits(rows: Sequence[Mapping[str, Any]]) -> dict[str, Split]:
    """The splits of an evaluation with the means of their metrics, as far as counts hold them."""
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault(row["split"], []).append(row)
    return {split: _split(part) for split, part in parts.items()}


def _split(rows: Sequence[Mapping[str, Any]]) -> Split:
    n = max(row["samples"] for row in rows)
    counts = [(row["samples"], row["correct"]) for row in rows if row["samples"] > 0]
    curve: dict[int, MetricValue] = {}
    for k in powers_of_two(n):
        samples, correct = zip(*((s, c) for s, c in counts if s >= k), strict=True)
        curve[k] = MetricValue(float(pass_at_k(samples, correct, k).mean()), problems=len(samples), of=len(rows))
    metrics = {f"pass@{k}": value for k, value in curve.items()}
    if counts:
        mean = float(mean_at_k(*zip(*counts, strict=True)).mean())
        metrics[f"mean@{n}"] = MetricValue(mean, problems=len(counts), of=len(rows))
    for name in ("greedy", "styles", "styles_correct", *DIVERSITY_METRICS):
        found = [float(row[name]) for row in rows if row.get(name) is not None]
        if found:
            metrics[name] = MetricValue(sum(found) / len(found), problems=len(found), of=len(rows))
    return Split(len(rows), n, metrics, curve, {})
