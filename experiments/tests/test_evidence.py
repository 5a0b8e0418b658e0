"""Free baselines against enumeration, and the tables of the findings page against the published counts."""

import math
import re
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.evidence import (
    bench_table,
    chosen_eta,
    coin,
    counts_of,
    language_runs,
    language_table,
    load,
    pairs_table,
    seeds_of,
    styles_table,
)
from experiments.mixing import cover_of, distinct_among, interpolated, mean_of, mix_at, mixed, pass_of, simpson

ROOT = Path(__file__).resolve().parents[2]
COUNTS = ROOT / "experiments" / "counts"
PAGE = ROOT / "docs" / "results" / "findings.md"
MINIATURES = ROOT / "experiments" / "results" / "miniatures.md"

SAMPLES = st.lists(st.booleans(), min_size=4, max_size=6)


def drawn(samples: list[bool], k: int) -> list[tuple[bool, ...]]:
    return list(combinations(samples, k))


@given(SAMPLES, SAMPLES, st.integers(0, 4))
def test_a_mix_by_drawing_all_subsets(policy: list[bool], base: list[bool], b: int) -> None:
    pairs = list(product(drawn(policy, 4 - b), drawn(base, b)))
    expected = sum(any(one + other) for one, other in pairs) / len(pairs)
    mean, passed = mixed([(len(policy), sum(policy))], [(len(base), sum(base))], b, 4)
    assert passed == pytest.approx(expected)
    assert mean == pytest.approx(sum(sum(one + other) / 4 for one, other in pairs) / len(pairs))


@given(SAMPLES, st.integers(1, 4), st.sampled_from([0.01, 0.25, 0.5, 0.75, 1.0]))
def test_cover_by_drawing_all_subsets(samples: list[bool], k: int, share: float) -> None:
    counts = [(len(samples), sum(samples))]
    expected = sum(sum(one) >= max(1, share * k) for one in drawn(samples, k)) / len(drawn(samples, k))
    assert cover_of(counts, share, k) == pytest.approx(expected)
    assert cover_of(counts, 1 / k, k) == pytest.approx(pass_of(counts, k))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 5))
def test_kinds_by_drawing_all_subsets(kinds: list[int], m: int) -> None:
    samples = [kind for kind, count in enumerate(kinds) for _ in range(count)]
    if m <= len(samples):
        subsets = list(combinations(samples, m))
        expected = sum(len(set(one)) for one in subsets) / len(subsets)
        assert distinct_among(kinds, m) == pytest.approx(expected)
    pairs = list(combinations(samples, 2))
    unequal = sum(a != b for a, b in pairs) / len(pairs) if pairs else math.nan
    assert simpson(kinds) == pytest.approx(unequal, nan_ok=True)


def test_a_family_is_interpolated_between_neighbours_and_never_beyond_its_ends() -> None:
    family = [(0.3, 0.9), (0.4, 0.8), (0.35, 0.7)]
    assert interpolated(family, 0.32) == pytest.approx(0.88), "on the first line only"
    assert interpolated(family, 0.375) == pytest.approx(0.825), "the better of two lines"
    assert interpolated(family, 0.29) is interpolated(family, 0.41) is interpolated(family[:1], 0.3) is None
    policy, base = [(8, 8), (8, 0)], [(8, 2), (8, 2)]
    assert mixed(policy, base, 0, 4) == (0.5, 0.5) and mixed(policy, base, 4, 4)[0] == mean_of(base) == 0.25
    assert mix_at(policy, base, 0.4375, 4) == pytest.approx(mixed(policy, base, 1, 4)[1])
    assert mix_at(policy, base, 0.6, 4) is None


@pytest.mark.parametrize("name", ["coin", "bench", "language", "styles"])
def test_every_table_of_the_findings_is_computed_from_the_counts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPH_CACHE", str(tmp_path))
    lines = {
        "coin": lambda: coin(load(COUNTS, "tiny"), load(COUNTS, "bench-test")),
        "bench": lambda: bench_table(load(COUNTS, "bench-test")),
        "language": lambda: language_table(COUNTS),
        "styles": lambda: styles_table(COUNTS),
    }[name]()
    assert [line for line in lines if line not in PAGE.read_text(encoding="utf-8").splitlines()] == []


def test_what_smollm2_loses_is_told_against_both_evaluations_of_its_base_models() -> None:
    (row,) = [line for line in language_table(COUNTS) if line.startswith("| GRPO − base ")]
    mean, low, high = (abs(float(one)) for one in re.findall(r"[+-][\d.]+", row.split("|")[5]))
    said = {
        "README.md": f"loses {mean:.1f} points of pass@32 (95 % over the runs: {high:.1f} to {low:.1f})",
        "docs/guides/methods.md": f"A language model lost {mean:.1f} points",
        "experiments/results/language-model.md": f"loses {mean:.1f} points of pass@32 ({high:.1f} to {low:.1f};",
    }
    for page, words in said.items():
        assert words in " ".join((ROOT / page).read_text(encoding="utf-8").split()), page
    runs = language_runs(COUNTS)
    first, again = (runs(name)[:2] for name in ("base", "base-again"))
    cells = []
    for measure in (mean_of, lambda counts: pass_of(counts, 32)):
        both = [[measure(counts_of(rows)) for rows in pair if rows] for pair in zip(first, again, strict=True)]
        cells.append(" / ".join(f"{100 * sum(pair) / 2:.1f}" for pair in both))
    styles = [
        [row["styles_correct"] for rows in pair if rows for row in rows] for pair in zip(first, again, strict=True)
    ]
    cells.append(" / ".join(f"{sum(each) / len(each):.2f}" for each in styles))
    assert f"| {' | '.join(cells)} |" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_additions_is_computed_from_the_counts() -> None:
    lines = list(pairs_table(COUNTS))
    page = MINIATURES.read_text(encoding="utf-8").splitlines()
    chosen = [line for line in lines if "| **" in line]
    pairs = {line.partition(" + DPH-JS")[0] for line in lines if " + DPH-JS" in line}
    assert pairs and len(chosen) == len(pairs), "one η is chosen for each pair"
    assert [line for line in lines if line not in page] == []


def test_eta_is_chosen_on_dev_by_the_rule() -> None:
    """Two problems, 32 samples each: the addition has a mean of 1/2; three η with means of 1/2, 0.495 and 0.25."""

    def rows(*correct: int) -> list[dict]:
        return [{"samples": 32, "correct": one} for one in correct]

    runs = {("alone", 1, "dev"): rows(32, 0), ("a", 1, "dev"): rows(32, 0), ("b", 1, "dev"): rows(31, 1)}
    etas = {"a": 0.2, "b": 0.6}
    assert chosen_eta(runs, "alone", etas) == "b", "the same mean, and pass@32 of both problems"
    runs |= {("c", 1, "dev"): rows(16, 16)}
    assert chosen_eta(runs, "alone", {"a": 0.2, "c": 2.0}) == "c"
    runs |= {("c", 1, "dev"): rows(8, 8)}
    assert chosen_eta(runs, "alone", {"a": 0.2, "c": 2.0}) == "a", "c loses a quarter of the mean"
    assert chosen_eta(runs, "alone", {"c": 2.0}) == "c", "none is allowed: the smallest"
    runs |= {("c", 2, "dev"): rows(32, 32), ("alone", 2, "dev"): rows(0, 0)}
    assert seeds_of(runs, ["alone", "c"]) == [1, 2] and seeds_of(runs, ["alone", "c", "a"]) == [1]
