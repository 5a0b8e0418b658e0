"""Data that changes under a run: databases, problems. It stops, names them, and goes on once the old ones are back."""

import json
import sqlite3
from dataclasses import replace

import pytest

from dph.config import MonitorConfig, RehearsalConfig, TaskConfig
from dph.errors import UserError
from dph.runs.directory import read_metrics
from dph.stages import train as module
from dph.stages.train import train
from dph.tasks.protocol import register_task
from faults_support import SETTINGS, at_call, same
from helpers import ToyTask, train_config


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
    draw = module.Explorer.draw
    monkeypatch.setattr(module.Explorer, "draw", at_call(3, lambda: database(path, 22), draw))
    message = (
        f"the database {path} has changed since .*run was started; restore the old file, then continue with --resume"
    )
    with pytest.raises(UserError, match=message):
        train(of_database(tmp_path / "run", **paths))
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [1, 2]
    with pytest.raises(UserError, match=message):
        train(of_database(tmp_path / "run", **paths), resume=True)
    path.unlink()
    with pytest.raises(UserError, match=f"the database {path} is missing"):
        train(of_database(tmp_path / "run", **paths), resume=True)
    database(path, 1)
    assert same(train(of_database(tmp_path / "run", **paths), resume=True), whole)


def test_problems_and_weights_that_changed_are_named_on_resume(tmp_path, monkeypatch):
    config = train_config(tmp_path / "run", "grpo", {"steps": 2, "checkpoint_every": 1})
    draw = module.Explorer.draw
    monkeypatch.setattr(module.Explorer, "draw", at_call(2, lambda: (_ for _ in ()).throw(KeyboardInterrupt), draw))
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    problems = ToyTask.problems

    def changed(self, split):
        first, *others = problems(self, split)
        return [replace(first, answer="maybe"), *others]

    monkeypatch.setattr(ToyTask, "problems", changed)
    with pytest.raises(UserError, match=r"not those that .*run was started with: 1 differ, for example 'train/0'"):
        train(config, resume=True)
    monkeypatch.setattr(ToyTask, "problems", lambda self, split: problems(self, split)[::-1])
    with pytest.raises(UserError, match=r"not those that .*run was started with: \d+ differ"):
        train(config, resume=True)
    monkeypatch.undo()
    noted = json.loads((tmp_path / "run" / "inputs.json").read_text())
    assert noted["problems"].keys() == {f"train/{i}" for i in range(12)}
    train(config, resume=True)
