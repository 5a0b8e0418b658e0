"""Where pass@k changed, by how often the first side solves a problem: against enumeration of all ways to halve the
samples, and through the command line."""

import json
import math
import subprocess
import sys
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.measure.passk import pass_at_k
from dph.measure.strata import CLASSES, FEWEST, largest_k, strata


def class_of(share: float) -> int:
    return next(place for place, (_, high) in enumerate(CLASSES) if share <= high)


def by_enumeration(n: int, c: int, after: float, k: int) -> tuple[list[float], list[float]]:
    """Of one problem: the chance of each class, and the expected change in it, over all ways to halve its samples."""
    chances, changes = [0.0] * len(CLASSES), [0.0] * len(CLASSES)
    divisions = [(one, size) for size in (n // 2, n - n // 2) for one in combinations(range(n), size)]
    weight = {size: sum(other == size for _, other in divisions) for _, size in divisions}
    sizes = len(weight)
    for half, size in divisions:
        share = sum(i < c for i in half) / size
        rest = [i < c for i in range(n) if i not in half]
        subsets = list(combinations(rest, k))
        level = sum(any(one) for one in subsets) / len(subsets)
        chances[class_of(share)] += 1 / weight[size] / sizes
        changes[class_of(share)] += (after - level) / weight[size] / sizes
    return chances, changes


@pytest.mark.parametrize("n", [8, 9])
def test_classes_and_changes_are_the_mean_over_all_ways_to_halve_the_samples(n: int) -> None:
    k, correct, after = 4, [0, 1, 3, 5, n], [0, 2, 1, 8, 7]
    found = strata(([n] * 5, correct), [([8] * 5, after)], k)
    levels = [1 - comb(8 - a, k) / comb(8, k) for a in after]
    each = [by_enumeration(n, c, level, k) for c, level in zip(correct, levels, strict=True)]
    for place, one in enumerate(found):
        chances, changes = (sum(problem[i][place] for problem in each) for i in (0, 1))
        assert one.problems == pytest.approx(chances / 5, abs=1e-12)
        assert one.part.estimate == pytest.approx(changes / 5, abs=1e-12)
        assert one.change.estimate == pytest.approx(changes / chances, abs=1e-12)
        assert one.after - one.before == pytest.approx(one.change.estimate, abs=1e-12)
    assert [one.title for one in found] == ["none", "0–25 %", "25–50 %", "50–80 %", "80–100 %"]


COUNTS = st.integers(FEWEST, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n)))


@settings(deadline=None, max_examples=50)
@given(st.lists(COUNTS, min_size=1, max_size=6), st.sampled_from([1, 2, 4]))
def test_the_parts_add_up_to_the_change_of_pass_at_k(problems: list[tuple[int, int, int]], k: int) -> None:
    n, before, after = (np.array(column) for column in zip(*problems, strict=True))
    found = strata((n, before), [(n, after)], k)
    whole = float((pass_at_k(n, after, k) - pass_at_k(n, before, k)).mean())
    assert sum(one.part.estimate for one in found) == pytest.approx(whole, abs=1e-12)
    assert sum(one.problems for one in found) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_no_class_gains_or_loses_if_nothing_changed(chance: float) -> None:
    n, k = 16, 8
    counts = np.arange(n + 1)
    odds = np.array([comb(n, c) * chance**c * (1 - chance) ** (n - c) for c in counts])
    truth = 1 - (1 - chance) ** k  # what further samples of the same model have, whatever the first ones were
    for place in range(len(CLASSES)):
        parts = [strata(([n], [c]), [([n], [n])], k)[place] for c in counts]
        level, weight = (sum(odds * [values(one) for one in parts]) for values in (_level, lambda one: one.problems))
        assert level == pytest.approx(truth * weight, abs=1e-12), "the class says nothing about the other half"


def _level(one) -> float:
    return 0.0 if math.isnan(one.before) else one.before * one.problems


def test_several_runs_have_the_spread_of_runs_too() -> None:
    before, n = [16] * 10 + [2] * 10, [16] * 20
    runs = [(n, [16] * 10 + [c] * 10) for c in (0, 4)]
    apart = [strata((n, before), [run], 4)[1] for run in runs]
    both = strata((n, before), runs, 4)[1]
    mean = sum(one.change.estimate for one in apart) / 2
    assert both.change.estimate == pytest.approx(mean, abs=1e-12)
    gap = abs(apart[0].change.estimate - apart[1].change.estimate)
    assert both.change.high - both.change.low >= min(gap, 1.0), "two runs that differ much decide nothing"


def test_a_half_must_hold_k_samples() -> None:
    assert largest_k([32, 64], [64, 64]) == 16 and largest_k([9], [9]) == 4 and largest_k([64], [5]) == 4
    assert largest_k([FEWEST - 1], [64]) == 0 == largest_k([])
    with pytest.raises(ValueError, match="half of the 8 samples"):
        strata(([8], [1]), [([8], [1])], 5)


def passk(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dph", "passk", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)


def write_counts(file: Path, n: int, correct: list[int]) -> Path:
    rows = ({"id": f"p{i}", "c": c, "n": n} for i, c in enumerate(correct))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_the_command_shows_where_pass_at_k_changed(tmp_path: Path) -> None:
    before = write_counts(tmp_path / "before.jsonl", 16, [16] * 10 + [3] * 10)
    after = write_counts(tmp_path / "after.jsonl", 16, [16] * 10 + [0] * 10)
    done = passk(before, after, "--html", tmp_path / "page.html")
    rows = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "pass@8 where before solves" in rows and "25–50 %" in rows["25–50 %"]
    assert "100.0   100.0  +0.0" in rows["80–100 %"], rows
    assert "pass@8 where before solves" in (tmp_path / "page.html").read_text()
    [change] = json.loads(passk(before, after, "--json").stdout)["changes"]
    parts = [one["part"]["estimate"] for one in change["strata"]]
    assert sum(parts) == pytest.approx(change["differences"]["pass@8"]["estimate"], abs=1e-12)
    assert parts[4] == 0 and parts[1] < 0 and change["strata"][1]["k"] == 8
    [change] = json.loads(passk(before, after, "--json", "--k", 1, 4).stdout)["changes"]
    assert {one["k"] for one in change["strata"]} == {4}, "the largest k that was asked for"


def test_too_few_samples_have_no_classes(tmp_path: Path) -> None:
    files = [write_counts(tmp_path / f"{name}.jsonl", 7, [7, 1]) for name in ("before", "after")]
    done = passk(*files)
    assert "where before solves" not in done.stdout and "pass@7" in done.stdout
