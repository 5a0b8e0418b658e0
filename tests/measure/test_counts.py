"""Numbers of correct and of all samples, one row for each problem, in the forms that programs write."""

import json
from pathlib import Path
from typing import Any

import pytest

from dph.errors import DataError
from dph.measure import Reading, Samples, read_samples

C, N = [0, 1, 4, 2], 4


def read(folder: Path, rows: list[dict[str, Any]], **reading: Any) -> Samples:
    file = folder / "counts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_samples(file, Reading(**reading))


@pytest.mark.parametrize(
    ("correct", "total"),
    [
        *(("c", "n"), ("num_correct", "num_samples"), ("n_correct", "n_total"), ("correct_count", "total_count")),
        *(("successes", "trials"), ("successes", "num_rollouts"), ("passes", "samples"), ("num_correct", "num_total")),
    ],
)
def test_numbers_of_correct_samples_beside_those_of_all(tmp_path: Path, correct: str, total: str) -> None:
    found = read(tmp_path, [{"id": f"p{i}", correct: c, total: N} for i, c in enumerate(C)])
    assert found.c.tolist() == C and found.n.tolist() == [N] * len(C)
    assert f"{correct} of {total}" in found.read_as


@pytest.mark.parametrize("total", ["n", "n_samples"])
def test_pass_at_1_beside_the_number_of_samples(tmp_path: Path, total: str) -> None:
    found = read(tmp_path, [{"id": f"p{i}", "pass@1": c / N, total: N} for i, c in enumerate(C)])
    assert found.c.tolist() == C and found.n.tolist() == [N] * len(C)


@pytest.mark.parametrize("name", ["correct", "scores"])
def test_a_list_of_zeros_and_ones_for_each_problem(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, [{"id": f"p{i}", name: [1] * c + [0] * (N - c)} for i, c in enumerate(C)])
    assert found.c.tolist() == C and found.n.tolist() == [N] * len(C)


def test_one_sample_of_each_problem_is_a_count_too(tmp_path: Path) -> None:
    found = read(tmp_path, [{"id": f"p{i}", "c": i % 2, "n": 1} for i in range(4)])
    assert found.c.tolist() == [0, 1, 0, 1] and found.n.tolist() == [1] * 4


def test_evalperf_counts_solutions_that_pass_and_not_those_that_were_timed(tmp_path: Path) -> None:
    def solution(passed: bool, timed: bool) -> dict[str, Any]:
        cost = 120.0 if timed else None
        return {"solution": "def f(): ...", "pass": passed, "profiled": timed, "_num_cpu_instructions": cost}

    tasks = {f"Mbpp/{i}": {"results": [solution(j < c, j < c > 1) for j in range(N)]} for i, c in enumerate(C)}
    document = {"date": "2026-01-01", "config": {"dataset": "mbpp", "min_correct": 2}, "eval": tasks}
    (tmp_path / "evalperf_results.json").write_text(json.dumps(document))
    found = read_samples(tmp_path / "evalperf_results.json")
    assert found.c.tolist() == C and found.n.tolist() == [N] * len(C)
    assert list(found.problems) == [f"Mbpp/{i}" for i in range(len(C))]


def test_counts_of_one_problem_in_several_rows_are_not_added_up_in_silence(tmp_path: Path) -> None:
    rows = [{"id": f"p{i}", "c": c, "n": N} for i, c in enumerate(C)]
    with pytest.raises(DataError, match=r"'p0' has 2 rows with numbers of samples.*--id id") as error:
        read(tmp_path, rows + rows)
    assert "\n" not in str(error.value)
    assert read(tmp_path, rows + rows, id="id").n.tolist() == [2 * N] * len(C), "the option that the sentence names"


@pytest.mark.parametrize("c", [-1, 5, 2.5, None])
def test_counts_that_cannot_be_are_refused(tmp_path: Path, c: float | None) -> None:
    rows = [{"id": "a", "c": 3, "n": N}, {"id": "b", "c": c, "n": N}]
    with pytest.raises(DataError, match="not numbers of correct and of all samples"):
        read(tmp_path, rows)
