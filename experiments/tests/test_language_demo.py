"""The whole method with a language model: its commands, and the supervised start that ends by a rule."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dph.cli.main import parse
from dph.config import DemoConfig, NewModelConfig
from dph.errors import ModelError, SettingsError
from dph.models.scratch import new_policy
from dph.process.jobs import Job
from dph.runs.directory import RunDir
from dph.stages import demo as stage
from experiments import language_demo as module
from experiments.language_demo import WORLD, Language
from experiments.minisql import MiniSql


def language_model(tmp_path: Path, data: str = "", **changes: object) -> Language:
    (tmp_path / "out").mkdir(exist_ok=True)
    config = DemoConfig(**{"out": str(tmp_path / "out"), "world": WORLD} | changes)  # type: ignore[arg-type]
    return Language(config, str(tmp_path), data)


@pytest.mark.parametrize("data", ["", "data"])
def test_a_language_model_goes_through_every_stage_with_its_own_settings(data: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('plugins = ["my_task"]\n[task]\nname = "mine"\n')
    config = language_model(tmp_path, data, world=str(tmp_path / "mine.toml") if data else WORLD)
    settings = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in config.course.jobs()}
    world = ("mine", {"root": data}) if data else ("minisql", {"prompts": "english"})
    for run in settings.values():
        assert run.plugins == (("my_task",) if data else ("experiments.minisql",))
        assert (run.task.name, run.task.options) == world and run.model.precision == "bf16"
    assert settings["base"].optim.lr == 2e-4 and settings["base"].optim.schedule == "constant"
    assert settings["grpo"].optim.lr == settings["dph_js"].optim.lr == 2e-5 and settings["grpo"].monitor.every == 0
    assert (
        settings["presample"].model.path == str(tmp_path / "out" / "base" / "model") == settings["eval-base"].model.path
    )
    assert {settings[name].task.limit for name in ("presample", "grpo", "dph_js")} == {240}, "those that were sampled"
    assert {settings[f"eval-{name}"].task.limit for name in ("base", "grpo", "dph_js")} == {40}
    assert settings["base"].model.path == str(tmp_path)
    config = replace(config, demo=replace(config.demo, smoke=True))
    tiny = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in config.course.jobs()}
    assert (tiny["base"].steps, tiny["grpo"].steps, tiny["eval-base"].task.limit) == (12, 2, 2)
    assert tiny["presample"].task.limit == tiny["dph_js"].task.limit == 24
    lengths = {run.rollout.max_tokens for name, run in tiny.items() if name != "base"}
    assert lengths == {64}, "stored responses and rollouts have one limit"


def test_a_supervised_start_ends_when_some_prompts_are_mastered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, ran, mastered = language_model(tmp_path), [], {30: 1, 60: 5, 90: 6}

    def pretend(planned: Sequence[Job], *_: object, **__: object) -> None:
        trained, probed = (parse(job.arguments[0], job.arguments[1:])[0] for job in planned)
        ran.append(trained.steps)
        assert probed.model.path == f"{trained.out}/model" and probed.task.limit == 48
        run = RunDir.start(probed.out, "presample", probed)
        run.finish(sizes={"explore": 48 - mastered[trained.steps], "perfect": mastered[trained.steps], "dropped": 0})

    monkeypatch.setattr(module, "run_jobs", pretend)
    config.start()
    assert ran == [30, 60, 90], "six of 48 are an eighth"
    config.start()
    assert ran == [30, 60, 90], "and the same command goes on after it"
    mastered |= {steps: 0 for steps in range(30, 2000, 30)}
    with pytest.raises(ModelError, match=r"after 360 .* masters 0 of 48 prompts"):
        replace(config, demo=replace(config.demo, out=str(tmp_path / "new"))).start()


def test_a_language_model_and_data_need_a_world_and_all_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[task]\nname = "mine"\n')
    world = str(tmp_path / "mine.toml")
    with pytest.raises(SettingsError, match="a world with prompts in plain English"):
        language_model(tmp_path, world="countdown").run()
    with pytest.raises(SettingsError, match="there is no folder"):
        language_model(tmp_path, str(tmp_path / "missing"), world=world).run()
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        language_model(tmp_path, world=str(tmp_path / "missing.toml")).run()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_is_taken_through_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for the plug-in of the world
    task = MiniSql(prompts="english")
    texts = [text for row in task.demonstrations(50, 0) for text in (row["prompt"], row["response"])]
    size = NewModelConfig(tokenizer="word", hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, context=256)
    new_policy(size, texts, 0).save(tmp_path)
    page = language_model(tmp_path, methods=("grpo",), smoke=True, jobs=1).run()
    assert page.exists() and "GRPO" in page.read_text(encoding="utf-8")
    assert RunDir.open(tmp_path / "out" / "grpo", "train").complete


def test_after_the_supervised_start_every_job_finds_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Job] = []
    monkeypatch.setattr(Language, "start", lambda _: None)
    monkeypatch.setattr(stage, "run_jobs", lambda planned, *_, **__: ran.extend(planned))
    monkeypatch.setattr(stage, "report", lambda *_, **__: tmp_path / "index.html")
    language_model(tmp_path).run()
    assert {need for job in ran for need in job.needs} <= {job.name for job in ran}
    assert ran[0].name == "base" and ran[0].out == tmp_path / "out" / "base", "skipped, because it is complete"
