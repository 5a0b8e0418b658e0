"""The public benchmarks: official layouts made by hand, published sizes, Spider's hardness, math prompts."""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dph.errors import DataError, SettingsError
from dph.tasks import load_task
from dph.tasks.benchmarks import BENCHMARKS
from dph.tasks.sql.hardness import Hardness, hardness


def make_db(path: Path, rows: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE club (id INT, town TEXT)")
    connection.executemany("INSERT INTO club VALUES (?, ?)", [(i, f"town {i}") for i in range(rows)])
    connection.commit()
    connection.close()
    return path


def write(path: Path, rows: list) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows) if path.suffix == ".jsonl" else json.dumps(rows))
    return path


ASKED = {"db_id": "clubs", "question": "How many clubs?", "query": "SELECT count(*) FROM club"}


# --- Spider and its variants -----------------------------------------------------------------------------------------


def test_spiders_variants_have_files_databases_and_questions_of_their_own(tmp_path: Path):
    ours, theirs = make_db(tmp_path / "database/clubs/clubs.sqlite"), tmp_path / "Spider-DK/database/clubs/clubs.sqlite"
    make_db(theirs)
    write(tmp_path / "Spider-Syn/dev.json", [{**ASKED, "SpiderQuestion": "x", "SpiderSynQuestion": "Number of teams?"}])
    write(tmp_path / "Spider-DK/Spider-DK.json", [ASKED])
    write(tmp_path / "spider-realistic/spider-realistic.json", [ASKED])
    task = load_task("spider", root=str(tmp_path), subset=True)
    found = {split: task.problems(split)[0] for split in ("syn", "dk", "realistic")}
    assert {split: (p.id, p.meta["question"], p.meta["db"]) for split, p in found.items()} == {
        "syn": ("spider/syn/0000", "Number of teams?", str(ours)),
        "dk": ("spider/dk/0000", "How many clubs?", str(theirs)),
        "realistic": ("spider/realistic/0000", "How many clubs?", str(ours)),
    }
    theirs.unlink()  # DK's folder has only its new databases in some copies
    assert task.problems("dk")[0].meta["db"] == str(ours)


def test_databases_suites_and_golds_from_elsewhere(tmp_path: Path):
    make_db(tmp_path / "elsewhere/clubs/clubs.sqlite")
    suite = [make_db(tmp_path / "suite/clubs" / name, 3) for name in ("clubs.sqlite", "clubsv1.sqlite")]
    (tmp_path / "suite/clubs/notes.txt").write_text("")
    write(tmp_path / "dev.json", [ASKED, ASKED])
    (tmp_path / "gold.sql").write_text("SELECT 1\tclubs\n\nSELECT 2\tclubs\n")
    options = {"root": str(tmp_path), "databases": str(tmp_path / "elsewhere"), "subset": True}
    problems = load_task(
        "spider", **options, test_suite=str(tmp_path / "suite"), gold=str(tmp_path / "gold.sql")
    ).problems("dev")
    assert [p.answer for p in problems] == ["SELECT 1", "SELECT 2"]
    assert problems[0].meta["suite"] == [str(path) for path in suite]
    with pytest.raises(DataError, match=r"no test-suite database in .*gone/clubs"):
        load_task("spider", **options, test_suite=str(tmp_path / "gone")).problems("dev")
    for text, message in (
        ("SELECT 1\tclubs\n", "1 gold query for 2 questions"),
        ("SELECT 1\tclubs\nSELECT 1\tother\n", "line 2: the database is 'other', but the question's is 'clubs'"),
    ):
        (tmp_path / "gold.sql").write_text(text)
        with pytest.raises(DataError, match=message):
            load_task("spider", **options, gold=str(tmp_path / "gold.sql")).problems("dev")


def test_a_wrong_number_of_problems_is_reported_unless_it_is_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    make_db(tmp_path / "database/clubs/clubs.sqlite")
    write(tmp_path / "dev.json", [ASKED])
    load_task("spider", root=str(tmp_path)).problems("dev")
    said = capsys.readouterr().err
    assert "spider's split 'dev' has 1034 problems, but" in said and " has 1; scores are not comparable" in said
    load_task("spider", root=str(tmp_path), subset=True).problems("dev")
    write(tmp_path / "train_spider.json", [ASKED])
    write(tmp_path / "dev.json", [ASKED] * 1034)
    load_task("spider", root=str(tmp_path)).problems("dev")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("sql", "level"),
    [  # (parts, nested, several) in a comment
        ("SELECT count(*) FROM a", "easy"),  # 0 0 0
        ("SELECT x FROM a WHERE y LIKE 'z'", "medium"),  # 2 0 0
        ("SELECT x, y FROM a ORDER BY x", "medium"),  # 1 0 1
        ("SELECT x FROM a JOIN b ON a.i = b.i WHERE y = 1", "medium"),  # 2 0 0
        ("SELECT x, count(*) FROM a JOIN b ON a.i = b.i GROUP BY x", "medium"),  # 2 0 1
        ("SELECT max(x), min(x) FROM a WHERE y = 1 AND z = 2", "hard"),  # 1 0 3
        ("SELECT x FROM a JOIN b ON a.i = b.i WHERE y = 1 OR z = 2", "hard"),  # 3 0 1
        ("SELECT x FROM a WHERE y IN (SELECT y FROM b WHERE z = 1)", "hard"),  # 1 1 0
        ("SELECT x FROM a EXCEPT SELECT x FROM b", "hard"),  # 0 1 0
        ("SELECT x, y FROM a WHERE y > (SELECT avg(y) FROM a)", "extra"),  # 1 1 1
        ("SELECT x FROM a WHERE y = 1 UNION SELECT x FROM b WHERE z = 1 ORDER BY x", "hard"),  # 1 1 0: the first SELECT
        ("SELECT x FROM a JOIN b ON a.i = b.i GROUP BY x ORDER BY count(*) DESC LIMIT 1", "extra"),  # 4 0 0
        ("SELECT x FROM a WHERE NOT y IN (1) AND z NOT LIKE 'q' OR w BETWEEN 1 AND 2", "hard"),  # 3 0 2: NOT counts
        ("SELECT count(*) FROM a GROUP BY x HAVING count(*) > 1 AND sum(y) > 2", "medium"),  # 1 0 1: the word AND
        ("SELECT x FROM a WHERE y < z OR y > z", "easy"),  # 1 0 0: nothing after a comparison with a column
        ('SELECT x FROM a WHERE y = "v" OR y = "w"', "medium"),  # 2 0 1
    ],
)
def test_hardness_by_hand(sql: str, level: str):
    assert hardness(sql) == level


def test_hardness_of_what_is_no_query():
    assert hardness("SELECT FROM WHERE (") is None
    assert hardness("DELETE FROM a") is None


WRITTEN_OTHERWISE = [  # the levels on the tree of sqlglot and of a parser written by hand
    ("WITH c AS (SELECT count(*) AS n, x FROM a GROUP BY x ORDER BY 1) SELECT x FROM c WHERE n > 1", "easy"),
    ("SELECT /* count( */ x FROM a -- WHERE y OR z\nWHERE y = 1", "easy"),
    ("SELECT 'WHERE (', \"from\", [order by], `limit` FROM a", "medium"),
    ("SELECT CASE WHEN x = 1 AND y = 2 THEN 'a' ELSE 'b' END FROM a WHERE CASE x WHEN 1 THEN y OR z END = 1", "easy"),
    ("SELECT T1.END FROM a AS T1 WHERE T1.end = (SELECT 1)", "hard"),
    ("SELECT CASE WHEN T1.end = 1 THEN 2 END FROM a AS T1", "easy"),
    ("SELECT x FROM a WHERE (y = 1 OR (z = 2 AND (w = 3)))", "medium"),
    ("SELECT x FROM a WHERE NOT (y = 1 OR z LIKE 'q')", "easy"),
    ("SELECT x FROM a WHERE NOT y LIKE 'q' AND (NOT z = 1)", "extra"),
    ("SELECT x FROM a WHERE y BETWEEN 1 AND 2 AND z BETWEEN (SELECT 1) AND (SELECT 2) OR w = 1", "extra"),
    ("SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b) AND y NOT IN ((SELECT y FROM b))", "extra"),
    ("SELECT x FROM a WHERE y IS NOT NULL AND z NOTNULL AND w <> 1.5", "medium"),
    ("SELECT x FROM a, b, c WHERE a.i = b.i AND b.i = c.i OR a.x = 1", "hard"),
    ("SELECT x FROM a LEFT OUTER JOIN b USING (i) NATURAL JOIN c CROSS JOIN d", "hard"),
    ("SELECT x FROM a JOIN b ON a.i = b.i AND b.j = 1 OR b.k = 2 JOIN (SELECT 1 AS q) ON q = 1", "hard"),
    (
        "SELECT sum(x) OVER (PARTITION BY y ORDER BY max(z)), lag(x) OVER (ORDER BY y) FROM a WINDOW w AS (ORDER BY x)",
        "medium",
    ),
    ("SELECT (SELECT max(x) FROM b), x FROM a ORDER BY count(*) + sum(y), min(z) LIMIT 1, 2;", "extra"),
    ("SELECT x FROM a WHERE y LIKE 'a' ESCAPE 'b' OR y LIKE z OR z = null OR w = date('now')", "hard"),
    ("SELECT x FROM a UNION ALL SELECT x FROM b INTERSECT SELECT x FROM c LIMIT 1", "hard"),
    ("VALUES (1)", None),
    ("SELECT x FROM a WHERE (y = 1", None),
    ("SELECT x FROM a WHERE y = 1)", None),
]


@pytest.mark.parametrize(("sql", "level"), WRITTEN_OTHERWISE)
def test_hardness_of_queries_written_otherwise(sql: str, level: str | None):
    assert hardness(sql) == level


@given(st.lists(st.sampled_from([*"()'\"`[],;.=<>", "case", "end", "select", "from", "where", "and", "or", "not", "on",
                                 "between", "join", "x", "--", "/*", "in", "like", "group", "order"])))  # fmt: skip
def test_hardness_of_any_text(words: list[str]):
    assert hardness("select " + " ".join(words)) in (*get_args(Hardness), None)


@pytest.mark.parametrize("piece", ["(", "case ", "'", "/*", "x and ", "not (", "((x) or "])
@pytest.mark.parametrize("count", [400, 2000, 20_000])
def test_hardness_of_long_texts(piece: str, count: int):
    assert hardness("select x from a where " + piece * count) in (*get_args(Hardness), None)


def test_published_spider_counts(shared_data: Path):
    """The evaluator's own counts for dev: easy 248, medium 446, hard 174, extra 166."""
    golds = [line.split("\t")[0] for line in (shared_data / "spider/dev_gold.sql").read_text().splitlines() if line]
    assert Counter(map(hardness, golds)) == {"easy": 248, "medium": 446, "hard": 174, "extra": 166}


# --- BIRD ------------------------------------------------------------------------------------------------------------

BIRD = {"question_id": 7, "db_id": "clubs", "question": "How many?", "SQL": "SELECT 2", "evidence": "a club is a row"}


@pytest.mark.parametrize(
    ("split", "folder", "file", "databases"),
    [
        ("dev", "dev_20240627", "dev.json", "dev_databases"),
        ("dev", "", "dev.json", "dev_databases"),
        ("mini_dev", "minidev/MINIDEV", "mini_dev_sqlite.json", "dev_databases"),
        ("train", "train", "train.json", "train_databases"),
    ],
)
def test_birds_archives_as_they_unpack(tmp_path: Path, split: str, folder: str, file: str, databases: str):
    root = tmp_path / folder
    db = make_db(root / databases / "clubs/clubs.sqlite")
    write(root / file, [BIRD])
    (root / "gold.sql").write_text("SELECT 3\tclubs\n")
    [problem] = load_task("bird", root=str(tmp_path), subset=True).problems(split)
    assert (problem.id, problem.answer, problem.meta["db"]) == (f"bird/{split}/0007", "SELECT 2", str(db))
    assert "\nQuestion:\na club is a row\nHow many?\n" in problem.prompt
    [other] = load_task("bird", root=str(tmp_path), subset=True, gold=str(root / "gold.sql")).problems(split)
    assert other.answer == "SELECT 3"


# --- mathematics -----------------------------------------------------------------------------------------------------

STEPS = r"Please reason step by step, and put your final answer within \boxed{}."


def test_math_prompts(tmp_path: Path):
    write(tmp_path / "math500/test.jsonl", [{"problem": "What is {1}?", "answer": "1", "level": 3.0}])

    def prompt(**options: str) -> Any:
        return load_task("math500", root=str(tmp_path), subset=True, **options).problems("test")[0].prompt

    assert prompt() == ({"role": "system", "content": STEPS}, {"role": "user", "content": "What is {1}?"})
    assert prompt(prompt_style="qwen-boxed") == (
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": f"What is {{1}}?\n{STEPS}"},
    )
    assert prompt(prompt_style="boxed") == ({"role": "user", "content": f"What is {{1}}?\n{STEPS}"},)
    assert prompt(prompt_style="plain") == ({"role": "user", "content": "What is {1}?"},)
    with pytest.raises(SettingsError, match="no math prompt style is named 'cot'"):
        prompt(prompt_style="cot")


def test_dapos_published_file_is_unwrapped_and_its_repetitions_dropped(tmp_path: Path):
    def row(index: int, text: str, answer: str) -> dict:
        wrapped = (
            "Solve the following math problem step by step. The last line of your response should be of the form "
            "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
            f'{text}\n\nRemember to put your answer on its own line after "Answer:".'
        )
        return {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": wrapped}],
            "reward_model": {"ground_truth": answer, "style": "rule"},
            "extra_info": {"index": index},
        }

    rows = [row(0, "1 + 1?", "2"), row(1, "Two\n\nlines?", "4"), row(0, "1 + 1?", "2"), row(1, "Two\n\nlines?", "4")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "dapo-math-17k.parquet")
    problems = load_task("dapo_math_17k", root=str(tmp_path), prompt_style="plain", subset=True).problems("train")
    assert [(p.id, p.prompt[0]["content"], p.answer) for p in problems] == [  # type: ignore[index]
        ("dapo_math_17k/train/00000", "1 + 1?", "2"),
        ("dapo_math_17k/train/00001", "Two\n\nlines?", "4"),
    ]


def test_yes_or_no_is_said_and_difficulty_kept(tmp_path: Path):
    rows = [
        {"question": "Is it?", "answer": "Yes", "level": "Level 2", "subject": "Algebra"},
        {"question": "?", "answer": "False"},
    ]
    write(tmp_path / "evaluation/data/minerva_math/test.jsonl", rows)
    problems = load_task("minerva_math", root=str(tmp_path), prompt_style="plain", subset=True).problems("test")
    assert [p.prompt[0]["content"] for p in problems] == ["Is it? (Yes or No)", "? (True or False)"]  # type: ignore[index]
    assert problems[0].meta == {"set": "minerva_math", "index": 0, "difficulty": "level 2", "subject": "Algebra"}


# --- all of them -----------------------------------------------------------------------------------------------------


def test_every_name_means_a_task_that_is_there():
    from dph.tasks import TASKS

    assert {benchmark.task for benchmark in BENCHMARKS.values()} <= set(TASKS)


def test_published_files_have_their_published_sizes(shared_data: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("aime24", "aime25", "amc23", "math500", "olympiadbench", "minerva_math", "college_math", "gsm8k",
                 "gsm8k/train", "math", "dapo_math_17k/train"):  # fmt: skip
        task, _, split = name.partition("/")
        load_task(task, root=str(shared_data / "math")).problems(split or "test")
    spider = load_task("spider", root=str(shared_data / "spider"), skip_missing=True, prompt_style="compact")
    for split in ("train", "dev", "syn", "dk", "realistic"):
        spider.problems(split)
    bird = load_task("bird", root=str(shared_data / "bird"), skip_missing=True, prompt_style="compact")
    for split in ("train", "dev", "mini_dev"):
        bird.problems(split)
    said = capsys.readouterr().err
    assert "warning" not in said and "62 of 1034 questions are left out: no database wta_1" in said
