"""Run directories of the previous format: their settings are read under today's names, and interrupted runs continue.

`format1/` holds config.toml of four stages as version 1 of the format wrote them (presets minisql and dph_js).
"""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from dph.config import STAGES, EvalConfig, from_dict, load_settings, to_toml
from dph.config.renamed import FORMER, REMOVED, RENAMED, migrated
from dph.errors import UserError
from dph.runs.directory import FORMAT, RunDir, read_metrics
from dph.stages.train import train
from helpers import train_config

OLD = Path(__file__).parent / "format1"
PRESETS = {"sft": ["minisql"], "presample": ["minisql"], "train": ["minisql", "dph_js"], "eval": ["minisql"]}


@pytest.mark.parametrize("stage", PRESETS)
def test_old_settings_are_todays_in_todays_names(stage):
    old = tomllib.loads((OLD / f"{stage}.toml").read_text())
    with pytest.raises(UserError, match="known here are"):
        from_dict(STAGES[stage], old)
    assert from_dict(STAGES[stage], migrated(stage, old)) == load_settings(stage, PRESETS[stage])
    again = tomllib.loads(to_toml(load_settings(stage, PRESETS[stage])))
    assert migrated(stage, again) == again  # today's settings are left alone


def test_no_name_of_today_is_treated_as_an_old_one():
    from dph.config import flatten, to_dict

    for stage in {*RENAMED, *REMOVED, *FORMER}:
        today = flatten(to_dict(STAGES[stage]()))
        assert not today.keys() & {*RENAMED.get(stage, ()), *REMOVED.get(stage, ()), *FORMER.get(stage, ())}


def begun(path: Path) -> RunDir:
    config = EvalConfig(out=str(path), seed=3)
    run = RunDir.start(str(path), "eval", config)
    run.log(1, {"loss": 1.0})  # it got somewhere
    return run


def test_a_run_notes_its_format_and_other_formats_are_refused(tmp_path):
    run = begun(tmp_path / "run")
    assert run.manifest["format"] == FORMAT
    for other in (FORMAT + 1, 0, "two"):
        run.update(format=other)
        with pytest.raises(
            UserError, match=rf"has run format {other!r}, but this version of DPH-RL reads formats 1 to"
        ):
            RunDir.open(tmp_path / "run", "eval")


def test_a_half_done_run_of_the_previous_format_continues(tmp_path):
    whole = train(train_config(tmp_path / "whole", "dph_js", {"steps": 4, "checkpoint_every": 2}))
    config = train_config(tmp_path / "run", "dph_js", {"steps": 4, "checkpoint_every": 2})
    train(replace(config, steps=4))
    run = tmp_path / "run"
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["status"] = "running"
    del manifest["format"], manifest["code"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    text = (run / "config.toml").read_text().replace("prompt_set =", "prompts =")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("plugins"))
    (run / "config.toml").write_text(text + "\n")
    assert train(config, resume=True) == run
    assert read_metrics(run) == read_metrics(whole)
    with pytest.raises(UserError, match=r"was started with other settings \(seed: 0 → 1\)"):
        manifest["status"] = "running"
        (run / "manifest.json").write_text(json.dumps(manifest))
        train(replace(config, seed=1), resume=True)


def test_a_plug_in_is_recorded_and_demanded_on_resume(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text("1\n")
    config = EvalConfig(out=str(tmp_path / "run"), plugins=(str(plugin), "json"))
    run = RunDir.start(config.out, "eval", config)
    (run.path / "scores.json").write_text("{}")  # it got somewhere
    assert list(run.manifest["code"]) == [str(plugin)] and "mine.py" in (run.path / "config.toml").read_text()
    RunDir.start(config.out, "eval", config, resume=True)
    plugin.write_text("2\n")
    with pytest.raises(UserError, match=r"mine\.py has changed since .*run was started; restore the old file"):
        RunDir.start(config.out, "eval", config, resume=True)
    with pytest.raises(UserError, match="was started with other settings"):
        RunDir.start(config.out, "eval", replace(config, plugins=()), resume=True)
