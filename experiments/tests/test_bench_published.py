"""The published pages of the bench hold what the published counts say."""

import re
from pathlib import Path

import numpy as np
import pytest

from dph.report.tables import ReportTable, to_markdown
from experiments.bench.choose import read_frozen
from experiments.bench.design import read_bench
from experiments.bench.merit import over_worlds
from experiments.bench.results import Phase, differences
from experiments.bench.run import FROZEN, Run, arms_of_test, choose
from experiments.bench.tables import (
    attempts_table,
    chosen_table,
    gaps_table,
    merit_table,
    seeds_table,
    tried_table,
    variance_table,
)
from experiments.config import ReproduceConfig

ROOT = Path(__file__).resolve().parents[2]
COUNTS = ROOT / "experiments" / "counts"
BENCH = ROOT / "experiments" / "results" / "bench.md"
DEVELOPMENT = ROOT / "experiments" / "results" / "bench-development.md"


def run_of(counts: Path, root: Path) -> Run:
    return Run(ReproduceConfig(scale="bench", report_only=True, counts=str(counts)), read_bench(), root)


@pytest.fixture(scope="module")
def development(tmp_path_factory: pytest.TempPathFactory) -> list[Phase]:
    """The development phases, with the choice made anew and compared with the published one."""
    root = tmp_path_factory.mktemp("bench")
    for file in COUNTS.glob("bench-development-*.parquet"):
        (root / file.name).symlink_to(file)
    _, phases, failures = choose(run_of(root, root / "out"))
    assert not failures and read_frozen(root / "out" / FROZEN) == read_frozen(COUNTS / FROZEN)
    return phases


def lines(table: ReportTable | None) -> set[str]:
    """The rows of a table as pages print them, without its heading."""
    assert table is not None
    _, *rows = [line for line in to_markdown(table).splitlines() if line.startswith("| ") and "---" not in line]
    return set(rows)


def test_every_setting_that_was_tried_is_published(development: list[Phase]) -> None:
    table = tried_table(read_bench(), development, read_frozen(COUNTS / FROZEN))
    page = re.sub("[²³]", "", DEVELOPMENT.read_text(encoding="utf-8"))
    assert len(table.rows) == 128 and lines(table) - set(page.splitlines()) == set()


ATTEMPTS = (
    "grpo_wise-trained_share0.5-lr0.0002",
    "grpo-lr5e-05",
    "dapo_wise-trained_share0.5-lr0.0002",
    "dph_js_wise-trained_share0.5-lr0.0002",
    "dph_js_wise-trained_share0.75-lr0.0001",
    "dph_f_adaptive-eta0.3-lr0.0001",
    "dph_f-eta0.3-lr0.0001",
    "dph_f_raw-eta0.1-lr0.0001",
    "dph_f-eta0.1-lr0.0001",
    "dph_js_maxrl-eta0.1-lr0.0001",
    "dph_js-eta0.7-lr0.0001",
    "grpo_warm-temperature1.2-lr0.0002",
    "gated-above0.75-lr0.0001",
)
"""Settings whose outcomes in world 101 are in the table of attempts."""


def test_the_outcomes_of_attempts_are_those_of_the_counts(development: list[Phase]) -> None:
    first = development[0]
    settings = {setting.name: setting for setting in first.settings}
    page = DEVELOPMENT.read_text(encoding="utf-8")
    attempts = page.partition("## Attempts: kept and dropped")[2].partition("\n## ")[0]

    def words(name: str) -> str:
        mean, coverage = (100 * first.means(settings[name], metric)[101] for metric in ("mean", "pass@32"))
        return f"{mean:.1f} and {coverage:.1f}"

    assert [(name, words(name)) for name in ATTEMPTS if words(name) not in attempts] == []


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Phase:
    """The test phase of the published counts."""
    run = run_of(COUNTS, tmp_path_factory.mktemp("bench"))
    phase, _ = run.phase("test", arms_of_test(run, read_frozen(COUNTS / FROZEN)))
    return phase


def test_the_tables_of_the_test_worlds_are_published(published: Phase) -> None:
    bench = read_bench()
    page = set(BENCH.read_text(encoding="utf-8").splitlines())
    for make in (chosen_table, merit_table, attempts_table, variance_table):
        assert lines(make(bench, published)) - page == set(), make.__name__
    for method in ("grpo", "dapo_wise"):
        assert lines(gaps_table(bench, published, method)) - page == set(), method
    assert lines(seeds_table(bench, published, TUNED)) - page == set()


TUNED = "grpo-lr5e-05"
SHORTER = "dapo_wise-trained_share0.5-lr0.0002-steps50"
SHORT = {
    "experiments/results/bench.md": (
        "exp_only-lr5e-05",
        "dph_f-eta0.1-lr0.0001",
        SHORTER,
    ),
}
"""Pages with a short table of the test worlds, and settings that not all of them show."""
EVERYWHERE = (
    *("grpo-lr0.0001", "dapo-lr5e-05", "rkl-kl_coef0.1-lr0.0001", "dph_f-eta0.3-lr0.0001", "dph_js-eta0.7-lr0.0001"),
    *("grpo_wise-trained_share0.5-lr0.0002", "dapo_wise-trained_share0.5-lr0.0002"),
)


def test_the_short_tables_of_the_test_worlds_are_published(published: Phase) -> None:
    """mean@64, pass@32, each with the difference to tuned GRPO and half of its interval, and styles."""
    settings = {setting.name: setting for setting in published.settings}

    def cells(name: str) -> str:
        found = []
        for metric in ("mean", "pass@32"):
            gap = over_worlds(differences(published, settings[name], settings[TUNED], metric))
            level = np.mean([*published.means(settings[name], metric).values()])
            found += [f"{100 * level:.1f}", f"{100 * gap.mean:+.1f} ± {50 * (gap.high - gap.low):.1f}"]
        styles = np.mean([*published.means(settings[name], "styles_correct").values()])
        return " | ".join([*found, f"{styles:.2f}"]).replace("-", "−")

    for page, more in SHORT.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [name for name in (*EVERYWHERE, *more) if cells(name) not in text] == [], page


def test_the_outcome_of_the_prediction_on_greedy_accuracy_is_that_of_the_first_seed(published: Phase) -> None:
    first = published.of_seed(11)
    settings = {setting.name: setting for setting in first.settings if first.seen(setting)}
    gaps = {
        name: over_worlds(differences(first, setting, settings[TUNED], "greedy"))
        for name, setting in settings.items()
        if name != TUNED
    }
    shifted = {name: gap for name, gap in gaps.items() if gap.low > 0 or gap.high < 0}
    assert set(shifted) == {"dph_f-eta0.3-lr0.0001", "grpo_wise-trained_share0.5-lr0.0001"}
    short = [name for name in gaps if "-steps" in name]
    text = " ".join(BENCH.read_text(encoding="utf-8").split())
    assert f"Of the {len(gaps)} settings of the table below" in text
    left = len(gaps) - len(shifted)
    assert f"other {left} have intervals that hold 0 ({left - len(short)} of {len(gaps) - len(short)} without" in text
    for gap in shifted.values():
        assert f"{100 * gap.mean:.1f} ({100 * gap.low:.1f} to {100 * gap.high:.1f})".replace("-", "−") in text


HALFWAY = "dapo_wise-trained_share0.5-lr0.0002"
CLAIMS = (
    (HALFWAY, TUNED, "mean"),
    (HALFWAY, TUNED, "pass@32"),
    (HALFWAY, TUNED, "styles_correct"),
    (HALFWAY, "dph_f-eta0.3-lr0.0001", "mean"),
    (HALFWAY, "dph_js-eta0.7-lr0.0001", "mean"),
    (HALFWAY, "rkl-kl_coef0.1-lr0.0001", "mean"),
    ("grpo-lr0.0001", HALFWAY, "pass@32"),
    ("dph_f-eta0.3-lr0.0001", TUNED, "mean"),
    ("dph_f-eta0.3-lr0.0001", TUNED, "pass@32"),
    ("dph_js-eta0.7-lr0.0001", TUNED, "mean"),
    ("dph_js-eta0.7-lr0.0001", TUNED, "pass@32"),
    ("rkl-kl_coef0.1-lr0.0001", "dph_f-eta0.3-lr0.0001", "mean"),
    ("rkl-kl_coef0.1-lr0.0001", "dph_f-eta0.3-lr0.0001", "pass@32"),
)
"""Differences, with their intervals, in the text of bench.md."""


def test_the_differences_in_the_text_are_those_of_the_counts(published: Phase) -> None:
    settings = {setting.name: setting for setting in published.settings}
    text = " ".join(BENCH.read_text(encoding="utf-8").split())

    def words(one: str, other: str, metric: str) -> str:
        gap = over_worlds(differences(published, settings[one], settings[other], metric))
        scale = 1 if metric == "styles_correct" else 100
        return f"{scale * gap.mean:+.1f} ({scale * gap.low:+.1f} to {scale * gap.high:+.1f})".replace("-", "−")

    assert [claim for claim in CLAIMS if words(*claim) not in text] == []
