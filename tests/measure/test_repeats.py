"""Sides of several training runs: every number by hand or by the intervals over runs, and the coverage of the band."""

import json
from pathlib import Path

import numpy as np
import pytest

from complaints import complaint, run
from dph.cli.main import main
from dph.measure.bands import band
from dph.measure.changes import compare
from dph.measure.intervals import difference_over_runs, interval_over_runs
from dph.measure.passk import pass_at_k
from dph.measure.repeats import compare_runs
from dph.measure.samples import Samples, read_samples

N = 8
BEFORE = [[8, 4, 1, 0, 2, 6], [8, 5, 0, 0, 2, 7]]
AFTER = [[8, 8, 0, 0, 0, 8], [8, 7, 0, 0, 0, 8], [8, 8, 0, 1, 0, 7]]


def write(folder: Path, name: str, correct: list[int], shift: int = 0) -> Path:
    """Counts of problems, in an order that begins with another problem."""
    rows = [{"id": f"p{i}", "c": c, "n": N} for i, c in enumerate(correct)]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows[shift:] + rows[:shift]))
    return folder / name


def sides(folder: Path) -> list[list[Path]]:
    each = enumerate((BEFORE, AFTER))
    return [[write(folder, f"{'ba'[s]}{i}.jsonl", c, i) for i, c in enumerate(runs)] for s, runs in each]


def test_metrics_are_means_over_runs_with_intervals_over_runs_and_problems(tmp_path: Path) -> None:
    before, after = ([read_samples(file) for file in side] for side in sides(tmp_path))
    found = compare_runs(before, after)
    [change] = found.changes
    for k in (1, 2, 4, 8):
        old, new = (np.stack([pass_at_k(N, c, k) for c in side]) for side in (BEFORE, AFTER))
        assert change.differences[f"pass@{k}"] == difference_over_runs(new, old)
        assert [scores.metrics[f"pass@{k}"] for scores in found.scores] == [*map(interval_over_runs, (old, new))]
    n = [N] * 6
    assert change.band == band([(n, c) for c in BEFORE], [(n, c) for c in AFTER])
    assert [scores.runs for scores in found.scores] == [2, 3] and change.errors == {}
    # b of 8 samples of one run and the others of one run of the other side, by the mean over all pairs of runs
    wrong = [[1 - np.array([pass_at_k(N, c, k) if k else 0.0 * np.array(c) for c in side]) for k in range(9)]
             for side in (BEFORE, AFTER)]  # fmt: skip
    for b, value in change.mix.items():
        pairs = [1 - (x * y).mean() for x in wrong[0][b] for y in wrong[1][8 - b]]
        assert value == pytest.approx(float(np.mean(pairs)), abs=1e-12)


def test_a_problem_is_lost_if_no_run_solves_it_any_more(tmp_path: Path) -> None:
    before, after = ([read_samples(file) for file in side] for side in sides(tmp_path))
    [change] = compare_runs(before, [*after[:1], after[1]]).changes
    assert [(problem.id, problem.before, problem.after) for problem in change.lost] == [
        ("p4", (4, 16), (0, 16)),
        ("p2", (1, 16), (0, 16)),
    ]
    assert change.gained == [] and not change.expected
    assert compare_runs(before, after).changes[0].expected, "two runs against three"


def test_one_run_a_side_is_the_ordinary_comparison(tmp_path: Path) -> None:
    before, after = (read_samples(side[0]) for side in sides(tmp_path))
    one, other = compare(before, after), compare_runs([before], [after])
    assert other.changes[0].differences == one.changes[0].differences
    assert other.changes[0].band == one.changes[0].band and other.changes[0].mix == one.changes[0].mix
    assert other.changes[0].strata == one.changes[0].strata and other.scores == one.scores
    assert other.changes[0].lost == one.changes[0].lost


def test_the_command_says_that_intervals_are_over_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = sides(tmp_path)
    words = ["passk", *map(str, before), "--after", *map(str, after)]
    main([*words, "--html", str(tmp_path / "page.html"), "--table", str(tmp_path / "card.md")])
    said = capsys.readouterr().out
    over = "ercent, with 95 % intervals over runs and problems: before is the mean of 2 runs and after is the mean of 3"
    assert f"p{over}" in said and "(95 % over runs and problems)" in said and "where before solves" not in said
    assert over in (tmp_path / "page.html").read_text() and over in (tmp_path / "card.md").read_text()
    main(["passk", str(before[0]), "--after", *map(str, after)])
    said = capsys.readouterr().out
    assert "before is the mean of 1 run and" in said and "the very model of a side with one run" in said
    assert "where before solves" in said, "one run of BEFORE has classes"
    main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert len(found["inputs"]) == 5 and found["changes"][0]["band"]["runs"] == [2, 3]
    assert found["settings"]["after"] == [str(file) for file in after]


def test_runs_of_other_problems_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = sides(tmp_path)
    other = write(tmp_path, "other.jsonl", BEFORE[0][:5])
    assert "--partial" in complaint(capsys, "passk", before[0], other, "--after", *after)
    assert run(capsys, "passk", before[0], other, "--after", *after, "--partial")[0] == 0
    assert "dph passk BEFORE" in complaint(capsys, "passk", "--after", *after)


def test_the_band_over_runs_holds_the_truth() -> None:
    """150 comparisons of three runs a side, whose runs and problems both differ; the log-odds move by −0.3."""
    rng, held, trials, largest = np.random.default_rng(4), 0, 150, 8

    def solved(odds: np.ndarray) -> np.ndarray:
        k = np.arange(1, largest + 1)[:, None]
        return 1 - (1 - 1 / (1 + np.exp(-odds))) ** k

    every = rng.normal(-1, 2, 300_000)
    moved = [every + shift + 0.4 * rng.normal(size=len(every)) for shift in (0.0, -0.3)]
    truth = (solved(moved[1]) - solved(moved[0])).mean(1)
    for _ in range(trials):
        problems, n = rng.normal(-1, 2, 100), np.full(100, largest)
        both = []
        for shift in (0.0, -0.3):
            odds = problems + shift + 0.4 * rng.normal(size=(3, 1))
            both.append([(n, rng.binomial(largest, 1 / (1 + np.exp(-one)))) for one in odds])
        found = band(*both)
        held += all(low - 1e-3 <= t <= high + 1e-3 for low, t, high in zip(found.low, truth, found.high, strict=True))
    assert held >= 0.90 * trials, held  # 95 % with a standard deviation of 2 points


def test_samples_of_runs_keep_their_problems_when_they_are_put_together(tmp_path: Path) -> None:
    before, after = ([read_samples(file) for file in side] for side in sides(tmp_path))
    shuffled: list[Samples] = [after[2], after[0], after[1]]
    one, other = compare_runs(before, after).changes[0], compare_runs(before, shuffled).changes[0]
    assert {(p.id, p.before, p.after) for p in one.lost} == {(p.id, p.before, p.after) for p in other.lost}
    assert one.differences["pass@4"].estimate == pytest.approx(other.differences["pass@4"].estimate, abs=1e-12)
