"""The demo's plan: commands that parse, in an order in which nothing waits, with the labels of the method presets."""

from pathlib import Path

import pytest

from dph.cli.main import parse
from dph.config import DemoConfig, preset_label, preset_names
from dph.reproduce.demo import jobs
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
