"""The demo's plan: commands that parse, in an order in which nothing waits, with the labels of the method presets."""

from pathlib import Path

import pytest

from dph.cli.main import parse
from dph.config import DemoConfig, preset_label, preset_names
from dph.errors import SettingsError
from dph.stages.demo import course_of, demo
from experiments.minisql import SETTINGS
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
    planned = course_of(DemoConfig(out=str(tmp_path), world=world, plugins=plugins)).jobs()
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
    planned = course_of(config).jobs()
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
    planned = course_of(DemoConfig(out="out", methods=("grpo", str(mine), "plain.toml"))).jobs()
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


def test_a_world_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no preset is named 'minisql'"):
        demo(DemoConfig(out=str(tmp_path / "out"), world="minisql"))
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        demo(DemoConfig(out=str(tmp_path / "out"), world=str(tmp_path / "missing.toml")))
