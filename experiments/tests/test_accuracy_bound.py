"""The bound on lost success: points of runs whose divergence and success are known."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from dph.errors import UserError
from dph.rehearsal.store import Rehearsal
from experiments.accuracy_bound import Point, divergences, main, read, table
from helpers import tiny_policy

ROWS = """label,problems,base,trained,divergence,error
far,10,0.8,0.5,0.5,0.1
near,10,0.8,0.9,0.1,0.05
"""


def test_points_are_read_sorted_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "points.csv"
    file.write_text(ROWS)
    points = read(file)
    assert points[0] == Point("far", 10, 0.8, 0.5, 0.5, 0.1)
    assert points[0].bound == pytest.approx(0.8 * math.exp(-0.5))
    assert table(points)[2] == "| near | 0.10 ± 0.05 | 80.0 | 90.0 | 72.4 |"
    main(["--table", str(file), "--figure", str(tmp_path / "f.png"), "--out", str(tmp_path / "again.csv")])
    assert (tmp_path / "f.png").stat().st_size > 5_000 and read(tmp_path / "again.csv") == points
    assert "| far | 0.50 ± 0.10 | 80.0 | 50.0 | 48.5 |" in capsys.readouterr().out


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text("label,problems\nfar,10\n")
    with pytest.raises(UserError, match="holds no points"):
        read(file)


def test_the_published_points_keep_to_the_bound() -> None:
    points = read(Path(__file__).parents[1] / "counts" / "accuracy_bound.csv")
    assert len(points) == 22
    for point in points:  # within the noise of 32 problems with 64 samples each
        noise = 2 * (0.02 + point.base * point.error)
        assert point.trained >= point.bound - noise


def test_divergence_is_of_whole_responses_and_averaged_within_a_problem() -> None:
    policy = tiny_policy()
    tokens = [((3, 4), (5, 6, 7)), ((3, 4), (8, 9)), ((10,), (5,))]
    plain = [Rehearsal(prompt, response, name, (), "") for (prompt, response), name in zip(tokens, "aab", strict=True)]
    own = policy.response_logprobs(plain, 1.0, 1000)
    shifted = [replace(row, ref_logprobs=[x + 0.1 for x in found]) for row, found in zip(plain, own, strict=True)]
    # 0.1 nats a token: (0.3 + 0.2) / 2 for the first problem, 0.1 for the second.
    assert divergences(policy, shifted, 1.0) == pytest.approx({"a": 0.25, "b": 0.1}, abs=1e-5)
