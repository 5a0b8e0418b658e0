"""Counts of the experiments B, E and F: a Parquet file of each, in which a start's rows are rewritten after every arm.

A row is a problem of an evaluation: start, run, id, kind, samples, correct, greedy; `forms`, the canonical solutions
among its correct samples, and `form_counts`, how many samples have each; `rollouts`, the responses that were drawn to
make the model, pre-sampling included; `settings`, JSON of what trained or made it ("" for the base model).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dph.process.jobs import is_complete
from dph.runs.directory import RunDir
from dph.runs.files import written_atomically
from experiments.anchor.design import Arm, Made
from experiments.count_files import styles_of, waiting_for


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The counts of a model on the test problems of its start, in the order of their ids."""

    counts: list[tuple[int, int]]
    """Samples and correct samples."""
    forms: list[list[int]]
    """Correct samples of each canonical solution."""
    kinds: list[str]
    rollouts: int
    greedy: list[bool] = field(default_factory=list)
    """Whether the greedy response is correct; empty where it was not asked for."""


def write(file: Path, start: int, roots: Sequence[Path], arms: Sequence[Arm | Made]) -> None:
    """Write the counts of every finished evaluation of the base model and of these arms in the place of their former
    ones; roots: the folders in which a start's folders `train` and `eval` are. Several processes may have one start
    each."""
    rows = []
    for root, evaluation, arm in _finished(roots, arms):
        common = {"start": start, "run": evaluation.name, "rollouts": arm.rollouts if arm else 0}
        common["settings"] = json.dumps(_made_by(arm, root)) if arm else ""
        rows += [common | row for row in _problems(evaluation)]
    if not rows:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with waiting_for(file.parent):
        table = pa.Table.from_pylist(rows)
        if file.exists():
            again = (pc.field("start") == start) & pc.field("run").isin({row["run"] for row in rows})
            others = pq.read_table(file, filters=~again)
            table = pa.concat_tables([others.cast(table.schema), table]).sort_by("start")
        with written_atomically(file) as temporary:
            pq.write_table(table, temporary, compression="zstd", compression_level=19)


def lacks(file: Path, start: int, roots: Sequence[Path], arms: Sequence[Arm | Made]) -> bool:
    """Whether `write` would add an evaluation that the file does not have."""
    there = set[str]()
    if file.exists():
        there |= {*pq.read_table(file, columns=["run"], filters=pc.field("start") == start)["run"].to_pylist()}
    return any(evaluation.name not in there for _, evaluation, _ in _finished(roots, arms))


def _finished(roots: Sequence[Path], arms: Sequence[Arm | Made]) -> Iterator[tuple[Path, Path, Arm | Made | None]]:
    """Every finished evaluation of the base model and of these arms, with its root before it and its arm after it."""
    for root in roots:
        for evaluation in filter(is_complete, sorted((root / "eval").glob("*"))):
            arm = arm_of(evaluation.name, arms)
            if arm or evaluation.name.startswith("base"):
                yield root, evaluation, arm


def arm_of(evaluation: str, arms: Sequence[Arm | Made]) -> Arm | Made | None:
    """The arm of an evaluation, whose name begins with the arm's: the longest one that fits, or None."""
    return max((arm for arm in arms if evaluation.startswith(arm.name)), key=lambda arm: len(arm.name), default=None)


def _problems(evaluation: Path) -> list[dict]:
    forms = styles_of(evaluation)
    columns = ["split", "id", "kind", "samples", "correct", "greedy"]
    problems = pq.read_table(evaluation / "problems.parquet", columns=columns).to_pylist()
    found = []
    for row in sorted(problems, key=lambda row: row["id"]):
        own = forms.get((row.pop("split"), row["id"]), {})
        found.append(row | {"forms": list(own), "form_counts": list(own.values())})
    return found


def _made_by(arm: Arm | Made, root: Path) -> dict:
    """The settings of an arm's training run, or what weights were made of."""
    if isinstance(arm, Made):
        return {"models": arm.models, "share": arm.share}
    return _without_paths(RunDir.open(root / "train" / arm.name).settings())


def _without_paths(settings: Mapping) -> dict:
    """The settings of a training run without folders of this machine."""
    hidden = {"out": "", "path": "", "plugins": [Path(name).name for name in settings.get("plugins", ())]}
    return {
        key: _without_paths(value) if isinstance(value, Mapping) else hidden.get(key, value)
        for key, value in settings.items()
    }


def read(file: Path, start: int) -> dict[str, Evaluated]:
    """Evaluations of a start by name; {} if there are none yet."""
    if not file.exists():
        return {}
    columns = ["run", "id", "kind", "samples", "correct", "greedy", "form_counts", "rollouts"]
    by_run: dict[str, list[dict]] = {}
    for row in pq.read_table(file, columns=columns, filters=pc.field("start") == start).to_pylist():
        by_run.setdefault(row["run"], []).append(row)
    return {
        run: Evaluated(
            [(row["samples"], row["correct"]) for row in rows],
            [row["form_counts"] for row in rows],
            [row["kind"] for row in rows],
            rows[0]["rollouts"],
            [row["greedy"] for row in rows if row["greedy"] is not None],
        )
        for run, rows in by_run.items()
    }
