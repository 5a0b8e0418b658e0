"""Signals: the state is saved, and the resumed run ends with the files of an undisturbed run. Runs in the embedded
world are killed at random moments and resumed: `benchmarks/reliability/kill.py` with few kills.

The base model is that of `dph demo --smoke`: from the folder that the variable DPH_DEMO names, else made here.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dph.errors import Interrupted
from dph.runs.directory import RunDir, read_metrics
from dph.stages import train as module
from dph.stages.train import train
from dph.training import checkpoints, loop, rollouts
from faults_support import at_call, config_of, same
from helpers import base_run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return train(config_of(tmp_path_factory.mktemp("whole")))


PLACES = {  # what is called at the third time when the signal comes; the step whose state is then saved
    "sampling": (rollouts, "sample_groups", 2, signal.SIGINT),  # broken off: nothing of step 3 is kept
    "update": (loop.Updater, "update", 3, signal.SIGTERM),  # brought to its end, and the step's line written
    "evaluation": (
        module.Evaluator,
        "responses",
        4,
        signal.SIGINT,
    ),  # broken off: the step is kept, its line pending
    "checkpoint": (checkpoints, "save", 3, signal.SIGTERM),
    "logging": (RunDir, "log", 2, signal.SIGHUP),  # the lines of the steps 0, 1, 2
}


@pytest.mark.parametrize("place", PLACES)
def test_a_signal_saves_the_state_and_the_run_goes_on_without_a_trace(
    tmp_path, monkeypatch, capfd, signals, undisturbed, place
):
    owner, name, saved, number = PLACES[place]
    monkeypatch.setattr(owner, name, at_call(3, lambda: signal.raise_signal(number), getattr(owner, name)))
    with pytest.raises(Interrupted, match=r"stopped after step \d of 4, which is"):
        train(config_of(tmp_path / "run"))
    monkeypatch.undo()
    said = "dph: a signal came: the step is finished and its state saved, then the run stops; a second signal ends the"
    assert capfd.readouterr().err.count(said) == (place not in ("sampling", "evaluation")), "what takes time is said"
    assert checkpoints.newest_intact(tmp_path / "run") == saved and not list((tmp_path / "run").glob(".*.tmp"))
    assert same(train(config_of(tmp_path / "run"), resume=True), undisturbed)


@pytest.mark.parametrize("place", ["sampling", "update"])
def test_a_key_pressed_twice_saves_the_state_too(tmp_path, monkeypatch, signals, undisturbed, place):
    owner, name, saved, number = PLACES[place]

    def twice():
        try:
            signal.raise_signal(number)
        finally:  # while the first is on its way
            signal.raise_signal(number)

    monkeypatch.setattr(owner, name, at_call(3, twice, getattr(owner, name)))
    with pytest.raises(Interrupted, match="which is saved"):
        train(config_of(tmp_path / "run"))
    monkeypatch.undo()
    assert checkpoints.newest_intact(tmp_path / "run") == saved
    assert same(train(config_of(tmp_path / "run"), resume=True), undisturbed)


def test_a_signal_in_the_first_evaluation_has_nothing_to_save(tmp_path, monkeypatch, signals, undisturbed):
    answer = module.Evaluator.responses
    monkeypatch.setattr(module.Evaluator, "responses", at_call(1, lambda: signal.raise_signal(signal.SIGTERM), answer))
    with pytest.raises(Interrupted, match=r"0 of 4; nothing is saved, and .* --resume starts anew$"):
        train(config_of(tmp_path / "run"))
    monkeypatch.undo()
    assert same(train(config_of(tmp_path / "run"), resume=True), undisturbed)


def test_a_step_saved_without_its_line_gets_it_once(tmp_path, monkeypatch, signals, undisturbed):
    """Interrupted in its evaluation, resumed, and killed after its line was written but before the next checkpoint."""
    config = replace(config_of(tmp_path / "run"), checkpoint_every=4, keep_best="")
    answer, draw = module.Evaluator.responses, loop.RolloutCollector.draw
    monkeypatch.setattr(module.Evaluator, "responses", at_call(2, lambda: signal.raise_signal(signal.SIGTERM), answer))
    with pytest.raises(Interrupted, match="stopped after step 2 of 4, which is"):
        train(config)
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [0, 1]

    def leave():
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.RolloutCollector, "draw", at_call(1, leave, draw))
    with pytest.raises(KeyboardInterrupt):
        train(config, resume=True)
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [0, 1, 2]
    run = train(config, resume=True)
    assert (run / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()


# Processes: the terminal, and whoever reads what a training says ------------------------------------------------------


def words_of(run, steps):
    """A command that trains so many steps."""
    words = [sys.executable, "-m", "dph", "train", "--preset", "grpo", "--task.name", "countdown", "--task.limit", "8"]
    words += ["--rollout.n", "2", "--rollout.prompts", "2", "--rollout.max-tokens", "4", "--steps", str(steps)]
    return [*words, "--checkpoint-every", "1000", "--model.path", str(base_run() / "model"), "--out", str(run)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    subprocess.run(words_of(run, 12), check=True)
    return run


def logged(run, steps):
    """Wait until so many lines of metrics are written."""
    while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").read_text().count("\n") < steps:
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no such signal")
def test_a_training_saves_its_state_when_its_terminal_closes(tmp_path, alone):
    run = tmp_path / "run"
    with subprocess.Popen(words_of(run, 12), stderr=subprocess.PIPE, text=True) as process:
        logged(run, 3)
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        last = process.stderr.read().splitlines()[-1]
    assert process.returncode == 129 and "which is saved; the same command with --res" in last
    assert checkpoints.newest_intact(run) in range(3, 12)
    assert subprocess.run([*words_of(run, 12), "--resume"]).returncode == 0
    for file in ("metrics.jsonl", "model/model.safetensors"):
        assert (run / file).read_bytes() == (alone / file).read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no such signal")
def test_a_training_started_by_nohup_survives_its_terminal(tmp_path, alone):
    run = tmp_path / "run"
    with subprocess.Popen(
        ["nohup", *words_of(run, 12)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        logged(run, 3)
        process.send_signal(signal.SIGHUP)
    assert process.returncode == 0 and same(run, alone)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&1 | head -1"])
def test_a_training_whose_output_nobody_reads_ends_as_any_other(tmp_path, alone, closed):
    run = tmp_path / "run"
    command = f"set -o pipefail; {shlex.join(words_of(run, 12))} {closed}"
    assert subprocess.run(["bash", "-c", command], stdout=subprocess.DEVNULL).returncode == 0
    assert same(run, alone)


ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--rollout.prompts", "2", "--rollout.n", "4", "--task.limit", "48")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the kill test reads /proc, which only Linux has")
@pytest.mark.parametrize(("ranks", "kills", "steps"), [(1, 5, 8), (2, 3, 6)])
def test_killed_runs_end_as_if_nothing_had_been(tmp_path, ranks, kills, steps):
    """Kills aimed at one part of a step after the other; weights, moments, cursors and metrics are those of an
    undisturbed run. Of two processes the first is killed, then the second, then torchrun."""
    demo = Path(os.environ.get("DPH_DEMO", ""))
    base = ("--base", str(demo)) if (demo / "presample" / "manifest.json").is_file() else ("--smoke",)
    command = [
        sys.executable,
        "-m",
        "benchmarks.reliability.kill",
        "--out",
        str(tmp_path),
        *base,
        "--steps",
        str(steps),
        *SMALL,
    ]
    command += ["--kills", str(kills), "--ranks", str(ranks)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    log = (tmp_path / "log").read_text() if (tmp_path / "log").is_file() else ""
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, log])
    found = json.loads((tmp_path / "kills.json").read_text())
    assert (found["kills"], found["ranks"]) == (kills, ranks)
    assert found["runs_completed"] >= 1 and found["files_compared"] > 15
    assert len(found["by_part"]) >= kills - 2  # the moment drawn may lie beyond the part's end
    assert ranks == 1 or len(found["by_process"]) >= 2
    assert found["orphans"] == 0 and found["files_that_differ"] == []
