"""Rows of one problem that are samples of it, and those that are conditions, copies, parts or sums."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from dph.errors import DataError
from dph.evaluation import Reading, Samples, read_samples

Row = dict[str, Any]


def read(folder: Path, rows: list[Row], name: str = "r.jsonl", **reading: Any) -> Samples:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_samples(folder / name, Reading(**reading))


def refusal(folder: Path, rows: list[Row], **reading: Any) -> str:
    with pytest.raises(DataError) as error:
        read(folder, rows, **reading)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    return str(error.value)


def crossed(name: str, *values: Any, problems: int = 3) -> list[Row]:
    """Every problem once with each value, solved with the first only."""
    return [{"id": id, name: value, "correct": value == values[0]} for value in values for id in range(problems)]


CONDITIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("variant", ("base", "typo")),
    ("perturbation", ("identity", "misspellings")),
    ("prompt_template", ("t1", "t2")),
    ("lang", ("en", "de", "fr")),
    ("num_fewshot", (0, 5)),
    ("n_shots", ("0", "1")),
    ("condition", ("with_hint", "without_hint")),
    ("with_hint", (True, False)),
    ("temperature", (0.0, 0.7)),
    ("system", ("ours", "theirs")),
    ("agent_name", ("a", "b")),
    ("episode", (0, 1)),
    ("turn", (1, 2)),
    ("metadata.locale", ("en", "de")),
    ("flavour", ("sweet", "sour")),  # a name that says nothing: each problem has each value once
    ("quantization", ("int4", "fp16")),
    ("top_p", (0.9, 1.0)),
]


@pytest.mark.parametrize(("name", "values"), CONDITIONS)
def test_a_column_that_differs_within_problems_and_repeats_across_them_is_no_sample(
    tmp_path: Path, name: str, values: tuple[Any, ...]
) -> None:
    rows = crossed(name, *values)
    said = refusal(tmp_path, rows)
    assert repr(name) in said and f"--filter {name}=" in said and f"--id id,{name}" in said
    chosen = read(tmp_path, rows, filter=(f"{name}={values[0]}",))
    assert chosen.n.tolist() == [1, 1, 1] and chosen.right.all()
    apart = read(tmp_path, rows, id=f"id,{name}")
    assert len(apart.problems) == 3 * len(values) and set(apart.n.tolist()) == {1}
    together = read(tmp_path, rows, id="id")
    assert together.n.tolist() == [len(values)] * 3 and any(name in note for note in together.notes)


@pytest.mark.parametrize(
    "name",
    [
        "seed",
        "run",
        "try",
        "sample_no",
        "iteration",
        "n_try",
        "train_trial_index",
        "rep",
        "draw",
        "gen_id",
        "k",
        "part",
    ],
)
def test_a_column_that_numbers_samples_makes_samples(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, crossed(name, 0, 1))
    assert found.n.tolist() == [2, 2, 2] and found.c.tolist() == [1, 1, 1] and not found.notes
    assert found.number is not None and found.number.tolist() == [0, 0, 0, 1, 1, 1]


def test_what_measures_a_sample_may_differ_and_what_is_not_used_is_said(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [
        {
            "id": id,
            "correct": rng.random() < 0.5,
            "finish_reason": rng.choice(["stop", "length"]),
            "tokens": rng.randrange(9),
            "truncated": bool(i % 2),
            "uuid": str(rng.random()),
            "topic": f"t{id % 2}",
            "tone": rng.choice(["calm", "angry"]),
        }
        for id in range(20)
        for i in range(4)
    ]
    found = read(tmp_path, rows)
    assert set(found.n.tolist()) == {4}
    assert found.read_as.endswith("ignored: tone (these differ within a problem)")


def responses(problems: int = 3, samples: int = 2, **more: Any) -> list[Row]:
    return [
        {"id": id, "correct": (id + i) % 2 == 0, "response": f"text {id} {i}"} | more
        for id in range(problems)
        for i in range(samples)
    ]


COPIES: dict[str, list[Row]] = {
    "written twice": responses() * 2,
    "twice, with another time": [*responses(time=1), *responses(time=2)],
    "three times, in any order": sorted(responses() * 3, key=lambda row: hash(str(row))),
    "one sample of each, twice": responses(samples=1) * 2,
    "one problem once more": [*responses(), *responses(1)],
}


@pytest.mark.parametrize("kind", COPIES)
def test_rows_that_are_there_twice_are_refused(tmp_path: Path, kind: str) -> None:
    said = refusal(tmp_path, COPIES[kind])
    assert "every response to" in said and "--id id" in said
    if kind != "one problem once more":
        assert any("count as samples" in note for note in read(tmp_path, COPIES[kind], id="id").notes)


def test_two_equal_files_of_samples_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for i in range(2):
        (folder / f"samples_{i}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in responses()))
    with pytest.raises(DataError, match="every response to 3 problems is there twice"):
        read_samples(folder)


def test_equal_responses_of_numbered_or_greedy_samples_are_samples(tmp_path: Path) -> None:
    numbered = [row | {"sample": i} for i in range(2) for row in responses(samples=1)]
    assert read(tmp_path, numbered).n.tolist() == [2, 2, 2]
    greedy = [row for row in responses(samples=1) for _ in range(4)]
    found = read(tmp_path, greedy)
    assert found.n.tolist() == [4, 4, 4] and "greedy" in found.notes[0]
    same = [{"id": i, "correct": j < c, "response": "x"} for i, c in enumerate((2, 0, 4)) for j in range(4)]
    assert read(tmp_path, same).c.tolist() == [2, 0, 4]  # one text in every row, and even numbers by chance
    each = [row | {"response": f"text {row['id']}"} for row in same]
    assert read(tmp_path, each).c.tolist() == [2, 0, 4]
    some = [row | {"response": "yes" if i % 4 else "no"} for i, row in enumerate(responses(samples=4))]
    assert read(tmp_path, some).n.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("part", "most"),
    [
        *(("score", "max_score"), ("reward", "max_reward"), ("score", "full_score"), ("score", "total_points")),
        *(("score", "out_of"), ("grade", "max_grade"), ("tests_passed", "tests_total"), ("reward", "possible_points")),
        *(("num_passed", "num_tests"), ("score", "max"), ("score", "total")),
    ],
)
@pytest.mark.parametrize("values", [(0, 1), (0, 4), (1, 3)])
def test_a_part_of_a_maximum_is_no_verdict(tmp_path: Path, part: str, most: str, values: tuple[int, int]) -> None:
    rows = [{"task_id": i, part: value, most: 4} for i, value in enumerate(values)]
    said = refusal(tmp_path, rows)
    assert f"--correct {part}={most}" in said and "--threshold" not in said
    assert read(tmp_path, rows, correct=f"{part}={most}").right.tolist() == [value == 4 for value in values]
    if part != "num_passed":
        assert read(tmp_path, rows, correct=part, threshold=3.0).right.tolist() == [value >= 3 for value in values]


def test_a_maximum_of_one_and_a_verdict_beside_points_are_read(tmp_path: Path) -> None:
    rows = [{"id": i, "score": i, "max_score": 1} for i in range(2)]
    assert read(tmp_path, rows).right.tolist() == [False, True]
    rows = [{"id": i, "passed": i == 1, "tests_passed": 1, "tests_total": 4} for i in range(2)]
    assert read(tmp_path, rows).right.tolist() == [False, True]


@pytest.mark.parametrize(("some", "every"), [("c", "n"), ("correct", "num_samples"), ("num_correct", "n_samples")])
def test_numbers_of_samples_are_counted(tmp_path: Path, some: str, every: str) -> None:
    rows = [{"id": i, some: c, every: 10} for i, c in enumerate((7, 0, 1))]
    for reading in ({}, {"correct": some}, {"correct": f"{some}/{every}"}):
        found = read(tmp_path, rows, **reading)
        assert (found.c.tolist(), found.n.tolist()) == ([7, 0, 1], [10, 10, 10])
    assert "need no --threshold" in refusal(tmp_path, rows, threshold=7.0)


def test_numbers_that_may_be_of_tests_or_of_samples_are_refused(tmp_path: Path) -> None:
    rows = [{"id": i, "passed": c, "total": 4} for i, c in enumerate((4, 1))]
    said = refusal(tmp_path, rows)
    assert "--correct passed=total" in said and "--correct passed/total" in said
    assert read(tmp_path, rows, correct="passed=total").right.tolist() == [True, False]
    assert read(tmp_path, rows, correct="passed/total").c.tolist() == [4, 1]


SUMS: list[Row] = [
    {"passed": 2, "failed": 1},
    {"passed": 2},
    {"accuracy": 0.66, "passed": None},
    {"id": "total", "passed": 2},
    {"id": "Average", "passed": 0.66},
]


@pytest.mark.parametrize("last", SUMS)
def test_a_last_row_that_sums_the_others_up_is_no_sample(tmp_path: Path, last: Row) -> None:
    rows = [{"id": f"p{i}", "passed": i < 2} for i in range(3)]
    assert read(tmp_path, [*rows, last]).right.tolist() == [True, True, False]
    (tmp_path / "r.json").write_text(json.dumps([*rows, last]))
    assert read_samples(tmp_path / "r.json").n.tolist() == [1, 1, 1]
    table = ["id,passed", "p0,1", "p1,1", "p2,0", f"{last.get('id', '')},{last.get('passed') or 2}"]
    (tmp_path / "r.csv").write_text("\n".join(table))
    assert read_samples(tmp_path / "r.csv").right.tolist() == [True, True, False]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "id;correct\n0;1\n1;0\n",
            "id\tcorrect\n0\t1\n1\t0\n",
            "id, correct\n0, 1\n1, 0\n",
            "id ,correct\n0 , 1 \n1,0\n",
        ),
        *(
            '\ufeffid;correct;text\n\n0;1;"a; b"\n1;0;"c\nd"\n',
            'id, correct, text\r\n0, 1, "a, b"\r\n1, 0, c\r\n,,\r\n',
        ),
    ],
)
@pytest.mark.parametrize("name", ["r.csv", "r.tsv"])
def test_tables_of_text_are_read_as_those_of_problems(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / name).write_text(text, newline="")
    found = read_samples(tmp_path / name)
    assert ([*found.problems], found.right.tolist()) == (["0", "1"], [True, False])


@pytest.mark.parametrize(
    "text",
    [
        '{"1": [1, 0, 1], "2": [0, 0, 1]}',
        '{"1": [true, false, true], "2": [false, false, true]}',
        "[[true, false, true], [false, false, true]]",
        "[[1, 0, 1],\n [0, 0, 1]]",
        "[1, 0, 1]\n[0, 0, 1]\n",
        '{"1": [1, 0, 1]}\n{"2": [0, 0, 1]}\n',
        '{"model": "m", "results": {"1": [1, 0, 1], "2": [0, 0, 1]}}',
    ],
)
def test_lists_of_verdicts_are_samples(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    found = read_samples(tmp_path / "r.json")
    assert ([*found.problems], found.c.tolist(), found.n.tolist()) == (["1", "2"], [2, 1], [3, 3])


def test_columns_of_lists_are_named(tmp_path: Path) -> None:
    rows = [{"id": i, "marks": [1, 0, 1], "notes": ["a", "b"]} for i in range(2)]
    assert "marks, notes" in refusal(tmp_path, rows)
    assert read(tmp_path, rows, correct="marks").c.tolist() == [2, 2]


def test_a_json_log_of_inspect_finds_its_samples(tmp_path: Path) -> None:
    metrics = {"accuracy": {"name": "accuracy", "value": 0.5}, "stderr": {"name": "stderr", "value": 0.1}}
    scores = [{"name": "match", "scorer": "match", "params": {}, "metrics": metrics}]
    samples = [
        {"id": i, "epoch": e, "input": f"q{i}", "scores": {"match": {"value": "CI"[(i + e) % 2], "answer": "A"}}}
        for i in range(2)
        for e in (1, 2)
    ]
    reductions = [{"scorer": "match", "samples": [{"value": 0.5, "sample_id": i} for i in range(2)]}]
    log = {"status": "success", "results": {"scores": scores}, "samples": samples, "reductions": reductions}
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert read_samples(tmp_path / "log.json").c.tolist() == [1, 1]


def test_whole_responses_are_no_answers(tmp_path: Path) -> None:
    rows = [{"id": i, "correct": True, "prediction": rf"It is \boxed{{{i}}}. {j}"} for i in range(2) for j in range(2)]
    found = read(tmp_path, rows)
    assert found.answer is None and "holds whole responses" in found.notes[0]
    assert read(tmp_path, rows, answer="prediction").answer is not None
    assert read(tmp_path, [row | {"prediction": "7"} for row in rows]).answer is not None


def test_joined_ids_never_look_alike(tmp_path: Path) -> None:
    rows = [
        {"id": "a/b", "v": "c", "passed": 1},
        {"id": "a", "v": "b/c", "passed": 0},
        {"id": "x", "v": "y", "passed": 1},
    ]
    found = read(tmp_path, rows, id="id,v")
    assert sorted(found.problems) == ["a/b/c", "a\\/b/c", "x/y"] and found.n.tolist() == [1, 1, 1]


def test_numbers_that_are_none_name_no_problem(tmp_path: Path) -> None:
    rows = [{"id": math.nan, "correct": True}, {"id": 1, "correct": False}]
    assert "row 1 has no 'id'" in refusal(tmp_path, rows)


def test_counts_of_more_samples_than_can_be_compared_are_refused(tmp_path: Path) -> None:
    for n in (10**9, 10**30, 1e308):
        said = refusal(tmp_path, [{"id": 1, "c": 1, "n": n}, {"id": 2, "c": 0, "n": 4}])
        assert "'n' counts more than 100,000,000 samples in all" in said
