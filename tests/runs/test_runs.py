"""Run directories: what is written comes back, a write is whole or absent, and a mistake is named. Which model a path
means, for `dph interpolate`. The format that a run directory notes, and the plug-ins that it records.
"""

import errno
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from complaints import complaint
from dph.cli.main import ending
from dph.config import EvalConfig, RewardConfig, RolloutConfig, TaskConfig, VerifierConfig
from dph.errors import RunError, SettingsError
from dph.rehearsal.store import Rehearsal, write_rehearsal
from dph.runs.chunks import Chunks
from dph.runs.directory import FORMAT, FoundModel, RunDir, find_model, package_versions, read_metrics
from dph.runs.files import (
    directory_written_atomically,
    drafted_directory,
    remove_leftovers,
    unlock,
    write_atomically,
    written_atomically,
)
from dph.runs.samples import Sample, write_samples
from dph.stages.train import train
from dph.verifiers import judging_versions
from helpers import base_run, presampled, train_config
from mathequal import RULES_VERSION


def start(path, resume=False, **changes):
    return RunDir.start(str(path), "eval", EvalConfig(out=str(path), **changes), resume=resume)


def begun(path, **changes):
    """A run that has got somewhere."""
    run = start(path, **changes)
    run.log(1, {"loss": 0.5})
    return run


def test_a_run_is_started_finished_and_opened_again(tmp_path):
    run = start(tmp_path / "a" / "b")
    assert not run.complete
    run.finish(weight_hash="abc", sizes={"ä": 1})
    again = RunDir.open(tmp_path / "a" / "b", "eval")
    assert again.complete and again.manifest == run.manifest
    assert (again.manifest["stage"], again.manifest["weight_hash"], again.manifest["sizes"]) == (
        "eval",
        "abc",
        {"ä": 1},
    )


def test_versions_of_what_results_depend_on():
    found = package_versions()
    assert {"python", "torch", "transformers"} <= found.keys()
    import torch

    # "2.11.0+cu130" may be installed as the distribution "2.11.0"
    assert found["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert found["sqlite"] == sqlite3.sqlite_version
    rules = judging_versions()
    assert {"strict@4", "bird@2", "spider@2", "paper@2", "paper_bird@2"} == set(rules["sql rules"].split())
    assert rules["mathequal rules"] == str(RULES_VERSION) and "mpmath" in found


def test_an_existing_run_needs_resume(tmp_path):
    begun(tmp_path)
    with pytest.raises(RunError, match="already holds a run; add --resume"):
        start(tmp_path)
    assert start(tmp_path, resume=True).manifest["stage"] == "eval"


@pytest.mark.parametrize("name", ["config.toml", "scores.json", "metrics.jsonl", "model"])
def test_a_new_run_replaces_nothing_of_others(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(RunError, match=f"{name} is there already and would be replaced"):
        RunDir.start(str(tmp_path), "eval", EvalConfig())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_command_that_is_refused_leaves_no_run_behind(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n')
    for command, words in (
        ("sft", ("--data", tmp_path / "rows.jsonl")),
        ("eval", ("--task", "toy", "--task.split", "nothing", "--model.path", base_run() / "model")),
    ):
        complaint(capsys, command, *words, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    complaint(capsys, "sft", "--data", tmp_path / "rows.jsonl", "--out", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_resume_starts_what_is_not_there_and_says_so(tmp_path, capsys):
    assert start(tmp_path / "new", resume=True).manifest["status"] == "running"
    assert f"nothing to resume in {tmp_path / 'new'}: starting a new run\n" in capsys.readouterr().err
    begun(tmp_path / "old")
    start(tmp_path / "old", resume=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_got_nowhere_is_started_anew_with_other_settings(tmp_path, resume):
    (start(tmp_path, seed=1).path / "tensorboard").mkdir()
    start(tmp_path, resume=resume, seed=2)
    assert "seed = 2" in (tmp_path / "config.toml").read_text()
    start(tmp_path, seed=3).finish()
    with pytest.raises(RunError, match="already holds a run"):
        start(tmp_path, seed=3)


def test_resume_with_other_settings_names_the_difference(tmp_path):
    begun(tmp_path, seed=1, task=TaskConfig(options={"path": "a"}))
    changed = {
        "seed": 2,
        "rollout": RolloutConfig(temperature=0.5),
        "task": TaskConfig(options={"path": "b", "x": "1"}),
    }
    with pytest.raises(RunError) as caught:
        start(tmp_path, resume=True, **changed)
    message = str(caught.value)
    default = EvalConfig().rollout
    for part in (
        "seed: 1 → 2",
        f"rollout.temperature: {default.temperature} → 0.5",
        "task.options.path: 'a' → 'b'",
        "task.options.x: None → '1'",
    ):
        assert part in message
    assert "greedy" not in message


def test_resume_with_another_number_of_workers(tmp_path):
    """As messages advise when memory is short; the limit of time stays, because it changes verdicts."""
    begun(tmp_path, verifier=VerifierConfig(workers=2))
    with pytest.raises(RunError, match=r"other settings \(verifier.timeout: 5.0 → 9.0\)"):
        start(tmp_path, resume=True, verifier=VerifierConfig(workers=1, timeout=9.0))
    start(tmp_path, resume=True, verifier=VerifierConfig(workers=1)).finish()


def test_other_versions_are_named_and_the_run_goes_on(tmp_path, capsys):
    begun(tmp_path).update(versions=package_versions() | {"torch": "1.0", "gone": "2"})
    assert not start(tmp_path, resume=True).complete
    said = " ".join(capsys.readouterr().err.split())
    assert "versions have changed since the start" in said and f"torch: '1.0' → '{package_versions()['torch']}'" in said
    assert "gone: '2' → None" in said and "python" not in said
    start(tmp_path, resume=True)


def test_a_run_may_be_moved_before_it_is_resumed(tmp_path):
    begun(tmp_path / "old")
    unlock(tmp_path / "old")
    os.rename(tmp_path / "old", tmp_path / "new")
    assert start(tmp_path / "new", resume=True).path == tmp_path / "new"


def test_another_spelling_of_a_path_is_the_same_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("problems.jsonl", "mine.py", "other.py"):
        (tmp_path / name).write_text("x = 1\n")

    def settings(folder, plugin="mine.py"):
        return {
            "task": TaskConfig(name="records", options={"path": f"{folder}problems.jsonl", "verifier": "exact"}),
            "reward": RewardConfig(f"{folder}mine.py:judge"),
            "plugins": (f"{folder}{plugin}", "json"),
        }

    begun(tmp_path / "run", **settings(""))
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in ("", "./", f"{tmp_path}/", "link/"):
        assert start(tmp_path / "run", resume=True, **settings(folder)).manifest["stage"] == "eval"
    with pytest.raises(RunError, match=r"other settings \(plugins"):
        start(tmp_path / "run", resume=True, **settings("link/", "other.py"))
    (tmp_path / "mine.py").write_text("x = 2\n")
    with pytest.raises(RunError, match=r"link/mine\.py has changed since"):
        start(tmp_path / "run", resume=True, **settings("link/"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no manifest.json"),
        ("", "manifest.json is damaged"),
        ('{"stage": "ev', "manifest.json is damaged"),
        ('{"stage": "train"}', "of `dph train`, not of `dph eval`"),
        ("[1]", "manifest.json names no stage; run `dph eval` again in another directory"),
    ],
)
def test_a_directory_that_is_no_such_run(tmp_path, content, message):
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(RunError, match=message):
        RunDir.open(tmp_path, "eval")


def test_no_directory_a_file_in_its_place_and_lost_settings(tmp_path):
    with pytest.raises(SettingsError, match="no run directory was named; add --out"):
        start("")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write to the run directory"):
        start(tmp_path / "file")
    with pytest.raises(RunError, match="cannot write to the run directory"):
        start(tmp_path / "file" / "below")
    begun(tmp_path / "run")
    (tmp_path / "run" / "config.toml").unlink()
    with pytest.raises(RunError, match=r"config\.toml is missing; restore it, or start a new run"):
        start(tmp_path / "run", resume=True)


def test_metrics_are_logged_in_order_and_apart_from_timings(tmp_path):
    run = start(tmp_path)
    run.log(0, {"loss": 0.1})
    run.log(1, {"loss": 1 / 3, "reward": 1.0}, {"seconds": 2.5})
    assert read_metrics(tmp_path) == [{"step": 0, "loss": 0.1}, {"step": 1, "loss": 1 / 3, "reward": 1.0}]
    assert read_metrics(tmp_path, "timings.jsonl") == [{"step": 1, "seconds": 2.5}]
    assert read_metrics(tmp_path / "elsewhere") == []


def test_rewind_drops_later_lines_and_a_line_cut_short(tmp_path):
    run = start(tmp_path)
    for step in range(5):
        run.log(step, {"loss": float(step)}, {"seconds": 1.0})
    before = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 1, 2, 3, 4]
    run.rewind(2)
    assert (tmp_path / "metrics.jsonl").read_text() == "".join(before[:3])
    assert [row["step"] for row in read_metrics(tmp_path, "timings.jsonl")] == [0, 1, 2]
    run.log(3, {"loss": -1.0})
    assert read_metrics(tmp_path)[-1] == {"step": 3, "loss": -1.0}


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_atomically(path, "old")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    monkeypatch.undo()
    write_atomically(path, "new")
    assert path.read_text() == "new"


@pytest.fixture
def little_room(request):
    """No file may grow beyond 100 kB, as on a disk that is almost full."""
    resource = pytest.importorskip("resource", reason="this system has no limits on the size of files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("little_room")
def test_a_write_that_finds_no_room_leaves_nothing_behind(tmp_path):
    path = tmp_path / "a.html"
    write_atomically(path, "old")
    for content in ("x" * 200_000, b"x" * 200_000):
        with pytest.raises(OSError):
            write_atomically(path, content)
    noise = [Rehearsal([1], list(range(40_000 * i, 40_000 * (i + 1))), "a", [0.5] * 40_000, "") for i in range(2)]
    with pytest.raises(OSError):
        write_rehearsal(tmp_path / "rows.parquet", noise)
    assert path.read_text() == "old" and [entry.name for entry in tmp_path.iterdir()] == ["a.html"]


def _finish_chunks(run):
    with Chunks(run, {}, {}) as chunks:
        chunks.map("things", [1], 1, lambda _: ["x" * 200_000], "working")


WRITERS = {
    "a.json": lambda run: write_atomically(run / "a.json", "x" * 200_000),
    "chunks.tsv": _finish_chunks,
    "metrics.jsonl": lambda run: RunDir(run, {}).log(1, {"x" * 200_000: 1.0}),
    "samples/monitor-00000001.parquet": lambda run: write_samples(run, 1, "monitor", [LONG_SAMPLE]),
}
NOISE = "".join(map(chr, random.Random(0).choices(range(32, 126), k=400_000)))  # Parquet compresses what repeats
LONG_SAMPLE = Sample(1, "monitor", "a", 0, "", NOISE, "correct", 1.0, None, 0.0, 1, "stop")


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.usefixtures("little_room")
def test_every_writer_names_the_file_for_which_there_is_no_room(tmp_path, capsys, name):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(SystemExit) as end, ending("dph"):
        WRITERS[name](tmp_path)
    wanted = f"dph: cannot write {tmp_path / name}: File too large; free disk space, or use another disk"
    assert (end.value.code, capsys.readouterr().err.splitlines()[-1]) == (2, wanted)


def test_the_file_that_is_written_is_named_and_not_the_one_that_is_copied(monkeypatch, capsys, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a").write_text("1")
    for module, name in ((os, "sendfile"), (os, "copy_file_range")):
        monkeypatch.setattr(module, name, full, raising=False)
    with pytest.raises(SystemExit), ending("dph"):
        shutil.copyfile(tmp_path / "a", tmp_path / "b")
    assert f"cannot write {tmp_path / 'b'}: No space left" in capsys.readouterr().err


def test_a_directory_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "step-1"
    with pytest.raises(RuntimeError), directory_written_atomically(target) as path:
        (path / "a").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with directory_written_atomically(target) as path:
        (path / "a").write_text("1")
        assert not target.exists()
    with pytest.raises(RuntimeError), directory_written_atomically(target) as path:
        (path / "a").write_text("2")
        raise RuntimeError
    assert (target / "a").read_text() == "1"
    with directory_written_atomically(target) as path:
        (path / "b").write_text("3")
    assert [entry.name for entry in target.iterdir()] == ["b"] and len(list(tmp_path.iterdir())) == 1


LEAVES = """
import os, sys
from pathlib import Path
from dph.runs.files import directory_written_atomically, remove_atomically, written_atomically
folder = Path(sys.argv[1])
with directory_written_atomically(folder / "model") as draft, written_atomically(folder / "a.json") as file:
    (draft / "weights").write_bytes(bytes(1000))
    file.write_text("half")
    print("ready", flush=True)
    sys.stdin.read() if sys.argv[2] == "wait" else os.kill(os.getpid(), 9)
"""


def leaving(folder, how):
    command = [sys.executable, "-c", LEAVES, str(folder), how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.skipif(os.name == "nt", reason="Windows does not lock directories")
def test_the_next_writer_removes_what_a_killed_process_left_and_nothing_else(tmp_path):
    own = tmp_path / ".notes.tmp"  # not one of ours
    own.write_text("mine")
    killed = leaving(tmp_path, "kill")
    killed.communicate()
    assert killed.returncode == -9
    left = [path for path in tmp_path.iterdir() if path != own]
    assert sorted(path.name.partition(".new.")[0] for path in left) == [".a.json", ".model"]
    living = leaving(tmp_path, "wait")
    try:
        assert not any(path.exists() for path in left)  # its own writing removed them
        kept = {path.name for path in tmp_path.iterdir()}
        assert len(kept) == 3
        write_atomically(tmp_path / "b.json", "{}")
        with directory_written_atomically(tmp_path / "model"), written_atomically(tmp_path / "a.json") as file:
            file.write_text("whole")
        remove_leftovers(tmp_path)
        assert kept < {path.name for path in tmp_path.iterdir()}
    finally:
        living.kill()
        living.communicate()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".notes.tmp", "a.json", "b.json", "model"}


@pytest.mark.skipif(os.name == "nt", reason="Windows does not lock directories")
def test_several_writers_at_once_leave_each_others_temporary_files_alone(tmp_path):
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # often between creating a file and locking it

    def write(name):
        for _ in range(100):
            with drafted_directory(tmp_path / f"folder {name}") as draft:
                (draft / "file").write_text("content")
            write_atomically(tmp_path / f"file {name}", "content")

    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(write, [0, 1] * 3))
    finally:
        sys.setswitchinterval(switch)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file 0", "file 1"]


def test_where_nothing_can_be_locked_the_process_is_asked_for(tmp_path, monkeypatch):
    import fcntl

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for pid in (dead.pid, os.getpid()):
        (tmp_path / f".model.new.{pid}.0.tmp").mkdir()
        (tmp_path / f".model.old.{pid}.tmp").mkdir()
    remove_leftovers(tmp_path)
    assert {path.name.split(".")[3] for path in tmp_path.iterdir()} == {str(os.getpid())}


def test_the_manifest_is_plain_json(tmp_path):
    run = start(tmp_path)
    run.update(label="DPH-JS (def.) ü")
    assert json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))["label"] == "DPH-JS (def.) ü"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of `dph train` of two steps, with a checkpoint after each."""
    return train(train_config(tmp_path_factory.mktemp("find") / "run", settings={"checkpoint_every": 1}))


def test_the_model_that_a_path_means(trained, tmp_path, monkeypatch):
    newest = trained / "checkpoints" / "step-00000002"
    assert find_model(str(trained)) == FoundModel(str(trained / "model"), trained)
    for name in (trained / "model", newest, newest / "model"):
        model = name if name.name == "model" else name / "model"
        assert find_model(str(name)) == FoundModel(str(model), trained)
    assert find_model("HuggingFaceTB/SmolLM2-135M") == FoundModel("HuggingFaceTB/SmolLM2-135M")
    assert find_model(str(presampled())) == FoundModel(str(base_run() / "model"), presampled())
    shutil.copytree(trained / "model", tmp_path / "model")
    assert find_model(str(tmp_path / "model")) == FoundModel(str(tmp_path / "model"))
    monkeypatch.chdir(trained)
    found = find_model("model")
    assert found.model == "model" and found.run == trained.resolve()


def test_an_unfinished_run_has_its_newest_checkpoint(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run", ignore=lambda folder, names: ["model"] if folder == str(trained) else [])
    newest = tmp_path / "run" / "checkpoints" / "step-00000002" / "model"
    assert find_model(str(tmp_path / "run")) == FoundModel(str(newest), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(RunError, match="of `dph train` has no model"):
        find_model(str(tmp_path / "run"))


def started_evaluation(path: Path) -> RunDir:
    config = EvalConfig(out=str(path), seed=3)
    run = RunDir.start(str(path), "eval", config)
    run.log(1, {"loss": 1.0})  # it got somewhere
    return run


def test_a_run_notes_its_format_and_other_formats_are_refused(tmp_path):
    run = started_evaluation(tmp_path / "run")
    assert run.manifest["format"] == FORMAT
    for other in (FORMAT + 1, FORMAT - 1, "two"):
        run.update(format=other)
        with pytest.raises(RunError, match=rf"has run format {other!r}, but"):
            RunDir.open(tmp_path / "run", "eval")


def test_a_plug_in_is_recorded_and_demanded_on_resume(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text("1\n")
    config = EvalConfig(out=str(tmp_path / "run"), plugins=(str(plugin), "json"))
    run = RunDir.start(config.out, "eval", config)
    (run.path / "scores.json").write_text("{}")  # it got somewhere
    assert list(run.manifest["code"]) == [str(plugin)] and "mine.py" in (run.path / "config.toml").read_text()
    RunDir.start(config.out, "eval", config, resume=True)
    plugin.write_text("2\n")
    with pytest.raises(RunError, match=r"mine\.py has changed since"):
        RunDir.start(config.out, "eval", config, resume=True)
    with pytest.raises(RunError, match="was started with other settings"):
        RunDir.start(config.out, "eval", replace(config, plugins=()), resume=True)
