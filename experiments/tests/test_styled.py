"""BIRD's and Spider's questions in five styles: what is demonstrated, what is left to train on, and the styles."""

import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from dph.build import make_task
from dph.config import TaskConfig
from dph.errors import DataError, SettingsError
from dph.tasks.sql.published import Bird, Spider
from dph.types import as_text
from dph.verifiers.sql.verifier import SqlVerifier
from experiments.bird import MIX, BirdSmall
from experiments.styled import StyledSql
from experiments.styles import STYLES, style_of

QUERIES = ("SELECT name FROM pet WHERE age > {}", "SELECT count(*) FROM pet WHERE age = {}", "SELECT broken FROM {}")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both data sets in their published layouts: 30 training questions and 3 of dev each; a third cannot be run."""
    root = tmp_path_factory.mktemp("data")
    queries = [QUERIES[i % 3].format(i) for i in range(30)]
    for name, key, folders in (
        ("bird", "SQL", {"train": "train_databases", "dev": "dev_databases"}),
        ("spider", "query", {"train_spider": "database", "dev": "database"}),
    ):
        for split, databases in folders.items():
            rows = [{"question": f"question {i}?", "db_id": "pets", key: sql} for i, sql in enumerate(queries)]
            (root / name).mkdir(exist_ok=True)
            (root / name / f"{split}.json").write_text(json.dumps(rows if split != "dev" else rows[:3]))
            path = root / name / databases / "pets" / "pets.sqlite"
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path)
            connection.executescript("CREATE TABLE IF NOT EXISTS pet (name TEXT, age INT); DELETE FROM pet;")
            connection.executemany("INSERT INTO pet VALUES (?, ?)", [(f"pet {i}", i) for i in range(40)])
            connection.commit()
            connection.close()
    return root


def test_what_is_demonstrated_is_right_and_is_not_trained_on(root: Path) -> None:
    task = StyledSql(root=str(root), share=0.5)
    rows = task.demonstrations(10_000, seed=0)
    trained = {problem.id for problem in task.problems("train")}
    shown = {row["problem_id"] for row in rows}
    assert trained and shown and not trained & shown and all(id.startswith("bird/train/") for id in trained)
    assert {id.split("/")[0] for id in shown} == {"bird", "spider"}
    assert {row["style"] for row in rows} == set(STYLES)
    tasks = Bird(root=str(root / "bird")), Spider(root=str(root / "spider"))
    every = {problem.id: problem for one in tasks for problem in one.problems("train")}
    for row in rows:
        assert row["prompt"] == every[row["problem_id"]].prompt and row["style"] == style_of(row["response"])
    assert not any(every[id].answer.startswith("SELECT broken") for id in shown)
    with SqlVerifier() as verifier:
        verdicts = verifier.verify([(every[row["problem_id"]], row["response"]) for row in rows])
    assert all(verdict.correct for verdict in verdicts)
    # A query in all five styles: the two kinds that run can be written in each
    assert set(Counter(row["problem_id"] for row in rows).values()) == {5}


def test_demonstrations_depend_on_the_seed_alone(root: Path) -> None:
    task = StyledSql(root=str(root), share=0.5)
    assert task.demonstrations(7, seed=1) == StyledSql(root=str(root), share=0.5).demonstrations(7, seed=1)
    assert task.demonstrations(7, seed=1) != task.demonstrations(7, seed=2)
    assert len(task.demonstrations(7, seed=1)) == 7


def test_splits_and_options(root: Path) -> None:
    options = {"root": str(root), "by": "prefix", "share": "0.4"}
    task = make_task(TaskConfig("styled_sql", options))
    assert [problem.id.split("/")[0] for problem in task.problems("bird")] == ["bird"] * 3
    assert [problem.id.split("/")[0] for problem in task.problems("spider")] == ["spider"] * 3
    wrong_form = "define: ```sql select 1 ```"
    assert task.style(task.problems("bird")[0], wrong_form) == "cte"
    assert StyledSql(root=str(root)).style(task.problems("bird")[0], wrong_form) == "other"
    for name, value in (("by", "eye"), ("share", "0"), ("share", "1")):
        with pytest.raises(SettingsError, match="styled_sql"):
            make_task(TaskConfig("styled_sql", {"root": str(root), name: value}))
    with pytest.raises(SettingsError, match="no split 'test'"):
        task.problems("test")


def test_bird_small_mixes_what_it_demonstrates_and_shares_only_the_demonstrated_half(root: Path) -> None:
    task = BirdSmall(root=str(root), share=0.5, maths_problems=30)
    bird, spider = Bird(root=str(root / "bird"), prompt_style="compact"), Spider(root=str(root / "spider"))
    every = {one.id: one for one in bird.problems("train")} | {one.id: one for one in spider.problems("train")}
    rows = task.demonstrations(200, seed=0)
    assert rows == task.demonstrations(200, seed=0) != task.demonstrations(200, seed=1)
    sources = Counter(row.get("problem_id", "maths").split("/")[0] for row in rows)
    assert sources == {name: 200 * share for name, share in MIX.items()}
    shown = {row["problem_id"] for row in rows if row.get("problem_id", "").startswith("bird")}
    assert shown < {one.id for one in task.problems("train")} == {one.id for one in bird.problems("train")}
    assert 0 < len(shown) < 20, "half of the 20 whose gold query can be executed"
    with SqlVerifier() as verifier:
        queries = [row for row in rows if "problem_id" in row]
        verdicts = verifier.verify([(every[row["problem_id"]], row["response"]) for row in queries])
    assert all(verdict.correct for verdict in verdicts)
    asked = {as_text(one.prompt) for one in task.problems("maths")}
    assert len(asked) == 30 and not asked & {row["prompt"] for row in rows}


def test_bird_small_has_three_sets_to_evaluate(root: Path) -> None:
    task = BirdSmall(root=str(root), spider_problems=2, maths_problems=4)
    splits = {split: task.problems(split) for split in ("bird", "spider", "maths")}
    assert {split: len(problems) for split, problems in splits.items()} == {"bird": 3, "spider": 2, "maths": 4}
    assert [one.id for one in splits["spider"]] == [one.id for one in task.problems("spider")]
    assert {one.verifier for one in splits["maths"]} == {"math"}
    assert task.style(splits["maths"][0], "1 + 1 = 2. \\boxed{2}") == "steps"
    assert task.style(splits["bird"][0], "```sql\nSELECT 1\n```") in (*STYLES, "other")
    short = BirdSmall(root=str(root), max_prompt_chars=10)
    assert not short.problems("spider") and short.problems("bird"), "BIRD's questions are all kept"
    with pytest.raises(DataError, match="spider has no question to demonstrate"):
        short.demonstrations(10, seed=0)


def test_bird_small_refuses_what_cannot_be_meant(root: Path) -> None:
    with pytest.raises(SettingsError, match=r"share must lie in \(0, 1\], not 0"):
        BirdSmall(root=str(root), share=0)
    with pytest.raises(SettingsError, match="no split 'dev'"):
        BirdSmall(root=str(root)).problems("dev")
