"""Counts of finished runs in small files, from which every table can be computed again without training.

A folder of counts holds the settings of the runs (`settings/`, without the place of the data) and a Parquet file for
each base model, its second evaluation and each arm, with a row for each training seed (0 for a base model) and problem:

    seed, split, id, kind, content   content: hash of the problem, where the evaluation recorded it
    samples, correct, greedy         judged samples, correct ones, whether the greedy response is correct
    styles, styles_correct           distinct styles among 32 samples, and among the correct ones of these
    distinct_sql …                   the measures of diversity, to three decimals
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dph.errors import UserError
from dph.evaluation.measures import MEASURES
from dph.evaluation.passk import mean_at_k, pass_at_k
from dph.evaluation.scoring import powers_of_two
from dph.process.progress import say
from dph.report.data import EvalRun, Split, Value, counted, read_problems
from dph.reproduce.plan import AGAIN, Choice, RunPaths, check_settings, write_settings
from dph.reproduce.results import Counts, Results
from dph.runs.files import written_atomically

_OPTIONAL = ("kind", "content", *MEASURES)
_COLUMNS = ("split", "id", "kind", "content", "samples", "correct", "greedy", "styles", "styles_correct", *MEASURES)
_DECIMALS = 3


def write_counts(results: Results, paths: RunPaths, folder: Path, known: Counts) -> None:
    """Write the counts of all finished runs and the settings that they had. Arms of which everything was read from
    counts are left out. A file of an arm with a new seed has its `known` seeds too, so that it can take the place of
    the file that they were read from; for the same reason base models that are known keep their counts.

    Raises UserError when the runs had other settings than the grid has now.
    """
    runs: dict[str, dict[int, EvalRun]] = {name: {0: run} for name, run in results.bases.items()}
    runs |= {f"{name}-again": {0: run} for name, run in results.again.items()}
    runs |= {name: dict(zip(results.seeds[name], found, strict=True)) for name, found in results.arms.items()}
    own = {name: {seed: run for seed, run in found.items() if run.path.is_dir()} for name, found in runs.items()}
    arms = {name: tuple(own[name]) for name in results.arms if own[name]}
    if not arms:
        return
    check_settings(replace(results.choice, arms=arms), paths, "choose another --out")
    write_settings(replace(results.choice, arms=arms, data=""), RunPaths(folder))
    for name, found in own.items():
        every = sorted((found | dict(known.get(name, {}))).items()) if found else []
        rows = [{"seed": seed} | _rounded(row) for seed, run in every for row in run.problems]
        if rows:
            with written_atomically(folder / f"{name}.parquet") as file:
                pq.write_table(pa.Table.from_pylist(rows), file, compression="zstd", compression_level=19)


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, _DECIMALS) if isinstance(value, float) else value
        for name, value in ((name, row[name]) for name in _COLUMNS if name in row)
    }


def read_counts(choice: Choice, folder: Path) -> Counts:
    """Evaluations by name and seed from a folder of counts, as far as a choice asks for them.

    Raises UserError for a folder without counts of these arms, damaged files, and counts of other settings.
    """
    names = [name for name in choice.arms if (folder / f"{name}.parquet").is_file()]
    if not names:
        asked = ", ".join(choice.arms)
        raise UserError(
            f"{folder} holds no counts of {asked}; name a folder that `dph reproduce` wrote (report/counts)"
        )
    part = replace(choice, arms={name: choice.arms[name] for name in names}, data="")
    check_settings(part, RunPaths(folder), "leave out --counts")
    labels = {name: choice.grid.arms[name].label for name in names}
    for base in part.bases():
        labels |= {base.name: base.label, f"{base.name}-again": base.label + AGAIN}
    return {name: _read(folder / f"{name}.parquet", label) for name, label in labels.items()}


def warn_of_other_bases(bases: Mapping[str, EvalRun], counts: Counts) -> None:
    """Say so if a base model answers otherwise here than it did when counts were taken: methods trained from both are
    then compared as if they had one base model."""
    for name, run in bases.items():
        known = counts.get(name, {}).get(0, run)
        one, other = ({(r["split"], r["id"]): r["correct"] for r in found.problems} for found in (run, known))
        if one != other:
            say(
                f"{run.path} and {known.path} are evaluations of different base models, so methods of the runs and of "
                "the counts started from different models (another processor or version may round differently)"
            )


def _read(file: Path, label: str) -> dict[int, EvalRun]:
    columns = [name for name in ("seed", *_COLUMNS) if name not in _OPTIONAL]
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in read_problems(file, columns, _OPTIONAL, "copy the folder of counts again"):
        rows.setdefault(row.pop("seed"), []).append({"kind": None} | row)
    return {seed: EvalRun(file, label, file, _splits(found), found) for seed, found in rows.items()}


def _splits(rows: Sequence[Mapping[str, Any]]) -> dict[str, Split]:
    """The splits of an evaluation with the means of their metrics, as far as counts hold them."""
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault(row["split"], []).append(row)
    return {split: _split(part) for split, part in parts.items()}


def _split(rows: Sequence[Mapping[str, Any]]) -> Split:
    n = max(row["samples"] for row in rows)
    counts = [(row["samples"], row["correct"]) for row in rows if row["samples"] > 0]
    curve: dict[int, Value] = {}
    for k in powers_of_two(n):
        samples, correct = zip(*((s, c) for s, c in counts if s >= k), strict=True)
        curve[k] = Value(float(pass_at_k(samples, correct, k).mean()))
    metrics = {f"pass@{k}": value for k, value in curve.items()}
    if counts:
        metrics[f"mean@{n}"] = Value(float(mean_at_k(*zip(*counts, strict=True)).mean()))
    for name in ("greedy", "styles", "styles_correct", *MEASURES):
        found = [float(row[name]) for row in rows if row.get(name) is not None]
        if found:
            metrics[name] = Value(sum(found) / len(found))
    return counted(Split(len(rows), n, metrics, curve, {}, {}), rows)
