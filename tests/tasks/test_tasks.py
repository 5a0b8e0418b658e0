"""Tasks over files: users' records, Spider, BIRD and the mathematical sets."""

import gzip
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dph.build import select
from dph.errors import DataError, SettingsError
from dph.tasks import load_task
from dph.types import Problem
from dph.verifiers import Verifiers

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

needs_data = pytest.mark.skipif(not (DATA / "spider").exists(), reason="the public data sets are not on this machine")


def write_lines(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_db(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(
        """CREATE TABLE Club (Club_ID INTEGER PRIMARY KEY, "Home Town" TEXT, Year INT);
        CREATE TABLE member (id INT, club_id INT REFERENCES Club (Club_ID), note TEXT, PRIMARY KEY (id, club_id));
        INSERT INTO Club VALUES (1, 'Bern', 1900), (2, 'Bern', 1901), (3, 'Oslo', NULL);
        INSERT INTO member VALUES (7, 1, ''), (8, 3, 'a rather long note of more than forty characters');"""
    )
    connection.close()
    return path


# --- records ---------------------------------------------------------------------------------------------------------


def test_records_of_every_kind_hold_the_same_problems(tmp_path: Path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    rows = [
        {"id": "a", "prompt": "1 + 1?", "answer": "2", "verifier": "math", "level": 3},
        {"id": "b", "messages": messages, "answer": "4", "verifier": "math"},
    ]
    write_lines(tmp_path / "lines.jsonl", rows)
    with gzip.open(tmp_path / "zipped.jsonl.gz", "wt") as file:
        file.write((tmp_path / "lines.jsonl").read_text())
    pq.write_table(pa.Table.from_pylist(rows, pa.schema({
        "id": pa.string(), "prompt": pa.string(), "answer": pa.string(), "verifier": pa.string(), "level": pa.int64(),
        "messages": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
    })), tmp_path / "columns.parquet")  # fmt: skip
    expected = [
        Problem("a", "1 + 1?", "2", "math", {"level": 3}),
        Problem("b", tuple(messages), "4", "math"),  # type: ignore[arg-type]
    ]
    task = load_task("records", path=str(tmp_path))
    for split in ("lines", "zipped", "columns"):
        assert task.problems(split) == expected
    assert load_task("records", path=str(tmp_path / "lines.jsonl")).problems("any") == expected


def test_rows_of_the_papers_authors_are_read_as_they_are(tmp_path: Path):
    db = make_db(tmp_path / "databases" / "clubs" / "clubs.sqlite")
    truth = {"db_id": "clubs/clubs.sqlite", "gold_sql": "SELECT 1", "cmp_method": "spider"}
    row = {
        "data_source": "sql",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"style": "rule", "ground_truth": truth},
        "id": 12,
    }
    path = write_lines(tmp_path / "dev.jsonl", [row])
    [problem] = load_task("records", path=str(path), db_root=str(tmp_path / "databases")).problems("dev")
    assert (problem.id, problem.verifier, problem.answer) == ("12", "sql", "SELECT 1")
    assert problem.prompt == ({"role": "user", "content": "?"},)
    assert problem.meta == {
        "data_source": "sql", "db_id": "clubs/clubs.sqlite", "cmp_method": "spider", "db": str(db)
    }  # fmt: skip
    row["reward_model"] = {"ground_truth": "34"}
    [problem] = load_task("records", path=str(write_lines(path, [row])), verifier="math").problems("dev")
    assert (problem.answer, problem.verifier) == ("34", "math")


def test_rows_in_verls_form_bring_their_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    make_db(tmp_path / "databases" / "clubs" / "clubs.sqlite")
    prompt = [{"role": "user", "content": "?"}]
    truths = [{"db_id": f"{name}/{name}.sqlite", "gold_sql": "SELECT 1"} for name in ("clubs", "gone")]
    rows = [{"data_source": "s", "prompt": prompt, "reward_model": {"ground_truth": t}} for t in (*truths, "34")]
    options = {"path": str(write_lines(tmp_path / "a.jsonl", rows)), "db_root": str(tmp_path / "databases")}
    with pytest.raises(DataError, match=r"row 2: no database .*skip_missing"):
        load_task("verl_rows", **options).problems("train")
    found = load_task("verl_rows", **options, skip_missing=True).problems("train")
    assert [(p.id, p.verifier, p.answer) for p in found] == [("a-1", "sql", "SELECT 1"), ("a-3", "math", "34")]
    assert "left out, because their databases are missing: 1 row\n" in capsys.readouterr().err


def test_the_authors_rows_are_problems_with_their_gold_results(shared_data: Path):
    file, databases = shared_data / "authors" / "spider_dev.jsonl", shared_data / "spider" / "database"
    problems = load_task("verl_rows", path=str(file), db_root=str(databases), skip_missing=True).problems("train")
    assert len(problems) == 972 and {p.verifier for p in problems} == {"sql"}
    with Verifiers() as verifiers:
        verdicts = verifiers.verify([(p, f"```sql\n{p.answer}\n```") for p in problems[:50]])
    assert all(verdict.correct for verdict in verdicts)


def test_records_without_ids_are_named_by_file_and_row(tmp_path: Path):
    path = write_lines(tmp_path / "mine.jsonl", [{"prompt": "?", "answer": "1"}, {"prompt": "!", "answer": "2"}])
    problems = load_task("records", path=str(path), verifier="exact").problems("train")
    assert [p.id for p in problems] == ["mine-1", "mine-2"]


@pytest.mark.parametrize("name", ["clubs", "clubs/clubs.sqlite"])
def test_databases_are_found_by_id_and_by_path_beside_the_file(tmp_path: Path, name: str):
    db = make_db(tmp_path / "clubs" / "clubs.sqlite")
    rows = [{"prompt": "?", "answer": "SELECT count(*) FROM Club", "verifier": "sql", "db": name}]
    path = write_lines(tmp_path / "x.jsonl", rows)
    [problem] = load_task("records", path=str(path)).problems("x")
    assert problem.meta["db"] == str(db)
    with Verifiers() as verifiers:
        assert verifiers.verify([(problem, "```sql\nSELECT 3\n```")])[0].correct


def test_rows_that_name_no_verifier_keep_all_their_columns(tmp_path):
    rows = [{"prompt": "?", "answer": "1", "task": "sums", "db": "x"}, {"prompt": "?", "messages": [], "grade": 3}]
    first, second = load_task("records", path=str(write_lines(tmp_path / "x.jsonl", rows))).problems("x")
    assert (first.verifier, first.answer, first.meta) == ("", "1", {"task": "sums", "db": "x"})
    assert (second.verifier, second.answer, second.meta) == ("", None, {"grade": 3})


GOOD = {"id": "a", "prompt": "?", "answer": "1", "verifier": "math"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no rows"),
        ([GOOD, {"id": "b", "answer": "1"}], r"jsonl, row 2: no 'prompt' or"),
        (
            [{"id": "b", "prompt": "?", "verifier": "math"}],
            r"row 1: no 'answer' .*; it has: id",
        ),
        (
            [{**GOOD, "prompt": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "1"}]}],
            "row 1: the prompt ends with the assist",
        ),
        ([{**GOOD, "prompt": [{"content": "?"}]}], "text or a list of messages"),
        ([{**GOOD, "verifier": "sql"}], "needs a column 'db' or 'db_id'"),
        ([{**GOOD, "verifier": "sql", "db": "gone"}], r"no database 'gone'; .*gone/gone\.sqlite"),
        ([{"prompt": "?", "reward_model": {"ground_truth": {"sql": "x"}}}], "has no 'gold_sql'; it has: sql"),
    ],
)
def test_mistakes_in_records_are_one_clear_sentence(tmp_path: Path, rows: list, message: str):
    path = write_lines(tmp_path / "x.jsonl", rows)
    with pytest.raises(DataError, match=message):
        load_task("records", path=str(path)).problems("x")


USER, MODEL = {"role": "user", "content": "?"}, {"role": "assistant", "content": "so 42"}
SYSTEM = {"role": "system", "content": "Be brief."}
PROMPTS: list[tuple[dict, dict, object]] = [
    ({"messages": json.dumps([SYSTEM, USER])}, {}, (SYSTEM, USER)),
    ({"prompt": repr([USER, MODEL, USER])}, {}, (USER, MODEL, USER)),
    ({"prompt": '[{"value": 1}] has how many items?'}, {}, '[{"value": 1}] has how many items?'),
    ({"prompt": '[{"value": 1}]'}, {}, '[{"value": 1}]'),
    ({"instruction": "Add.", "input": "1, 2", "output": "3"}, {}, "Add.\n\n1, 2"),
    ({"Instruction": "Add 1.", "Input": ""}, {"prompt": "Instruction"}, "Add 1."),
    ({"prompt": "  ", "question": "Add."}, {}, "Add."),
    ({"prompt": [{**USER, "content": ""}], "messages": [USER]}, {}, (USER,)),
    (
        {"my q": "?", "e": {"x": 1}},
        {"template": r"{my q} {e.x} \boxed{x} x_{i}^{n} {}"},
        r"? 1 \boxed{x} x_{i}^{n} {}",
    ),
    ({"question": "?"}, {"template": r"{question} \boxed{answer}"}, r"? \boxed{answer}"),
    ({"prompt": "?"}, {"system": "Be brief."}, (SYSTEM, USER)),
]


@pytest.mark.parametrize(("row", "options", "prompt"), PROMPTS)
def test_prompts_of_rows(tmp_path: Path, row: dict, options: dict, prompt: object):
    path = write_lines(tmp_path / "x.jsonl", [row | {"answer": "1", "Verifier": "exact", "ID": 7}])
    [problem] = load_task("records", path=str(path), **options).problems("x")
    assert (problem.prompt, problem.id, problem.verifier) == (prompt, "7", "exact")


ENDS = "row 1: the prompt ends with a turn of"
NO_PROMPTS: list[tuple[dict, dict, str]] = [
    ({"messages": json.dumps([USER, MODEL])}, {}, "row 1: the prompt ends with the assistant's turn"),
    ({"prompt": repr([USER, MODEL])}, {}, "row 1: the prompt ends with the assistant's turn"),
    ({"prompt": str([USER, MODEL]).replace("}, {", "}\n {")}, {}, "row 1: the prompt holds messages as text that"),
    (
        {"prompt": '[{"from": "human", "value": "?"}, {"from": "gpt", "value": "42"}]'},
        {},
        "a list of messages with 'role'",
    ),
    *(({"prompt": [USER, {**MODEL, "role": role}]}, {}, f"{ENDS} '{role}'") for role in ("gpt", "model", "Assistant")),
    ({"prompt": [USER, MODEL, {"role": "tool", "content": "42"}]}, {}, f"{ENDS} 'tool'"),
    ({"prompt": "", "question": " "}, {}, "row 1: prompt is null or empty"),
    ({"prompt": [{**USER, "content": " "}]}, {}, "row 1: prompt is null or empty"),
    ({"question": "?"}, {"template": "{question} {contxt}"}, "row 1: the template names 'contxt', no column; it has: "),
    ({"question": "?"}, {"template": "{contxt} {question}"}, "row 1: the template names 'contxt', no column; it has: "),
    ({"messages": [USER, MODEL]}, {"template": "{messages}"}, "and messages is a list or has parts"),
    ({"messages": repr([USER, MODEL])}, {"template": "{messages}"}, "and messages is a list or has parts"),
    ({"prompt": [SYSTEM, USER]}, {"system": "Think."}, "row 1: the prompt has a system message"),
]


@pytest.mark.parametrize(("row", "options", "message"), NO_PROMPTS)
def test_what_is_no_prompt_or_holds_the_answer_is_refused(tmp_path: Path, row: dict, options: dict, message: str):
    path = write_lines(tmp_path / "x.jsonl", [row | {"answer": "1", "verifier": "exact"}])
    with pytest.raises(DataError) as caught:
        load_task("records", path=str(path), **options).problems("x")
    assert message in str(caught.value)


def test_the_answer_is_that_of_the_first_column_with_one(tmp_path: Path):
    rows = [{"prompt": "?", "answer": "", "target": "42"}, {"prompt": "?", "answer": "x #### 41 or 42x"}]
    path = write_lines(tmp_path / "x.jsonl", rows)
    options = {"path": str(path), "verifier": "exact"}
    assert load_task("records", **options).problems("x")[0].answer == "42"
    write_lines(path, rows[1:])
    [problem] = load_task("records", **options, answer_pattern=r"42x|#### (\d+)").problems("x")
    assert problem.answer == "41"
    with pytest.raises(DataError, match="answer_pattern matches nothing"):
        load_task("records", **options, answer_pattern="42x|(43)").problems("x")


@pytest.mark.parametrize("kind", ["null device", "pipe"])
def test_what_is_no_regular_file_is_said(tmp_path: Path, kind: str):
    path = "/dev/null"
    if kind == "pipe":
        os.mkfifo(path := str(tmp_path / "x.jsonl"))
    with pytest.raises(DataError, match=f"{path} is not a regular file"):
        load_task("records", path=path).problems("x")


def test_mistakes_about_record_files(tmp_path: Path):
    with pytest.raises(DataError, match="no file or folder"):
        load_task("records", path=str(tmp_path / "gone"))
    (tmp_path / "bad.jsonl").write_text(json.dumps(GOOD) + '\n{"id": \n')
    task = load_task("records", path=str(tmp_path))
    with pytest.raises(DataError, match=r"bad\.jsonl, line 2 is not valid JSON"):
        task.problems("bad")
    with pytest.raises(SettingsError, match="no file for the split 'dev'; it has: bad"):
        task.problems("dev")
    with pytest.raises(SettingsError, match="does not take these options"):
        load_task("records", file="x")


# --- Spider and BIRD -------------------------------------------------------------------------------------------------


def test_spiders_official_layout(tmp_path: Path):
    db = make_db(tmp_path / "database" / "clubs" / "clubs.sqlite")
    row = {"db_id": "clubs", "question": "How many clubs? ", "query": "SELECT count(*) FROM Club"}
    (tmp_path / "train_spider.json").write_text(json.dumps([row, row]))
    (tmp_path / "train_others.json").write_text(json.dumps([{**row, "question": "Count."}]))
    task = load_task("spider", root=str(tmp_path), prompt_style="compact")
    problems = task.problems("train")
    assert [p.id for p in problems] == ["spider/train/0000", "spider/train/0001", "spider/train/0002"]
    assert (
        problems[0].prompt == "club ( club_id , home town , year ) ; member ( id , club_id , note ) | How many clubs? |"
    )
    assert problems[2].meta == {"db": str(db), "db_id": "clubs", "question": "Count.", "index": 2}
    with pytest.raises(DataError, match=r"'dev' found; looked for .*dev\.json; or"):
        task.problems("dev")
    with pytest.raises(SettingsError, match="no split 'validation'; it has train, dev"):
        task.problems("validation")
    with pytest.raises(SettingsError, match="'short'; known are: omnisql, compact"):
        load_task("spider", root=str(tmp_path), prompt_style="short")


def test_a_missing_database_is_an_error_unless_it_may_be_skipped(tmp_path: Path):
    (tmp_path / "database").mkdir()
    write_lines(tmp_path / "dev.jsonl", [{"db_id": "gone", "question": "?", "query": "SELECT 1"}])
    with pytest.raises(DataError, match="'spider/dev/0000' needs the database"):
        load_task("spider", root=str(tmp_path)).problems("dev")
    assert load_task("spider", root=str(tmp_path), skip_missing=True).problems("dev") == []


def test_bird_puts_its_evidence_before_the_question(tmp_path: Path):
    make_db(tmp_path / "dev_databases" / "clubs" / "clubs.sqlite")
    row = {"question_id": 7, "db_id": "clubs", "question": "How many clubs?", "evidence": "club refers to Club",
           "SQL": "SELECT count(*) FROM Club", "difficulty": "simple"}  # fmt: skip
    (tmp_path / "dev.json").write_text(json.dumps([row]))
    [hinted] = load_task("bird", root=str(tmp_path), prompt_style="compact").problems("dev")
    [plain] = load_task("bird", root=str(tmp_path), prompt_style="compact", evidence=False).problems("dev")
    assert str(hinted.prompt).endswith("| club refers to Club How many clubs? |")
    assert str(plain.prompt).endswith("| How many clubs? |")
    assert (hinted.id, hinted.meta["difficulty"], hinted.answer) == ("bird/dev/0007", "simple", row["SQL"])
    with pytest.raises(DataError, match="no questions of bird's split 'train'"):
        load_task("bird", root=str(tmp_path)).problems("train")


NO_GOLDS = [float("nan"), float("inf"), -float("inf"), True, ["1", float("nan")], ["1", None], {"a": 1}]


@pytest.mark.parametrize("answer", NO_GOLDS, ids=str)
@pytest.mark.parametrize("column", ["answer", "reward_model"])
@pytest.mark.parametrize("verifier", ["math", "exact"])
def test_records_refuse_answers_that_are_neither_text_nor_finite(tmp_path: Path, answer, column: str, verifier: str):
    field = {"answer": answer} if column == "answer" else {"reward_model": {"ground_truth": answer}}
    path = write_lines(tmp_path / "x.jsonl", [GOOD, {"prompt": "?", "verifier": verifier, **field}])
    with pytest.raises(DataError, match=r"x\.jsonl, row 2: "):
        load_task("records", path=str(path)).problems("x")


@pytest.mark.parametrize("column", ["answer", "reward_model"])
def test_parquet_golds_must_be_finite(tmp_path: Path, column: str):
    values = [float(n) for n in (1, 2, "nan")]
    golds = [{"ground_truth": value} for value in values] if column == "reward_model" else values
    table = pa.table({"prompt": ["a", "b", "c"], "question": ["a", "b", "c"], column: golds})
    pq.write_table(table, tmp_path / "dapo-math-17k.parquet")
    with pytest.raises(DataError, match=r"parquet, row 3: the answer must be .*"):
        load_task("dapo_math_17k", root=str(tmp_path), subset=True).problems("train")
    with pytest.raises(DataError, match=r"parquet, row 3: the answer must be .*"):
        load_task("records", path=str(tmp_path / "dapo-math-17k.parquet"), verifier="math").problems("train")


# --- mathematics -----------------------------------------------------------------------------------------------------


def test_answers_of_mathematical_sets(tmp_path: Path):
    rows = [
        {"question": "q", "answer": "It is <<1200+1=1201>>1201.\n#### 1,201"},
        {"problem": "q", "solution": r"so \boxed{1} or \boxed{\frac{1}{2}}"},
        {"question": "q", "final_answer": ["2", "3"]},
        {"question": "How many?", "answer": 3.0},
        {"problem": "q", "answer": ""},
    ]
    (tmp_path / "aime24").mkdir()
    write_lines(tmp_path / "aime24" / "test.jsonl", rows)
    problems = load_task("aime24", root=str(tmp_path), prompt_style="plain").problems("test")
    assert [p.answer for p in problems] == ["1201", r"\frac{1}{2}", ["2", "3"], "3.0", ""]
    assert problems[3].prompt == ({"role": "user", "content": "How many?"},)
    with Verifiers() as verifiers:
        assert verifiers.check(problems) == {"aime24/test/00004": "the answer is empty"}
    assert load_task("aime24", root=str(tmp_path)).problems("test")[0].prompt[0] == {
        "role": "system", "content": r"Please reason step by step, and put your final answer within \boxed{}."
    }  # fmt: skip
    write_lines(tmp_path / "aime24" / "test.jsonl", [{"question": "q"}])
    with pytest.raises(DataError, match="row 1: no answer; it has: question"):
        load_task("aime24", root=str(tmp_path)).problems("test")


@pytest.mark.parametrize("answer", NO_GOLDS, ids=str)
@pytest.mark.parametrize("field", ["answer", "final_answer", "ground_truth"])
def test_mathematical_sets_refuse_answers_that_are_neither_text_nor_finite(tmp_path: Path, answer, field: str):
    row = {"question": "q", **({"reward_model": {field: answer}} if field == "ground_truth" else {field: answer})}
    (tmp_path / "aime24").mkdir()
    write_lines(tmp_path / "aime24" / "test.jsonl", [{"question": "q", "answer": "1"}, row])
    with pytest.raises(DataError, match=r"test\.jsonl, row 2: the answer must be"):
        load_task("aime24", root=str(tmp_path)).problems("test")


def test_golds_of_mathematical_sets_keep_their_value(tmp_path: Path):
    rows = [
        {"answer": 1e-5},
        {"answer": 1e22},
        {"final_answer": [r"$36\$$", 0.5]},
        {"reward_model": {"ground_truth": [1, "2"]}},
    ]
    (tmp_path / "aime24").mkdir()
    write_lines(tmp_path / "aime24" / "test.jsonl", [{"question": "q", **row} for row in rows])
    problems = load_task("aime24", root=str(tmp_path), subset=True).problems("test")
    assert [p.answer for p in problems] == ["0.00001", "1" + "0" * 22, [r"36\$", "0.5"], ["1", "2"]]


@needs_data
def test_published_sets_have_their_published_sizes():
    sizes = {"aime24": 30, "aime25": 30, "amc23": 40, "math500": 500, "olympiadbench": 675, "minerva_math": 272,
             "college_math": 2818, "gsm8k": 1319}  # fmt: skip
    assert {name: len(load_task(name, root=str(DATA / "math")).problems("test")) for name in sizes} == sizes
    assert len(load_task("dapo_math_17k", root=str(DATA / "math")).problems("train")) == 17917
    with pytest.raises(SettingsError, match="aime24 has no split 'train'; it has test"):
        load_task("aime24", root=str(DATA / "math")).problems("train")


def test_an_id_that_stands_twice_is_refused_wherever_it_stands():
    class Twice:
        def problems(self, split: str) -> list[Problem]:
            return [Problem(name, "?", "1", "exact", {}) for name in ("a", "b", "a")]

    with pytest.raises(DataError, match="the split 'train' holds the id 'a' twice"):
        select(Twice(), "train", limit=1)  # type: ignore[arg-type]


class Sorted:
    """Forty problems, sorted by database."""

    def __init__(self, left_out: str = "") -> None:
        self._left_out = left_out

    def problems(self, split: str) -> list[Problem]:
        names = [f"{split}/{db}/{i}" for db in "abcd" for i in range(10)]
        return [Problem(n, "?", "1", "exact", {"db_id": n.split("/")[1]}) for n in names if n != self._left_out]


def order(limit: int = 0, *, splits: str = "dev", left_out: str = "") -> list[str]:
    task: Any = Sorted(left_out)
    return [problem.id for problem in select(task, splits, limit, shuffle=True)]


def test_a_limit_on_shuffled_problems_takes_from_all_databases():
    task: Any = Sorted()
    assert {problem.meta["db_id"] for problem in select(task, "dev", 10)} == {"a"}
    assert {name.split("/")[1] for name in order(10)} == set("abcd")
    assert order()[:10] == order(10) and sorted(order()) == [problem.id for problem in task.problems("dev")]
    assert [name.split("/")[0] for name in order(2, splits="dev,test")] == ["dev", "dev", "test", "test"]


def test_a_problem_keeps_its_place_in_the_shuffled_order_when_another_is_left_out():
    every = order()
    assert order(left_out=every[3]) == every[:3] + every[4:]
