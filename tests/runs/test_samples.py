"""Kept responses: what is written comes back, later steps are dropped, and a damaged file is named."""

from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dph.errors import RunError
from dph.runs.samples import MONITOR, ROLLOUTS, Sample, drop_samples, read_kept_samples, write_samples

SAMPLE = Sample(2, ROLLOUTS, "p1", 0, "a prompt", "ä\n\x00 response", "correct", 1.0, -0.25, -3.5, 7, "stop")


def test_samples_come_back_by_step_and_the_folder_is_one_table(tmp_path: Path) -> None:
    held_out = replace(SAMPLE, source=MONITOR, sample=-1, advantage=None)
    for step in (10, 2):
        write_samples(tmp_path, step, ROLLOUTS, [replace(SAMPLE, step=step), replace(SAMPLE, step=step, sample=1)])
        write_samples(tmp_path, step, MONITOR, [replace(held_out, step=step)])
    assert [(s.step, s.sample) for s in read_kept_samples(tmp_path, ROLLOUTS)] == [(2, 0), (2, 1), (10, 0), (10, 1)]
    assert read_kept_samples(tmp_path, ROLLOUTS)[0] == SAMPLE
    assert read_kept_samples(tmp_path, MONITOR) == [replace(held_out, step=2), replace(held_out, step=10)]
    assert pq.read_table(tmp_path / "samples").num_rows == 6


def test_samples_after_a_step_are_dropped(tmp_path: Path) -> None:
    drop_samples(tmp_path, -1)  # nothing is there yet
    for step in (0, 2, 4):
        write_samples(tmp_path, step, MONITOR, [replace(SAMPLE, step=step)])
    (tmp_path / "samples" / "notes.parquet").write_text("somebody's own")
    drop_samples(tmp_path, 2)
    assert [s.step for s in read_kept_samples(tmp_path, MONITOR)] == [0, 2]
    assert (tmp_path / "samples" / "notes.parquet").exists()
    assert read_kept_samples(tmp_path / "elsewhere", MONITOR) == []


@pytest.mark.parametrize("damage", ["bytes", "column", "kind", "gap"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    write_samples(tmp_path, 2, ROLLOUTS, [SAMPLE])
    file = tmp_path / "samples" / "rollouts-00000002.parquet"
    row = asdict(SAMPLE)
    if damage == "bytes":
        file.write_bytes(file.read_bytes()[:-9])
    elif damage == "column":
        del row["outcome"]
    else:
        row["step" if damage == "kind" else "response"] = "two" if damage == "kind" else None
    if damage != "bytes":
        pq.write_table(pa.Table.from_pylist([row]), file)
    with pytest.raises(RunError, match=r"rollouts-00000002\.parquet is damaged"):
        read_kept_samples(tmp_path, ROLLOUTS)
