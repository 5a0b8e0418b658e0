"""`dph init` and `dph check`: from a file of questions to a trained model, and what is wrong with data."""

import csv
import json
import re
import shlex
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from complaints import complaint, run
from dph.build import load_problems, make_verifiers
from dph.cli.main import main
from dph.config import STAGES, ModelConfig, NewModelConfig, OptimConfig, SftConfig, VerifierConfig, load_settings
from dph.runs.directory import RunDir, read_metrics
from dph.sampling.rollouts import usable_problems
from dph.stages.sft import sft
from dph.tasks.records import Records
from dph.training.rows import mix
from dph.types import as_text
from helpers import base_run, folder

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "your-data.md"
SHOP = """
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
INSERT INTO item VALUES (1, 'pen', 1.5), (2, 'ink', 4.0), (3, 'cap', 4.0), (4, 'bag', 20.0);
"""
GOLDS = {
    "How many items are there?": "SELECT count(*) FROM item",
    "What are the names?": "SELECT name FROM item",
    "Which item is dearest?": "SELECT name FROM item ORDER BY price DESC LIMIT 1",
    "Which two are dearest?": "SELECT name FROM item ORDER BY price DESC LIMIT 2",
    "What costs over 100?": "SELECT name FROM item WHERE price > 100",
    "Which day is it?": "SELECT date('now')",
    "Which item do you like?": "SELECT name FROM item ORDER BY random() LIMIT 1",
    "What does a pen cost?": "SELECT price FROM item WHERE name = 'pen'",
    "In what order are the prices?": "SELECT name FROM item ORDER BY price",
    "What is not there?": "SELECT colour FROM item",
}
"""Ten questions; rows 4 to 7, 9 and 10 have golds that are weak or fail."""


def questions(path: Path, rows, header=("id", "question", "query")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Path:
    """A folder with a database and ten questions, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect("shop.sqlite")
    connection.executescript(SHOP)
    connection.close()
    questions(Path("questions.csv"), [(i, *pair) for i, pair in enumerate(GOLDS.items(), 1)])
    return tmp_path


def problems(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def printed(capsys, *words) -> str:
    main([str(word) for word in words])
    return capsys.readouterr().out


# dph init ------------------------------------------------------------------------------------------------------------


def test_sql_problems_have_the_schema_and_a_stable_split(shop, capsys):
    said = printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--model", "some/model", "--out", "made")
    assert [line.split()[1] for line in said.splitlines() if line.startswith("dph ")] == [
        *("check", "presample", "train", "eval", "eval", "report")
    ]
    splits = {name: problems(shop / f"made/problems/{name}.jsonl") for name in ("train", "test")}
    ids = {name: {row["id"] for row in rows} for name, rows in splits.items()}
    assert ids["train"] | ids["test"] == {str(i) for i in range(1, 11)} and not ids["train"] & ids["test"]
    assert ids["test"] and ids["train"]
    [first] = [row for rows in splits.values() for row in rows if row["id"] == "1"]
    assert "CREATE TABLE item (" in first["prompt"] and "How many items are there?" in first["prompt"]
    assert first["answer"] == "SELECT count(*) FROM item" and first["verifier"] == "sql"
    # the order of the rows and rows that are added move no problem from one split to the other
    rows = [(i, *pair) for i, pair in enumerate(GOLDS.items(), 1)]
    questions(Path("more.csv"), [*rows[::-1], *((i, f"Is {i} there?", "SELECT 1") for i in range(11, 200))])
    printed(capsys, "init", "sql", "shop.sqlite", "more.csv", "--out", "again")
    test = {row["id"] for row in problems(shop / "again/problems/test.jsonl")}
    assert ids["test"] <= test and not ids["train"] & test
    assert 0.1 < len(test) / 199 < 0.3


def test_the_settings_are_those_of_every_stage(shop, capsys):
    printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--model", "some/model", "--out", "made")
    for stage in ("check", "presample", "train", "eval", "sft"):
        config = load_settings(stage, ["dph_js"], [Path("made/dph.toml")])
        assert config.model.path == "some/model" and config.task.name == "records"
    train = load_settings("train", ["dph_js"], [Path("made/dph.toml")])
    assert (train.rehearsal.rows, train.loss.eta, train.rollout.n) == (16, 0.5, 8)


def test_golds_and_the_size_of_the_test_split_are_looked_at(shop, capsys):
    said = printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--out", "made")
    tests = len(problems(Path("made/problems/test.jsonl")))
    assert f"{tests} test problem" in said and f"moves a score by {100 / tests:.3g} points; add questions" in said
    lines = ["9 of 10 gold answers can be judged against", "left out: 10: OperationalError: no such column: colour"]
    assert "".join(f"\n{line}" for line in lines) + "\nweak, changes (another result" in said
    assert "equals): 1 gold: 5\n" in said
    said = printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--test-share", "0", "--out", "all")
    assert "\n0 test problems: nothing can be evaluated; add questions, or raise --test-share\n" in said
    assert sorted(path.name for path in Path("all/problems").iterdir()) == ["shop.sqlite", "train.jsonl"]
    questions(Path("boxes.csv"), [("1?", r"\boxed{1"), ("2?", r"\boxed{2}")], ("question", "answer"))
    said = printed(capsys, "init", "maths", "boxes.csv", "--out", "boxes")
    assert "\n1 of 2 gold answers can be judged against\nleft out: boxes-1: the answer is empty\n" in said
    questions(Path("one.csv"), [("1 + 1?", "2")], ("question", "answer"))
    said = printed(capsys, "init", "maths", "one.csv", "--out", "one")
    assert "one/problems: 1 problem to train on, 0 for tests\n" in said and "0 test problems: nothing" in said
    assert "\n1 of 1 gold answer can be judged against\n" in said


def test_the_folder_can_be_moved(shop, monkeypatch, capsys):
    connection = sqlite3.connect("shop.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("INSERT INTO item VALUES (5, 'cup', 2.0)")
    connection.commit()  # the row is in the log
    printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--out", "made")
    connection.close()
    Path("made").rename(Path("elsewhere"))
    Path("shop.sqlite").unlink()
    monkeypatch.chdir("elsewhere")
    config = load_settings("train", ["dph_js"], [Path("dph.toml")])
    assert config.task.options == {"path": "problems"}
    _, [first, *_] = load_problems(config.task)
    with sqlite3.connect(first.meta["db"]) as copy:
        assert copy.execute("SELECT count(*) FROM item").fetchone() == (5,)


def test_small_settings_are_smaller(shop, capsys):
    for flags, name in ((), "made"), (["--small"], "small"):
        printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", *flags, "--out", name)
    made, small = (
        [load_settings(stage, ["dph_js"], [Path(name, "dph.toml")]) for stage in ("presample", "train", "eval")]
        for name in ("made", "small")
    )
    assert [one.rollout.max_tokens for one in (*made, *small)] == [512] * 3 + [64] * 3
    assert (made[1].steps, made[1].rollout.n, made[1].stored_rows) == (100, 8, 16)
    assert (small[1].steps, small[1].rollout.n, small[1].stored_rows) == (10, 4, 4)
    assert (small[0].threshold, small[0].rollout.n) == (3, 4)


@pytest.mark.parametrize(("model", "said"), [("./gone", "no model directory /"), ("gone", "")])
def test_a_model_that_is_not_there_is_named(shop, capsys, model, said):
    words = ["init", "sql", "shop.sqlite", "questions.csv", "--model", model, "--out", "made"]
    if said:
        assert said in complaint(capsys, *words) and not Path("made").exists()
    else:
        assert "there is no folder gone here, so it is taken as the name of a model on a hub" in printed(capsys, *words)


@pytest.mark.parametrize("command", ["init", "check", "report", "passk", "interpolate", "doctor"])
def test_what_has_no_run_is_not_resumed(capsys, command):
    assert "--resume; leave it out: this command has no run" in complaint(capsys, command, "--resume")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet"])
def test_mathematics_of_every_kind_of_file(tmp_path, capsys, kind):
    rows = [
        {"Problem": "What is 2 + 3?", "Solution": r"Add: \boxed{4} is wrong, \boxed{5} is right."},
        {"Problem": "600 + 434?", "Solution": "They are\n#### 1,034"},
        {"Problem": "Half? Use \\boxed{}.", "Solution": "1/2"},
    ]
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        questions(path, [row.values() for row in rows], rows[0])
    elif kind == "parquet":
        pa, pq = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if kind == "json" else "\n".join(map(json.dumps, rows)), encoding="utf-8")
    printed(capsys, "init", "maths", path, "--out", tmp_path / "made")
    made = problems(tmp_path / "made/problems/train.jsonl") + problems(tmp_path / "made/problems/test.jsonl")
    assert {row["id"]: row["answer"] for row in made} == {"a-1": "5", "a-2": "1034", "a-3": "1/2"}
    assert all(row["prompt"].count(r"\boxed{}") == 1 for row in made)


def test_columns_may_be_named(tmp_path, capsys):
    questions(tmp_path / "a.csv", [("1 + 1?", "2", "x"), ("1 + 2?", "3", "y")], ("ask", "is", "key"))
    columns = ["--columns", "prompt=ask", "answer=is", "id=key"]
    printed(capsys, "init", "maths", tmp_path / "a.csv", *columns, "--out", tmp_path / "made")
    made = [row for name in ("train", "test") for row in problems(tmp_path / f"made/problems/{name}.jsonl")]
    assert {row["id"]: row["answer"] for row in made} == {"x": "2", "y": "3"}


def test_columns_are_found_where_the_first_row_lacks_them(tmp_path, capsys):
    rows = [{"text": "x", "problem": "1 + 1?", "answer": None, "solution": "2"}, {"problem": "2?", "solution": "2"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"id": "z"} | rows[1]])))
    printed(capsys, "init", "maths", tmp_path / "a.jsonl", "--out", tmp_path / "made")
    made = [row for name in ("train", "test") for row in problems(tmp_path / f"made/problems/{name}.jsonl")]
    assert {row["id"]: row["answer"] for row in made} == {"a-1": "2", "a-2": "2", "z": "2"}
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [{"other": 1}, *rows])))
    message = complaint(capsys, "init", "maths", tmp_path / "a.jsonl", "--out", tmp_path / "again")
    assert "a.jsonl, row 1: no column 'problem'; it has: other" in message


SQL = ["sql", "shop.sqlite", "a.csv"]
WRONG = {
    "another kind": (["poems", "a.csv"], b"", "of the kind sql or maths, not 'poems'"),
    "no database": (
        ["sql", "a.csv"],
        b"",
        "dph init sql was given a.csv and --out made; write: dph init sql DATABASE FILE",
    ),
    "missing database": (["sql", "gone.sqlite", "a.csv"], b"question,query\na,b\n", "/gone.sqlite; correct its path"),
    "folder as database": (
        ["sql", ".", "a.csv"],
        b"question,query\na,b\n",
        ". is a folder, not a file; give a file in it: empty.sqlite, shop.sqlite",
    ),
    "folder as file": (["sql", "shop.sqlite", "."], b"", "give a file in it: a.csv, questions.csv"),
    "no file": (["maths", "gone.csv"], b"", "/gone.csv"),
    "Latin-1": (
        SQL,
        "question,query\nWas heißt é?,SELECT 1\n".encode("latin-1"),
        "line 2 is not UTF-8 text; save the file as UTF-8",
    ),
    "missing column": (SQL, b"question,text\na,b\n", "no column for the answer (query, sql, gold_sql"),
    "misnamed column": ([*SQL, "--columns", "prompt=ask"], b"question,query\na,b\n", "has no column 'ask'; it has: "),
    "no pair": ([*SQL, "--columns", "ask"], b"question,query\na,b\n", "not 'ask'"),
    "null prompt": (SQL, b"question,query\na,SELECT 1\n,SELECT 1\n", "row 2 (line 3): question is null or empty"),
    "null gold": (SQL, b"question,query\na,\n", "row 1 (line 2): the column 'query' is empty"),
    "two columns of answers": (
        ["maths", "a.csv"],
        b"question,Answer,answer\na,2,3\n",
        "the columns 'Answer' and 'answer' hold different values; name one with --columns answer=COLUMN",
    ),
    "ids that differ in spaces": (
        ["maths", "a.csv"],
        b"id,question,answer\n 1,a,2\n1 ,b,3\n",
        "the split holds the id '1' twice",
    ),
    "a verifier of nobody": (
        ["maths", "a.csv"],
        b"question,answer,verifier\na,2,../evil.py:f\n",
        "row 1 (line 2): dph init knows the verifiers countdown, exact, math, ",
    ),
    "a reward function": (["maths", "a.csv"], b"question,answer,verifier\na,2,function\n", "not 'function'; leave"),
    "equal ids": (
        SQL,
        b"id,question,query\n7,a,SELECT 1\n7,b,SELECT 1\n",
        "row 2 (line 3): the split holds the id '7' twice; ids must be unique: a.csv, row 1 (line 2) has it too",
    ),
    "unquoted comma": (SQL, b"question,query\na,SELECT 1, 2\n", "line 2 has 3 cells for 2 columns; put a cell"),
    "open quote": (SQL, b'question,query\n"a,SELECT 1\n', "line 2 is not valid CSV"),
    "equal columns": (SQL, b"query,query\na,b\n", "line 1 names the column 'query' twice"),
    "header alone": (SQL, b"question,query\n", "a.csv holds no rows"),
    "swapped": (
        ["sql", "a.csv", "shop.sqlite"],
        b"",
        "was given a.csv, shop.sqlite and --out made; write: dph init sql DATABASE FILE",
    ),
    "no tables": (["sql", "empty.sqlite", "a.csv"], b"question,query\na,SELECT 1\n", "has no tables"),
    "noise": (["sql", "a.csv", "a.csv"], b"question,query\na,SELECT 1\n" * 99, "file is not a database"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(shop, capsys, name):
    words, content, expected = WRONG[name]
    sqlite3.connect("empty.sqlite").close()
    Path("a.csv").write_bytes(content)
    assert expected in complaint(capsys, "init", *words, "--out", "made")
    assert not Path("made").exists()


def test_every_bad_row_is_named(shop, capsys):
    questions(Path("a.csv"), [("", "SELECT 1"), ("a", "SELECT 1"), ("b", "")], ("question", "query"))
    with pytest.raises(SystemExit):
        main(["init", "sql", "shop.sqlite", "a.csv", "--out", "made"])
    said = capsys.readouterr()
    first, second = said.out.splitlines()
    assert "row 1 (line 2): question is null or empty" in first and "row 3 (line 4): the column" in second
    assert "dph: faults in rows: 2; correct these rows, or leave them out" in said.err


def test_a_folder_that_was_made_before_stays(shop, capsys):
    printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--out", "made")
    before = Path("made/dph.toml").read_bytes()
    assert "give another --out" in complaint(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--out", "made")
    assert Path("made/dph.toml").read_bytes() == before


def test_a_folder_with_other_files_keeps_them(shop, capsys):
    Path("made").mkdir()
    Path("made/notes.txt").write_text("mine")
    main(["init", "sql", "shop.sqlite", "questions.csv", "--out", "made"])
    assert "made holds other files (notes.txt); problems and settings are written into" in capsys.readouterr().err
    assert sorted(path.name for path in Path("made").iterdir()) == ["dph.toml", "notes.txt", "problems"]


def test_a_full_disk_leaves_a_folder_that_can_be_made_again(shop, monkeypatch, capsys):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("dph.stages.init.closing", full)
        message = complaint(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--out", "made")
    assert message == "cannot copy the database shop.sqlite: database or disk is full; free disk space"
    assert not list(Path("made").iterdir())
    printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--out", "made")


# dph check -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop_model() -> Path:
    """A small model that has seen the questions: it masters those with an odd number, and answers the others rightly
    half of the time."""
    here = folder()
    connection = sqlite3.connect(here / "shop.sqlite")
    connection.executescript(SHOP)
    connection.close()
    table = questions(here / "questions.csv", [(i, *pair) for i, pair in enumerate(GOLDS.items(), 1)])
    words = ["--small", "--test-share", "0", "--out", str(here / "made")]
    main(["init", "sql", str(here / "shop.sqlite"), str(table), *words])
    lines = []
    for row in problems(here / "made/problems/train.jsonl"):
        for gold in (row["answer"], row["answer"] if int(row["id"]) % 2 else "SELECT 7"):
            lines.append(json.dumps({"prompt": row["prompt"], "response": f"```sql\n{gold}\n```"}))
    (here / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    new = NewModelConfig(tokenizer="word", hidden=48, layers=2, heads=4, intermediate=96, context=768)
    optim = OptimConfig(lr=5e-3, warmup_steps=5, tokens_per_microbatch=0)
    model = ModelConfig(precision="fp32")  # also on a CPU that has bf16
    data = str(here / "rows.jsonl")
    config = SftConfig(out=str(here / "sft"), model=model, data=data, steps=120, batch=20, new=new, optim=optim)
    return sft(config) / "model"


def quick(path: Path) -> None:
    """Small settings that train in seconds, with the same result whether or not the CPU has bf16."""
    text = path.read_text()
    for old, new in {
        '"auto"': '"fp32"',
        "steps = 10 ": "steps = 2 ",
        "1e-5": "1e-3",
    }.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.timeout(600)  # a model learns the questions first
def test_the_pages_commands_run(shop, shop_model, monkeypatch, capsys):
    Path("my-model").symlink_to(shop_model)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    variables = dict[str, str]()
    for line in "".join(blocks).splitlines():
        expanded = re.sub(r"\$(\w+)", lambda found: variables[found[1]], line)
        expanded = expanded.replace("tool-tokens 256", "tool-tokens 48")  # the context of the small model
        words = shlex.split(expanded, comments=True)
        if assigned := re.fullmatch(r"(\w+)=(.*)", words[0]):
            variables[assigned[1]] = assigned[2]
        elif words[0] == "cd":
            monkeypatch.chdir(words[1])
            quick(Path("dph.toml"))
        else:
            main(words[1:])
    said = capsys.readouterr()
    rows = read_metrics(Path("runs/dph_js"))
    assert len(rows) == 2 and any(row["grad_norm"] > 0 for row in rows)
    assert len(read_metrics(Path("runs/dph_js_tool"))) == 2 and Path("runs/eval_tool/manifest.json").exists()
    assert RunDir.open(Path("runs/sft"), "sft").manifest["rows"] == len(problems(Path("problems/train.jsonl"))) - 1
    assert json.loads(Path("runs/presample/manifest.json").read_text())["sizes"]["perfect"] > 0
    assert "weak, empty (no rows, which every query without rows equals): 1 gold: 5" in said.err
    assert Path("runs/report/report.md").exists() or list(Path("runs/report").iterdir())
    words = ["check", "--config", "dph.toml", "--preset", "dph_js", "--rehearsal.path", "runs/presample"]
    assert "to learn from them and 4 stored ones; " in printed(capsys, *words)


def test_a_check_says_what_training_would_meet(shop, shop_model, capsys):
    words = ["sql", "shop.sqlite", "questions.csv", "--small", "--test-share", "0", "--model", shop_model, "--out", "a"]
    printed(capsys, "init", *words)
    quick(Path("a/dph.toml"))
    before = sorted(Path(".").rglob("*"))
    words = ["check", "--config", "a/dph.toml", "--data", "a/problems", "--rollout.max-prompt-tokens", "600"]
    said = printed(capsys, *words, "--preset", "dph_js")
    assert sorted(Path(".").rglob("*")) == before
    assert "rows    10 problems of the split train can be read; judged by: sql 10" in said
    assert re.search("^test    no golds were run: .* no file for the split 'test'", said, re.MULTILINE)
    assert re.search(
        r"prompts median \d+ tokens, longest \d+, allowed 600; empty or longer, so left out: 0 \(0%\)",
        said,
    )
    assert "    CREATE TABLE item (\n        id integer," in said  # a whole prompt, as it is
    assert "golds   9 of 10 can be judged against" in said
    assert "1: SELECT count(*) FROM item → 1 row of 1 column, the first: 4" in said
    assert re.search(r"left out: 10: .*no such column: colour", said)
    weak = dict(re.findall(r"weak, (\w+) \(.*?\): \d+ golds?: (.*)", said))
    assert weak == {"empty": "5", "changes": "6, 7", "limit_ties": "4", "order_ties": "9"}
    verdicts = dict(re.findall(r"^ {8}([^:]*?)  +((?:\w+ \d+(?:, )?)+)$", said, re.MULTILINE))
    assert verdicts == {
        "nothing": "no_answer 9",
        "the question itself": "error 9",
        "another problem's gold": "wrong 9",
        "I don't know": "no_answer 9",
        "a guess, 0 or SELECT 1": "wrong 9",
        "the gold in its form": verdicts["the gold in its form"],
    }
    assert re.search(
        r"step    [\d.]+ s: [\d.]+ s to sample and judge 4 × 4 responses, [\d.]+ s to learn from them and "
        r"4 stored ones, 1 to each prompt; [\d.]+ GiB",
        said,
    )


def test_the_golds_of_tests_are_looked_at(shop, capsys):
    words = ["check", "--config", "dph.toml", "--model.path", base_run() / "model", "--rollout.max-tokens", "4"]
    words += ["--no-step", "--rollout.max-prompt-tokens", "9", "--data"]
    sums = {"train": [{}, {}], "test": [{"id": id, "prompt": id, "answer": "1" if id == "y" else ""} for id in "xyz"]}
    Path("dph.toml").write_text("")
    for split, changes in sums.items():
        Path("p").mkdir(exist_ok=True)
        write_rows(Path(f"p/{split}.jsonl"), *changes)
    said = printed(capsys, *words, "p")
    assert "test    3 problems of the split test can be read; judged by: math 3\n        golds: 1 of 3 can be" in said
    assert "        y: 1 → 1 (number 1)\n" in said and "left out: 2 golds: the answer is empty: x, z" in said
    write_rows(Path("p/test.jsonl"), {"prompt": "x", "id": "train-1"}, {"prompt": "y"}, {"id": "z", "prompt": "easy 1"})
    assert "        trained on too, so that scores say little: 2 of them\n" in printed(capsys, *words, "p")
    assert "trained on too, so that scores say little: 2 of them\n" in printed(capsys, *words, "p/train.jsonl")
    assert "the split test" not in printed(capsys, *words, "p", "--test", "")
    Path("p/test.jsonl").write_text("")
    assert "test    no golds were run: p/test.jsonl holds no rows; " in printed(capsys, *words, "p")
    write_rows(Path("p/test.jsonl"), {"prompt": None}, {"id": "y"})
    assert "faults in rows: 1; correct" in complaint(capsys, *words, "p")
    said = complaint(capsys, *words, "p", "--rehearsal.path", "runs/gone")
    assert "runs/gone is not a run directory of `dph presample`" in said
    assert complaint(capsys, *words, "gone").startswith(f"records: there is no file or folder {shop / 'gone'};")


def test_a_measured_step_shows_its_progress(shop, capsys, monkeypatch):
    monkeypatch.setattr("dph.process.progress._SECONDS_BETWEEN_LINES", 0.0)
    path = write_rows(Path("a.jsonl"), {}, {})
    words = [word for word in check(path) if word != "--no-step"]
    status, said = run(capsys, *words, "--optim.minibatches", "1")
    lines = [line for line in said.splitlines() if line.startswith("two steps of training")]
    assert status == 0 and re.fullmatch(r"two steps of training 1/4 sampled the first \(\d+ s left\)", lines[2]), lines
    assert lines[-1] == "two steps of training 4/4 learned from the second (0 s left)"


def test_responses_to_other_prompts_stand_in_for_stored_ones(shop, capsys, monkeypatch):
    seen = []
    spy = lambda rows, places, total, stored, *more: seen.append(stored) or mix(rows, places, total, stored, *more)  # noqa: E731
    monkeypatch.setattr("dph.stages.check.mix", spy)
    words = [word for word in check(write_rows(Path("a.jsonl"), *[{}] * 4)) if word != "--no-step"]
    small = ["--preset", "dph_js", "--rehearsal.rows", "2", "--optim.minibatches", "1"]
    assert "2 stored ones, 1 to each prompt" in printed(capsys, *words, *small)
    first, second = ([row.problem_id for row in stored] for stored in seen)
    assert sorted(first) == sorted(second) and len(set(second)) == 2  # those of the first step, in the second too


def test_without_a_step_no_weights_are_read(shop, shop_model, capsys):
    printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", "--out", "a")
    tokenizer = Path("model")
    tokenizer.mkdir()
    for file in shop_model.iterdir():
        if file.suffix == ".json":
            (tokenizer / file.name).write_bytes(file.read_bytes())
    words = ["check", "a/problems", "--model.path", "model", "--rollout.max-tokens", "64"]
    assert "judged against" in printed(capsys, *words, "--no-step")
    assert "cannot load" in complaint(capsys, *words)


def write_rows(path: Path, *changes) -> Path:
    rows = [{"prompt": f"easy {i}", "answer": str(i), "verifier": "math"} | change for i, change in enumerate(changes)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def check(*words):
    small = ["--rollout.max-tokens", "8", "--rollout.n", "2", "--rollout.prompts", "2", "--no-step"]
    return ["check", *words, "--model.path", base_run() / "model", *small]


def test_every_bad_row_has_its_sentence(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": null, "answer": "1"}\n\n{"answer": "1"}\n{"prompt": "easy", "answer": "1"}\n')
    status, said = run(capsys, *check(path, "--task.options", "verifier", "math"))
    assert status == 2 and "dph: faults in rows: 2;" in said
    main_words = [str(word) for word in check(path, "--task.options", "verifier", "math")]
    with pytest.raises(SystemExit):
        main(main_words)
    lines = capsys.readouterr().out.splitlines()
    assert "row 1: prompt is null or empty" in lines[0] and "row 2 (line 3): no 'prompt' or 'messages'" in lines[1]


def test_what_the_judge_wrongly_pays_for_is_named(tmp_path, capsys):
    path = write_rows(tmp_path / "a.jsonl", {}, {}, {"answer": ["1", "3"]})
    said = printed(capsys, *check(path))
    assert "a-1: 0 → 0 (number 0)" in said and "a-3: ['1', '3'] → 1 (number 1) or 3 (number 3)" in said
    assert re.search(r"a guess, 0 or SELECT 1 +correct 1, wrong 2; paid: a-1", said)  # 0 is the answer of the first
    assert re.search(r"the gold in its form +correct 3$", said, re.MULTILINE)
    (tmp_path / "lax.py").write_text("def score(prompt, completion, **_):\n    return 1.0\n")
    said = printed(capsys, *check(path, "--reward", f"{tmp_path}/lax.py:score", "--reward.in-process"))
    assert re.search(r"nothing +correct 3; paid: a-1, a-2, a-3", said)
    assert "judged by: the reward function 3" in said and "not tried" in said
    (tmp_path / "none.py").write_text("def score(prompt, completion, **_):\n    return None\n")
    words = check(path, "--reward", f"{tmp_path}/none.py:score", "--reward.in-process")
    assert "none of the tried responses could be judged" in complaint(capsys, *words)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"answer": ""}, "nothing can be trained on: no gold answer can be judged"),
        ({"prompt": "easy 1 " * 99}, "no problem has a prompt of at most 56 tokens"),
    ],
)
def test_where_nothing_could_be_trained_on_the_status_says_so(tmp_path, capsys, change, expected):
    assert expected in complaint(capsys, *check(write_rows(tmp_path / "a.jsonl", change)))


def test_golds_of_prompts_that_do_not_fit_are_checked_too(tmp_path, capsys):
    long = {"prompt": "easy 1 " * 99}
    path = write_rows(tmp_path / "a.jsonl", {**long, "answer": ""}, {}, long)
    said = printed(capsys, *check(path))
    assert "empty or longer, so left out: 2 (67%)" in said and "left out: a-1: the answer is empty" in said
    path = write_rows(path, long, {"answer": ""})
    assert "no problem has a prompt that fits and a gold" in complaint(capsys, *check(path))


def test_golds_that_are_cut_off_are_counted(tmp_path, capsys):
    said = printed(capsys, *check(write_rows(tmp_path / "a.jsonl", {}, {"answer": "1+1+1+1+1+1+1+1+1+1"})))
    assert re.search(r"answers .* allowed 8; longer, .*: 1 \(50%\)$", said, re.MULTILINE)


def test_contradictions_are_refused_before_anything_is_read(tmp_path, capsys):
    message = complaint(capsys, *check(tmp_path / "gone.jsonl"), "--rollout.n", "1")
    assert "rollout.n is 1" in message


# What a model solves nothing of -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "points"), [("never", True), ("yes", False)])
def test_presampling_points_to_help_where_nothing_is_right(tmp_path, capsys, answer, points):
    rows = [{"prompt": f"easy {i}", "answer": answer, "verifier": "exact"} for i in range(4)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["presample", "--task", "records", "--data", tmp_path / "a.jsonl", "--out", tmp_path / "run"]
    limits = ["--rollout.max-tokens", "4", "--rollout.max-prompt-tokens", "8"]
    _, said = run(capsys, *words, "--model.path", base_run() / "model", *limits)
    assert ("docs/guides/your-data.md" in said) == points


def test_records_have_the_gold_answers_as_demonstrations(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", {}, {"answer": ""}, {"answer": ["2", "two"]}, {"verifier": "exact"})
    assert Records(path=str(path)).demonstrations(9, 0) == [
        {"prompt": "easy 0", "response": r"\boxed{0}"},
        {"prompt": "easy 2", "response": r"\boxed{2}"},
        {"prompt": "easy 3", "response": "3"},
    ]


def test_supervised_training_takes_gold_answers_to_messages(tmp_path, capsys):
    message = {"role": "user", "content": "easy"}
    rows = [
        {"messages": [message], "answer": "3", "verifier": "exact"},
        {"prompt": "easy", "answer": "3", "verifier": "exact"},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    words = ["sft", "--task.name", "records", "--task.options", "path", path, "--model.path", base_run() / "model"]
    printed(capsys, *words, "--steps", "1", "--batch", "2", "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "complete"


def test_records_name_columns_as_hub_does(tmp_path):
    questions(tmp_path / "a.csv", [("2 + 3?", "so: 5")], ("ask", "said"))
    options = {"path": str(tmp_path / "a.csv"), "answer": "said", "answer_pattern": ": (.+)", "verifier": "math"}
    config = STAGES["eval"]().task
    config = replace(config, name="records", options=options | {"template": "Q: {ask}", "system": "Be brief."})
    _, [problem] = load_problems(config)
    assert (as_text(problem.prompt), problem.answer) == ("Be brief.\n\nQ: 2 + 3?", "5")


def test_the_data_of_a_named_task_are_its_problems_in_every_stage(shop, capsys):
    """`dph sft --task records --data FOLDER` trains on golds, as `dph train` trains on its problems."""
    Path("problems").mkdir()
    row = {"prompt": "easy", "answer": "3", "verifier": "exact"}
    Path("problems/train.jsonl").write_text("".join(json.dumps(row | {"answer": a}) + "\n" for a in "34"))
    small = ["--model.path", base_run() / "model", "--steps", "1", "--batch", "2"]
    printed(capsys, "sft", "--task", "records", "--data", "problems", *small, "--out", "run")
    made = RunDir.open(Path("run"), "sft")
    assert made.manifest["rows"] == 2 and made.settings()["task"]["options"]["path"].endswith("problems")
    assert "problems is a folder; --data of dph sft takes a file of prompts and responses, or with --task re" in (
        complaint(capsys, "sft", "--data", "problems", *small, "--out", "other")
    )
    Path("rows.jsonl").write_text('{"prompt": "easy", "response": "3", "source": "me"}\n')
    _, said = run(capsys, "sft", "--data", "rows.jsonl", *small, "--out", "rows")
    assert "ignored: source\n" in said and RunDir.open(Path("rows"), "sft").manifest["rows"] == 1


# what a prompt shows of a database, and what golds ask of it ---------------------------------------------------------

CLINIC = """
CREATE TABLE patient (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE room (floor INT, number INT, PRIMARY KEY (floor, number));
CREATE TABLE visit (id INTEGER PRIMARY KEY, patient INT REFERENCES patient, floor INT, number INT, minutes INT,
                    hours REAL GENERATED ALWAYS AS (minutes / 60.0), FOREIGN KEY (floor, number) REFERENCES room);
CREATE VIEW recent AS SELECT patient.name AS who, visit.minutes AS how_long FROM visit JOIN patient
    ON visit.patient = patient.id;
CREATE VIEW broken AS SELECT * FROM gone;
INSERT INTO patient VALUES (1, 'Ann'), (2, 'Bo');
INSERT INTO room VALUES (1, 1);
INSERT INTO visit (id, patient, floor, number, minutes) VALUES (1, 1, 1, 1, 30), (2, 2, 1, 1, 90);
"""


@pytest.fixture
def clinic(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect("clinic.sqlite")
    connection.executescript(CLINIC)
    connection.close()
    return tmp_path


def made(capsys, rows, *words, header=("id", "question", "query")) -> tuple[list[dict], str]:
    """The problems of all splits that `dph init sql` makes, and what it says."""
    questions(Path("asked.csv"), rows, header)
    said = printed(capsys, "init", "sql", "clinic.sqlite", "asked.csv", "--out", "made", *words)
    return [row for path in sorted(Path("made/problems").glob("*.jsonl")) for row in problems(path)], said


def test_a_prompt_has_keys_views_and_computed_columns(clinic, capsys):
    [row], said = made(capsys, [(1, "Who came?", "SELECT who, (SELECT sum(hours) FROM visit) FROM recent")])
    for line in (
        "CONSTRAINT fk_visit_patient FOREIGN KEY (patient) REFERENCES patient (id),",
        "CONSTRAINT fk_visit_floor_number FOREIGN KEY (floor, number) REFERENCES room (floor, number)",
        "hours real, -- example: [0.5, 1.5]",
        "CREATE VIEW recent (\n    who text, -- example: ['Ann', 'Bo']\n",
    ):
        assert line in row["prompt"]
    assert "broken" not in row["prompt"] and "does not name" not in said
    assert "views that SQLite cannot read, so that no prompt shows them: broken (no such table: main.gone)\n" in said


def test_a_gold_that_uses_what_its_prompt_lacks_is_named(clinic, capsys):
    """What a star, a join or a common table expression reads counts, and what a view reads does not."""
    golds = {
        "a": ("patient (id, name)", "SELECT name FROM patient"),
        "b": ("patient (id, name)", "SELECT name FROM patient JOIN visit ON patient = patient.id"),
        "c": ("visit (id, patient)", "WITH v AS (SELECT minutes FROM visit) SELECT * FROM v"),
        "d": ("recent (who)", "SELECT who FROM recent"),
        "e": ("RECENT (who)", "SELECT * FROM recent"),
    }
    rows = [
        {"id": id, "prompt": f"{schema}: who?", "answer": gold, "verifier": "sql", "db": "clinic.sqlite"}
        for id, (schema, gold) in golds.items()
    ]
    Path("p.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    words = ["--no-step", "--model.path", base_run() / "model", "--rollout.max-tokens", "4"]
    said = printed(capsys, "check", "p.jsonl", "--task", "records", *words)
    assert "3 golds use what the prompt does not name: b: visit; c: visit.minutes; e: recent.how_long\n" in said


def test_questions_that_repeat_are_in_one_split_and_contradictions_are_named(clinic, capsys):
    rows = [(i, f"How many visits of patient {i // 2}?", f"SELECT {i // 2}") for i in range(40)]
    rows[6] = (6, "how many  visits of patient 3?", "SELECT 7")  # against 7's; the same words
    rows[9] = (9, rows[8][1], "SELECT 2 + 2")  # another query with the same result
    _, said = made(capsys, rows, "--test-share", "0.5")
    splits = [{row["id"] for row in problems(Path(f"made/problems/{name}.jsonl"))} for name in ("train", "test")]
    assert all(splits) and all(any({str(i), str(i + 1)} <= split for split in splits) for i in range(0, 40, 2))
    assert "20 problems ask what another one asks; they are in the same split as that\n" in said
    assert "the same question, but golds that contradict each other: 6 and 7\n" in said


def test_golds_that_change_are_never_trained_on_and_weak_ones_only_if_asked(shop, capsys):
    words = ["--test-share", "0", "--small", "--model", base_run() / "model", "--out", "made"]
    printed(capsys, "init", "sql", "shop.sqlite", "questions.csv", *words)
    task = load_settings("train", [], [Path("made/dph.toml")]).task
    _, all_problems = load_problems(replace(task, options={"path": "made/problems"}))

    def used(training, skip_weak):
        with make_verifiers(VerifierConfig(skip_weak=skip_weak)) as verifiers:
            return {problem.id for problem in usable_problems(verifiers, all_problems, training=training)}

    sound = {"1", "2", "3", "8"}
    assert used(True, False) == sound | {"4", "5", "9"} and used(False, False) == sound | {"4", "5", "6", "7", "9"}
    assert used(True, True) == used(False, True) == sound
    rows = [{"prompt": "item?", "answer": gold, "verifier": "sql", "db": "shop.sqlite"} for gold in GOLDS.values()]
    Path("p.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    words = ["check", "p.jsonl", "--task", "records", "--skip-weak", "--no-step", "--rollout.max-tokens", "4"]
    said = printed(capsys, *words, "--model.path", base_run() / "model")
    assert "golds   4 of 10 can be judged against" in said and "left out, changes (another result each time" in said


@pytest.mark.parametrize(
    ("kind", "flags", "asks"), [("sql", [], True), ("sql", ["--small"], False), ("maths", [], True)]
)
def test_small_settings_ask_for_what_fits_into_their_tokens(clinic, capsys, kind, flags, asks):
    questions(Path("asked.csv"), [(1, "How many visits?", "SELECT 2"), (2, "How many rooms?", "SELECT 1")])
    files = ["clinic.sqlite", "asked.csv"] if kind == "sql" else ["asked.csv", "--columns", "answer=query"]
    printed(capsys, "init", kind, *files, *flags, "--out", "made")
    [row] = problems(Path("made/problems/test.jsonl"))
    assert ("step by step" in row["prompt"]) == asks and ("without an explanation" in row["prompt"]) != asks


def test_a_check_says_that_steps_need_more_tokens(clinic, capsys):
    rows = [{"prompt": f"{i} + 1? Think step by step.", "answer": f"{i + 1}", "verifier": "math"} for i in range(3)]
    Path("p.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    words = ["check", "p.jsonl", "--task", "records", "--no-step", "--model.path", base_run() / "model"]
    told = "prompts that ask for steps before the answer: 3; 16 tokens are few for these"
    assert told in printed(capsys, *words, "--rollout.max-tokens", "16")
    Path("p.jsonl").write_text(json.dumps(rows[0] | {"prompt": "1 + 1?"}), encoding="utf-8")
    assert "ask for steps" not in printed(capsys, *words, "--rollout.max-tokens", "16")


def test_what_later_stages_read_of_a_row_stays_in_the_made_problems(clinic, capsys):
    header = ("id", "question", "query", "difficulty", "kind", "hint", "topic")
    [row], said = made(capsys, [(1, "Visits?", "SELECT 2", "easy", "count", "visit = stay", "x")], header=header)
    assert (row["difficulty"], row["kind"]) == ("easy", "count") and "visit = stay\nVisits?" in row["prompt"]
    questions(Path("again.csv"), [(1, "Visits?", "SELECT 2", "easy", "count", "visit = stay", "x")], header)
    _, said = run(capsys, "init", "sql", "clinic.sqlite", "again.csv", "--out", "again")
    assert "ignored: topic (" in said


def test_messages_of_mathematics_stay_messages(tmp_path, capsys):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": turns, "answer": "2"}), encoding="utf-8")
    printed(capsys, "init", "maths", tmp_path / "a.jsonl", "--out", tmp_path / "made")
    [row] = problems(tmp_path / "made/problems/train.jsonl")
    assert row["prompt"][0] == turns[0] and row["prompt"][1]["content"].startswith("1 + 1?\nPlease reason step by step")


def test_questions_that_differ_in_letter_case_spacing_or_punctuation_are_in_one_split(tmp_path, capsys):
    """Signs that change what is asked stay: 3.5 is not 35, and f' not f."""
    ways = [
        "How many pens, in total, has Ann {}?",
        "how many pens in total has  ann {}",
        "How many pens, in total, has 'Ann' ${}$ ?",
    ]
    same = [(f"{i}-{j}", way.format(i), i) for i in range(30) for j, way in enumerate(ways)]
    other = [("a", "What is 3.5?", 1), ("b", "What is 35?", 2), ("c", "What is f'(x)?", 3), ("d", "What is f(x)?", 4)]
    questions(tmp_path / "q.csv", [*same, *other, ("x", "HOW MANY pens in total has Ann 3?", 8)])
    said = printed(capsys, "init", "maths", tmp_path / "q.csv", "--columns", "answer=query", "--out", tmp_path / "made")
    splits = [{row["id"] for row in problems(tmp_path / f"made/problems/{name}.jsonl")} for name in ("train", "test")]
    assert all(splits) and not any(
        {f"{i}-{j}" for j in range(3)} & splits[0] and {f"{i}-{j}" for j in range(3)} & splits[1] for i in range(30)
    )
    assert "61 problems ask what another one asks; they are in the same split as that\n" in said
    assert "the same question, but golds that contradict each other: 3-0 and x\n" in said
    words = [
        "check",
        "--task",
        "records",
        "--data",
        tmp_path / "made/problems",
        "--no-step",
        "--model.path",
        base_run() / "model",
    ]
    (tmp_path / "made/problems/test.jsonl").write_text(
        (tmp_path / "made/problems/train.jsonl")
        .read_text()
        .replace("has Ann", "has ANN")
        .replace('"id": "', '"id": "t')
    )
    train = len((tmp_path / "made/problems/train.jsonl").read_text().splitlines())
    said = printed(capsys, *words, "--test", "test", "--rollout.max-tokens", "4", "--rollout.max-prompt-tokens", "400")
    assert f"trained on too, so that scores say little: {train} of them" in said


def test_what_init_puts_into_prompts_or_keeps_is_said(clinic, capsys):
    header = ("id", "question", "query", "difficulty", "hint")
    _, said = made(capsys, [(1, "Visits?", "SELECT 2", "easy", "visit = stay")], header=header)
    assert "the column 'hint' stands before each question in its prompt\n" in said
    assert "kept in them for evaluations and templates: difficulty\n" in said


def test_a_prompt_shows_tables_as_a_query_can_use_them(tmp_path, monkeypatch, capsys):
    """Without what full-text search keeps for itself; a column without a type; a key to a table that has none."""
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect("clinic.sqlite")
    connection.executescript("""
        CREATE VIRTUAL TABLE note USING fts5(text);
        CREATE TABLE place (x, y, UNIQUE (x, y));
        CREATE TABLE stay (owner, x INT, y INT, FOREIGN KEY (x, y) REFERENCES place,
                           FOREIGN KEY (y, x) REFERENCES place (y, x));
    """)
    connection.close()
    [row], _ = made(capsys, [(1, "Who?", "SELECT owner FROM stay")])
    assert "CREATE TABLE note (" in row["prompt"] and "note_data" not in row["prompt"]
    assert "    owner,\n    x int,\n" in row["prompt"] and "owner ," not in row["prompt"]
    assert (
        "FOREIGN KEY (x, y) REFERENCES place\n" in row["prompt"]
        or "FOREIGN KEY (x, y) REFERENCES place," in row["prompt"]
    )
    assert "FOREIGN KEY (x, y) REFERENCES place (x, y)" in row["prompt"]


def test_the_head_of_small_settings_says_what_its_numbers_are_for(clinic, capsys):
    made(capsys, [(1, "Visits?", "SELECT 2"), (2, "Rooms?", "SELECT 1")], "--small")
    text = Path("made/dph.toml").read_text(encoding="utf-8")
    assert "The numbers end in minutes on a CPU" in text and "small:" not in text
    assert "max_tokens = 64 # of a response; longer ones are cut off; large: 512\n" in text


def test_every_gold_that_is_left_out_is_named(tmp_path, capsys):
    questions(tmp_path / "q.csv", [(f"q{i}", f"{i}?", "pending" if i < 30 else i) for i in range(60)])
    said = printed(capsys, "init", "maths", tmp_path / "q.csv", "--columns", "answer=query", "--out", tmp_path / "made")
    ids = ", ".join(f"q{i}" for i in range(30))
    reason = "the answer is 'pending', which says that it is missing"
    assert f"\n30 of 60 gold answers can be judged against\nleft out: 30 golds: {reason}: {ids}\n" in said


def test_reasons_that_differ_in_what_they_quote_are_one_and_nothing_is_cut(tmp_path, capsys):
    """The summary has a line for each reason, however many golds it concerns, and names all that are left out."""
    missing = ["see above", "answers vary", "[removed]", "blank"] * 100
    golds = [*missing, "15 (2)", "12-05-2024", "Ans=15", "Team 2", "Eve", *map(str, range(400))]
    questions(tmp_path / "q.csv", [(f"q{i}", f"Riddle {i}?", gold) for i, gold in enumerate(golds)])
    said = printed(capsys, "init", "maths", tmp_path / "q.csv", "--columns", "answer=query", "--out", tmp_path / "made")
    named = ", ".join(f"q{i} ({gold!r})" for i, gold in enumerate(missing))
    lines = [
        "404 of 805 gold answers can be judged against",
        f"left out: 400 golds: the answer is …, which says that it is missing: {named}",
        "left out: q400: the answer is '15 (2)', which may be a value with a remark, a range, a product or a "
        "difference; write the answer alone, or name it in a longer text with the option answer_pattern",
        "read as a date or a code in digits, which only the same digits equal: 1 gold: q401",
        "the answer is read without a label, its number in a list or a remark: 1 gold: q402",
        "read as a name with a number, which only the same text equals: 1 gold: q403",
        "read as words, which only the same words equal, while others are values: 1 gold: q404",
    ]
    assert "".join(f"{line}\n" for line in lines) in said
