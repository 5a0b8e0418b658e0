"""The format that a run directory notes, and the plug-ins that it records."""

from dataclasses import replace
from pathlib import Path

import pytest

from dph.config import EvalConfig
from dph.errors import RunError
from dph.runs.directory import FORMAT, RunDir


def begun(path: Path) -> RunDir:
    config = EvalConfig(out=str(path), seed=3)
    run = RunDir.start(str(path), "eval", config)
    run.log(1, {"loss": 1.0})  # it got somewhere
    return run


def test_a_run_notes_its_format_and_other_formats_are_refused(tmp_path):
    run = begun(tmp_path / "run")
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
