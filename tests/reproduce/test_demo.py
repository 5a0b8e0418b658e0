"""The demo's plan: commands that parse, in an order in which nothing waits, with the labels of the method presets."""

from pathlib import Path

import pytest

from dph.cli.main import parse
from dph.config import DemoConfig, preset_label, preset_names
from dph.errors import UserError
from dph.reproduce.demo import demo, jobs
from helpers import METHODS, OTHER_METHODS


def test_method_presets_and_no_others_have_labels_of_their_own() -> None:
    labels = {name: preset_label(name) for name in preset_names() if preset_label(name)}
    assert labels.keys() == {*METHODS, *OTHER_METHODS}
    assert len(set(labels.values())) == len(labels) and labels["dph_js"] == "DPH-JS"


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
        ("grpo", 3, 2 if smoke else 80, 1 if smoke else 20),
        ("dph_js", 3, 2 if smoke else 80, 1 if smoke else 20),
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
        ("", ("missing.toml",), "cannot read the settings file missing.toml"),
        ("[train]\nmehtod = 1", ("mine.toml",), "the settings in the preset 'mine.toml' have an unknown key 'mehtod'"),
        ('[meta]\nlabel = "GRPO"', ("grpo", "mine.toml"), "a name or label that is taken ('mine', 'GRPO')"),
        ("", ("mine.toml", "mine.toml"), "a name or label that is taken ('mine', 'mine')"),
        ("meta = 1", ("mine.toml",), "'meta' must be a table, not 1"),
        ("", ("minisql",), "a preset file of your own is named by its path, which ends in .toml"),
    ],
)
def test_a_bad_method_is_one_sentence_before_anything_runs(
    text: str, methods: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    with pytest.raises(UserError) as caught:
        demo(DemoConfig(out="out", methods=methods))
    assert message in str(caught.value) and not Path("out").exists()
