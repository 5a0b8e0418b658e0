"""The table of bad input, part 2: rows of problems and answers, databases, benchmarks' folders.

Each case ends with exit status 2 and one sentence that names the file and what is wrong in it.
"""

import gzip
import json
import sqlite3
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import complaint, run
from helpers import base_run

SMALL = ["--rollout.max-tokens", "4", "--rollout.n", "2"]
GOOD = {"prompt": "easy 1", "answer": "yes", "verifier": "exact"}


def rows(*changes):
    return "".join(json.dumps({**GOOD, **change}) + "\n" for change in changes)


def evaluate(folder, name, **options):
    words = [word for pair in options.items() for word in pair]
    words = ["--task.name", name, "--task.options", *words] if words else ["--task.name", name]
    return ["eval", *SMALL, "--model.path", base_run() / "model", "--out", folder / "run", *words]


ROWS = {
    "missing.jsonl": (None, "records: there is no file or folder"),
    "table.xls": ("a,b\n", "is of an unknown kind; use .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet"),
    "header.csv": ("prompt,answer\n", "holds no rows"),
    "cells.csv": ("prompt,answer\neasy 1,1,2\n", "line 2 has 3 cells for 2 columns; put"),
    "empty_cell.csv": ("prompt,answer,verifier\n,1,exact\n", "row 1 (line 2): prompt is null or empty"),
    "latin.csv": ("prompt,answer\n\u00e9,1\n".encode("latin-1"), "line 2 is not UTF-8 text; save the file as UTF-8"),
    "blank_lines.jsonl": ("\n\n" + rows({"prompt": None}), "row 1 (line 3): prompt is null or empty"),
    "empty.jsonl": ("", "holds no rows"),
    "broken.jsonl": (rows({}) + '{"prompt": \n', "line 2 is not valid JSON"),
    "latin.jsonl": (
        rows({}).encode() + b"\xe9",
        "latin.jsonl cannot be read: line 2 is not UTF-8 text; save the file as UTF-8",
    ),
    "utf16.jsonl": (rows({}).encode("utf-16"), "cannot be read: its content is UTF-16 text; save it as UTF-8"),
    "utf16.json": (rows({}).encode("utf-16-be"), "cannot be read: its content is UTF-16 text; save it as UTF-8"),
    "utf16.jsonl.gz": (gzip.compress(rows({}).encode("utf-16-le")), "cannot be read: its content is UTF-16 text"),
    "packed.jsonl": (gzip.compress(rows({}).encode()), "cannot be read: its content is compressed with gzip; unpack"),
    "parquet.jsonl": (b"PAR1", "cannot be read: its content is a Parquet file; name it .parquet"),
    "digits.jsonl": (
        '{"answer": ' + "9" * 5000 + "}",
        "line 1 is not valid JSON: a number has too many digits; write it as text",
    ),
    "half.jsonl": ('{"prompt": "easy \\ud800"}', "half of a surrogate pair, which is not a character"),
    "half_id.jsonl": ('{"id": "\\uD800"}', "half of a surrogate pair, which is not a character"),
    "texts.jsonl": ('"text"\n', "row 1: expected an object with named fields, found str"),
    "no_prompt.jsonl": ('{"answer": 1}', "row 1: no 'prompt' or 'messages'; it has: answer"),
    "prompt.jsonl": (rows({"prompt": 3}), "row 1: the prompt must be text or a list of messages"),
    "no_content.jsonl": (rows({"prompt": [{"role": "user"}]}), "the prompt must be text or a list of messages"),
    "no_messages.jsonl": (rows({"prompt": {}}), "the prompt must be text or a list of messages"),
    "empty_prompt.jsonl": (rows({"prompt": ""}), "empty_prompt.jsonl, row 1: prompt is null or empty"),
    "long_prompt.jsonl": (rows({"prompt": "easy 1 " * 99}), "no problem has a prompt of at most 60 tokens"),
    "no_answer.jsonl": ('{"prompt": "x", "verifier": "exact"}', "row 1: no 'answer' or 'reward_model.ground_truth'"),
    "null_prompt.jsonl": (rows({}, {}, {"prompt": None}), "null_prompt.jsonl, row 3: prompt is null or empty; write"),
    "null_answer.jsonl": (rows({}, {"answer": None}), "null_answer.jsonl, row 2: answer is null"),
    "null_messages.json": ('[{"messages": null}]', "row 1: messages is null or empty; write"),
    "table_id.jsonl": (rows({}, {"id": {"a": 1}}), "row 2: the id must be text or a whole number, not {'a': 1}"),
    "true_id.jsonl": (rows({"id": True}), "row 1: the id must be text or a whole number, not True"),
    "pretty.jsonl": (json.dumps([GOOD, GOOD], indent=1), "is one JSON document: put each row on its own line, or"),
    "pretty_row.jsonl": (json.dumps(GOOD, indent=1), "is one JSON document: put each row on its own line, or"),
    "list.jsonl": (json.dumps([GOOD]), "row 1: expected an object with named fields, found list; name the file .json"),
    "lines.json": (rows({}, {}), "it holds a JSON value on each line: name it .jsonl"),
    "data.json": (json.dumps({"a": [GOOD], "b": [GOOD]}), "holds no list of rows, but an object with: a, b"),
    "sheet.jsonl": (b"PK\x03\x04", "its content is a zip archive, as a spreadsheet is; unpack it, or export the sheet"),
    "packed.json": (b"\xfd7zXZ\x00", "its content is compressed with xz; unpack it"),
    "pointer.parquet": (b"version https://git-lfs.github.com/spec/v1\n", "its content is a pointer of Git LFS"),
    "page.jsonl": ("<!doctype html>", "its content is a web page; download the file itself"),
    "base.parquet": (b"SQLite format 3\0", "its content is a SQLite database"),
    "packed.parquet": (gzip.compress(b"PAR1"), "its content is compressed with gzip; unpack it"),
    "answer.jsonl": (
        rows({"answer": {"a": 1}}),
        "the answer must be text, a finite number, or a list of these, not {'a': 1}",
    ),
    "nan_answer.jsonl": (rows({}, {"answer": float("nan")}), "row 2: the answer must be text, a finite number, or a"),
    "true_answer.jsonl": (rows({}, {"answer": True}), "row 2: the answer must be text, a finite number, or a"),
    "empty_answer.jsonl": (rows({"answer": ""}), "none has a gold answer that can be judged against"),
    "empty_answers.jsonl": (rows({"answer": []}), "none has a gold answer that can be judged against"),
    "no_verifier.jsonl": ('{"prompt": "easy 1", "answer": "yes"}', "'no_verifier-1' names no verifier; add a column"),
    "task.jsonl": (
        '{"prompt": "?", "task": "math"}',
        "'task-1': the verifier's name belongs in a column 'verifier', not",
    ),
    "verifier.jsonl": (rows({"verifier": ["math"]}), "row 1: 'verifier' must be a verifier's name, not ['math']"),
    "unknown_verifier.jsonl": (
        rows({"verifier": "maths"}),
        "problem 'unknown_verifier-1': no verifier is named 'maths'; perhaps you meant math; known",
    ),
    "ids.jsonl": (rows({"id": "a"}, {"id": "a"}), "holds the id 'a' twice; ids must be unique"),
    "verl.jsonl": ('{"prompt": "easy 1", "reward_model": {"ground_truth": {"sql": 1}}}', "has no 'gold_sql'; it has: "),
    "no_db.jsonl": (rows({"verifier": "sql"}), "row 1: a problem for the SQL verifier needs a column 'db' or 'db_id'"),
    "lost_db.jsonl": (rows({"verifier": "sql", "db": "lost.sqlite"}), "row 1: no database 'lost.sqlite'; looked for"),
    "long_db.jsonl": (rows({"verifier": "sql", "db": "x" * 300}), "row 1: no database 'xxx"),
    "nul_db.jsonl": (rows({"verifier": "sql", "db": "a\0b"}), "row 1: no database 'a\\x00b'"),
    "list.json": ("{}", "holds no list of rows"),
    "noise.jsonl.gz": ("plain", "cannot be read"),
    "noise.parquet": ("PAR1 but no table", "cannot be read"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_problems(tmp_path, capsys, name):
    content, expected = ROWS[name]
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert expected in complaint(capsys, *evaluate(tmp_path, "records", path=tmp_path / name))


@pytest.mark.parametrize("command", ["check", "train", "verify"])
def test_an_unknown_verifier_is_named_with_its_row_before_anything_is_judged(tmp_path, capsys, command):
    data = tmp_path / "a.jsonl"
    data.write_text(rows({}, {"id": "second", "verifier": "latex"}, {"id": "third", "verifier": "latex"}))
    model = ("--model.path", base_run() / "model", *SMALL)
    (tmp_path / "p.jsonl").write_text('{"id": "a-1", "response": "yes"}\n')
    words = {
        "check": (data, "--no-step", "--test", "", *model),
        "train": ("--task", "records", "--data", data, "--preset", "grpo", "--out", tmp_path / "run", *model),
        "verify": ("--task", "records", "--data", data, "--predictions", tmp_path / "p.jsonl", "--out", tmp_path / "v"),
    }
    said = complaint(capsys, command, *words[command])
    assert (
        "problem 'second' and 1 more problem: no verifier is named 'latex'; known are: countdown, exact, function, math"
        in said
    )


def test_rows_with_a_byte_order_mark_are_rows(tmp_path, capsys):
    (tmp_path / "3.jsonl").write_bytes(b"\xef\xbb\xbf" + rows({"prompt": "easy \N{GRINNING FACE}"}).encode())
    assert "\\ud83d\\ude00" in (tmp_path / "3.jsonl").read_text(encoding="utf-8")  # a whole pair is a character
    assert run(capsys, *evaluate(tmp_path, "records", path=tmp_path / "3.jsonl"))[0] == 0


def test_folders_in_the_place_of_files(tmp_path, capsys):
    (tmp_path / "data" / "test.jsonl").mkdir(parents=True)
    for path, expected in {
        "data": "test.jsonl is a folder, not a file",
        "data/test.jsonl": "is a folder and has no file for the split 'test'",
    }.items():
        message = complaint(capsys, *evaluate(tmp_path, "records", path=tmp_path / path), "--task.split", "test")
        assert expected in message


PARQUET = {
    "other columns": (pa.table({"x": [1]}), "row 1: no 'prompt' or 'messages'; it has: x"),
    "no rows": (pa.table({"prompt": pa.array([], pa.string())}), "holds no rows"),
    "bytes": (pa.table({"prompt": [b"\xff"], "answer": ["1"], "verifier": ["exact"]}), "the prompt must be text"),
    "bytes as answer": (
        pa.table({"prompt": ["x"], "answer": [b"1"], "verifier": ["exact"]}),
        "the answer must be text",
    ),
    "dates beyond Python's": (
        pa.table({"t": pa.array([1 << 62], pa.timestamp("ns"))}),
        # pyarrow makes pandas' type of them where pandas is installed
        "row 1: no 'prompt'" if find_spec("pandas") else "cannot be read: Nanosecond",
    ),
}


@pytest.mark.parametrize("name", PARQUET)
def test_parquet_of_another_shape(tmp_path, capsys, name):
    table, expected = PARQUET[name]
    pq.write_table(table, tmp_path / "a.parquet")
    assert expected in complaint(capsys, *evaluate(tmp_path, "records", path=tmp_path / "a.parquet"))


def database(path):
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
    connection.close()
    return path.read_bytes()


DATABASES = {
    "cut in the middle": (lambda whole: whole[:5000], "SELECT * FROM t", "is cut short: it has 5000 of 8192 bytes"),
    "noise": (lambda whole: b"no database " * 500, "SELECT a FROM t", "cannot read the database"),
    "a query that fails": (lambda whole: whole, "SELECT nothing", "none has a gold answer that can be judged against"),
    "a query that drops": (lambda whole: whole, "DROP TABLE t", ": a gold query must be a SELECT, which"),
    "a query that deletes": (lambda whole: whole, "DELETE FROM t", ": a gold query must be a SELECT, which"),
    "a query that inserts": (
        lambda whole: whole,
        "INSERT INTO t VALUES (2)",
        "a gold query must be a SELECT, which only",
    ),
    "no query": (lambda whole: whole, "", "none has a gold answer that can be judged against"),
    "a number for a query": (lambda whole: whole, 3, "none has a gold answer that can be judged against"),
}


@pytest.mark.parametrize("name", DATABASES)
def test_databases_and_gold_queries(tmp_path, capsys, name):
    damage, gold, expected = DATABASES[name]
    (tmp_path / "d.sqlite").write_bytes(damage(database(tmp_path / "whole.sqlite")))
    (tmp_path / "a.jsonl").write_text(rows({"verifier": "sql", "answer": gold, "db": "d.sqlite"}))
    assert expected in complaint(capsys, *evaluate(tmp_path, "records", path=tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--verifier.comparator", "spyder"],
            "no SQL comparator is named 'spyder'; perhaps you meant spider; known are: strict",
        ),
        (["--verifier.reward", "none"], "no SQL reward is named 'none'; known are: binary"),
        (["--task.split", ","], "no split was named"),
    ],
)
def test_rules_that_are_not_known(tmp_path, capsys, words, expected):
    database(tmp_path / "d.sqlite")
    (tmp_path / "a.jsonl").write_text(rows({"verifier": "sql", "answer": "SELECT a FROM t", "db": "d.sqlite"}))
    assert expected in complaint(capsys, *evaluate(tmp_path, "records", path=tmp_path / "a.jsonl"), *words)


QUESTION = {"db_id": "d", "question": "q", "query": "SELECT 1", "SQL": "SELECT 1"}
SPIDER = {"database/d/d.sqlite": b""}
BENCHMARKS = {
    "no questions": ("spider", {}, "no questions of spider's split 'test' found; looked for"),
    "no databases": ("spider", {"test.json": [QUESTION]}, "no folder of spider databases (or set"),
    "no list": ("spider", {"test.json": {}, **SPIDER}, "holds no list of rows"),
    "no query": ("spider", {"test.json": [{"db_id": "d"}], **SPIDER}, "row 1: no 'question'; it has: db_id"),
    "a number": ("spider", {"test.json": [{**QUESTION, "query": 3}], **SPIDER}, "row 1: 'query' must be text, not int"),
    "no file": ("spider", {"test.json": [{**QUESTION, "db_id": "e"}], **SPIDER}, "which is missing; add it, or set"),
    "no schema": (
        "spider",
        {"test.json": [QUESTION], "tables.json": [{"db_id": "d"}], **SPIDER},
        "tables.json: the entry of 'd' is not a schema (KeyError: 'table_names_original')",
    ),
    "no database": ("spider", {"test.json": [QUESTION], "database/d/d.sqlite": b"no" * 500}, "file is not a database"),
    "no split": ("bird", {}, "bird has no split 'test'; it has train, dev, mini_dev"),
    "no set": ("gsm8k", {}, "no file of gsm8k's split 'test' found; looked for"),
    "no answer": ("gsm8k", {"test.jsonl": {"question": "q"}}, "row 1: no answer; it has: question"),
    "a number as question": ("gsm8k", {"test.jsonl": {"question": 3, "answer": "4"}}, "row 1: no question"),
    "other facts": ("gsm8k", {"test.jsonl": {"extra_info": 5, "answer": "4"}}, "row 1: no question"),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_folders_of_benchmarks(tmp_path, capsys, name):
    task, files, expected = BENCHMARKS[name]
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    assert expected in complaint(capsys, *evaluate(tmp_path, task, root=tmp_path))


OPTIONS = {
    "no root": ("spider", {}, "task 'spider' needs the option 'root'; add --data PATH, or --task"),
    "no path": ("records", {}, "task 'records' needs the option 'path'"),
    "unknown": (
        "records",
        {"path": "x", "paths": "y"},
        "does not take these options: 'paths'; perhaps you meant path; it takes",
    ),
    "a number as path": ("records", {"path": "3"}, "/3; correct --data"),
    "a word for true": ("spider", {"root": ".", "subset": "maybe"}, "task.options subset must be true or false"),
    "a word for a number": ("countdown", {"seed": "x"}, "task.options seed must be a whole number, not 'x'"),
    "a style": ("spider", {"root": ".", "prompt_style": "x"}, "no SQL prompt style is named 'x'; known are: "),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_tasks(tmp_path, capsys, name):
    task, options, expected = OPTIONS[name]
    assert expected in complaint(capsys, *evaluate(tmp_path, task, **options))


SUPERVISED = {
    "no response": ({"prompt": "x"}, [], "row 1: no 'response'; it has: prompt"),
    "a number as prompt": ({"prompt": 1, "response": "y"}, [], "row 1: the prompt must be text or a list of messages"),
    "a number as response": ({"prompt": "x", "response": 5}, [], "row 1: 'response' must be text, not int"),
    "messages without content": ({"prompt": [{"role": "user"}], "response": "y"}, [], "row 1: the prompt must be text"),
    "nothing to learn": ({"prompt": "", "response": "y"}, [], "no row fits into the model's context"),
    "messages for a new model": (
        {"prompt": [{"role": "user", "content": "x"}], "response": "y"},
        [],
        "a model made from scratch has no chat template; give prompts as plain text",
    ),
    "heads": ({"prompt": "x", "response": "y"}, ["--new.heads", "7"], "new.hidden 160 divided by new.heads 7 must be"),
    "shared heads": (
        {"prompt": "x", "response": "y"},
        ["--new.kv-heads", "3"],
        "new.heads 5 must be a multiple of new.kv_heads 3",
    ),
}


@pytest.mark.parametrize("name", SUPERVISED)
def test_supervised_rows(tmp_path, capsys, name):
    row, more, expected = SUPERVISED[name]
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    words = ["sft", "--new.tokenizer", "word", "--steps", "1", "--data", tmp_path / "a.jsonl", "--out", tmp_path / "r"]
    assert expected in complaint(capsys, *words, *more)


PREDICTIONS = {
    "nothing.jsonl": (None, "there is no file"),
    "nothing.txt": (None, "cannot be read"),
    "empty.jsonl": ("", "holds no rows"),
    "empty.txt": ("", "holds no prediction"),
    "latin.txt": (b"\xff", "cannot be read: line 1 is not UTF-8 text"),
    "utf16.txt": ("1\n2\n".encode("utf-16"), "cannot be read: its content is UTF-16 text; save it as UTF-8"),
    "utf16.json": ("{}".encode("utf-16"), "cannot be read: its content is UTF-16 text; save it as UTF-8"),
    "packed.txt": (gzip.compress(b"1\n2\n"), "cannot be read: its content is compressed with gzip"),
    "broken.json": ("{", "is not valid JSON"),
    "half.json": ('{"0": "\\ud800", "1": ""}', "half of a surrogate pair, which is not a character"),
    "keys.json": ('{"x": "1"}', "the key 'x' is not a position, and the file lacks some of 2 questions"),
    "columns.jsonl": ('{"id": "a"}', "row 1: no column of response, responses"),
    "others.jsonl": ('{"id": "z", "response": "1"}', "of its 1 prediction none belongs to a problem"),
    "few.txt": ("1\n", "has 1 prediction for 2 problems; they are paired by order"),
    "many.txt": ("1\n2\n3\n", "has 3 predictions for 2 problems"),
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_files_of_predictions(tmp_path, capsys, name):
    content, expected = PREDICTIONS[name]
    (tmp_path / "problems.jsonl").write_text(rows({"id": "a"}, {"id": "b"}))
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    words = ["verify", "--task", "records", "--data", tmp_path / "problems.jsonl", "--predictions", tmp_path / name]
    assert expected in complaint(capsys, *words)


VERIFY = {
    "no predictions": ([], "no file of predictions was named; add --predictions FILE"),
    "no problems": (
        ["--predictions", "p.sql"],
        "no problems were named; add --task NAME --data FOLDER",
    ),
    "no task": (
        ["--predictions", "p.sql", "--task", "spyder"],
        "no task is named 'spyder'; perhaps you meant spider; known are: ",
    ),
    "no database": (["--predictions", "p.sql", "--gold", "gold.sql", "--databases", "no"], "query 1: no database"),
    "no directory": (
        ["--predictions", "p.sql", "--gold", "gold.sql", "--databases", "no", "--resume"],
        "--resume needs the directory of the run; add --out DIRECTORY",
    ),
    "no gold": (["--predictions", "p.sql", "--gold", "no.sql", "--databases", "no"], "no.sql"),
}


@pytest.mark.parametrize("name", VERIFY)
def test_words_of_verify(tmp_path, monkeypatch, capsys, name):
    words, expected = VERIFY[name]
    monkeypatch.chdir(tmp_path)
    for file in ("p.sql", "gold.sql"):
        (tmp_path / file).write_text("SELECT 1\n")
    assert expected in complaint(capsys, "verify", *words)
