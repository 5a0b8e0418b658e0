"""What a command loads before it does its work."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    *("torch", "transformers", "pandas", "pyarrow", "numpy", "sqlglot", "sympy", "math_verify", "rich"),
    *("importlib.metadata", "asyncio", "multiprocessing", "matplotlib", "datasets", "huggingface_hub"),
}
SCRIPT = """
import sys
from dph.cli.main import main
main(sys.argv[1:])
print("loaded:", *sorted(sys.modules))
"""


@pytest.fixture
def clubs(tmp_path: Path) -> Path:
    """One question in the layouts of Spider, BIRD and a mathematical set, with its predictions."""
    for folder in ("database", "dev_databases"):
        path = tmp_path / folder / "clubs/clubs.sqlite"
        path.parent.mkdir(parents=True)
        connection = sqlite3.connect(path)
        connection.executescript("CREATE TABLE club (id INT); INSERT INTO club VALUES (1), (2);")
        connection.close()
    row = {"db_id": "clubs", "question": "?", "query": "SELECT id FROM club ORDER BY id LIMIT 1"}
    (tmp_path / "dev.jsonl").write_text(json.dumps(row))
    (tmp_path / "dev.json").write_text(json.dumps([row | {"SQL": row["query"], "question_id": 1}]))
    (tmp_path / "math500").mkdir()
    (tmp_path / "math500/test.jsonl").write_text(json.dumps({"problem": "?", "answer": r"\\frac{x}{2}", "level": 1}))
    (tmp_path / "p.sql").write_text("SELECT min(id) FROM club\n")
    (tmp_path / "p.txt").write_text("0.5x\n")
    return tmp_path


@pytest.mark.parametrize(
    ("task", "file", "rule"),
    [("spider", "p.sql", []), ("bird", "p.sql", ["--rule", "strict"]), ("math500", "p.txt", []),
     ("math500", "p.txt", ["--policy", "math_verify"])],
)  # fmt: skip
def test_judging_loads_nothing_that_is_slow_to_load(clubs: Path, task: str, file: str, rule: list[str]):
    words = ["verify", "--task", task, "--data", str(clubs), "--subset", "--predictions", str(clubs / file), *rule]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "correct 1 (100.0 %)" in done.stdout and said[-1].startswith("loaded: ")
    rated = {"sqlglot", "importlib.metadata"} if task == "spider" else set()  # its parser gives the hardness of a gold
    assert HEAVY & set(said[-1].split()) == rated
