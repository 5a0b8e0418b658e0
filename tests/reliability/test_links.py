"""No command reads or writes through a link that leads out of a folder that it was given, or writes into a run."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hostile import CALLS, MAKE_RUNS, data_file, finished

from complaints import complaint, run
from dph.cli.main import COMMANDS, main
from dph.config import STAGES
from dph.errors import RunError
from dph.process import places
from dph.report.write import report
from dph.runs.files import appended, directory_written_atomically, written_atomically
from helpers import base_run

SECRET = "the secret of another folder"


def snapshot(folder: Path) -> dict[str, str]:
    """The content of every file in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Given:
    """Harmless files, and new folders, some of which hold links to a folder elsewhere."""

    def __init__(self, folder: Path, runs: dict[str, str] | None = None) -> None:
        self.folder, self.elsewhere = folder, folder / "elsewhere"
        self.made: list[Path] = []
        self.elsewhere.mkdir(exist_ok=True)
        (self.elsewhere / "file").write_text(SECRET)
        self.runs = runs or {stage: str(finished(stage)) for stage in MAKE_RUNS}
        self.model, self.data, self.preset = str(base_run() / "model"), data_file(), folder / "grpo.toml"
        self.preset.write_text("")
        self.names: list[str] = []

    def new(self) -> str:
        """A new path or, with names, a folder in which they are links."""
        self.made.append(self.folder / f"new-{len(self.made)}")
        for name in self.names:
            self.made[-1].mkdir(exist_ok=True)
            (self.made[-1] / name).symlink_to(self.elsewhere)
        return str(self.made[-1])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_writes_through_a_link_in_its_folder(tmp_path, capsys, monkeypatch, command):
    """Each folder that a command makes in its own, found by a first call, is a link at the second."""
    monkeypatch.setattr("dph.stages.demo.run_jobs", lambda *_, **__: [])  # each job is a command
    given = Given(tmp_path)
    for words in CALLS[command](given):
        run(capsys, command, *words)
    folders = {entry.name for out in given.made if out.is_dir() for entry in out.iterdir() if entry.is_dir()}
    before = snapshot(given.elsewhere)
    for name in sorted(folders | {"figures", "samples", "checkpoints", "model", "tensorboard", "logs", "eval-1"}):
        given.names = [name]
        for words in CALLS[command](given):
            status, said = run(capsys, command, *words)
            assert status in (0, 2, 3), said
        assert snapshot(given.elsewhere) == before, f"{command} wrote through the link {name}"


@pytest.mark.parametrize("command", [name for name, one in STAGES.items() if hasattr(one, "out") or name == "certify"])
def test_no_other_command_writes_into_a_run(tmp_path, capsys, monkeypatch, command):
    monkeypatch.setattr("dph.stages.demo.run_jobs", lambda *_, **__: [])
    if command in (*MAKE_RUNS, "check", "doctor"):  # these begin, continue or refuse a run; those write nothing
        return
    path = tmp_path / "run"
    shutil.copytree(finished("eval"), path)
    before = snapshot(path)
    for words in CALLS[command](Given(tmp_path)):
        if "--out" not in words:
            continue
        words = [path if str(word).startswith(str(tmp_path / "new-")) else word for word in words]
        message = complaint(capsys, command, *words)
        assert "run directory" in message or "exists already" in message, message
        assert snapshot(path) == before


@pytest.mark.parametrize("stage", ["eval", "verify", "train"])
def test_a_report_copies_nothing_from_outside_a_run(tmp_path, capsys, stage):
    """Any file of the run, or folder in it, may be the link; one that stays in the run is no matter."""
    files = sorted(path.relative_to(finished(stage)) for path in finished(stage).rglob("*") if path.is_file())
    inside: list[Any] = []
    for number, file in enumerate(file for file in files if not file.name.startswith(".")):
        path, outside, out = (tmp_path / f"{name}-{number}" for name in ("run", "outside", "report"))
        shutil.copytree(finished(stage), path)
        shutil.move(path / file, outside)
        (path / file).symlink_to(outside)
        words = [path] if stage != "train" else [finished("eval"), path]
        message = complaint(capsys, "report", *words, "--out", out)
        assert message.startswith(f"{path / file} is a link that leads out of {path}") and not out.exists()
        (path / file).unlink()
        shutil.move(outside, path / "inside")
        (path / file).symlink_to(path / "inside")
        inside = [*words, "--out", out]
    assert run(capsys, "report", *inside)[0] == 0


@pytest.mark.parametrize("stage", MAKE_RUNS)
def test_a_run_with_a_link_out_of_it_is_not_resumed_and_not_read(tmp_path, capsys, stage):
    path = tmp_path / "run"
    shutil.copytree(finished(stage), path)
    (path / "config.toml").rename(tmp_path / "outside.toml")
    (path / "config.toml").symlink_to(tmp_path / "outside.toml")
    message = complaint(capsys, stage, "--resume", "--out", path)
    assert "config.toml is a link that leads out of" in message


def test_a_run_directory_may_be_a_link_itself(tmp_path, capsys):
    shutil.copytree(finished("eval"), tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert run(capsys, "report", tmp_path / "link", "--out", tmp_path / "report")[0] == 0
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    assert run(capsys, "report", tmp_path / "link", "--out", tmp_path / "out")[0] == 0
    assert (tmp_path / "real" / "report.md").exists()


@pytest.mark.parametrize("mark", ["manifest.json", "scores.json", "metrics.jsonl", "verl.toml"])
def test_a_report_of_a_program_is_not_written_into_a_run(tmp_path, mark):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / mark).write_text("{}")
    with pytest.raises(RunError, match=mark):
        report([finished("eval")], tmp_path / "out", base=None, title="t")
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [mark]


def test_a_page_replaces_no_file_of_somebody_else(tmp_path, capsys):
    settings = finished("eval") / "config.toml"
    before = settings.read_bytes()
    message = complaint(capsys, "passk", finished("eval"), "--html", settings)
    assert "it was not written by dph passk; name another place with --html" in message
    assert settings.read_bytes() == before
    for _ in range(2):  # its own page is replaced
        assert run(capsys, "passk", finished("eval"), "--html", tmp_path / "page.html")[0] == 0


def test_every_way_to_write_a_file_looks_for_links(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "_owned", [])
    outside, given = tmp_path / "outside", tmp_path / "given"
    outside.mkdir()
    given.mkdir()
    (given / "link").symlink_to(outside)
    places.own(given)

    def ways(path: Path) -> list[Any]:
        return [written_atomically(path), directory_written_atomically(path), appended(path)]

    for path in (given / "link" / "file", given / "link" / "deeper" / "file"):
        for way in ways(path):
            with pytest.raises(RunError, match="link that leads out of"), way:
                pass
    assert list(outside.iterdir()) == []
    with written_atomically(given / "file") as file:
        file.write_text("x")
    assert (given / "file").read_text() == "x"


def test_a_model_with_a_file_from_elsewhere_is_not_loaded(tmp_path, capsys):
    model = tmp_path / "model"
    shutil.copytree(base_run() / "model", model)
    (tmp_path / "secret").write_text(SECRET)
    os.symlink(tmp_path / "secret", model / "chat_template.jinja")
    words = ("eval", "--task.name", "toy", "--model.path", model, "--out", tmp_path / "out")
    assert "chat_template.jinja is a link that leads out of the model's folder" in complaint(capsys, *words)


def test_what_a_command_was_given_is_noted_before_it_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "_owned", [])
    main(["passk", str(finished("eval"))])
    assert places._owned == []
    main(["report", str(finished("eval")), "--out", str(tmp_path / "report")])
    assert places._owned == [tmp_path / "report"]


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe"])
def test_no_file_replaces_a_device_or_a_pipe(tmp_path, capsys, kind):
    """Of a superuser it would replace /dev/null for every program."""
    log = tmp_path / "log.jsonl"
    log.write_text('{"id": "a", "correct": true}\n{"id": "b", "correct": false}\n')
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link to a pipe").symlink_to("pipe")
    place = tmp_path / kind
    before = place.lstat().st_ino
    for words in (["passk", log, log, "--html", place], ["init", "maths", log, "--out", place]):
        with pytest.raises(SystemExit, match="2"):
            main(list(map(str, words)))
        assert place.lstat().st_ino == before
    with pytest.raises(RunError, match="is a device, a pipe or a socket"), written_atomically(place):
        pass
    assert "Traceback" not in capsys.readouterr().err
