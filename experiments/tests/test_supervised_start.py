"""The supervised start that ends by a rule: the rule itself, what a rerun knows, a start in the embedded world."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dph.config import read_settings
from dph.errors import UserError
from dph.report.data import MetricValue
from experiments import start as module
from experiments.grid import grid_from, read_grid
from experiments.plan import Choice, RunPaths, write_settings
from experiments.start import start_bases, with_known_starts

SMALL = {
    "world": "countdown",
    "seeds": [1],
    "fewer_seeds": [1],
    "domains": {"in-domain": "test"},
    "bases": {
        "base": {
            "label": "small",
            "sft": {
                "batch": 2,
                "demonstrations": 40,
                "optim": {"schedule": "constant"},
                "new": {"hidden": 32, "heads": 2},
            },
            "until": {"every": 2, "most": 3, "rise": 0.02, "evaluate": {"task": {"split": "dev", "limit": 3}}},
        }
    },
    "stores": {"one": {"base": "base"}},
    "arms": {"grpo": {"preset": "grpo", "tier": "core"}},
}


@pytest.fixture
def choice() -> Choice:
    return Choice(grid_from("small", SMALL), {"grpo": (1,)})


@pytest.fixture
def scores(monkeypatch) -> list[float]:
    """Greedy accuracies of the parts, in place of training; each part takes the next."""
    left: list[float] = []
    found: dict[Path, float] = {}

    def run(jobs, *_, **__):
        [out] = [Path(job.arguments[job.arguments.index("--out") + 1]) for job in jobs if job.name == "probe"]
        out.mkdir(parents=True)
        (out / "manifest.json").write_text('{"status": "complete"}')
        found[out] = left.pop(0)

    def read(path):
        return SimpleNamespace(splits={"dev": SimpleNamespace(metrics={"greedy": MetricValue(found[path])})})

    monkeypatch.setattr(module, "run_jobs", run)
    monkeypatch.setattr(module, "read_eval", read)
    return left


def test_the_start_ends_after_the_first_part_that_gains_too_little(choice, scores, tmp_path):
    scores += [0.10, 0.13, 0.14, 0.5]
    found = start_bases(choice, RunPaths(tmp_path), 1)
    assert found.grid.bases["base"].settings["steps"] == 6  # .14 is less than .13 + .02
    assert scores == [0.5]
    write_settings(found, RunPaths(tmp_path))
    assert read_settings(RunPaths(tmp_path).settings("sft", "base"))["steps"] == 6
    assert with_known_starts(choice, RunPaths(tmp_path / "elsewhere")) is choice
    again = with_known_starts(choice, RunPaths(tmp_path))
    assert again.grid.bases["base"].settings == found.grid.bases["base"].settings
    assert start_bases(again, RunPaths(tmp_path), 1) == again  # nothing is open, so nothing is run


def test_a_start_that_goes_on_improving_is_an_error_and_can_be_continued(choice, scores, tmp_path):
    scores += [0.1, 0.2, 0.3]
    with pytest.raises(UserError, match="'base' still improves by 2 points"):
        start_bases(choice, RunPaths(tmp_path), 1)
    base = choice.grid.bases["base"]
    longer = replace(base, until={**base.until, "most": 4})
    scores.append(0.31)  # the parts before are not run again
    found = start_bases(replace(choice, grid=replace(choice.grid, bases={"base": longer})), RunPaths(tmp_path), 1)
    assert found.grid.bases["base"].settings["steps"] == 8


def test_given_steps_and_smoke_runs_have_no_open_start(choice, tmp_path):
    assert start_bases(replace(choice, smoke=True), RunPaths(tmp_path), 1).grid is choice.grid
    embedded = read_grid("llm_embedded")
    assert embedded.bases["base"].settings["steps"] == 30 and embedded.bases["base"].until
    fixed = Choice(embedded, {"grpo": (1,)})
    assert start_bases(fixed, RunPaths(tmp_path), 1) is fixed
    assert "steps" not in read_grid("llm").bases["base"].settings


@pytest.mark.slow
def test_a_start_in_the_embedded_world(choice, tmp_path):
    """A model of a few thousand parameters solves nothing, so the second part does not improve and ends the start."""
    found = start_bases(choice, RunPaths(tmp_path), 1)
    assert found.grid.bases["base"].settings["steps"] == 4
    run = RunPaths(tmp_path).base(found.grid.bases["base"])
    assert read_settings(run / "config.toml")["steps"] == 4 and (run / "model" / "model.safetensors").is_file()
    assert read_settings(tmp_path / "starts" / "base" / "eval.toml")["rollout"]["n"] == 1
