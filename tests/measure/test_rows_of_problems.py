"""Rows of one problem that are samples of it, and those that are conditions, copies, parts or sums."""

import json
import math
import random
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dph.errors import DataError
from dph.measure import Reading, Samples, read_samples

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
    ("iteration", (0, 1)),  # of a refinement, as well as of repeated sampling
    ("k", (0, 1)),
    ("part", (0, 1)),
    ("hint", (None, "h")),  # null is a value of a condition
    ("hint", ("h", None)),
    ("flavour", (None, "sweet", "sour")),
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


def test_null_is_named_and_chosen_as_a_value(tmp_path: Path) -> None:
    rows = crossed("hint", None, "h")
    assert "(null, h)" in refusal(tmp_path, rows) or "(h, null)" in refusal(tmp_path, rows)
    assert "'hint' has 'h', null" in refusal(tmp_path, rows, filter=("hint=x",))
    for text in ("hint=", "hint=null", "hint=None"):
        assert read(tmp_path, rows, filter=(text,)).right.tolist() == [True] * 3
    failed = [{"id": i, "exception": None if i else "timeout"} for i in range(3)]
    assert read(tmp_path, failed, correct="exception=null").right.tolist() == [False, True, True]
    assert "has no 'id,task'" in refusal(tmp_path, [*rows, {"id": 9, "task": "t", "correct": True}], id="id,task")


@pytest.mark.parametrize(
    "name",
    [
        "seed",
        "run",
        "try",
        "sample_no",
        "n_try",
        "train_trial_index",
        "rep",
        "draw",
        "gen_id",
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
    for number, sample in enumerate(samples):  # texts by their hashes, of which each sample has its own
        sample["attachments"] = {f"{7 * number:032x}": "a long text", f"{7 * number + 1:032x}": "another"}
    reductions = [{"scorer": "match", "samples": [{"value": 0.5, "sample_id": i} for i in range(2)]}]
    log = {"status": "success", "results": {"scores": scores}, "samples": samples, "reductions": reductions}
    (tmp_path / "log.json").write_text(json.dumps(log))
    found = read_samples(tmp_path / "log.json")
    assert found.c.tolist() == [1, 1] and "attachments" not in found.read_as


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


def test_ids_are_compared_without_outer_spaces_and_as_whole_numbers(tmp_path: Path) -> None:
    rows = [{"id": id, "v": "c ", "correct": True} for id in ("p0", "p0 ", " p1", "p1")]
    assert [*read(tmp_path, rows).problems] == ["p0", "p1"] and read(tmp_path, rows).n.tolist() == [2, 2]
    assert [*read(tmp_path, rows, id="id,v").problems] == ["p0/c", "p1/c"]
    for ids, wanted in ((("0.0", "10.0"), ["0", "10"]), (("1.0", "1.5"), ["1.0", "1.5"])):
        (tmp_path / "r.csv").write_text("id,correct\n" + "".join(f"{id},1\n" for id in ids))
        assert [*read_samples(tmp_path / "r.csv").problems] == wanted
    assert [*read(tmp_path, [{"id": id, "correct": True} for id in (0.0, 10.0)]).problems] == ["0", "10"]


def test_numbers_that_are_none_name_no_problem(tmp_path: Path) -> None:
    rows = [{"id": math.nan, "correct": True}, {"id": 1, "correct": False}]
    assert "row 1 has no 'id'" in refusal(tmp_path, rows)


def test_counts_of_more_samples_than_can_be_compared_are_refused(tmp_path: Path) -> None:
    for n in (10**9, 10**30, 1e308):
        said = refusal(tmp_path, [{"id": 1, "c": 1, "n": n}, {"id": 2, "c": 0, "n": 4}])
        assert "'n' counts more than 100,000,000 samples in all" in said


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *(("max_tokens", (1024, 4096)), ("reasoning_effort", ("low", "high")), ("response_format", ("json", "text"))),
        *(("context_length", (4096, 8192)), ("steps", (10, 50)), ("date", ("2024-01-01", "2024-02-01"))),
        *(("run", ("baseline", "tuned")), ("seed", ("a", "b")), ("top_k", (1, 2)), ("run_name", ("m1", "m2"))),
        *(
            ("stop", (["a"], ["b"])),
            ("tags", (["x", "y"], ["x"])),
            ("thinking", (True, False)),
            ("flag", (True, False)),
        ),
        *(("variant", tuple(f"v{i}" for i in range(100))), ("flavour", tuple(f"{i} sweets" for i in range(100)))),
    ],
)
def test_a_setting_of_a_run_is_a_condition_whatever_words_its_name_shares(
    tmp_path: Path, name: str, values: tuple[Any, ...]
) -> None:
    rows = crossed(name, *values)
    said = refusal(tmp_path, rows)
    assert repr(name) in said and f"--id id,{name}" in said
    value = json.dumps(values[0]) if isinstance(values[0], list) else values[0]
    assert read(tmp_path, rows, filter=(f"{name}={value}",)).right.tolist() == [True] * 3
    assert read(tmp_path, rows, id=f"id,{name}").n.tolist() == [1] * 3 * len(values)


@pytest.mark.parametrize("values", [(42, 1234), ("7", "42"), ("run-1", "run-2"), ("seed3", "seed4"), (0.0, 1.0)])
def test_numbers_of_samples_may_be_texts(tmp_path: Path, values: tuple[Any, ...]) -> None:
    assert read(tmp_path, crossed("seed", *values)).n.tolist() == [2, 2, 2]


def test_measurements_that_vary_are_no_conditions(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = [
        {
            **{"id": id, "correct": rng.random() < 0.5, "turns": rng.choice([1, 2]), "refusal": rng.random() < 0.5},
            **{"finish_reason": rng.choice(["stop", "length"]), "stop": rng.choice([["a"], []])},
        }
        for id in range(20)
        for _ in range(4)
    ]
    assert set(read(tmp_path, rows).n.tolist()) == {4}
    for name, values in (("extracted", (True, False)), ("truncated", (True, False)), ("latency", (1.5, 2.5))):
        assert read(tmp_path, crossed(name, *values)).n.tolist() == [2, 2, 2]
    numbered = [row | {"sample": i // 3} for i, row in enumerate(crossed("date", "2024-01-01", "2024-02-01"))]
    assert "ignored: date" in read(tmp_path, numbered).read_as  # numbered samples of two days


SYSTEMS = [
    *("checkpoint-{}.jsonl", "step_{}.jsonl", "model{}.jsonl", "{}shot.jsonl", "epoch-{}.jsonl", "ckpt-{}/s.jsonl"),
    *(
        "qwen{}.jsonl",
        "temp0.{}.jsonl",
        "llama-{}.jsonl",
        "T{}.jsonl",
        "topk{}.jsonl",
        "fold_{}.jsonl",
        "beta_{}.jsonl",
    ),
    *("checkpoints/{}/out.jsonl", "models/{}.jsonl", "{}b.jsonl", "2.{}.jsonl"),
]
REPEATS = [
    *("rs{}.jsonl", "run-{}.jsonl", "{}.jsonl", "checkpoint/s{}.jsonl", "output-rs{}.jsonl", "seed{}/out.jsonl"),
    *("runs/{}/out.jsonl", "qwen2.5-run{}.jsonl", "{}_results.jsonl", "shard-{}.jsonl"),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", [*SYSTEMS, *REPEATS])
def test_files_that_count_systems_are_no_samples(tmp_path: Path, form: str, packed: bool) -> None:
    source = tmp_path / "all"
    for i in (0, 1):
        file = source / form.format(i)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps({"id": id, "correct": id == i}) + "\n" for id in range(3)))
    if packed:
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for file in sorted(source.rglob("*.jsonl")):
                archive.write(file, file.relative_to(source))
        source = tmp_path / "all.zip"
    if form in SYSTEMS:
        with pytest.raises(DataError, match="may tell systems or conditions apart") as error:
            read_samples(source)
        assert form.format(1).removeprefix("checkpoints/").removeprefix("models/") in str(error.value)
        assert "--id id" in str(error.value)
        found = read_samples(source, Reading(id="id"))
        assert any("count as samples of id" in note for note in found.notes)
    else:
        found = read_samples(source)
        assert not found.notes
    assert (found.c.tolist(), found.n.tolist()) == ([1, 1, 0], [2, 2, 2])


def test_unnumbered_files_in_an_archive_are_refused_and_parts_are_joined(tmp_path: Path) -> None:
    row = {"id": 0, "correct": True}
    for name, other, said in (("b.jsonl", row, "unpack it and name one"), ("part-2.jsonl", row | {"id": 1}, "")):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("part-1.jsonl", json.dumps(row))
            archive.writestr(name, json.dumps(other))
        if said:
            with pytest.raises(DataError, match=said):
                read_samples(tmp_path / "a.zip")
        else:
            assert read_samples(tmp_path / "a.zip").n.tolist() == [1, 1]


def numbered(*rows: Row) -> list[Row]:
    return [{"id": i, **row} for i, row in enumerate(rows)]


def test_numbers_beside_those_of_failures_are_no_verdicts(tmp_path: Path) -> None:
    tests = numbered({"tests_passed": 1, "tests_failed": 3}, {"tests_passed": 4, "tests_failed": 0})
    assert "--correct tests_failed=0" in refusal(tmp_path, tests) and "/" not in refusal(tmp_path, tests)[-60:]
    assert read(tmp_path, tests, correct="tests_failed=0").right.tolist() == [False, True]
    either = numbered({"passed": 1, "failed": 3}, {"passed": 0, "failed": 4})
    said = refusal(tmp_path, either)
    assert "--correct failed=0" in said and "--correct passed/passed+failed" in said
    found = read(tmp_path, either, correct="passed/passed+failed")
    assert (found.c.tolist(), found.n.tolist()) == ([1, 0], [4, 4])
    clear = read(tmp_path, numbered({"num_correct": 3, "num_incorrect": 1}, {"num_correct": 0, "num_incorrect": 4}))
    assert (clear.c.tolist(), clear.n.tolist()) == ([3, 0], [4, 4]) and "num_incorrect" in clear.read_as
    one = numbered({"passed": 1, "failed": 0}, {"passed": 0, "failed": 1})
    assert read(tmp_path, one).right.tolist() == [True, False]


@pytest.mark.parametrize("most", ["max_pts", "rubric_max", "weight", "points_available", "scale"])
def test_a_larger_column_may_be_the_maximum_of_a_score(tmp_path: Path, most: str) -> None:
    rows = numbered({"score": 1, most: 4}, {"score": 0, most: 4})
    said = refusal(tmp_path, rows)
    assert f"--correct score={most}" in said and "--threshold 1" in said
    assert read(tmp_path, rows, correct=f"score={most}", id="id").c.tolist() == [0, 0]
    assert read(tmp_path, rows, threshold=1.0).right.tolist() == [True, False]
    assert read(tmp_path, [row | {"correct": row["score"]} for row in rows]).right.tolist() == [True, False]


@pytest.mark.parametrize("other", ["max_tokens", "max_turns", "max_samples", "seed"])
def test_a_larger_setting_is_no_maximum(tmp_path: Path, other: str) -> None:
    assert read(tmp_path, numbered({"score": 1, other: 9}, {"score": 0, other: 9})).right.tolist() == [True, False]


@pytest.mark.parametrize("every", ["n", "num_samples"])
def test_one_beside_a_number_of_samples_may_be_a_verdict(tmp_path: Path, every: str) -> None:
    rows = numbered({"correct": 1, every: 4}, {"correct": 0, every: 4})
    said = refusal(tmp_path, rows)
    assert "--correct correct=1" in said and f"--correct correct/{every}" in said
    assert read(tmp_path, rows, correct="correct=1").n.tolist() == [1, 1]
    assert read(tmp_path, rows, correct=f"correct/{every}").n.tolist() == [4, 4]
    assert read(tmp_path, [row | {"correct": bool(row["correct"])} for row in rows]).n.tolist() == [1, 1]
    found = read(tmp_path, numbered({"num_pass": 1, "num_attempts": 4}, {"num_pass": 3, "num_attempts": 4}))
    assert (found.c.tolist(), found.n.tolist()) == ([1, 3], [4, 4])


@pytest.mark.parametrize("name", ["sum", "all", "mean", "max"])
def test_a_last_problem_that_is_called_like_a_sum_stays(tmp_path: Path, name: str) -> None:
    rows: list[Row] = [{"id": f"p{i}", "passed": i < 2} for i in range(3)]
    assert [*read(tmp_path, [*rows, {"id": name, "passed": True}]).problems] == ["p0", "p1", "p2", name]
    twice = [*(row for row in rows for _ in "ab"), *[{"id": name, "passed": 1}] * 2]
    assert read(tmp_path, twice).n.tolist() == [2, 2, 2, 2]
    numbers = [row | {"passed": int(row["passed"]), "response": "x"} for row in rows]
    assert len(read(tmp_path, [*numbers, {"id": name, "passed": 1, "response": "y"}]).problems) == 4


def test_a_last_row_that_is_left_out_is_said_and_one_that_may_be_either_refused(tmp_path: Path) -> None:
    rows = [{"id": f"p{i}", "passed": int(i < 2)} for i in range(3)]
    found = read(tmp_path, [*rows, {"id": "mean", "passed": 0.667}, {"id": "std", "passed": 0.471}])
    assert len(found.problems) == 3 and [note.rpartition(": ")[2] for note in found.notes] == [
        "its last row (id 'mean') sums the others up and is left out",
        "its last row (id 'std') sums the others up and is left out",
    ]
    right = [row | {"passed": 1} for row in rows]
    assert "may be a problem, or sum the others up" in refusal(tmp_path, [*right, {"id": "mean", "passed": 1}])


HALF: list[Row] = [{"id": i, "correct": i % 2} for i in range(10)]
UNNAMED: dict[str, tuple[Row, int, str]] = {
    "a summary at the beginning": ({"accuracy": 0.9, "n": 10}, 0, "is no sample"),
    "settings at the beginning": ({"timestamp": 1, "comment": "x"}, 0, "is no sample"),
    "a remark in the middle": ({"foo": 1}, 5, "is no sample"),
    "a remark at the end": ({"foo": 1}, 10, "is no sample"),
    "a failure at the beginning": ({"error": "timeout"}, 0, ""),
    "a failure in the middle": ({"error": "timeout"}, 5, ""),
    "a failure at the end": ({"error": "timeout"}, 10, ""),
    "a verdict at the beginning": ({"correct": 1}, 0, ""),
    "a verdict at the end": ({"correct": True, "note": "x"}, 10, ""),
}


@pytest.mark.parametrize("kind", UNNAMED)
def test_no_row_without_an_id_is_left_out_in_silence(tmp_path: Path, kind: str) -> None:
    row, place, said = UNNAMED[kind]
    rows = [*HALF[:place], row, *HALF[place:]]
    if said:
        assert any(f"{json.dumps(row)} {said}" in note for note in read(tmp_path, rows).notes)
    else:
        assert f"row {place + 1} has no 'id'" in refusal(tmp_path, rows)
    many = [*({"foo": i} for i in range(9)), *HALF]
    assert len(read(tmp_path, many).notes) == 5


SHAPES = [
    '{"a": {"c": 2, "n": 3}, "b": {"c": 0, "n": 3}}',
    '{"a": {"c": 2, "n": 3}}\n{"b": {"c": 0, "n": 3}}\n',
    '{"a": ["pass", "fail", "pass"], "b": ["fail", "fail", "fail"]}',
    '{"id": "a", "graded_list": ["pass", "fail", "pass"]}\n{"id": "b", "graded_list": ["fail", "fail", "fail"]}\n',
    '{"id": "a", "sample_0": true, "sample_1": true, "sample_2": false}\n'
    '{"id": "b", "sample_0": false, "sample_1": false, "sample_2": false}\n',
    "id,attempt1,attempt2,attempt3\na,1,0,1\nb,0,0,0\n",
    "id,sample_0_correct,sample_1_correct,sample_2_correct\na,1,1,0\nb,0,0,0\n",
    "id|correct\na|1\na|100%\na|0%\nb|0\nb|0\nb|0\n",
    "id;correct\na;1,0\na;1,0\na;0,0\nb;0,0\nb;0,0\nb;0,0\n",
]


@pytest.mark.parametrize("text", SHAPES)
def test_further_shapes_are_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / ("r.jsonl" if text.startswith("{") else "r.csv")
    file.write_text(text)
    found = read_samples(file)
    assert ([*found.problems], found.c.tolist(), found.n.tolist()) == (["a", "b"], [2, 0], [3, 3])


def test_verdicts_by_id_are_read_and_settings_beside_rows_are_not(tmp_path: Path) -> None:
    for text in ('{"a": true, "b": false}', '{"a": "pass", "b": "fail"}', '{"a": true}\n{"b": false}\n'):
        (tmp_path / "r.json").write_text(text)
        assert read_samples(tmp_path / "r.json").right.tolist() == [True, False]
    (folder := tmp_path / "run").mkdir()
    (folder / "rows.jsonl").write_text('{"id": 1, "correct": true}\n{"id": 2, "correct": false}\n')
    (folder / "settings.json").write_text('{"shuffle": true}')
    assert read_samples(folder).right.tolist() == [True, False]
    for i in range(3):
        (folder / f"s{i}.json").write_text(json.dumps({"id": f"s{i}", "correct": True}))  # a file for each sample
    (folder / "rows.jsonl").unlink()
    (folder / "settings.json").unlink()
    assert read_samples(folder).n.tolist() == [1, 1, 1]


def test_graded_scores_with_decimal_commas_and_in_columns_need_a_threshold(tmp_path: Path) -> None:
    for text, right in (("id;score\na;0,75\nb;0,25 %\n", [True, False]), ("id,run1,run2\na,0.9,0.1\n", [True, False])):
        (tmp_path / "r.csv").write_text(text)
        with pytest.raises(DataError, match="is graded"):
            read_samples(tmp_path / "r.csv")
        assert read_samples(tmp_path / "r.csv", Reading(threshold=0.5)).right.tolist() == right


@pytest.mark.parametrize("name", ["r.jsonl", "r.csv", "r.json"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_utf_16_is_named(tmp_path: Path, name: str, encoding: str) -> None:
    text = "id,correct\na,1\n" if name == "r.csv" else '{"id": "a", "correct": true}\n{"id": "b", "correct": true}\n'
    (tmp_path / name).write_bytes(text.encode(encoding))
    with pytest.raises(DataError, match="is UTF-16 text; save it as UTF-8"):
        read_samples(tmp_path / name)


def test_every_document_of_a_folder_is_read_and_one_beside_rows_is_said(tmp_path: Path) -> None:
    for i in range(2):
        samples = [{"id": id, "correct": id == i} for id in range(3)]
        (tmp_path / f"run-{i}.json").write_text(json.dumps({"model": "m", "samples": samples}))
    found = read_samples(tmp_path)
    assert (found.c.tolist(), found.n.tolist()) == ([1, 1, 0], [2, 2, 2])
    (tmp_path / "run-1.json").rename(tmp_path / "other.json")
    with pytest.raises(DataError, match="not numbered"):
        read_samples(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps([{"id": id, "correct": True} for id in range(2)]))
    with pytest.raises(DataError, match="its files have ids in common and are not numbered"):  # perhaps two tasks
        read_samples(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps([{"task_id": f"t{id}", "correct": True} for id in range(2)]))
    with pytest.raises(DataError, match=r"row 1 of 'run-0.json' has no 'task_id', .* several runs or tasks, name one"):
        read_samples(tmp_path)
    (tmp_path / "other.json").unlink()
    (tmp_path / "table.tsv").write_text("id\tcorrect\nx\n")
    with pytest.raises(DataError, match=rf"table.tsv cannot be read: .*; of the folder {tmp_path} every file is read"):
        read_samples(tmp_path)
    (tmp_path / "table.tsv").unlink()
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "correct": true}\n{"id": 2, "correct": false}\n')
    found = read_samples(tmp_path)
    assert found.n.tolist() == [1, 1] and "run-0.json lies beside rows" in found.notes[0]


def test_a_greedy_row_is_left_out_whatever_the_kind_of_file(tmp_path):
    table = "id,sample,correct\nq1,-1,1\nq1,0,0\nq1,1,0\nq2,-1,1\nq2,0,0\nq2,1,1\n"
    (tmp_path / "a.csv").write_text(table)
    (tmp_path / "b.csv").write_text(table.replace("-1,", "-1.0,"))
    rows = [dict(zip(("id", "sample", "correct"), line.split(","), strict=True)) for line in table.split()[1:]]
    judged = [row | {"correct": row["correct"] == "1"} for row in rows]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in judged))
    for name in ("a.csv", "b.csv", "c.jsonl"):
        samples = read_samples(tmp_path / name)
        assert [int(count) for count in samples.n] == [2, 2], name
        assert [int(count) for count in samples.c] == [0, 1], name


def test_a_threshold_decides_about_words_that_are_partly_right(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 1, "score": "C"}\n{"id": 2, "score": "P"}\n{"id": 3, "score": "I"}\n')
    with pytest.raises(DataError, match="--threshold"):
        read_samples(tmp_path / "a.jsonl")
    for threshold, right in ((0.5, [1, 1, 0]), (1.0, [1, 0, 0])):
        assert [int(x) for x in read_samples(tmp_path / "a.jsonl", Reading(threshold=threshold)).c] == right


TASTES = ("flavour", "sweet", "sour")
GAPS: dict[str, list[Row]] = {
    "a row is missing": crossed(*TASTES)[:-1],
    "of two problems": crossed(*TASTES, problems=2)[:-1],
    "two rows are missing": crossed(*TASTES)[:-2],
    "a row is there twice": [*crossed(*TASTES, problems=10), *crossed(*TASTES, problems=10)[:1]],
    "each twice, one missing": sorted(crossed(*TASTES, problems=12) * 2, key=str)[:-1],
}


@pytest.mark.parametrize("kind", GAPS)
def test_a_missing_row_makes_no_samples_of_conditions(tmp_path: Path, kind: str) -> None:
    said = refusal(tmp_path, GAPS[kind], partial=True)
    assert "'flavour' differs within a problem" in said
    assert read(tmp_path, GAPS[kind], partial=True, filter=("flavour=sweet",)).right.all()


def test_joined_tables_of_text_are_read_once_without_their_headers(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("id,correct\na,1\nb,0\nid,correct\nc,1\nd,0\n")
    found = read_samples(tmp_path / "r.csv")
    assert ([*found.problems], found.right.tolist()) == (["a", "b", "c", "d"], [True, False, True, False])
    assert "its header is there again" in found.notes[0]
    (tmp_path / "r.csv").write_text("id,correct\na,1\nb,0\ncorrect,id\n1,c\n")
    with pytest.raises(DataError, match="another header, with its columns in another order"):
        read_samples(tmp_path / "r.csv")


@pytest.mark.parametrize("text", ["id,correct\ra,1\rb,0\r", '{"id":"a","correct":1}\r{"id":"b","correct":0}\r'])
def test_a_carriage_return_ends_a_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / ("r.csv" if text.startswith("id") else "r.jsonl")
    file.write_text(text, newline="")
    assert read_samples(file).right.tolist() == [True, False]


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl"])
def test_text_of_an_old_encoding_is_named(tmp_path: Path, name: str) -> None:
    text = "id,correct\ncafé,1\n" if name == "r.csv" else '{"id": "café", "correct": 1}\n{"id": 2, "correct": 0}\n'
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"is not UTF-8 text .*; save it as UTF-8"):
        read_samples(tmp_path / name)


@pytest.mark.parametrize("header", [{"max_score": 4}, {"settings": {"maxScore": 4}}])
def test_a_header_may_say_the_maximum(tmp_path: Path, header: Row) -> None:
    rows = numbered({"score": 1}, {"score": 0}, {"score": 1})
    (tmp_path / "r.json").write_text(json.dumps({**header, "results": rows}))
    with pytest.raises(DataError, match=r"its header says .* 4, .* --threshold 4 counts"):
        read_samples(tmp_path / "r.json")
    assert not read_samples(tmp_path / "r.json", Reading(threshold=4.0)).right.any()
    (tmp_path / "r.json").write_text(json.dumps({"max_score": 1, "max_tokens": 99, "results": rows}))
    assert read_samples(tmp_path / "r.json").right.tolist() == [True, False, True]


def test_many_columns_and_many_members_take_time_in_proportion(tmp_path: Path) -> None:
    rows = [{"id": i, **{f"m{j}_score": (i + j) % 5 for j in range(1000)}} for i in range(5)]
    started = time.process_time()
    assert "is graded" in refusal(tmp_path, rows)
    assert time.process_time() - started < 2  # 0.1 s; 11 s when each column was compared with each
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for i in range(10_000):
            archive.writestr(f"s{i}.json", json.dumps({"id": f"s{i}", "correct": True}))
    started = time.process_time()
    assert len(read_samples(tmp_path / "a.zip").problems) == 10_000
    assert time.process_time() - started < 8  # 1 s; its square took 7 times as long at 20,000


def test_names_in_camel_case_are_read(tmp_path: Path) -> None:
    rows = [
        {"problemId": "a", "isCorrect": True, "sampleIndex": 0},
        {"problemId": "a", "isCorrect": False, "sampleIndex": 1},
    ]
    found = read(tmp_path, rows)
    assert found.n.tolist() == [2] and found.number is not None
