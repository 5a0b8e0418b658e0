"""Lists in rows and documents: of samples, of the tests of one sample, of its other parts, of ids."""

import json
from pathlib import Path
from typing import Any

import pytest

from dph.errors import DataError
from dph.measure import Reading, Samples, read_samples

Row = dict[str, Any]


def read(folder: Path, rows: Any, **reading: Any) -> Samples:
    """The samples of rows, or of one document."""
    if isinstance(rows, dict):
        (folder / "r.json").write_text(json.dumps(rows))
        return read_samples(folder / "r.json", Reading(**reading))
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_samples(folder / "r.jsonl", Reading(**reading))


def refusal(folder: Path, rows: Any, **reading: Any) -> str:
    with pytest.raises(DataError) as error:
        read(folder, rows, **reading)
    assert "\n" not in str(error.value)
    return str(error.value)


def counts(samples: Samples) -> tuple[list[int], list[int]]:
    return samples.c.tolist(), samples.n.tolist()


def listed(name: str, **more: Any) -> list[Row]:
    return [{"id": "a", name: [True, True, False], **more}, {"id": "b", name: [True, True, True], **more}]


@pytest.mark.parametrize(
    "name", ["test_results", "tests_passed", "per_test_passed", "unit_test_results", "checks", "case_passed"]
)
def test_a_sample_is_right_if_all_of_its_tests_are(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, listed(name))
    assert counts(found) == ([0, 1], [1, 1]) and f"{name}=all as the verdict" in found.read_as
    assert counts(read(tmp_path, listed(name), correct=f"{name}=all")) == ([0, 1], [1, 1])
    assert counts(read(tmp_path, listed(name), correct=name)) == ([2, 3], [3, 3])
    assert counts(read(tmp_path, listed(name, passed=True))) == ([1, 1], [1, 1])  # the row's own verdict


@pytest.mark.parametrize(
    "name",
    ["step_correct", "turn_passed", "judge_correct", "rubric_scores", "step_rewards", "results", "criteriaScores"],
)
def test_a_list_of_other_parts_is_refused_with_what_to_type(tmp_path: Path, name: str) -> None:
    said = refusal(tmp_path, listed(name))
    assert f"--correct {name}=all" in said and f"--correct {name} takes each as a sample" in said
    assert counts(read(tmp_path, listed(name), correct=f"{name}=all")) == ([0, 1], [1, 1])
    assert counts(read(tmp_path, listed(name), correct=name)) == ([2, 3], [3, 3])
    assert counts(read(tmp_path, listed(name, responses=["x", "y", "z"]))) == ([2, 3], [3, 3])  # one for each response


@pytest.mark.parametrize("name", ["correct", "is_correct", "samples_correct", "passed", "acc", "rewards", "verdicts"])
def test_other_lists_are_of_samples(tmp_path: Path, name: str) -> None:
    assert counts(read(tmp_path, listed(name))) == ([2, 3], [3, 3])


def test_a_list_beside_as_many_tests_is_of_tests(tmp_path: Path) -> None:
    said = refusal(tmp_path, listed("passed", tests=["t1", "t2", "t3"]))
    assert "--correct passed=all" in said
    assert counts(read(tmp_path, listed("passed", tests=["t1", "t2"]))) == ([2, 3], [3, 3])


def test_lists_of_tests_of_each_sample_are_samples(tmp_path: Path) -> None:
    """The results of APPS and of LiveCodeBench: a negative number says why a test failed."""
    tested = {"a": [[True, True], [True, -2], [-1]], "b": [[True, False], [1], [False, False]]}
    rows = [{"id": id, "results": results} for id, results in tested.items()]
    for form in (rows, tested):
        assert counts(read(tmp_path, form)) == ([1, 1], [3, 3])


def test_lists_of_different_lengths_lose_nothing_unsaid(tmp_path: Path) -> None:
    rows = [{"id": i, "correct": [True, False], "responses": ["x", "y", "z"]} for i in range(2)]
    assert "lists of different lengths: {'correct': 2, 'responses': 3}" in refusal(tmp_path, rows)
    golds = [{"id": i, "correct": [True, False], "answers": ["x", "y", "z"]} for i in range(2)]
    found = read(tmp_path, golds)
    assert found.answer is None and "differ in number" in found.notes[0]


@pytest.mark.parametrize("names", ["ids", "problem_ids", "task_ids", "problems", "questions", "id"])
def test_documents_of_columns_keep_their_ids(tmp_path: Path, names: str) -> None:
    found = read(tmp_path, {"model": "m", names: ["x", "y"], "correct": [[True, False], [True, True]]})
    assert ([*found.problems], *counts(found)) == (["x", "y"], [1, 2], [2, 2])
    assert read(tmp_path, {names: ["x", "y"], "correct": [True, False]}).right.tolist() == [True, False]


def test_a_list_beside_lists_of_verdicts_that_may_name_the_problems_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, {"labels": ["x", "y"], "marks": [[True, False], [True, True]]})
    assert "'labels', which may name the problems: call it 'ids'" in said
    assert [*read(tmp_path, {"ids": ["x", "y"], "marks": [[True, False], [True, True]]}).problems] == ["x", "y"]
    said = refusal(tmp_path, {"ids": ["x", "y", "z"], "marks": [[True, False], [True, True]]})
    assert "3 values under 'ids' and 2" in said


def test_lists_of_ids_are_verdicts(tmp_path: Path) -> None:
    """The report of SWE-bench."""
    report = {
        **{"total_instances": 4, "submitted_instances": 4, "resolved_instances": 2, "schema_version": 2},
        **{"submitted_ids": ["a", "b", "c", "d"], "completed_ids": ["a", "b", "c"], "empty_patch_ids": ["d"]},
        **{"resolved_ids": ["a", "b"], "unresolved_ids": ["c"], "error_ids": [], "incomplete_ids": []},
    }
    found = read(tmp_path, report)
    assert dict(zip(found.problems, found.right.tolist(), strict=True)) == {
        "a": True,
        "b": True,
        "c": False,
        "d": False,
    }
    assert "1 of 5 samples have no verdict" in refusal(tmp_path, report | {"incomplete_ids": ["e"]})
    assert counts(read(tmp_path, report | {"incomplete_ids": ["e"]}, partial=True)) == ([1, 1, 0, 0], [1] * 4)
    assert "ids of right problems alone" in refusal(tmp_path, {"resolved_ids": ["a", "b"], "total": 4})


@pytest.mark.parametrize(
    "name", ["num_criteria", "denominator", "upper_bound", "limit", "n_criteria", "top", "maxScore", "totalMarks"]
)
def test_further_names_of_a_maximum(tmp_path: Path, name: str) -> None:
    rows = [{"id": i, "score": 1 - i, name: 4} for i in range(2)]
    assert f"--correct score={name}" in refusal(tmp_path, rows)
    assert not read(tmp_path, rows, correct=f"score={name}").right.any()


def test_lists_may_hold_a_maximum_or_its_points(tmp_path: Path) -> None:
    rows = [{"id": i, "score": 1, "rubric": ["clear", "right", "short"]} for i in range(2)]
    assert "--correct score=num_rubric" in refusal(tmp_path, rows)
    assert not read(tmp_path, rows, correct="score=num_rubric").right.any()
    rows = [{"id": i, "scores": [1, 0], "scores_max": [4, 4]} for i in range(2)]
    assert "--correct scores=scores_max" in refusal(tmp_path, rows)
    assert counts(read(tmp_path, rows, correct="scores=scores_max")) == ([0, 0], [2, 2])


def test_shares_of_samples_are_counts_and_parts_of_a_whole_are_graded(tmp_path: Path) -> None:
    for name in ("accuracy", "pass_rate", "pass@1", "mean_reward"):
        rows = [{"id": "a", name: 0.5, "n": 4}, {"id": "b", name: 0.25, "n": 4}]
        assert counts(read(tmp_path, rows)) == ([2, 1], [4, 4])
    tests = [{"id": "a", "accuracy": 0.5, "total": 4}, {"id": "b", "accuracy": 1.0, "total": 4}]
    said = refusal(tmp_path, tests)
    assert "--threshold 1" in said and "--correct accuracy/total" in said
    assert counts(read(tmp_path, tests, threshold=1.0)) == ([0, 1], [1, 1])
    assert counts(read(tmp_path, tests, correct="accuracy/total")) == ([2, 4], [4, 4])
    for parts in (("2/4", "4/4"), ("0/4", "4/4")):
        rows = [{"id": i, "passed": part} for i, part in enumerate(parts)]
        assert "--threshold" in refusal(tmp_path, rows)
        assert read(tmp_path, rows, threshold=1.0).right.tolist() == [False, True]


def test_counts_by_id_are_asked_about_and_the_advice_leads_to_a_result(tmp_path: Path) -> None:
    document = {"p1": {"correct": 2, "total": 4}, "p2": {"correct": 4, "total": 4}}
    said = refusal(tmp_path, document)
    assert "--correct correct=total" in said and "--correct correct/total" in said
    assert counts(read(tmp_path, document, correct="correct=total")) == ([0, 1], [1, 1])
    assert counts(read(tmp_path, document, correct="correct/total")) == ([2, 4], [4, 4])


def test_lists_that_are_no_verdicts_are_not_proposed(tmp_path: Path) -> None:
    rows = [{"id": i, "results": [["t", True], ["u", False]], "mark": i} for i in range(2)]
    said = refusal(tmp_path, rows)
    assert "no verdicts; name another column" in said
    assert read(tmp_path, rows, correct="mark").right.tolist() == [False, True]


WITHOUT_IDS: dict[str, Any] = {
    "lists of verdicts": [{"correct": [True, False, False]}, {"correct": [False, True, True]}],
    "lists of samples": [
        {"samples": [{"correct": right} for right in verdicts]} for verdicts in ((1, 0, 0), (0, 1, 1))
    ],
    "a document with details": {
        "accuracy": 50.0,
        "details": [
            {"pred": ["1", "2", "3"], "answer": "1", "correct": [True, False, False]},
            {"pred": ["2", "2", "2"], "answer": "2", "correct": [False, True, True]},
        ],
    },
    "columns of samples": [
        {"sample_0": True, "sample_1": False, "sample_2": False},
        {"sample_0": False, "sample_1": True, "sample_2": True},
    ],
}


@pytest.mark.parametrize("layout", WITHOUT_IDS)
def test_the_place_in_the_file_is_that_of_a_record_with_all_of_its_samples(tmp_path: Path, layout: str) -> None:
    assert "--id line" in refusal(tmp_path, WITHOUT_IDS[layout])
    found = read(tmp_path, WITHOUT_IDS[layout], id="line")
    assert list(found.problems) == ["1", "2"] and counts(found) == ([1, 2], [3, 3])


def test_the_place_in_the_file_begins_anew_in_each_file_of_a_run(tmp_path: Path) -> None:
    for seed in (0, 1):
        rows = [{"correct": [True, bool(seed)]}, {"correct": [False, False]}]
        (tmp_path / f"seed{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert counts(read_samples(tmp_path, Reading(id="line"))) == ([3, 0], [4, 4])


@pytest.mark.parametrize(
    ("name", "value", "several"),
    [
        ("resps", [["x", "y", "z"]], True),
        ("resps", [["x"], ["y"]], False),  # of choices, as lm-eval writes log-likelihoods
        ("responses", ["x", "y"], True),
        ("result.completions", [{"text": "x"}, {"text": "y"}], True),
        ("resps", [["x"]], False),
        ("output", [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], False),
        ("output", "x", False),
    ],
)
def test_responses_without_a_verdict_of_their_own_are_named(
    tmp_path: Path, name: str, value: Any, several: bool
) -> None:
    table, _, leaf = name.rpartition(".")
    cell = {table: {leaf: value}} if table else {leaf: value}
    found = read(tmp_path, [{"id": i, "correct": True} | cell for i in "ab"])
    said = f"{tmp_path / 'r.jsonl'}: ignored: {name} (a row has several responses, and one verdict)"
    assert counts(found) == ([1, 1], [1, 1]) and list(found.notes) == ([said] if several else [])
