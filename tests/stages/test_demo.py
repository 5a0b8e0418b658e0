"""The demo's plan: commands that parse, in an order in which nothing waits, with the labels of the method presets."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dph.cli.main import parse
from dph.config import DemoConfig, NewModelConfig, preset_label, preset_names
from dph.errors import ModelError, SettingsError
from dph.models.scratch import new_policy
from dph.process.jobs import Job
from dph.runs.directory import RunDir
from dph.stages import demo as module
from dph.stages.demo import demo, jobs
from experiments.minisql import SETTINGS, MiniSql
from helpers import METHODS, OTHER_METHODS

ENGLISH, SQL = (str(Path(SETTINGS).with_name(name)) for name in ("english.toml", "minisql.toml"))


def test_method_presets_and_no_others_have_labels_of_their_own() -> None:
    labels = {name: preset_label(name) for name in preset_names() if preset_label(name)}
    assert labels.keys() == {*METHODS, *OTHER_METHODS}
    assert len(set(labels.values())) == len(labels) and labels["dph_js"] == "DPH-JS"


@pytest.mark.parametrize(
    ("world", "plugins", "task", "eta", "steps"),
    [("countdown", (), "countdown", 0.6, 125), (SQL, ("experiments.minisql",), "minisql", 0.7, 80)],
)
def test_a_world_brings_its_task_its_base_model_and_its_rates(
    world: str, plugins: tuple[str, ...], task: str, eta: float, steps: int, tmp_path: Path
) -> None:
    planned = jobs(DemoConfig(out=str(tmp_path), world=world), tmp_path / "base")
    settings = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in planned}
    assert {(run.task.name, run.plugins) for run in settings.values()} == {(task, plugins)}
    assert [settings[name].loss.eta for name in ("grpo", "dph_js")] == [0.0, eta]
    assert {run.steps for name, run in settings.items() if name in ("grpo", "dph_js")} == {steps}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_ends_with_a_report(tmp_path: Path) -> None:
    page = demo(DemoConfig(out=str(tmp_path), methods=("dph_f",), smoke=True, jobs=1))
    assert "distinct solutions" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("smoke", [False, True])
def test_every_command_parses_and_needs_what_comes_before_it(smoke: bool, tmp_path: Path) -> None:
    config = DemoConfig(out=str(tmp_path), seed=3, methods=("grpo", "dph_js"), smoke=smoke)
    planned = jobs(config, tmp_path / "base")
    known: set[str] = set()
    settings = {}
    for job in planned:
        assert known.issuperset(job.needs)
        known.add(job.name)
        stage, *words = job.arguments
        settings[job.name] = parse(stage, words)[0]
    assert list(settings) == ["base", "presample", "eval-base", "dph_js", "grpo", "eval-dph_js", "eval-grpo"]
    assert [settings[f"eval-{name}"].label for name in ("base", "grpo", "dph_js")] == ["base", "GRPO", "DPH-JS"]
    trained = [settings[name] for name in ("grpo", "dph_js")]
    assert [(run.method, run.seed, run.steps, run.monitor.every) for run in trained] == [
        ("grpo", 3, 2 if smoke else 125, 1 if smoke else 20),
        ("dph_js", 3, 2 if smoke else 125, 1 if smoke else 20),
    ]
    assert {run.rehearsal.path for run in trained} == {settings["presample"].out} and settings["presample"].seed == 3
    assert settings["eval-grpo"].model.path == f"{settings['grpo'].out}/model"
    assert (settings["eval-base"].task.limit, settings["eval-base"].rollout.n) == ((6, 4) if smoke else (0, 64))


def test_a_preset_file_is_a_method_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own").mkdir()
    mine, plain = Path("own") / "mine.toml", Path("plain.toml")
    mine.write_text('[meta]\nlabel = "Mine"\n[train]\nmethod = "mine"\n[train.loss]\neta = 0.0\n')
    plain.write_text('[train]\nmethod = "plain"\n')
    planned = jobs(DemoConfig(out="out", methods=("grpo", str(mine), "plain.toml")), tmp_path / "base")
    settings = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in planned}
    assert settings["mine"].out == str(Path("out") / "mine") and settings["mine"].method == "mine"
    assert [settings[f"eval-{name}"].label for name in ("grpo", "mine", "plain")] == ["GRPO", "Mine", "plain"]
    # A file of settings may have the label too.
    assert parse("train", ["--config", str(mine), "--out", "o"])[0].method == "mine"


@pytest.mark.parametrize(
    ("text", "methods", "message"),
    [
        ("", ("missing.toml",), "missing.toml"),
        ("[train]\nmehtod = 1", ("mine.toml",), "'mine.toml' have an unknown key 'mehtod'"),
        ('[meta]\nlabel = "GRPO"', ("grpo", "mine.toml"), "is taken ('mine', 'GRPO')"),
        ("", ("mine.toml", "mine.toml"), "is taken ('mine', 'mine')"),
        ("meta = 1", ("mine.toml",), "'meta' must be a table, not 1"),
        ("", ("countdown",), "named by its path"),
    ],
)
def test_a_bad_method_is_one_sentence_before_anything_runs(
    text: str, methods: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        demo(DemoConfig(out="out", methods=methods))
    assert message in str(caught.value) and not Path("out").exists()


def language_model(tmp_path: Path, **changes: object) -> DemoConfig:
    settings = {"out": str(tmp_path / "out"), "model": str(tmp_path), "world": ENGLISH} | changes
    config = DemoConfig(**settings)  # type: ignore[arg-type]
    (tmp_path / "out").mkdir(exist_ok=True)
    return config


@pytest.mark.parametrize("data", ["", "data"])
def test_a_language_model_goes_through_every_stage_with_its_own_settings(data: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('plugins = ["my_task"]\n[task]\nname = "mine"\n')
    config = language_model(tmp_path, data=data, world=str(tmp_path / "mine.toml") if data else ENGLISH)
    settings = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in jobs(config, tmp_path / "base")}
    world = ("mine", {"root": data}) if data else ("minisql", {"prompts": "english"})
    for run in settings.values():
        assert run.plugins == (("my_task",) if data else ("experiments.minisql",))
        assert (run.task.name, run.task.options) == world and run.model.precision == "bf16"
    assert settings["base"].optim.lr == 2e-4 and settings["base"].optim.schedule == "constant"
    assert settings["grpo"].optim.lr == settings["dph_js"].optim.lr == 2e-5 and settings["grpo"].monitor.every == 0
    assert settings["presample"].model.path == str(tmp_path / "base" / "model") == settings["eval-base"].model.path
    assert {settings[name].task.limit for name in ("presample", "grpo", "dph_js")} == {240}, "those that were sampled"
    assert {settings[f"eval-{name}"].task.limit for name in ("base", "grpo", "dph_js")} == {40}
    assert settings["base"].model.path == str(tmp_path)
    tiny = {
        job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in jobs(replace(config, smoke=True), tmp_path)
    }
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
    module.start_language_model(config, tmp_path / "base")
    assert ran == [30, 60, 90], "six of 48 are an eighth"
    module.start_language_model(config, tmp_path / "base")
    assert ran == [30, 60, 90], "and the same command goes on after it"
    mastered |= {steps: 0 for steps in range(30, 2000, 30)}
    with pytest.raises(ModelError, match=r"after 360 .* masters 0 of 48 prompts"):
        module.start_language_model(replace(config, out=str(tmp_path / "new")), tmp_path / "base")


def test_a_language_model_and_data_need_a_world_and_all_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[task]\nname = "mine"\n')
    world = str(tmp_path / "mine.toml")
    with pytest.raises(SettingsError, match="a world with prompts in plain English"):
        demo(language_model(tmp_path, world="countdown"))
    with pytest.raises(SettingsError, match="no preset is named 'minisql'"):
        demo(DemoConfig(out=str(tmp_path / "out"), world="minisql"))
    with pytest.raises(SettingsError, match="--data needs the preset"):
        demo(DemoConfig(out=str(tmp_path / "out"), data=str(tmp_path)))
    with pytest.raises(SettingsError, match="there is no folder"):
        demo(language_model(tmp_path, world=world, data=str(tmp_path / "missing")))
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        demo(language_model(tmp_path, world=str(tmp_path / "missing.toml")))


@pytest.mark.slow
def test_a_model_is_taken_through_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for the plug-in of the world
    task = MiniSql(prompts="english")
    texts = [text for row in task.demonstrations(50, 0) for text in (row["prompt"], row["response"])]
    size = NewModelConfig(tokenizer="word", hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, context=256)
    new_policy(size, texts, 0).save(tmp_path)
    page = demo(language_model(tmp_path, methods=("grpo",), smoke=True, jobs=1))
    assert page.exists() and "GRPO" in page.read_text(encoding="utf-8")
    assert RunDir.open(tmp_path / "out" / "grpo", "train").complete


def test_after_the_supervised_start_every_job_finds_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Job] = []
    monkeypatch.setattr(module, "start_language_model", lambda config, base: base.mkdir())
    monkeypatch.setattr(module, "run_jobs", lambda planned, *_, **__: ran.extend(planned))
    monkeypatch.setattr(module, "report", lambda *_, **__: tmp_path / "index.html")
    demo(language_model(tmp_path))
    assert {need for job in ran for need in job.needs} <= {job.name for job in ran}
    assert ran[0].name == "base" and ran[0].out == tmp_path / "out" / "base", "skipped, because it is complete"
