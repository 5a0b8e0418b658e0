"""Databases and problems that change during a run. The run stops, names them, and continues once they are restored."""

import json
import os
import sqlite3
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from dph.config import EvalConfig, ModelConfig, MonitorConfig, RehearsalConfig, TaskConfig
from dph.errors import DataError, RunError
from dph.rehearsal.presampled import file_hashes
from dph.report import report
from dph.runs.directory import RunDir, read_metrics
from dph.runs.pinned import content_hashes
from dph.stages.evaluate import evaluate
from dph.stages.presample import presample
from dph.stages.train import train
from dph.tasks import register_task
from dph.training import loop
from dph.types import Problem
from faults_support import SETTINGS, at_call, same
from helpers import ToyTask, base_run, presample_config, rollout, train_config


class ToyDatabase(ToyTask):
    """The toy task, whose problems name a database file."""

    def __init__(self, *, path: str, suite: str = "", problems: int = 12) -> None:
        super().__init__(problems=problems)
        self._files = {"db": path} | ({"suite": [suite]} if suite else {})

    def problems(self, split):
        return [replace(problem, meta={**problem.meta, **self._files}) for problem in super().problems(split)]


register_task("toy_database")(ToyDatabase)


def database(path, value):
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (a)")
        connection.execute("insert into t values (?)", (value,))
    connection.close()


def of_database(out, **paths):
    task = TaskConfig(name="toy_database", options={name: str(path) for name, path in paths.items()})
    config = train_config(out, "grpo", SETTINGS, monitor=MonitorConfig())
    return replace(config, task=task, rehearsal=RehearsalConfig())


@pytest.mark.parametrize("place", ["path", "suite"])
def test_a_database_that_is_replaced_stops_the_run(tmp_path, monkeypatch, place):
    paths = {"path": tmp_path / "a.sqlite", "suite": tmp_path / "b.sqlite"}
    database(paths["path"], 1)
    database(paths["suite"], 1)
    path = paths[place]
    whole = train(of_database(tmp_path / "whole", **paths))
    draw = loop.RolloutCollector.draw
    monkeypatch.setattr(loop.RolloutCollector, "draw", at_call(3, lambda: database(path, 22), draw))
    message = f"{path.name} has changed since"
    with pytest.raises(RunError, match=message):
        train(of_database(tmp_path / "run", **paths))
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [1, 2]
    with pytest.raises(RunError, match=message):
        train(of_database(tmp_path / "run", **paths), resume=True)
    path.unlink()
    with pytest.raises(RunError, match=f"the database {path} is missing"):
        train(of_database(tmp_path / "run", **paths), resume=True)
    database(path, 1)
    assert same(train(of_database(tmp_path / "run", **paths), resume=True), whole)


def test_problems_and_weights_that_changed_are_named_on_resume(tmp_path, monkeypatch):
    config = train_config(tmp_path / "run", "grpo", {"steps": 2, "checkpoint_every": 1})
    draw = loop.RolloutCollector.draw
    monkeypatch.setattr(
        loop.RolloutCollector, "draw", at_call(2, lambda: (_ for _ in ()).throw(KeyboardInterrupt), draw)
    )
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    problems = ToyTask.problems

    def changed(self, split):
        first, *others = problems(self, split)
        return [replace(first, answer="maybe"), *others]

    monkeypatch.setattr(ToyTask, "problems", changed)
    with pytest.raises(RunError, match=r"not those that .*run was started with: 1"):
        train(config, resume=True)
    monkeypatch.setattr(ToyTask, "problems", lambda self, split: problems(self, split)[::-1])
    with pytest.raises(RunError, match=r"not those that .*run was started with"):
        train(config, resume=True)
    monkeypatch.undo()
    noted = json.loads((tmp_path / "run" / "inputs.json").read_text())
    assert noted["problems"].keys() == {f"train/{i}" for i in range(12)}
    train(config, resume=True)


# Between pre-sampling, training and evaluation ------------------------------------------------------------------------

ROWS = [{"prompt": f"{kind} {i}", "answer": "yes", "verifier": "exact"} for i in range(4) for kind in ("easy", "hard")]
NAMED = [row | {"id": f"p{number}"} for number, row in enumerate(ROWS)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return TaskConfig(name="records", options={"path": str(path)})


def unloadable(*_, **__):
    raise AssertionError("a model was loaded")


EDITS = {
    "a row above": (ROWS, [{"prompt": "easy 9", "answer": "yes", "verifier": "exact"}, *ROWS], "'data-1'"),
    "rows reversed": (ROWS, ROWS[::-1], "'data-1'"),
    "a row gone": (ROWS, ROWS[1:], "'data-1'"),
    "an answer": (NAMED, [NAMED[0], NAMED[1] | {"answer": "no"}, *NAMED[2:]], "1 differ, for example 'p1'"),
    "a prompt": (NAMED, [*NAMED[:-1], NAMED[-1] | {"prompt": "hard 9"}], "1 differ, for example 'p7'"),
    "a verifier": (NAMED, [*NAMED[:-1], NAMED[-1] | {"verifier": "math"}], "1 differ, for example 'p7'"),
    "ids left out": (NAMED, ROWS, "8 differ, for example 'p0'"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_training_refuses_data_that_were_edited_after_presampling(tmp_path, monkeypatch, edit):
    before, after, named = EDITS[edit]
    task = write(tmp_path / "data.jsonl", before)
    presampled = presample(presample_config(tmp_path / "presample", task=task))
    config = train_config(tmp_path / "run", "dph_js", task=task)
    config = replace(config, rehearsal=replace(config.rehearsal, path=str(presampled)))
    train(replace(config, out=str(tmp_path / "same"), steps=0))
    write(tmp_path / "data.jsonl", after)
    monkeypatch.setattr("dph.models.policy.Policy.load", unloadable)
    for method in ("dph_js", "grpo"):
        rehearsal = replace(config.rehearsal, rows=6 if method == "dph_js" else 0)
        with pytest.raises(RunError, match=named):
            train(train_config(tmp_path / method, method, task=task, rehearsal=rehearsal))


def test_a_partition_fits_however_its_data_are_named_and_another_is_refused_before_a_model_is_loaded(
    tmp_path, monkeypatch
):
    write(tmp_path / "data.jsonl", NAMED)
    monkeypatch.chdir(tmp_path)
    named = TaskConfig(name="records", options={"path": "data.jsonl"})
    presampled = presample(presample_config(tmp_path / "presample", task=named))
    config = train_config(tmp_path / "run", "dph_js", {"steps": 0})
    config = replace(config, rehearsal=replace(config.rehearsal, path=str(presampled)))
    train(replace(config, task=TaskConfig(name="records", options={"path": str(tmp_path / "data.jsonl")})))
    monkeypatch.setattr("dph.models.policy.Policy.load", unloadable)
    config = replace(config, out=str(tmp_path / "other"))
    with pytest.raises(RunError, match="was made for another task"):
        train(replace(config, task=TaskConfig(name="toy")))
    with pytest.raises(RunError, match=r"does not fit this run \(temperature 1\.0"):
        train(replace(config, task=named, rollout=replace(config.rollout, temperature=0.7)))
    nothing = TaskConfig(name="records", options={"path": "nothing.jsonl"})
    with pytest.raises(DataError, match="there is no file or folder"):
        presample(presample_config(tmp_path / "p2", task=nothing))
    with pytest.raises(DataError, match="there is no file or folder"):
        evaluate(EvalConfig(str(tmp_path / "e2"), model=ModelConfig(path=str(base_run() / "model")), task=nothing))


def test_rows_with_ids_may_be_in_another_order_and_added(tmp_path):
    task = write(tmp_path / "data.jsonl", NAMED)
    presampled = presample(presample_config(tmp_path / "presample", task=task))
    write(
        tmp_path / "data.jsonl", [*NAMED[::-1], {"id": "new", "prompt": "easy 9", "answer": "yes", "verifier": "exact"}]
    )
    config = train_config(tmp_path / "run", "grpo", {"steps": 0}, task=task)
    run = train(replace(config, rehearsal=replace(config.rehearsal, path=str(presampled))))
    assert RunDir.open(run, "train").complete


def test_a_partition_that_does_not_say_what_its_problems_held_is_refused(tmp_path):
    task = write(tmp_path / "data.jsonl", NAMED)
    presampled = presample(presample_config(tmp_path / "presample", task=task))
    table = pq.read_table(presampled / "partition.parquet")
    pq.write_table(table.drop_columns(["content"]), presampled / "partition.parquet")
    RunDir.open(presampled, "presample").update(files=file_hashes(presampled))
    config = train_config(tmp_path / "run", "dph_js", {"steps": 0}, task=task)
    with pytest.raises(RunError, match=r"partition.parquet cannot be read"):
        train(replace(config, rehearsal=replace(config.rehearsal, path=str(presampled))))


def test_what_a_problem_is(tmp_path):
    def hashed(**changes):
        return content_hashes([replace(problem, **changes)])["p"]

    path = tmp_path / "a.sqlite"
    database(path, 1)
    problem = Problem("p", "how many?", "select 1", "sql", {"db": str(path), "kind": "count"})
    known = hashed()
    assert hashed(meta={"db": str(path), "kind": "another"}) == known
    moved = tmp_path / "elsewhere.sqlite"
    moved.write_bytes(path.read_bytes()[:96] + b"\0\0\0\1" + path.read_bytes()[100:])  # by another version of SQLite
    assert hashed(meta={"db": str(moved)}) == known
    database(moved, 22)
    assert hashed(meta={"db": str(moved)}) != known != hashed(meta={"db": "gone"})
    assert len({known, hashed(prompt="how much?"), hashed(answer="select 2"), hashed(verifier="exact")}) == 4
    # where a reward function judges, other columns hold what it judges by
    assert hashed(answer=None, meta={"target": 1}) != hashed(answer=None, meta={"target": 2})


def test_a_report_refuses_evaluations_of_different_problems_with_one_id(tmp_path):
    def evaluated(name, rows):
        task = replace(write(tmp_path / "data.jsonl", rows), split="test")
        model = ModelConfig(path=str(base_run() / "model"), device="cpu")
        return evaluate(EvalConfig(str(tmp_path / name), name, model=model, task=task, rollout=rollout(n=2)))

    one, two = evaluated("one", NAMED), evaluated("two", NAMED)
    report([one, two], tmp_path / "report", base="one", title="")
    other = evaluated("other", [*NAMED[:-1], NAMED[-1] | {"verifier": "math"}])
    with pytest.raises(RunError, match="evaluated on different problems: 'p7'"):
        report([one, other], tmp_path / "report", base="one", title="")


def test_the_log_of_a_database_belongs_to_its_content(tmp_path):
    def hashed(path):
        [hash] = content_hashes([Problem("p", "?", "select 1", "sql", {"db": str(path)})]).values()
        return hash

    path = tmp_path / "a.sqlite"
    database(path, 1)
    os.mkfifo(tmp_path / "pipe")
    known = hashed(path)
    (tmp_path / "a.sqlite-wal").touch()
    assert hashed(path) == known
    (tmp_path / "a.sqlite-wal").write_bytes(b"frames")
    with_log = hashed(path)
    assert with_log != known
    (tmp_path / "a.sqlite-wal").write_bytes(b"others")
    os.utime(tmp_path / "a.sqlite-wal", (1, 1))
    assert hashed(path) not in (known, with_log)
    places = [tmp_path / "pipe", "/dev/zero", "/proc/kmsg"]
    assert len({hashed(place) for place in places}) == 3  # at once: they are not read
