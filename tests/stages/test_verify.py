"""`dph verify`: files in the official formats, known verdicts, and messages about files that do not fit."""

import json
import re
import shutil
import sqlite3
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dph.cli.main import main
from dph.errors import DataError
from dph.measure import compare, read_samples
from dph.measure.pairing import pair
from dph.measure.passk import pass_at_k
from dph.measure.predictions import read_predictions
from dph.types import Problem
from kills import killing

GOLDS = [
    ("SELECT count(*) FROM club", "easy"),
    ("SELECT town FROM club WHERE id = 1", "easy"),
    ("SELECT town, id FROM club ORDER BY id DESC LIMIT 1", "medium"),
    ("SELECT town FROM club WHERE id IN (SELECT club FROM member)", "hard"),
]
PREDICTED = [
    "SELECT count(id) FROM club",
    "SELECT id FROM club",
    "SELECT town, id FROM club WHERE id = 3",
    "SELECT nope",
]
CORRECT = [True, False, True, False]


def make_db(path: Path, clubs: int = 3) -> None:
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE club (id INTEGER PRIMARY KEY, town TEXT)")
        connection.execute("CREATE TABLE member (id INTEGER PRIMARY KEY, club INT)")
        connection.executemany("INSERT INTO club VALUES (?, ?)", [(i, f"town {i}") for i in range(1, clubs + 1)])
        connection.execute("INSERT INTO member VALUES (1, 2)")
    connection.close()


@pytest.fixture
def spider(tmp_path: Path) -> Path:
    """Four questions of Spider's layout."""
    root = tmp_path / "spider"
    make_db(root / "database/clubs/clubs.sqlite")
    rows = [{"db_id": "clubs", "question": f"Question {i}?", "query": gold} for i, (gold, _) in enumerate(GOLDS)]
    (root / "dev.json").write_text(json.dumps(rows))
    return root


@pytest.fixture
def bird(spider: Path) -> Path:
    """The same questions in BIRD's layout; their ids do not start at 0."""
    root = spider.parent / "bird"
    root.mkdir()
    shutil.copytree(spider / "database", root / "dev_databases")
    rows = [
        {"question_id": 10 + i, "db_id": "clubs", "question": "?", "evidence": "", "SQL": gold, "difficulty": "simple"}
        for i, (gold, _) in enumerate(GOLDS)
    ]
    (root / "dev.json").write_text(json.dumps(rows))
    return root


def lines(path: Path, rows: list) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def verify(*words: object) -> None:
    main(["verify", *map(str, words)])


def failed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as end:
        verify(*words)
    assert end.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def verdicts(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]


def scores(out: Path) -> dict:
    return json.loads((out / "scores.json").read_text())


# Formats ------------------------------------------------------------------------------------------------------------


def written(name: str, folder: Path) -> Path:
    """The same predictions in each of the formats."""
    path = folder / name
    fenced = [f"Let me see. ```sql\n{sql}\n```" for sql in PREDICTED]
    if name == "lines.sql":
        return lines(path, PREDICTED)
    if name == "tabbed.txt":
        return lines(path, [f"{sql}\tclubs" for sql in PREDICTED])
    if name == "bird.json":
        path.write_text(json.dumps({str(i): f"{sql}\t----- bird -----\tclubs" for i, sql in enumerate(PREDICTED)}))
    elif name == "list.json":
        path.write_text(json.dumps([{"pred": sql} for sql in PREDICTED]))
    elif name == "positions.jsonl":
        return lines(path, [{"i": i, "pred": sql} for i, sql in reversed(list(enumerate(PREDICTED)))])
    elif name == "rows.parquet":
        pq.write_table(pa.table({"index": range(4), "response": fenced}), path)
    return path


FORMATS = ("lines.sql", "tabbed.txt", "bird.json", "list.json", "positions.jsonl", "rows.parquet")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("task", ["spider", "bird"])
def test_every_format_gives_the_same_verdicts(request: pytest.FixtureRequest, tmp_path: Path, task: str, name: str):
    root, out = request.getfixturevalue(task), tmp_path / "out"
    verify("--task", task, "--data", root, "--subset", "--predictions", written(name, tmp_path), "--out", out)
    rows = verdicts(out)
    assert [row["correct"] for row in rows] == CORRECT
    assert [row["outcome"] for row in rows] == ["correct", "wrong", "correct", "error"]
    first = "spider/dev/0000" if task == "spider" else "bird/dev/0010"
    assert (rows[0]["id"], rows[0]["db_id"], rows[0]["gold"]) == (first, "clubs", GOLDS[0][0])


@pytest.mark.parametrize("name", ["lines.sql", "bird.json", "list.json", "positions.jsonl"])
def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path: Path, name: str):
    path = written(name, tmp_path)
    plain = read_predictions(path, len(PREDICTED))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_predictions(path, len(PREDICTED)) == plain


@pytest.mark.parametrize("key", ["id", "question_id"])
def test_rows_by_id(bird: Path, tmp_path: Path, key: str):
    name = "bird/dev/{:04d}" if key == "id" else "{}"
    rows = [{key: name.format(10 + i), "sql": sql} for i, sql in reversed(list(enumerate(PREDICTED)))]
    verify("--task", "bird", "--data", bird, "--subset", "--predictions", lines(tmp_path / "p.jsonl", rows),
           "--out", tmp_path / "out")  # fmt: skip
    assert [row["correct"] for row in verdicts(tmp_path / "out")] == CORRECT


def test_empty_lines_are_dialogue_breaks_or_missing_predictions(tmp_path: Path):
    path = tmp_path / "p.txt"
    path.write_text("SELECT 1\n\nSELECT 2\n")
    assert [p.text for p in read_predictions(path, 2)] == ["SELECT 1", "SELECT 2"]
    assert [p.text for p in read_predictions(path, 3)] == ["SELECT 1", "", "SELECT 2"]


def test_birds_file_is_paired_by_order_or_by_its_keys(tmp_path: Path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"7": "SELECT 1\t----- bird -----\tclubs", "5": None}))
    full, part = read_predictions(path, 2), read_predictions(path, 9)
    assert [(p.key, p.text, p.db_id) for p in full] == [("0", "SELECT 1", "clubs"), ("1", "", "")]
    assert [p.missing for p in full] == [False, True]
    assert [p.key for p in part] == ["7", "5"]


def records(folder: Path) -> tuple[object, ...]:
    """Words for two problems whose ids are no positions."""
    rows = [{"id": id, "prompt": "?", "answer": answer, "verifier": "math"} for id, answer in (("2", "7"), ("1", "42"))]
    return "--task", "records", "--data", lines(folder / "problems.jsonl", rows), "--predictions"


def correct_of(out: Path) -> list[list[bool]]:
    """Of each problem, whether its predictions are correct."""
    found: dict[str, list[bool]] = {}
    for row in verdicts(out):
        found.setdefault(row["id"], []).append(row["correct"])
    return list(found.values())


OWN = {"role": "assistant", "content": r"So \boxed{42}"}
ASKED = {"role": "user", "content": r"\boxed{7}?"}


@pytest.mark.parametrize(
    ("response", "correct"),
    [
        ([ASKED, OWN], [True]),
        ([OWN, ASKED], [True]),
        (OWN, [True]),
        ([{"role": "assistant", "content": [{"type": "text", "text": OWN["content"]}]}], [True]),
        ([[ASKED, OWN], [OWN, {**ASKED, "role": "assistant"}]], [True, False]),
        ([OWN["content"], ASKED["content"], None], [True, False]),  # with --partial
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_prediction_may_be_a_conversation(tmp_path: Path, response: object, correct: list[bool], kind: str):
    row, path = {"id": "1", "response": response}, tmp_path / f"p.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        lines(path, [row])
    verify(*records(tmp_path), path, "--partial", "--out", tmp_path / "out")
    assert correct_of(tmp_path / "out") == [correct]


SHAPES: dict[str, object] = {
    "lists": {"2": ["7", "8"], "1": ["42", "42"]},
    "objects": {"2": {"response": [r"\boxed{7}", r"\boxed{8}"]}, "1": {"response": [r"\boxed{42}", r"\boxed{42}"]}},
    "objects with answers": {"2": {"prediction": ["7", "8"]}, "1": {"prediction": ["42", 42]}},
    "conversations": {"2": [[{**OWN, "content": rf"\boxed{{{x}}}"}] for x in (7, 8)], "1": [[OWN], [ASKED, OWN]]},
    "rows under a key": {"n": 2, "rows": [{"id": "2", "prediction": [7, 8]}, {"id": "1", "prediction": [42, 42]}]},
    "columns": {"id": ["2", "1"], "prediction": [["7", "8"], ["42", "42"]]},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_an_object_of_predictions_may_have_lists_and_objects(tmp_path: Path, shape: str):
    (path := tmp_path / "p.json").write_text(json.dumps(SHAPES[shape]))
    verify(*records(tmp_path), path, "--out", tmp_path / "out")
    assert correct_of(tmp_path / "out") == [[True, False], [True, True]]


def test_an_object_without_predictions_is_one_sentence(tmp_path: Path, capsys):
    (path := tmp_path / "p.json").write_text(json.dumps({"2": {"text_of": "7"}, "1": {"text_of": "42"}}))
    assert "p.json, key '2': no column of response" in failed(capsys, *records(tmp_path), path)
    path.write_text(json.dumps({"2": [["7"]], "1": "42"}))
    assert "p.json, key '2': a prediction must be text" in failed(capsys, *records(tmp_path), path)


@pytest.mark.parametrize("kind", ["p.json", "p.jsonl", "p.csv"])
def test_a_null_prediction_is_a_missing_one(tmp_path: Path, capsys, kind: str):
    path = tmp_path / kind
    if kind == "p.json":
        path.write_text(json.dumps({"2": None, "1": "42"}))
    elif kind == "p.csv":
        path.write_text("id,prediction\n2,\n1,42\n")
    else:
        lines(path, [{"id": "2", "prediction": None}, {"id": "1", "prediction": "42"}])
    verify(*records(tmp_path), path, "--out", tmp_path / "out")
    assert correct_of(tmp_path / "out") == [[False], [True]]
    assert "null in place of 1 prediction, which will count as wrong" in capsys.readouterr().err
    verify(*records(tmp_path), path, "--partial", "--out", tmp_path / "partial")
    assert correct_of(tmp_path / "partial") == [[True]]
    lines(tmp_path / "none.jsonl", [{"id": "2", "prediction": None}])
    assert "every prediction is null" in failed(capsys, *records(tmp_path), tmp_path / "none.jsonl")


@pytest.mark.parametrize("response", [{"answer": 42}, [[1]], [{"role": "assistant", "content": 42}]])
def test_what_is_no_prediction_is_one_sentence(tmp_path: Path, capsys, response: object):
    path = lines(tmp_path / "p.jsonl", [{"id": "1", "response": response}])
    assert "p.jsonl, row 1: a prediction must be text, a number or messages, not" in failed(
        capsys, *records(tmp_path), path, "--partial"
    )


@pytest.mark.parametrize("id", ["id", "ID", "Id", "Problem_ID"])
@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_tables_of_predictions_have_a_first_line_with_names(tmp_path: Path, id: str, separator: str):
    path = tmp_path / ("p.tsv" if separator == "\t" else "p.csv")
    for number, (first, second) in enumerate((("1", "2"), ("1.0", "2.0"), ("1 ", "2"))):  # pandas writes 1.0
        rows = f"{first}{separator}\\boxed{{42}}\n{second}{separator}\\boxed{{8}}\n"
        path.write_text(f"{id}{separator}response\n{rows}")
        verify(*records(tmp_path), path, "--out", tmp_path / f"out{number}")
        assert correct_of(tmp_path / f"out{number}") == [[False], [True]]


@pytest.mark.parametrize(
    ("data", "correct", "said"),
    [
        ({"1": "42", "2": "8"}, [[False], [True]], ""),
        ({"1": 42, "2": 7.0}, [[True], [True]], ""),
        ({"1": "42"}, [[True]], ""),
        ({"1": "42", "x": "7"}, [[True]], "1 of 2 predictions belong to none"),
        ({"0": "7", "1": "42"}, [[True], [True]], ""),  # BIRD's positions
        ({"x": "7", "y": "42"}, [[True], [True]], "paired by order"),
        ([{"pred": 7}, {"pred": "42"}], [[True], [True]], "2 rows without an id, paired by order"),
    ],
)
def test_the_keys_of_an_object_may_be_ids(tmp_path: Path, capsys, data: object, correct: list, said: str):
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    verify(*records(tmp_path), path, "--partial", "--out", tmp_path / "out")
    assert correct_of(tmp_path / "out") == correct
    printed = capsys.readouterr().err
    assert said in printed if said else "order" not in printed and "belong to none" not in printed


def test_faults_of_a_predictions_file_name_no_command_that_does_not_read_it(tmp_path: Path, capsys):
    path = lines(tmp_path / "p.jsonl", ['{"id": "1"', "{", "}"])
    message = failed(capsys, *records(tmp_path), path)
    assert "p.jsonl, line 1 is not valid JSON" in message and message.endswith("(and 2 more faults)")


@pytest.mark.parametrize("changed", ["predictions", "golds"])
def test_a_complete_run_is_not_taken_for_changed_files(tmp_path: Path, capsys, changed: str):
    path = lines(tmp_path / "p.jsonl", [{"id": "1", "pred": "42"}, {"id": "2", "pred": "7"}])
    words = (*records(tmp_path), path, "--out", tmp_path / "out")
    verify(*words)
    before = scores(tmp_path / "out")
    verify(*words, "--resume")
    assert "is complete already" in capsys.readouterr().err
    other = path if changed == "predictions" else tmp_path / "problems.jsonl"
    other.write_text(other.read_text().replace("42", "43"))
    what = "predictions" if changed == "predictions" else "problems"
    assert f"the {what} are not those that" in failed(capsys, *words, "--resume")
    assert scores(tmp_path / "out") == before


def test_predictions_find_their_problems():
    problems = [Problem(f"a/dev/{number:04d}", "", "", "sql", {"index": i}) for i, number in ((0, 3), (4, 8))]
    rows = [("id", "a/dev/0008"), ("id", "8"), ("number", "3"), ("position", "4"), ("position", "1"), ("number", "4")]
    from dph.measure.predictions import Prediction

    found = pair(problems, [Prediction(by, key, f"{by} {key}", True) for by, key in rows])  # type: ignore[arg-type]
    assert [(problem.id, [p.text for p in own]) for problem, own in found.pairs] == [
        ("a/dev/0003", ["number 3"]),
        ("a/dev/0008", ["id a/dev/0008", "id 8", "position 4"]),
    ]
    assert [p.text for p in found.unknown] == ["position 1", "number 4"] and not found.without


# Scores -------------------------------------------------------------------------------------------------------------


def test_totals_difficulties_outcomes_and_the_printed_table(spider: Path, tmp_path: Path, capsys):
    out = tmp_path / "out"
    verify("--task", "spider", "--data", spider, "--subset", "--predictions", written("lines.sql", tmp_path),
           "--out", out)  # fmt: skip
    found = scores(out)
    # 2 of 4 and the imaginary problems 0 and 1: a spread of √0.3, over √6, times 3.18 (Student's t, 3), is 0.71.
    assert found["metrics"]["accuracy"] == {"mean": 0.5, "low": 0.0, "high": 1.0}
    by_level = found["by_difficulty"].items()
    levels = [(name, row["problems"], row["metrics"]["accuracy"]["mean"]) for name, row in by_level]
    assert levels == [("easy", 2, 0.5), ("medium", 1, 1.0), ("hard", 1, 0.0)]
    assert found["outcomes"] == {"correct": 2, "wrong": 1, "error": 1} and found["rules"] == {"sql": "spider@2"}
    said = capsys.readouterr().out
    assert "spider dev: 4 problems; sql by spider@2" in said and "50.0 (0.0–100.0)" in said
    assert "correct 2 (50.0 %), wrong 1 (25.0 %), error 1 (25.0 %)" in said
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["stage"], manifest["status"]) == ("verify", "complete")


def test_several_samples_give_pass_at_k(spider: Path, tmp_path: Path, capsys):
    right, wrong = "```sql\nSELECT count(*) FROM club\n```", "no idea"
    samples = [[right, right, wrong, wrong], [wrong] * 4, [wrong] * 2]
    rows = [{"id": f"spider/dev/{i:04d}", "responses": texts} for i, texts in enumerate(samples)]
    out = tmp_path / "out"
    verify("--task", "spider", "--data", spider, "--subset", "--partial", "--out", out,
           "--predictions", lines(tmp_path / "p.jsonl", rows))  # fmt: skip
    means = {name: value["mean"] for name, value in scores(out)["metrics"].items()}
    expected = {f"pass@{k}": pass_at_k([4, 4, 2], [2, 0, 0], k).mean() for k in (1, 2)}
    expected["pass@4"] = pass_at_k([4, 4], [2, 0], 4).mean()  # the third has too few
    assert means == pytest.approx({"mean@4": 1 / 6, **expected})
    counts = {name: value["problems"] for name, value in scores(out)["metrics"].items() if "problems" in value}
    assert counts == {"pass@4": 2}
    assert re.search(r"^all +3  .* 50\.0 \(0\.0–100\.0; 2 problems\)$", capsys.readouterr().out, re.MULTILINE)
    assert [row["sample"] for row in verdicts(out)] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    flat = [{"id": row["id"], "response": text} for row in rows for text in row["responses"]]  # one sample a row
    verify("--task", "spider", "--data", spider, "--subset", "--partial", "--out", tmp_path / "flat",
           "--predictions", lines(tmp_path / "flat.jsonl", flat))  # fmt: skip
    assert scores(tmp_path / "flat")["metrics"] == scores(out)["metrics"]


def test_a_problem_without_prediction_is_wrong_unless_a_part_is_meant(spider: Path, tmp_path: Path, capsys):
    path = lines(tmp_path / "p.jsonl", [{"i": 0, "pred": GOLDS[0][0]}, {"i": 9, "pred": "SELECT 1"}])
    common = ("--task", "spider", "--data", spider, "--subset", "--predictions", path)
    verify(*common, "--out", tmp_path / "all")
    said = capsys.readouterr().err
    assert "without a prediction: 3 problems, which will count as wrong (--partial leaves them out)" in said
    assert "1 of 2 predictions belong to none of 4 problems" in said
    assert scores(tmp_path / "all")["metrics"]["accuracy"]["mean"] == 1 / 4
    assert [row["detail"] for row in verdicts(tmp_path / "all")[1:]] == ["no prediction"] * 3
    verify(*common, "--partial", "--out", tmp_path / "part")
    assert scores(tmp_path / "part")["metrics"]["accuracy"]["mean"] == 1


def test_rules_change_verdicts(spider: Path, tmp_path: Path):
    gold = lines(tmp_path / "gold.sql", ["SELECT DISTINCT town FROM club UNION ALL SELECT 'town 1'\tclubs"])
    path = lines(
        tmp_path / "p.sql", ["SELECT town FROM club"]
    )  # equal as sets; spider drops DISTINCT, strict counts rows
    common = ("--gold", gold, "--databases", spider / "database", "--predictions", path)
    found = {}
    for rule in ("strict", "bird", "spider"):
        verify(*common, "--rule", rule, "--out", tmp_path / rule)
        found[rule] = verdicts(tmp_path / rule)[0]["correct"]
    assert found == {"strict": False, "bird": True, "spider": False}


def test_golds_that_fail_are_left_out_and_doubtful_ones_flagged(spider: Path, tmp_path: Path, capsys):
    golds = ["SELECT nope FROM club", "SELECT town FROM club WHERE id = 9", "SELECT id FROM club LIMIT 1",
             "SELECT id FROM club"]  # fmt: skip
    gold = lines(tmp_path / "gold.sql", [f"{sql}\tclubs" for sql in golds])
    out = tmp_path / "out"
    verify("--gold", gold, "--databases", spider / "database", "--predictions", lines(tmp_path / "p.sql", golds),
           "--out", out)  # fmt: skip
    assert [row["id"] for row in verdicts(out)] == ["gold/00001", "gold/00002", "gold/00003"]
    assert [row["gold_flags"] for row in verdicts(out)] == [["empty"], ["limit_ties"], []]
    assert {row["difficulty"] for row in verdicts(out)} == {"easy"}
    found, said = scores(out), capsys.readouterr()
    assert list(found["excluded"]) == ["gold/00000"] and found["gold_flags"] == {"empty": 1, "limit_ties": 1}
    assert "1 with an empty result, 1 whose LIMIT cuts through a tie" in said.out
    assert "left out because the gold answer fails: 1 problem" in said.out
    assert said.err.count("problem gold/00000 is left out, its gold answer fails: ") == 1


def test_a_test_suite_finds_what_one_database_does_not(spider: Path, tmp_path: Path):
    for name, clubs in (("clubs.sqlite", 3), ("clubs_2.sqlite", 5), ("clubs_3.sqlite", 0)):
        make_db(tmp_path / "made" / name.split(".")[0] / name, clubs)
        (tmp_path / "suite/clubs").mkdir(parents=True, exist_ok=True)
        shutil.move(tmp_path / "made" / name.split(".")[0] / name, tmp_path / "suite/clubs" / name)
    common = ("--task", "spider", "--data", spider, "--subset", "--predictions", written("lines.sql", tmp_path))
    verify(*common, "--suite", tmp_path / "suite", "--out", tmp_path / "out")
    # "the last club" is number 3 only where there are three
    assert [row["correct"] for row in verdicts(tmp_path / "out")] == [True, False, False, False]
    assert scores(tmp_path / "out")["rules"] == {"sql": "spider@2, on every test-suite database"}
    assert scores(tmp_path / "out")["gold_flags"] == {}  # results are empty in the third only


def test_mathematics_in_responses_and_bare(tmp_path: Path):
    (tmp_path / "math500").mkdir()
    answers = (r"\frac{1}{2}", "2", "7")
    rows = [{"problem": "?", "answer": answer, "level": 1 + i // 2} for i, answer in enumerate(answers)]
    lines(tmp_path / "math500/test.jsonl", rows)
    common = ("--task", "math500", "--data", tmp_path, "--subset")
    texts = [r"so \boxed{0.5}", r"\boxed{3}", "So the answer is 7."]  # the last one only for the rules of qwen
    responses = lines(tmp_path / "p.jsonl", [{"idx": i, "response": text} for i, text in enumerate(texts)])
    bare = lines(tmp_path / "bare.txt", ["0.5", "3", "7"])
    cases = {"qwen": (responses, True), "math_verify": (responses, False), "typed": (bare, True)}
    for policy, (path, last) in cases.items():
        out = tmp_path / policy
        words = [] if policy == "qwen" else ["--policy", policy]  # the benchmark brings qwen
        verify(*common, "--predictions", path, "--out", out, *words)
        assert [row["correct"] for row in verdicts(out)] == [True, False, last]
        assert scores(out)["rules"] == {"math": policy}
        assert list(scores(out)["by_difficulty"]) == ["level 1", "level 2"]


def test_the_answer_that_was_judged_is_kept_and_counted(tmp_path: Path, capsys):
    rows = [{"id": id, "prompt": "?", "answer": "1/2", "verifier": "math"} for id in "ab"]
    texts = [("a", r"so \boxed{0.5}"), ("a", r"or \boxed{\frac12}."), ("a", r"\boxed{3}"), ("b", "perhaps 7")] + [
        ("b", rf"I say \boxed{{{answer}}}") for answer in ("3", r"\frac{2}{4}")
    ]
    lines(tmp_path / "rows.jsonl", rows)
    given = lines(tmp_path / "p.jsonl", [{"id": id, "response": text} for id, text in texts])
    common = ("--task", "records", "--data", tmp_path / "rows.jsonl")
    verify(*common, "--predictions", given, "--out", tmp_path / "run")
    kept = [row["extracted_answer"] for row in verdicts(tmp_path / "run")]
    assert kept == ["1/2", "1/2", "3", None, "3", "1/2"]
    samples = read_samples(tmp_path / "run")
    assert samples.answer is not None and "extracted_answer as the answer" in samples.read_as
    found = compare(samples).scores[0]
    # of all three a votes for 1/2, and in b 3 and 1/2 have one vote each; a has 2 answers, b has 2 and a silent sample
    assert found.metrics["maj@3"].estimate == pytest.approx((1 + 0.5) / 2) and found.distinct[3] == pytest.approx(2)
    words = lines(tmp_path / "words.jsonl", [{"id": id, "response": "The answer is 1/2."} for id in "ab"])
    capsys.readouterr()
    verify(*common, "--predictions", words)
    assert "--verifier.fallback phrase" in capsys.readouterr().err
    verify(*common, "--predictions", words, "--verifier.fallback", "phrase", "--out", tmp_path / "words")
    assert [row["extracted_answer"] for row in verdicts(tmp_path / "words")] == ["1/2", "1/2"]


def test_the_query_or_its_result_is_the_answer_of_sql(spider: Path, tmp_path: Path):
    for name, times in (("one", 1), ("two", 2)):
        rows = [{"id": f"spider/dev/{i:04d}", "pred": sql} for i, sql in enumerate(PREDICTED) for _ in range(times)]
        lines(tmp_path / f"{name}.jsonl", rows)
        verify("--task", "spider", "--data", spider, "--subset", "--predictions", tmp_path / f"{name}.jsonl",
               "--out", tmp_path / name)  # fmt: skip
    one, two = verdicts(tmp_path / "one"), verdicts(tmp_path / "two")
    assert {row["extracted_answer"][:6].lower() for row in one if row["outcome"] == "correct"} == {"select"}
    pairs = [(a["extracted_answer"], b["extracted_answer"]) for a, b in zip(two[::2], two[1::2], strict=True)]
    assert all(a == b for a, b in pairs) and any(a and not a.lower().startswith("select") for a, _ in pairs)


def test_the_completions_of_an_evaluation_are_predictions(spider: Path, tmp_path: Path):
    fenced = [f"```sql\n{sql}\n```" for sql in PREDICTED]
    rows = [{"split": "dev", "id": f"spider/dev/{i:04d}", "sample": s, "text": text} for i, text in enumerate(fenced)
            for s in (-1, 0, 1)]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "completions.parquet")
    verify("--task", "spider", "--data", spider, "--subset", "--predictions", tmp_path / "completions.parquet",
           "--out", tmp_path / "out")  # fmt: skip
    assert scores(tmp_path / "out")["samples"] == 2 and len(verdicts(tmp_path / "out")) == 8  # without the greedy one


# Mistakes -----------------------------------------------------------------------------------------------------------


def test_files_that_do_not_fit(spider: Path, tmp_path: Path, capsys):
    common = ("--task", "spider", "--data", spider, "--subset")
    few = lines(tmp_path / "few.sql", PREDICTED[:3])
    assert "few.sql has 3 predictions for 4 problems" in failed(capsys, *common, "--predictions", few)
    verify(*common, "--predictions", few, "--partial")
    many = lines(tmp_path / "many.sql", [*PREDICTED, "SELECT 1"])
    assert "has 5 predictions for 4 problems" in failed(capsys, *common, "--partial", "--predictions", many)
    other = lines(tmp_path / "other.sql", [f"{sql}\tother" for sql in PREDICTED])
    assert "is for the database 'other', but problem spider/dev/0000 has 'clubs'" in failed(
        capsys, *common, "--predictions", other
    )
    nobodys = lines(tmp_path / "n.jsonl", [{"id": "x", "sql": "SELECT 1"}])
    assert "of its 1 prediction none belongs to a problem; the first is for 'x'" in failed(
        capsys, *common, "--predictions", nobodys
    )
    mixed = lines(tmp_path / "m.jsonl", [{"sql": "SELECT 1"}, {"response": "```sql\nSELECT 1\n```"}])
    assert "some rows hold responses and some bare answers" in failed(capsys, *common, "--predictions", mixed)
    nothing = lines(tmp_path / "nothing.jsonl", [{"id": "spider/dev/0000", "answer": "SELECT 1"}])
    assert "row 1: no column of response, " in failed(capsys, *common, "--predictions", nothing)
    empty = lines(tmp_path / "empty.sql", [])
    assert "empty.sql holds no prediction" in failed(capsys, *common, "--predictions", empty)
    assert "no file of predictions was named" in failed(capsys, *common)
    assert "cannot be read" in failed(capsys, *common, "--predictions", tmp_path / "gone.sql")
    assert "no problems were named; add --task" in failed(capsys, "--predictions", few)
    untabbed = lines(tmp_path / "gold.sql", ["SELECT 1"])
    words = ("--gold", untabbed, "--databases", spider / "database", "--predictions", few)
    assert "query 1: no database; a line must be SQL<TAB>database" in failed(capsys, *words)


def test_a_file_that_is_refused_leaves_no_run_behind(spider: Path, tmp_path: Path, capsys):
    common = ("--task", "spider", "--data", spider, "--subset")
    for name, rows in (("many.sql", [*PREDICTED, "SELECT 1"]), ("empty.sql", []), ("gone.sql", None)):
        path = tmp_path / name
        path = path if rows is None else lines(path, rows)
        failed(capsys, *common, "--predictions", path, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_options_that_do_nothing_are_refused_or_said(spider: Path, tmp_path: Path, capsys):
    common = ("--task", "spider", "--data", spider, "--subset")
    whole = lines(tmp_path / "whole.sql", PREDICTED)
    message = failed(capsys, *common, "--predictions", whole, "--column", "sql")
    assert "whole.sql has no columns, so that --column sql names nothing" in message
    by_key = tmp_path / "by_key.json"
    by_key.write_text(json.dumps({str(i): sql for i, sql in enumerate(PREDICTED)}))
    assert "has no columns" in failed(capsys, *common, "--predictions", by_key, "--column", "sql")
    verify(*common, "--predictions", whole, "--partial", "--bare")
    said = capsys.readouterr().err
    assert "--partial changes nothing: every problem has a prediction" in said
    assert "--bare changes nothing: the predictions are bare already" in said


def test_bare_sql_in_a_column_of_responses_is_pointed_out(spider: Path, tmp_path: Path, capsys):
    path = lines(tmp_path / "p.jsonl", [{"i": i, "response": sql} for i, sql in enumerate(PREDICTED)])
    common = ("--task", "spider", "--data", spider, "--subset", "--predictions", path)
    verify(*common)
    assert "if they are bare SQL or answers, say so with --bare" in capsys.readouterr().err
    verify(*common, "--bare", "--out", tmp_path / "out")
    assert [row["correct"] for row in verdicts(tmp_path / "out")] == CORRECT


def test_a_column_can_be_chosen(spider: Path, tmp_path: Path):
    rows = [{"i": i, "response": "?", "second": sql} for i, sql in enumerate(PREDICTED)]
    path = lines(tmp_path / "p.jsonl", rows)
    verify("--task", "spider", "--data", spider, "--subset", "--predictions", path, "--column", "second",
           "--out", tmp_path / "out")  # fmt: skip
    assert [row["correct"] for row in verdicts(tmp_path / "out")] == CORRECT
    with pytest.raises(DataError, match="row 1: no column 'third'; it has: i"):
        read_predictions(path, None, "third")


# Rows that say more than an id and a prediction ---------------------------------------------------------------------


@pytest.fixture
def sums(tmp_path: Path) -> tuple[object, ...]:
    """Four problems: What is 0+1?, What is 1+1? …"""
    rows = [{"id": str(i), "prompt": f"What is {i}+1?", "answer": str(i + 1), "verifier": "math"} for i in range(4)]
    return "--task", "records", "--data", lines(tmp_path / "problems.jsonl", rows), "--predictions"


def said_by(i: int) -> str:
    return rf"\boxed{{{i + 1}}}"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"sample": 0, "model": "m1"}, {"sample": 1, "model": "m2"}], "2 values of 'model' (m1, m2)"),
        ([{"sample": 0, "model": "m1"}, {"sample": 0, "model": "m2"}], "2 values of 'model' (m1, m2)"),
        ([{"prompt_variant": "a"}, {"prompt_variant": "b"}], "'prompt_variant' differs within a problem"),
        ([{"config": {"lang": "en"}}, {"config": {"lang": "de"}}], "'config.lang' differs within a problem"),
        ([{"sample": 0}, {"sample": 0}], "id '0' has 2 rows with sample 0: duplicates"),
        ([{"prompt": "What is 9+1?"}], "row 1: its prompt is 'What is 9+1?', but it is paired with problem '0'"),
        ([{"output": "x"}], "'response' and 'output' differ, and both may hold the prediction"),
    ],
)
def test_rows_that_are_no_samples_of_one_model_are_refused(
    sums: tuple[object, ...], tmp_path: Path, capsys, rows: list[dict], said: str
):
    every = [{"id": str(i), "response": said_by(i), **more} for i in range(4) for more in rows]
    message = failed(capsys, *sums, lines(tmp_path / "p.jsonl", every))
    assert said in message and "--filter" not in message and "--id" not in message


def test_samples_of_one_model_with_what_measures_them_are_judged(sums: tuple[object, ...], tmp_path: Path):
    rows = [
        {"id": str(i), "sample": j, "model": "m", "tokens": 3 * i + j, "response": said_by(i + j)}
        for i in range(4)
        for j in range(2)
    ]
    verify(*sums, lines(tmp_path / "p.jsonl", rows), "--out", tmp_path / "out")
    assert correct_of(tmp_path / "out") == [[True, False]] * 4


@pytest.mark.parametrize(
    "prompt",
    [
        "What is {}+1?",
        "Question: What is {}+1?\nAnswer:",
        "You are helpful. Solve this.\n\nWhat  is {}+1?\nPut the answer into a box.",
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is {}+1?"}],
    ],
)
def test_rows_without_an_id_are_paired_by_their_prompts_whatever_the_template(
    sums: tuple[object, ...], tmp_path: Path, capsys, prompt: object
):
    def asked(i: int) -> object:
        return json.loads(json.dumps(prompt).replace("{}", str(i)))

    rows = [{"prompt": asked(i), "response": said_by(i)} for i in (3, 1, 0, 2)]
    verify(*sums, lines(tmp_path / "p.jsonl", rows), "--out", tmp_path / "out")
    assert correct_of(tmp_path / "out") == [[True]] * 4 and "4 rows without an id, paired by prompt" in (
        capsys.readouterr().err
    )
    with_ids = [{"id": str(i), "prompt": asked(i), "response": said_by(i)} for i in range(4)]
    verify(*sums, lines(tmp_path / "q.jsonl", with_ids), "--out", tmp_path / "again")
    assert correct_of(tmp_path / "again") == [[True]] * 4
    swapped = [row | {"id": str(3 - int(row["id"]))} for row in with_ids]
    assert "but it is paired with problem '0'" in failed(capsys, *sums, lines(tmp_path / "s.jsonl", swapped))
    unknown = [{"prompt": "Who are you?", "response": "x"}, *rows[1:]]
    assert "its prompt is 'Who are you?'" in failed(capsys, *sums, lines(tmp_path / "u.jsonl", unknown))


def test_the_column_of_another_harness_is_named_and_read(sums: tuple[object, ...], tmp_path: Path, capsys):
    path = lines(tmp_path / "p.jsonl", [{"index": i, "resps": [[said_by(i), "x"]]} for i in range(4)])
    assert "name the column of the predictions with --column" in failed(capsys, *sums, path)
    verify(*sums, path, "--column", "resps", "--out", tmp_path / "out")
    assert correct_of(tmp_path / "out") == [[True, False]] * 4


# Repeated questions -------------------------------------------------------------------------------------------------


def repeated(root: Path) -> tuple[list[str], list[str]]:
    """BIRD mini-dev's layout with 500 questions, of which the file repeats two as the published one does; returns their
    gold queries and ids."""
    make_db(root / "dev_databases/clubs/clubs.sqlite")
    numbers = [*range(100, 586), 137, 138, *range(588, 600)]
    rows = [
        {"question_id": n, "db_id": "clubs", "question": f"{n}?", "evidence": "", "SQL": f"SELECT {n}",
         "difficulty": "simple"} for n in numbers
    ]  # fmt: skip
    (root / "mini_dev_sqlite.json").write_text(json.dumps(rows))
    ids = [f"bird/mini_dev/{n:04d}" for n in numbers]
    ids[486], ids[487] = "bird/mini_dev/0137-2", "bird/mini_dev/0138-2"
    return [row["SQL"] for row in rows], ids


@pytest.mark.parametrize("form", ["bird", "question_id", "once"])
def test_a_repeated_question_is_a_problem_of_its_own(tmp_path: Path, capsys, form: str):
    golds, ids = repeated(tmp_path / "bird")
    answers = golds[:486] + ["SELECT 0"] * 2 + golds[488:]  # both repeats are answered wrongly
    path, right = tmp_path / "p.json", 498
    if form == "bird":
        path.write_text(json.dumps({str(i): f"{sql}\t----- bird -----\tclubs" for i, sql in enumerate(answers)}))
    else:
        rows = [{"question_id": sql.split()[1], "sql": answer} for sql, answer in zip(golds, answers, strict=True)]
        if form == "once":  # one prediction for each number serves both problems
            rows, right = list({row["question_id"]: row for row in reversed(rows)}.values()), 500
        path.write_text(json.dumps(rows))
    out = tmp_path / "out"
    verify("--task", "bird_mini_dev", "--data", tmp_path / "bird", "--predictions", path, "--out", out)
    assert [row["id"] for row in verdicts(out)] == ids
    assert sum(row["correct"] for row in verdicts(out)) == right
    assert [row["correct"] for row in verdicts(out)[486:488]] == [form == "once"] * 2
    assert "warning" not in capsys.readouterr().err


def test_samples_of_a_repeated_question_are_shared_evenly():
    from dph.measure.predictions import Prediction

    ids = ("s/dev/0001", "s/dev/0002", "s/dev/0001-2", "s/train/0001")
    problems = [Problem(id, "", "", "", {"question_id": "1"} if id.endswith("-2") else {}) for id in ids]
    for count, parts in ((2, ["0", "1"]), (4, ["01", "23"]), (1, ["0", "0"]), (3, ["012", "012"])):
        rows = [Prediction("number", "1", str(sample), True) for sample in range(count)]
        pairs = {problem.id: "".join(p.text for p in own) for problem, own in pair(problems, rows).pairs}
        assert pairs == dict(zip((ids[0], ids[2]), parts, strict=True))


def test_all_of_birds_mini_dev_with_stub_databases(shared_data: Path, tmp_path: Path):
    """Every gold query of the published file runs on empty tables and equals itself."""
    root = tmp_path / "bird"
    root.mkdir()
    shutil.copy(shared_data / "bird/mini_dev_sqlite.json", root)
    for entry in json.loads((shared_data / "bird/dev_tables.json").read_text()):
        path = root / "dev_databases" / entry["db_id"] / f"{entry['db_id']}.sqlite"
        path.parent.mkdir(parents=True)
        connection = sqlite3.connect(path)
        for index, table in enumerate(entry["table_names_original"]):
            columns = ", ".join(f'"{name}"' for place, name in entry["column_names_original"] if place == index)
            connection.execute(f'CREATE TABLE "{table}" ({columns})')
        connection.commit()
        connection.close()
    rows = json.loads((root / "mini_dev_sqlite.json").read_text())
    path = tmp_path / "p.json"
    path.write_text(
        json.dumps({str(i): f"{row['SQL']}\t----- bird -----\t{row['db_id']}" for i, row in enumerate(rows)})
    )
    out = tmp_path / "out"
    verify("--task", "bird_mini_dev", "--data", root, "--predictions", path, "--out", out)
    assert scores(out)["excluded"] == {} and scores(out)["outcomes"] == {"correct": 500}
    changed = [row["id"] for row in verdicts(out) if not row["id"][-4:].isdecimal()]
    assert changed == ["bird/mini_dev/0137-2", "bird/mini_dev/0138-2"]


# Lost workers -------------------------------------------------------------------------------------------------------

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes through /proc")
SLOW = (
    "SELECT max(n) FROM (WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < {}) SELECT n FROM x)"
)


def slow_suite(root: Path, count: int = 4) -> tuple[list[object], list[bool]]:
    """Questions on eight databases: the words of the command and the expected verdicts. A query takes some hundredths
    of a second on each, long enough to be killed in the midst of it."""
    for number in range(8):
        make_db(root / f"made/{number}/clubs.sqlite", number)
        (root / "suite/clubs").mkdir(parents=True, exist_ok=True)
        shutil.move(root / f"made/{number}/clubs.sqlite", root / f"suite/clubs/clubs_{number}.sqlite")
    golds = [f"SELECT count(*) + {n} FROM club, ({SLOW.format(120_000)})" for n in range(count)]
    gold = lines(root / "gold.sql", [f"{sql}\tclubs" for sql in golds])
    answers = [sql.replace("*", "club.id" if n % 2 else "DISTINCT 1") for n, sql in enumerate(golds)]
    words = ["--gold", gold, "--databases", root / "spider/database", "--task.options", "test_suite", root / "suite"]
    words += ["--rule", "bird", "--predictions", lines(root / "p.sql", answers), "--out", root / "out"]
    return words, [bool(n % 2) for n in range(count)]


@on_linux
def test_workers_that_are_killed_all_the_time_cost_no_row(spider: Path, tmp_path: Path, capsys):
    """None lives long enough for all databases of one prediction."""
    words, expected = slow_suite(tmp_path)
    with killing(databases=4) as killed:
        verify(*words)
    assert [row["correct"] for row in verdicts(tmp_path / "out")] == expected
    found = scores(tmp_path / "out")
    assert (found["excluded"], found["outcomes"]) == ({}, {"wrong": 2, "correct": 2})
    assert len(killed) >= 4 and "left out" not in capsys.readouterr().err


@on_linux
def test_the_rules_that_decided_are_explained(tmp_path: Path, capsys):
    rows = [{"id": str(n), "prompt": "How many are there?", "answer": "5", "verifier": "math"} for n in range(4)]
    golds = lines(tmp_path / "gold.jsonl", rows)
    texts = [r"There are at least $\boxed{5}$.", r"$\boxed{5}$", r"It is not $\boxed{5}$.", "I do not know."]
    path = lines(tmp_path / "p.jsonl", [{"id": str(n), "response": text} for n, text in enumerate(texts)])
    common = ("--task", "records", "--data", golds, "--predictions", path)
    verify(*common)
    assert "rule " not in capsys.readouterr().out
    verify(*common, "--explain")
    told = capsys.readouterr().out
    for words in (
        "0: not equal: sets of reals\ngold    5  (number 5)\nanswer  \\ge 5  (intervals)\nrule    before.at-least:",
        "1: equal: the same reading\ngold    5  (number 5)\nanswer  5  (number 5)\n",
        "rule    before.not: words before the answer deny it",
        "3: not equal: no answer\ngold    5  (number 5)\nanswer  none found",
    ):
        assert words in told


def test_a_policy_that_cannot_explain_says_so(tmp_path: Path, capsys):
    golds = lines(tmp_path / "gold.jsonl", [{"id": "a", "prompt": "?", "answer": "5", "verifier": "exact"}])
    path = lines(tmp_path / "p.jsonl", [{"id": "a", "response": "5"}])
    verify("--task", "records", "--data", golds, "--predictions", path, "--explain")
    assert "--explain changes nothing" in "".join(capsys.readouterr())


@pytest.mark.parametrize("task", ["sql", "math"])
def test_workers_that_never_get_ready_end_the_command(spider: Path, tmp_path: Path, capsys, task: str):
    words, _ = slow_suite(tmp_path)
    if task == "math":
        (tmp_path / "math500").mkdir()
        lines(tmp_path / "math500/test.jsonl", [{"problem": "?", "answer": r"\frac{x}{2}", "level": 1}])
        words = ["--task", "math500", "--data", tmp_path, "--subset", "--out", tmp_path / "out"]
        words += ["--predictions", lines(tmp_path / "bare.txt", ["0.5x"])]
    with killing():
        said = failed(capsys, *words)
    assert "something ended it 20 times before it was ready" in said and "--resume" in said
    verify(*words, "--resume")
    assert len(verdicts(tmp_path / "out")) == (1 if task == "math" else 4)


@on_linux
@pytest.mark.parametrize("part", ["gold", "prediction"])
def test_a_query_whose_workers_are_always_lost_ends_the_command(spider: Path, tmp_path: Path, capsys, part: str):
    slow, fast = f"SELECT 1 FROM ({SLOW.format(10**12)})", "SELECT 1"
    gold = lines(tmp_path / "gold.sql", [f"{slow if part == 'gold' else fast}\tclubs", f"{fast}\tclubs"])
    path = lines(tmp_path / "p.sql", [slow if part == "prediction" else fast, fast])
    words = ["--gold", gold, "--databases", spider / "database", "--predictions", path, "--timeout", 60]
    with killing(databases=1, after=0.05):
        said = failed(capsys, *words)
    assert "something ended" in said and "use fewer --workers" in said
    assert ("problem gold/00000 could not be judged" in said) == (part == "prediction")


# Published predictions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["c3_chatgpt", "codex_few_shot"])
def test_spiders_official_verdicts(shared_data: Path, tmp_path: Path, name: str):
    root = shared_data / "spider"
    path = root / "predictions" / f"{name}.jsonl"
    verify("--task", "spider", "--data", root, "--skip-missing", "--predictions", path, "--out", tmp_path / "out")
    labels = {row["i"]: row["ex"] for row in map(json.loads, path.read_text().splitlines()) if row["ex"] is not None}
    found = {int(row["id"][-4:]): int(row["correct"]) for row in verdicts(tmp_path / "out")}
    assert len(found) == 972 and found == labels


@pytest.mark.parametrize(("gold", "label"), [(None, "ex"), ("dev_gold_2023.sql", "ex_gold2023")])
def test_birds_official_verdicts_by_both_golds(shared_data: Path, tmp_path: Path, gold: str | None, label: str):
    root = shared_data / "bird"
    path = root / "predictions/dev/codes_15b.json"
    words = ["--gold", root / gold] if gold else []
    verify("--task", "bird", "--data", root, "--skip-missing", "--predictions", path, "--out", tmp_path / "out", *words)
    rows = map(json.loads, path.with_suffix(".superhero_labels.jsonl").read_text().splitlines())
    labels = {row["question_id"]: row[label] for row in rows}
    found = {int(row["id"][-4:]): int(row["correct"]) for row in verdicts(tmp_path / "out")}
    assert len(found) == 129 and found == labels
