"""Faults on the way: a full disk, a judge that fails, numbers that are not finite, memory that runs out, data that
changes. Each ends in a sentence and a saved state; what the run ends with after --resume is as if nothing had been."""

import json
import os
import resource
import signal
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from dph import checkpoints
from dph.cli import main
from dph.config import MonitorConfig, RehearsalConfig, TaskConfig
from dph.errors import Interrupted, UserError
from dph.runs import RunDir, read_metrics
from dph.stages import train as module
from dph.stages.train import train
from dph.tasks.protocol import register_task
from dph.types import Outcome, Verdict
from dph.update import Updater
from helpers import ToyTask, train_config

SETTINGS = {"steps": 4, "checkpoint_every": 1, "monitor": {"every": 2, "limit": 2, "n": 2}}


class ToyDatabase(ToyTask):
    """The toy task, whose problems name a database file."""

    def __init__(self, *, path: str, suite: str = "", problems: int = 12) -> None:
        super().__init__(problems=problems)
        self._files = {"db": path} | ({"suite": [suite]} if suite else {})

    def problems(self, split):
        return [replace(problem, meta=problem.meta | self._files) for problem in super().problems(split)]


register_task("toy_database")(ToyDatabase)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return train(train_config(tmp_path_factory.mktemp("whole"), "dph_js", SETTINGS))


@pytest.fixture
def signals():
    """Puts the handlers back that a test's signals have taken away."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def config_of(run, **changes):
    return train_config(run, "dph_js", SETTINGS, **changes)


def same(run, other):
    """Whether two runs hold the same metrics and, file by file, the same models and checkpoints."""

    def files(path):
        folders = (path / "model", path / "checkpoints")
        return {
            str(file.relative_to(path)): file.read_bytes()
            for folder in folders
            for file in folder.rglob("*")
            if file.is_file()
        }

    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert files(run) == files(other)
    names = [{entry.name for entry in path.iterdir()} for path in (run, other)]
    assert names[0] == names[1]
    return True


def at_call(number, action, original):
    """A function that does `action` before its call of that number."""
    calls = []

    def wrapped(*args, **more):
        calls.append(1)
        if len(calls) == number:
            action()
        return original(*args, **more)

    return wrapped


# Signals ------------------------------------------------------------------------------------------------------------

PLACES = {  # what is called at the third time when the signal comes; the step whose state is then saved
    "sampling": (module.Explorer, "_sample", 2, signal.SIGINT),  # broken off: nothing of step 3 is kept
    "update": (module.Updater, "update", 3, signal.SIGTERM),  # brought to its end, and the step's line written
    "evaluation": (module.Monitor, "_score", 4, signal.SIGINT),  # broken off: the step is kept, its line is pending
    "checkpoint": (checkpoints, "save", 3, signal.SIGTERM),
    "logging": (RunDir, "log", 2, signal.SIGINT),  # the lines of the steps 0, 1, 2
}


@pytest.mark.parametrize("place", PLACES)
def test_a_signal_saves_the_state_and_the_run_goes_on_without_a_trace(
    tmp_path, monkeypatch, signals, undisturbed, place
):
    owner, name, saved, number = PLACES[place]
    monkeypatch.setattr(owner, name, at_call(3, lambda: signal.raise_signal(number), getattr(owner, name)))
    with pytest.raises(Interrupted, match=r"stopped after step \d of 4, which is saved; the same command with --res"):
        train(config_of(tmp_path / "run"))
    monkeypatch.undo()
    assert checkpoints.newest_intact(tmp_path / "run") == saved and not list((tmp_path / "run").glob(".*.tmp"))
    assert same(train(config_of(tmp_path / "run"), resume=True), undisturbed)


def test_a_signal_in_the_first_evaluation_has_nothing_to_save(tmp_path, monkeypatch, signals, undisturbed):
    score = module.Monitor._score
    monkeypatch.setattr(module.Monitor, "_score", at_call(1, lambda: signal.raise_signal(signal.SIGTERM), score))
    with pytest.raises(Interrupted, match="stopped after step 0 of 4, but not saved"):
        train(config_of(tmp_path / "run"))
    monkeypatch.undo()
    assert same(train(config_of(tmp_path / "run"), resume=True), undisturbed)


def test_a_step_saved_without_its_line_gets_it_once(tmp_path, monkeypatch, signals, undisturbed):
    """Interrupted in its evaluation, resumed, and killed after its line was written but before the next checkpoint."""
    config = replace(config_of(tmp_path / "run"), checkpoint_every=4, keep_best="")
    score, draw = module.Monitor._score, module.Explorer.draw
    monkeypatch.setattr(module.Monitor, "_score", at_call(2, lambda: signal.raise_signal(signal.SIGTERM), score))
    with pytest.raises(Interrupted, match="stopped after step 2 of 4, which is saved"):
        train(config)
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [0, 1]

    def leave():
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Explorer, "draw", at_call(1, leave, draw))
    with pytest.raises(KeyboardInterrupt):
        train(config, resume=True)
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [0, 1, 2]
    run = train(config, resume=True)
    assert (run / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()


# The disk -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system limits no file sizes")
def test_a_full_disk_keeps_the_checkpoint_before(tmp_path, monkeypatch, capsys, undisturbed):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))

    monkeypatch.setattr(checkpoints, "save", at_call(3, fill, checkpoints.save))
    try:
        with pytest.raises(UserError, match=r"cannot write the checkpoint .*step-00000003 \(.*") as caught:
            train(config_of(tmp_path / "run"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "the one after step 2 is kept; make room, then --resume goes on from there" in str(caught.value)
    assert "ile too large" in str(caught.value) and "is saved" not in capsys.readouterr().err
    assert checkpoints.steps_saved(tmp_path / "run") == [1, 2]
    assert sorted(entry.name for entry in (tmp_path / "run" / "checkpoints").glob(".*")) == []
    monkeypatch.undo()
    assert same(train(config_of(tmp_path / "run"), resume=True), undisturbed)


def test_a_disk_that_is_full_for_a_line_of_metrics_leaves_no_part_of_it(tmp_path, monkeypatch, undisturbed):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    run = tmp_path / "run"

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, ((run / "metrics.jsonl").stat().st_size + 9, hard))

    monkeypatch.setattr(RunDir, "log", at_call(3, fill, RunDir.log))
    try:
        with pytest.raises(OSError, match="File too large"):  # which the command line makes a sentence of
            train(config_of(run))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(run)] == [0, 1]
    assert same(train(config_of(run), resume=True), undisturbed)


@pytest.mark.parametrize("name", ["model/model.safetensors", "trainer.safetensors", "state.json", "checksums.json"])
def test_a_damaged_newest_checkpoint_costs_its_steps_only(tmp_path, monkeypatch, capsys, undisturbed, name):
    def leave():
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Explorer, "draw", at_call(4, leave, module.Explorer.draw))
    with pytest.raises(KeyboardInterrupt):
        train(config_of(tmp_path / "run"))
    monkeypatch.undo()
    file = checkpoints.path_of(tmp_path / "run", 3) / name
    file.write_bytes(file.read_bytes()[:-7])
    run = train(config_of(tmp_path / "run"), resume=True)
    assert "the checkpoint after step 3 is damaged" in (said := capsys.readouterr().err)
    assert "going on from the one before, after step 2" in said
    (aside,) = (run / "checkpoints").glob("damaged-*")
    for entry in sorted(aside.rglob("*"), reverse=True):
        entry.rmdir() if entry.is_dir() else entry.unlink()
    aside.rmdir()
    assert same(run, undisturbed)


@pytest.fixture
def unprivileged():
    """A folder that belongs to somebody else, while this process is a user without rights."""
    if not hasattr(os, "geteuid"):
        pytest.skip("this system has no user ids")
    with tempfile.TemporaryDirectory(prefix="dph-tests-") as name:
        folder = Path(name)
        yield folder
        if os.getuid() == 0:
            os.seteuid(0)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)


def make_read_only(folder):
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.getuid() == 0:  # the superuser may write everywhere
        os.seteuid(65534)


def test_a_read_only_run_directory_is_named(unprivileged):
    config = config_of(unprivileged / "run")
    run = RunDir.start(config.out, "train", config)
    run.log(1, {"loss": 1.0})
    run.finish()
    run.update(status="running")
    make_read_only(unprivileged)
    for out, resume in ((unprivileged / "run", True), (unprivileged / "new", False)):
        with pytest.raises(UserError, match=f"cannot write to the run directory {out}: Permission denied"):
            RunDir.start(str(out), "train", replace(config, out=str(out)), resume=resume)


# The judge ----------------------------------------------------------------------------------------------------------


def lose(share):
    """A judge that loses every so many verdicts, whatever the response."""
    from dph.verifiers import Verifiers

    verify, count = Verifiers.verify, [0]

    def losing(self, items):
        verdicts = verify(self, items)
        for index in range(len(verdicts)):
            count[0] += 1
            if count[0] % round(1 / share) == 0:
                verdicts[index] = Verdict(Outcome.INFRA_ERROR, 0.0, "the worker process was lost twice")
        return verdicts

    return losing


def test_an_outage_of_the_judge_stops_the_run_with_its_state_saved(tmp_path, monkeypatch, undisturbed):
    from dph.verifiers import Verifiers

    begin = module.Explorer.draw
    outage = at_call(3, lambda: monkeypatch.setattr(Verifiers, "verify", lose(1 / 4)), begin)
    monkeypatch.setattr(module.Explorer, "draw", outage)
    config = replace(config_of(tmp_path / "run"), checkpoint_every=4)
    with pytest.raises(UserError, match=r"4 of 16 responses could not be judged \(the worker process was lost twice\)"):
        train(config)
    monkeypatch.undo()
    assert checkpoints.newest_intact(tmp_path / "run") == 2
    run = train(config, resume=True)
    assert (run / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()


def test_few_lost_verdicts_leave_their_groups_and_the_run_goes_on(tmp_path, monkeypatch):
    from dph.verifiers import Verifiers

    monkeypatch.setattr(Verifiers, "verify", lose(1 / 16))
    seen = []
    rows = module.group_rows
    monkeypatch.setattr(module, "group_rows", lambda group, config: seen.append(group) or rows(group, config))
    lines = read_metrics(train(train_config(tmp_path / "run", "grpo", {"steps": 2}, max_unjudged=0.1)))
    assert [line["unscored"] for line in lines] == [1 / 16, 1 / 16]
    lost = [r for group in seen for r in group.rollouts if r.verdict.outcome is Outcome.INFRA_ERROR]
    assert len(lost) == 2  # one of sixteen in each of two steps
    for group in seen:
        judged = [r for r in group.rollouts if r.verdict.scored]
        made = rows(group, train_config(tmp_path / "run", "grpo"))
        assert len(made) == len(judged)
        # advantages over those judged alone: (r − mean)/(std + 1e-6), which sum to zero
        assert sum(row.advantage for row in made) == pytest.approx(0, abs=1e-5)


# Numbers and memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_stay_infinite_stop_the_run(tmp_path, monkeypatch, value):
    rows = module.group_rows
    poisoned = lambda group, config: [replace(row, advantage=value) for row in rows(group, config)]  # noqa: E731
    monkeypatch.setattr(module, "group_rows", poisoned)
    settings = {"steps": 9, "checkpoint_every": 9, "optim": {"max_skipped": 5}}  # two updates a step
    with pytest.raises(UserError, match="not finite in 6 updates in a row, up to step 3; start over from an earlier"):
        train(train_config(tmp_path / "run", "grpo", settings))
    assert [line["skipped_updates"] for line in read_metrics(tmp_path / "run")] == [2, 2, 2]
    state = checkpoints.read_state(checkpoints.path_of(tmp_path / "run", 3))
    assert (state.step, state.skipped_in_a_row) == (3, 6)


def test_one_bad_step_is_left_out_and_counted(tmp_path, monkeypatch):
    rows, calls = module.group_rows, []

    def poisoned(group, config):
        calls.append(1)
        return [
            replace(row, advantage=float("nan") if len(calls) == 1 else row.advantage) for row in rows(group, config)
        ]

    monkeypatch.setattr(module, "group_rows", poisoned)
    settings = {"steps": 2, "optim": {"max_skipped": 2}}
    assert [line["skipped_updates"] for line in read_metrics(train(train_config(tmp_path, "grpo", settings)))] == [1, 0]


class Memory:
    """Memory that holds micro-batches up to a number of tokens."""

    def __init__(self, monkeypatch, tokens):
        self.refused, forward = 0, Updater._accumulate

        def accumulate(updater, rows, *more):
            if updater._budget > tokens and rows:
                self.refused += 1
                forward(updater, rows[: len(rows) // 2], *more[:-1], [])  # it fails half way
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return forward(updater, rows, *more)

        monkeypatch.setattr(Updater, "_accumulate", accumulate)


def test_out_of_memory_halves_the_token_budget_once_and_goes_on(tmp_path, monkeypatch, capsys):
    settings = {**SETTINGS, "optim": {"tokens_per_microbatch": 60}}
    whole = train(train_config(tmp_path / "whole", "dph_js", settings))
    memory = Memory(monkeypatch, 30)
    run = train(train_config(tmp_path / "run", "dph_js", settings))
    assert memory.refused == 1 and "going on with optim.tokens_per_microbatch 30" in capsys.readouterr().err
    assert checkpoints.read_state(checkpoints.path_of(run, 4)).token_budget == 30  # a resumed run begins with it
    for one, two in zip(read_metrics(whole), read_metrics(run), strict=True):
        # the same responses; sums in another order, and Adam's steps on gradients near zero
        assert two == {name: pytest.approx(value, rel=1e-3, abs=1e-4) for name, value in one.items()}


def test_out_of_memory_twice_names_the_setting(tmp_path, monkeypatch, capsys):
    Memory(monkeypatch, 29)
    config = train_config(tmp_path / "run", "dph_js", {**SETTINGS, "optim": {"tokens_per_microbatch": 60}})
    monkeypatch.setattr(module, "train", lambda *_, **__: train(config))
    with pytest.raises(SystemExit) as caught:
        main(["train", "--out", str(tmp_path / "run")])
    assert caught.value.code == 2
    assert "out of memory; lower --optim.tokens-per-microbatch" in " ".join(capsys.readouterr().err.split())


# Data that changes --------------------------------------------------------------------------------------------------


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
    message = f"the database {path} has changed since .*run was started; put the old file back, then --resume goes on"
    with pytest.raises(UserError, match=message):
        train(of_database(tmp_path / "run", **paths))
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [1, 2]
    with pytest.raises(UserError, match=message):
        train(of_database(tmp_path / "run", **paths), resume=True)
    path.unlink()
    with pytest.raises(UserError, match=f"the database {path} is gone"):
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
    with pytest.raises(UserError, match=r"not those that .*run was started with: 1 differ, such as 'train/0'"):
        train(config, resume=True)
    monkeypatch.setattr(ToyTask, "problems", lambda self, split: problems(self, split)[::-1])
    with pytest.raises(UserError, match=r"not those that .*run was started with: \d+ differ"):
        train(config, resume=True)
    monkeypatch.undo()
    noted = json.loads((tmp_path / "run" / "inputs.json").read_text())
    assert noted["problems"].keys() == {f"train/{i}" for i in range(12)}
    train(config, resume=True)
