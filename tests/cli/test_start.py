"""What a command loads before it does its work, and that plain command lines are read as the library reads them."""

import dataclasses
import json
import sqlite3
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
import tyro

from dph.cli.plain import read_plain
from dph.config import STAGES

HEAVY = {
    *("torch", "transformers", "pandas", "pyarrow", "numpy", "sqlglot", "sympy", "math_verify", "rich", "tyro"),
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
    assert HEAVY & set(said[-1].split()) == set()


def flags(config: Any, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """(name, type, default) of every setting, those of nested settings with dots."""
    hints = typing.get_type_hints(type(config))
    found = []
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            found += flags(value, f"{prefix}{item.name}.")
        else:
            found.append((f"{prefix}{item.name}", hints[item.name], value))
    return found


def values_of(hint: Any) -> list[str]:
    if typing.get_origin(hint) is Literal:
        return [str(word) for word in typing.get_args(hint)][-2:]
    return {str: ["a/b c", "None", "3", "", "x=y", "é"], int: ["7", "0"], float: ["2", "0.25", "1e-6", "3."]}.get(
        hint, []
    )


@pytest.mark.parametrize("stage", STAGES)
def test_plain_flags_are_read_as_the_library_reads_them(stage: str):
    default = STAGES[stage]()
    plain = [(name, value) for name, hint, _ in flags(default) for value in values_of(hint)]
    switches = [name for name, hint, value in flags(default) if hint is bool and not value]
    assert len(plain) > 4
    for turn in range(6):  # every sixth value at once, in both spellings of names and values
        words: list[str] = []
        chosen = dict(plain[turn::6])
        for number, (name, value) in enumerate(chosen.items()):
            flag = "--" + (name.replace("_", "-") if (number + turn) % 2 else name)
            words += [f"{flag}={value}"] if number % 3 == 0 else [flag, value]
        words += [f"--{name}" for name in switches[turn::6]]
        found = read_plain(default, words)
        assert found is not None and (found != default or set(chosen.values()) == {""})
        assert found == tyro.cli(type(default), default=default, args=words)


@pytest.mark.parametrize(
    "words",
    [
        *(["--help"], ["-h"], ["word"], ["--"], ["--no_such", "1"], ["--task", "x"], ["--task.no_such", "1"]),
        *(["--timeout.x", "1"], ["--task.limit", "-1"], ["--task.limit", "1.5"], ["--task.limit", "x"]),
        *(["--task.limit", "1_000"], ["--task.limit", "٣"], ["--task.limit"], ["--task.name", "--out", "x"]),
        *(["--verifier.timeout", "nan"], ["--verifier.timeout", "inf"], ["--verifier.columns", "both"]),
        *(["--partial", "true"], ["--partial=true"], ["--no-partial"], ["--out", "a", "--out", "b"]),
        *(["--task.options", "a", "b"], ["--plugins", "a"], ["--out", "-x"], ["--out", "a", "b"], ["--Out", "a"]),
    ],
)
def test_everything_else_is_left_to_the_library(words: list[str]):
    assert read_plain(STAGES["verify"](), words) is None


def test_no_flags_change_nothing():
    assert read_plain(STAGES["verify"](), []) == STAGES["verify"]()
