"""Lost and gained problems among unequal numbers of samples: values by enumeration, and the level by simulation."""

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from complaints import run
from dph.measure import Samples, compare, verdict
from dph.measure.losses import _sign_test_of as expected_sign_test
from dph.measure.losses import cover_among, losses, missed_among, right_among, sign_test
from dph.measure.wording import comparison_as_text

MORE, FEWER = (
    {"p": "1100000", "q": "0000000", "r": "1111110", "s": "1000000"},
    {"p": "000", "q": "010", "r": "111", "s": "100"},
)


def samples(rows: dict[str, str], name: str = "x") -> Samples:
    problem = np.array([i for i, text in enumerate(rows.values()) for _ in text], np.int32)
    right = np.array([letter == "1" for text in rows.values() for letter in text])
    return Samples(name, list(rows), problem, right, None, None, "")


def drawn(name: str, n: int, chances: Any, rng: np.random.Generator) -> Samples:
    """n samples of each problem, which are right with their problem's chance."""
    right = rng.random((len(chances), n)) < np.asarray(chances)[:, None]
    problem = np.repeat(np.arange(len(chances), dtype=np.int32), n)
    return Samples(name, [str(i) for i in range(len(chances))], problem, right.ravel(), None, None, "")


@pytest.mark.parametrize("reverse", [False, True])
def test_expectations_are_means_over_all_subsets(reverse: bool) -> None:
    sides = (FEWER, MORE) if reverse else (MORE, FEWER)
    change = compare(*map(samples, sides)).changes[0]
    lost, gained, by_chance, solved = 0.0, 0.0, 0.0, 0.0
    for id in MORE:
        pairs = [(a, b) for a in combinations(sides[0][id], 3) for b in combinations(sides[1][id], 3)]
        lost += np.mean(["1" in a and "1" not in b for a, b in pairs])
        gained += np.mean(["1" not in a and "1" in b for a, b in pairs])
        solved += np.mean(["1" in a for a, _ in pairs])
        every = [*range(10)]
        right = [letter == "1" for letter in MORE[id] + FEWER[id]]
        splits = [
            (any(right[i] for i in a) and not any(right[i] for i in b))
            for a in combinations(every, 3)
            for b in combinations(sorted({*every} - {*a}), 3)
        ]
        by_chance += np.mean(splits)
    assert change.lost_count == pytest.approx(lost) and change.gained_count == pytest.approx(gained)
    assert change.by_chance == pytest.approx(by_chance) and change.samples == (3, 3) and change.expected
    for share in (0.25, 0.5, 0.75, 1.0):
        covered = [
            np.mean([sum(x == "1" for x in s) >= share * 3 for id in MORE for s in combinations(side[id], 3)])
            if side is FEWER
            else np.mean([np.mean([s.count("1") >= share * 3 for s in combinations(side[id], 3)]) for id in MORE])
            for side in sides
        ]
        assert change.differences[f"cover@{share:g}"].estimate == pytest.approx(covered[1] - covered[0])
    # only what is above chance counts for the gate, here nothing
    assert solved > 0 and change.lost_share == 0.0


def test_the_hypergeometric_chances_are_those_of_counting() -> None:
    for n, c, m in [(7, 3, 4), (7, 0, 4), (7, 7, 4), (5, 2, 5), (1, 1, 1)]:
        subsets = [sum(s) for s in combinations([1] * c + [0] * (n - c), m)]
        assert missed_among(n, c, m) == pytest.approx(np.mean([s == 0 for s in subsets]))
        for j in range(m + 1):
            assert right_among(n, c, m, j) == pytest.approx(np.mean([s == j for s in subsets]))
        for share in (0.25, 0.5, 1.0):
            assert cover_among([n], [c], [m], share)[0] == pytest.approx(np.mean([s >= share * m for s in subsets]))
    assert missed_among([4, 4], [0, 1], [4, 4]).tolist() == [1.0, 0.0]


def test_the_sign_expected_sign_test_is_the_exact_one_for_whole_numbers() -> None:
    for one, other in [(0, 0), (1, 0), (0, 9), (5, 5), (3, 17), (120, 180), (420, 480), (600, 700)]:
        total = one + other
        assert expected_sign_test(one - other, total) == pytest.approx(sign_test(one, other), rel=1e-9)


POPULATIONS = {
    "even": lambda rng, count: rng.random(count),
    "skewed": lambda rng, count: rng.beta(0.3, 0.9, count),
    "hard": lambda rng, count: np.full(count, 0.03),
    "easy": lambda rng, count: np.full(count, 0.95),
}
NUMBERS = [(32, 4), (4, 32), (8, 6), (16, 1), (1, 16), (1, 1), (4, 4), (8, 8), (32, 32)]


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("problems", [12, 150])
def test_unchanged_models_are_seldom_found_to_have_changed(population: str, problems: int) -> None:
    """Over 300 pairs of each kind. The exact test rejects less than 5 % where numbers are small; 5 % of 300 have
    a standard deviation of 1.3 %, so that 9 % are three of them above. 0.05 problems: rare ones may not be drawn."""
    rng = np.random.default_rng(problems)
    for before, after in NUMBERS:
        rejected, gate, lost, gained, by_chance = [], [], [], [], []
        for _ in range(300):
            chances = POPULATIONS[population](rng, problems)
            found = losses(*((np.full(problems, n), rng.binomial(n, chances)) for n in (before, after)))
            rejected.append(found.sign_p < 0.05)
            gate.append(found.share > 0)
            lost.append(found.lost.sum())
            gained.append(found.gained.sum())
            by_chance.append(found.by_chance)
        assert np.mean(rejected) <= 0.09, (before, after, np.mean(rejected))
        assert np.mean(gate) <= 0.10, (before, after, np.mean(gate))
        spread = math.sqrt(np.var(np.subtract(lost, gained)) / 300)
        assert abs(np.mean(lost) - np.mean(gained)) <= 4 * spread + 0.05
        assert np.mean(by_chance) == pytest.approx(np.mean(lost), abs=4 * spread + 0.05)


def test_problems_that_change_as_often_for_the_better_are_no_loss() -> None:
    """Each problem's chance is drawn anew: many are lost, as many gained, and the test of the one against the other
    holds its level, which the binomial variance of unchanged models would not."""
    rng, rejected = np.random.default_rng(5), []
    for _ in range(300):
        found = losses(*((np.full(100, n), rng.binomial(n, rng.beta(0.3, 0.9, 100))) for n in (32, 4)))
        rejected.append(found.sign_p < 0.05)
    assert 0.005 <= np.mean(rejected) <= 0.09


def test_a_real_loss_is_found_with_few_samples() -> None:
    rng = np.random.default_rng(1)
    chances = rng.beta(0.5, 0.5, 200)
    change = compare(drawn("b", 32, chances, rng), drawn("a", 4, 0.3 * chances, rng)).changes[0]
    assert change.sign_p < 1e-4 and change.lost_share > 0.1 and change.lost_count > 2 * change.gained_count
    same = compare(drawn("b", 32, chances, rng), drawn("a", 32, 0.3 * chances, rng)).changes[0]
    assert not same.expected and same.lost_count == len(same.lost) and same.lost_share > 0.05


def test_the_gate_passes_unchanged_models_and_stops_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """100 problems with 8 samples each; without a correction for chance, 94 % of unchanged pairs lose more than 5 %."""
    rng = np.random.default_rng(3)
    chances = rng.beta(0.5, 0.8, 100)
    sides = [drawn(name, 8, p, rng) for name, p in (("b", chances), ("same", chances), ("less", 0.2 * chances))]
    files = []
    for side in sides:
        rows = zip(side.problem.tolist(), side.right.tolist(), strict=True)
        files.append(tmp_path / f"{side.name}.jsonl")
        files[-1].write_text("".join(json.dumps({"id": i, "correct": right}) + "\n" for i, right in rows))
    change = compare(*sides[:2]).changes[0]
    assert len(change.lost) > 0.05 * (sides[0].c > 0).sum()  # which chance alone does
    status, said = run(capsys, "passk", *files, "--fail-if-lost", "0.05")
    last = said.strip().splitlines()[-1]
    assert status == 3 and last.endswith(f"in {files[2]} (among 8 samples of each problem)")
    assert run(capsys, "passk", *files[:2], "--fail-if-lost", "0.05")[0] == 0


def test_the_first_samples_of_a_file_have_lost_nothing_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BEFORE with 32 samples and AFTER with the first 4 of the very same, over 200 pairs; the command once."""
    rng = np.random.default_rng(7)
    rejected, gate = 0, 0
    for trial in range(200):
        chances = rng.beta(0.4, 0.9, 100)
        before = drawn("before", 32, chances, rng)
        first = np.flatnonzero(np.arange(3200) % 32 < 4)
        after = Samples("after", before.problems, before.problem[first], before.right[first], None, None, "")
        change = compare(before, after).changes[0]
        rejected += change.sign_p < 0.05
        gate += change.lost_share > 0.05
        if trial == 0:
            assert "(expected among 4 samples of each)" in verdict(change)
            for side in (before, after):
                rows = zip(side.problem.tolist(), side.right.tolist(), strict=True)
                lines = [json.dumps({"id": i, "correct": right}) + "\n" for i, right in rows]
                (tmp_path / f"{side.name}.jsonl").write_text("".join(lines))
            files = [tmp_path / "before.jsonl", tmp_path / "after.jsonl"]
            status, said = run(capsys, "passk", *files, "--fail-if-lost", "0.05")
            assert status == 0 and "unequal numbers of samples" in said
            assert run(capsys, "passk", *reversed(files), "--fail-if-lost", "0.05")[0] == 0
    assert rejected <= 18 and gate <= 6


def test_several_after_are_told_apart_and_partial_levels_are_of_the_common_problems() -> None:
    rng = np.random.default_rng(2)
    before, one, two = (drawn(f"runs/{name}/r.jsonl", 4, rng.random(40), rng) for name in ("b", "one", "two"))
    said = comparison_as_text(compare(before, one, two))
    assert said.startswith("one/r.jsonl: ") and "\ntwo/r.jsonl: " in said and "two/r.jsonl − before" in said
    some = Samples(two.name, [f"{int(id) + 5}" for id in two.problems], two.problem, two.right, None, None, "")
    found = compare(before, some, partial=True)
    assert [scores.problems for scores in found.scores] == [35, 35] and found.changes[0].problems == 35
    assert "on 35 common problems" in verdict(found.changes[0]) and "5 problems of 40 left out" in " ".join(found.notes)
    levels = [scores.metrics["pass@4"].estimate for scores in found.scores]
    assert found.changes[0].differences["pass@4"].estimate == pytest.approx(levels[1] - levels[0])


def test_the_verdict_says_among_how_many_samples_problems_are_lost() -> None:
    before, after = samples({"p": "1111", "q": "0000"}), samples({"p": "0000", "q": "0100"})
    assert "1 problem gained, among all 4 samples" in verdict(compare(before, after, ks=[1, 2]).changes[0])
    assert verdict(compare(before, after).changes[0]).endswith("1 problem gained")


@pytest.mark.parametrize("samples", [4, 8])
def test_named_problems_are_no_part_of_an_expected_number(samples: int) -> None:
    ids = ["a", "b"]
    before = Samples("before", ids, np.repeat([0, 1], 4).astype(np.int32), np.ones(8, np.bool_), None, None, "")
    problem = np.repeat([0, 1], samples).astype(np.int32)
    after = Samples("after", ids, problem, np.zeros(2 * samples, np.bool_), None, None, "")
    said = verdict(compare(before, after).changes[0])
    assert "2 problems lost" in said and ("(2 of them solved by at least half" in said) == (samples == 4)
