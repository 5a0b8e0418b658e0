"""The documentation against the source: links lead somewhere, every setting and every metric is explained.

`scripts/docs` checks anchors and the rest of the site.
"""

import fnmatch
import json
import re
from pathlib import Path

import _site_pages as site_pages
import pytest

from dph.config import STAGES, flatten, from_dict, to_dict
from dph.evaluation.measures import METRICS
from dph.runs.directory import read_metrics
from dph.stages.evaluate import evaluate
from dph.stages.train import train
from helpers import base_run, train_config

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "docs", ROOT / "experiments")
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted(page for folder in FOLDERS for page in folder.rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_tests_that_hold_promises_exist():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs/concepts/exactness.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    there = {path: (ROOT / "tests" / path).read_text(encoding="utf-8") for path, _ in named}
    assert [f"{path}::{name}" for path, name in named if f"def {name}(" not in there[path]] == []


@pytest.mark.parametrize("stage", STAGES)
def test_the_settings_page_explains_every_setting(stage):
    rows = site_pages.settings_rows(STAGES[stage])
    leaves = {key for key in flatten(to_dict(STAGES[stage]()))}
    # a table without entries, such as task.options, is a leaf of the page and none of flatten's
    assert leaves <= {name.strip("`") for name, _, _, _ in rows}
    assert [name for name, values, _, meaning in rows if not values or not meaning] == []


SHORT = {
    *("task", "data", "databases", "suite", "gold", "rule", "policy", "workers", "timeout", "keep-distinct"),
    *("subset", "skip-missing", "reward", "task.options", "certify"),
}
COMMON = {"preset", "config", "plugin", "resume", "help", "version"}


def commands(page):
    """(stage, flags) of every call of dph in a page's shell blocks; continued lines are one call."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for call in re.findall(r"\bdph ([a-z]+)\b(.*?)(?=; |$)", line.partition(" # ")[0]):
                yield call[0], set(re.findall(r"(?<!\S)--([a-z][a-z0-9.-]*)", call[1]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_flags_of_commands_exist(page):
    for stage, flags in commands(page):
        settings = to_dict(STAGES[stage]())
        known = {key.replace("_", "-") for key in flatten(settings)}
        known |= {re.sub(r"([^.]+)$", r"no-\1", key) for key in known} | COMMON | SHORT
        assert flags <= known, (stage, flags - known)


def test_the_settings_page_shows_values_defaults_and_meanings():
    rows = {name: rest for name, *rest in site_pages.settings_rows(STAGES["train"])}
    assert rows["`loss.reduction`"][:2] == ["`pooled`, `per_set`", "`per_set`"]
    assert rows["`loss.eta`"][1:] == [
        "`0.2`",
        "η, weight of the rehearsal term.",
    ]  # declared in a class that it inherits from
    assert rows["`model.shared_prefix`"][:2] == ["true, false", "`true`"]


def names_defined():
    """Names in the metrics page, as patterns: `pass@k` stands for pass@1, pass@2 …, `eval/…` for what follows eval/."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([^`\s]+)`", page))
    return {re.sub(r"@[kNn]$", "@[0-9]*", name).replace("…", "*") for name in names}


def undefined(names):
    """Names that the page does not define; those of the monitor are names of evaluation after eval/."""
    defined = names_defined()
    plain = {name.removeprefix("eval/") for name in names}
    return sorted(name for name in plain if not any(fnmatch.fnmatchcase(name, pattern) for pattern in defined))


def test_the_metrics_page_defines_what_runs_write(tmp_path):
    settings = {"monitor": {"every": 1, "limit": 2, "n": 2}, "rollout": {"old_logprobs": "recompute"}, "steps": 1}
    run = train(train_config(tmp_path / "train", "dph_js_def", settings | {"loss": {"kl": "k3", "kl_coef": 0.01}}))
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    assert undefined({name for line in [*read_metrics(run), *timings] for name in line}) == []
    assert undefined({name for line in read_metrics(base_run()) for name in line}) == []
    assert undefined(entry.name.replace("@k", "@8") for entry in METRICS) == []
    assert undefined({"eval/new_metric", "exp/new"}) == ["exp/new", "new_metric"]  # the check can fail


def test_the_metrics_page_defines_the_scores(tmp_path):
    settings = {
        "out": str(tmp_path),
        "model": {"path": str(base_run() / "model"), "device": "cpu"},
        "task": {"name": "toy", "limit": 2},
        "rollout": {"n": 2, "max_tokens": 4, "max_prompt_tokens": 8},
    }
    config = from_dict(STAGES["eval"], settings)
    (split,) = json.loads((evaluate(config) / "scores.json").read_text())["splits"].values()
    assert undefined(split["metrics"]) == []
