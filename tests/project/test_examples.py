"""examples/rl_loop.py: a training loop from top to bottom, which takes the steps of `dph train`.
examples/walkthrough.ipynb: its cells run one after the other, at smoke size, as a kernel would run them.
docs/guides/extend.md: --plugin registers the examples, and the commands of the page run with them.
"""

import json
import math
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from dph.build import load_plugin, make_verifiers
from dph.cli.main import main
from dph.config import RewardConfig, VerifierConfig
from dph.objective.divergences import get_divergence
from dph.runs.directory import read_metrics
from dph.stages.train import train
from dph.tasks import load_task
from helpers import base_run, train_config

LOOP = Path(__file__).parents[2] / "examples" / "rl_loop.py"


def test_the_loop_is_short_and_its_steps_are_those_of_the_library(tmp_path):
    assert len(LOOP.read_text(encoding="utf-8").splitlines()) <= 150
    config = train_config(tmp_path, "dph_js", {"steps": 4, "optim": {"minibatches": 1}})
    steps = list(runpy.run_path(str(LOOP))["train"](config))
    lines = read_metrics(train(config))
    assert len(steps) == len(lines) == 4 and any(step["loss"] for step in steps)
    for step, line in zip(steps, lines, strict=True):
        # groups without a gradient are not passed back there: fp32 sums in another order
        assert step == {name: pytest.approx(line[name], rel=1e-4, abs=1e-6) for name in step}


def test_the_reward_rises(tmp_path):
    settings = {"steps": 30, "rollout": {"prompts": 6, "n": 8}, "optim": {"lr": 5e-3}}
    config = train_config(tmp_path, "dph_js", settings)
    rewards = [step["reward"] for step in runpy.run_path(str(LOOP))["train"](config)]
    assert sum(rewards[:5]) / 5 < 0.7 < 0.8 < sum(rewards[-5:]) / 5


NOTEBOOK = Path(__file__).parents[2] / "examples" / "walkthrough.ipynb"

RUNNER = """
import json, sys
space = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"<cell {number}>", "exec"), space)
"""
"""Runs the code cells of a notebook in one namespace; the traceback of an error names the cell."""


def executed(notebook, folder):
    """The finished process that ran a notebook in a folder."""
    words = [sys.executable, "-c", RUNNER, str(notebook)]
    environment = os.environ | {"DPH_SMOKE": "1", "DPH_CACHE": str(folder / "cache")}
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)


def test_it_holds_no_outputs():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 8 and len(code) < len(cells)
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


def test_what_it_imports_is_there():
    """Quick, where running the cells is slow: a name that moved is found by the quick tests already."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code")
    imports = [line for line in code.splitlines() if line.startswith(("import ", "from "))]
    assert any("dph.runs.samples" in line for line in imports)
    exec("\n".join(imports), {})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_cell_runs(tmp_path):
    done = executed(NOTEBOOK, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    runs = tmp_path / "runs" / "notebook"
    table = (runs / "report" / "index.html").read_text(encoding="utf-8")
    assert all(name in table for name in ("base", "grpo", "dph_js"))
    assert "step 0 " in done.stdout and "step 2 " in done.stdout  # one problem through training


def test_a_cell_that_fails_fails_the_notebook(tmp_path):
    cells = [{"cell_type": "code", "source": ["x = 1"]}, {"cell_type": "code", "source": ["assert x == 2"]}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    done = executed(tmp_path / "a.ipynb", tmp_path)
    assert done.returncode == 1 and "<cell 1>" in done.stderr


ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "extend"


@pytest.mark.parametrize("name", ["hellinger.py", "ends_with.py", "sorting.py", "own_method.py", "reward.py"])
def test_an_addition_takes_no_more_than_twenty_lines(name):
    code = [line for line in (EXAMPLES / name).read_text().splitlines() if line.strip()]
    imports = [line for line in code if line.startswith(("import ", "from ", '"""'))]
    assert len(code) - len(imports) <= 20


def test_hellinger_by_enumeration():
    load_plugin(str(EXAMPLES / "hellinger.py"))
    divergence = get_divergence("hellinger")
    new, ref = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.1, 0.6, 0.3])
    log_ratio = (new / ref).log().requires_grad_()
    # Σ ref·(√u − 1)² = Σ (√new − √ref)², the textbook's form.
    found = (ref * divergence.f(log_ratio.detach())).sum()
    assert float(found) == pytest.approx(float((new.sqrt() - ref.sqrt()).square().sum()))
    (gradient,) = torch.autograd.grad(divergence.f(log_ratio).sum(), log_ratio)
    assert torch.allclose(gradient, divergence.pull_weight(log_ratio))


@pytest.mark.parametrize("named_in", ["flag", "file"])
def test_a_method_of_ones_own_trains(tmp_path, named_in):
    code = (EXAMPLES / "own_method.py").read_text()
    method = (EXAMPLES / "own_method.toml").read_text()
    for name in ("by_success", "sequence_ratio"):  # names that no other test has registered
        code, method = (text.replace(f'"{name}"', f'"{name}_{named_in}"') for text in (code, method))
    (tmp_path / "own.py").write_text(code)
    plugin = str(tmp_path / "own.py")
    (tmp_path / "own.toml").write_text(method if named_in == "flag" else f"plugins = ['{plugin}']\n{method}")
    main(
        [
            *("train", "--plugin", plugin, "--config", str(tmp_path / "own.toml")),
            *("--model.path", str(base_run() / "model"), "--steps", "2", "--rollout.max-tokens", "4"),
            *("--task.name", "toy", "--verifier.workers", "1", "--rollout.prompts", "4", "--rollout.n", "4"),
            *("--rollout.max-prompt-tokens", "16", "--out", str(tmp_path / "run")),
        ]
    )
    rows = read_metrics(tmp_path / "run")
    assert len(rows) == 2 and any(row["grad_norm"] > 0 for row in rows)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["method"] == "own_method"


def test_the_reward_function_judges_the_sorting_task():
    load_plugin(str(EXAMPLES / "sorting.py"))
    problems = load_task("sorting").problems("train")[:1]
    first, *rest = problems[0].answer.split()
    responses = [problems[0].answer, " ".join([first, *reversed(rest)]), first]
    with make_verifiers(VerifierConfig(timeout=60), RewardConfig(f"{EXAMPLES / 'reward.py'}:in_place")) as verifiers:
        verdicts = verifiers.verify([(problems[0], response) for response in responses])
    assert [verdict.reward for verdict in verdicts] == pytest.approx([1.0, 1 / 3, 0.0])
    assert [verdict.correct for verdict in verdicts] == [True, False, False]


@pytest.mark.slow
def test_the_pages_commands_run(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "guides" / "extend.md").read_text()
    script = re.search(r"```sh\n(.*?)```", page, re.DOTALL)
    assert script is not None
    commands = [shlex.split(line) for line in script[1].replace("\\\n", " ").splitlines() if line.strip()]
    assert [words[:2] for words in commands] == [["dph", "sft"], ["dph", "presample"], ["dph", "train"]]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for words in commands:
        main(words[1:])
    partition = pq.read_table(tmp_path / "runs/sorting/presample/partition.parquet").to_pylist()
    assert {row["problem_id"] for row in partition} == {f"train/{i}" for i in range(64)}
    rows = read_metrics(tmp_path / "runs/sorting/train")
    assert len(rows) == 10
    assert all(math.isfinite(row["loss"]) and row["pef/divergence"] >= 0 for row in rows)
    manifest = json.loads((tmp_path / "runs/sorting/train/manifest.json").read_text())
    assert manifest["status"] == "complete"
