"""The partition of the prompts into D_exp and D_pef, as a presample run wrote it (paper §4.1)."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dph.config import TaskConfig
from dph.errors import UserError
from dph.rehearsal.check import open_presampled
from dph.runs.directory import RunDir
from dph.types import Problem

Set = Literal["explore", "perfect", "dropped"]
"""D_exp, D_pef, or neither."""


def read_partition(path: Path, task: TaskConfig) -> dict[str, Set]:
    """The set of every problem id in a presample run. The run may cover more splits than the task; their responses are
    then rehearsed too. Raises UserError when the run is missing, unfinished, changed or of another task."""
    run = open_presampled(path)
    made = run.manifest.get("task")
    if not _covers(made, asdict(task)):
        raise UserError(f"the presample run {path} was made for another task: {made}, not {asdict(task)}")
    return partition_of(run)


def _covers(made: Any, wanted: dict[str, Any]) -> bool:
    if not isinstance(made, dict) or not isinstance(made.get("split"), str):
        return False
    same = {**made, "split": ""} == {**wanted, "split": ""}
    return same and _names(wanted["split"]) <= _names(made["split"])


def partition_of(run: RunDir) -> dict[str, Set]:
    """The set of every problem id in a presample run whose files were checked. Raises UserError for another layout."""
    file = run.path / "partition.parquet"
    try:
        table = pq.read_table(file, columns=["problem_id", "set"])
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{file} cannot be read ({error}); run `dph presample` again") from error
    return {row["problem_id"]: row["set"] for row in table.to_pylist()}


def training_problems(
    path: str, task: TaskConfig, prompt_set: Literal["all", "explore"], problems: Sequence[Problem]
) -> list[Problem]:
    """The exploration set, or all that pre-sampling did not drop, or without a partition all problems.

    Args:
        path: run directory of `dph presample`, or empty.
        task: that of the training; the presample run must cover it.
    """
    if not path:
        return list(problems)
    partition = read_partition(Path(path), task)
    wanted = {"explore"} if prompt_set == "explore" else {"explore", "perfect"}
    chosen = [problem for problem in problems if partition.get(problem.id) in wanted]
    if not chosen:
        raise UserError(f"the presample run {path} left no prompt to explore; train on --prompt-set all")
    return chosen


def _names(splits: str) -> set[str]:
    return {name.strip() for name in splits.split(",")}
