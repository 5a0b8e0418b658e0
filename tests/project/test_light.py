"""An installation without extras judges and measures, and says in one sentence what a command lacks.

The commands run in this interpreter's environment, in which the libraries of the extras cannot be imported; DPH_LIGHT
names the Python of an environment that truly lacks them (scripts/package makes one).
"""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dph.config import STAGES
from dph.extras import EXTRA_OF

LACKING = sorted({*EXTRA_OF, "datasets", "gguf", "matplotlib", "peft", "plotly", "tensorboard"})
BEFORE = [("a", 1), ("a", 1), ("a", 0), ("b", 0), ("b", 1), ("b", 0)]
AFTER = [("a", 1), ("a", 1), ("a", 1), ("b", 0), ("b", 0), ("b", 0)]


def light(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `dph` with these arguments in a folder, without the libraries of the extras."""
    if outside := os.environ.get("DPH_LIGHT"):
        command = [outside, "-m", "dph", *words]
    else:
        code = f"import sys\nsys.modules.update(dict.fromkeys({LACKING}))\nfrom dph.cli.main import main\nmain()"
        command = [sys.executable, "-c", code, *words]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path.name


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    """Two files of judged samples, before and after a training."""
    names = ("before.jsonl", "after.jsonl")
    for name, samples in zip(names, (BEFORE, AFTER), strict=True):
        rows = [{"problem_id": id, "sample": place, "correct": correct} for place, (id, correct) in enumerate(samples)]
        write(tmp_path / name, rows)
    return names


def test_the_environment_of_these_tests_lacks_the_libraries(tmp_path: Path) -> None:
    done = light(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch, transformers not installed" in done.stdout and "smoke run" not in done.stdout


def test_the_command_line_explains_itself(tmp_path: Path) -> None:
    for words in (["--help"], ["--version"], *([name, "--help"] for name in STAGES)):
        done = light(tmp_path, *words)
        assert done.returncode == 0 and done.stdout, done.stderr


def test_logs_are_compared(tmp_path: Path, logs: tuple[str, str]) -> None:
    done = light(tmp_path, "passk", *logs, "--html", "page.html")
    assert done.returncode == 0 and "pass@1" in done.stdout, done.stderr
    assert (tmp_path / "page.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_a_packed_log_is_read(tmp_path: Path, logs: tuple[str, str]) -> None:
    (tmp_path / "before.jsonl.gz").write_bytes(gzip.compress((tmp_path / logs[0]).read_bytes()))
    plain, packed = (light(tmp_path, "passk", name, "--json") for name in (logs[0], "before.jsonl.gz"))
    assert plain.returncode == packed.returncode == 0, packed.stderr
    scores = [json.loads(done.stdout)["scores"] for done in (plain, packed)]
    assert [one.pop("name") for [one] in scores] == ["before.jsonl", "before.jsonl.gz"] and scores[0] == scores[1]


def test_files_are_certified(tmp_path: Path, logs: tuple[str, str]) -> None:
    done = light(tmp_path, "certify", *logs)
    assert "certified" in done.stdout + done.stderr and "Traceback" not in done.stderr, done.stderr


def test_mathematics_is_judged(tmp_path: Path) -> None:
    rows = [{"id": "1", "prompt": "What is a half?", "answer": r"\frac{1}{2}", "verifier": "math"}]
    data = write(tmp_path / "rows.jsonl", rows)
    given = write(tmp_path / "given.jsonl", [{"id": "1", "response": r"It is \boxed{0.5}."}])
    done = light(tmp_path, "verify", "--task", "records", "--data", data, "--predictions", given)
    assert done.returncode == 0 and "100.0" in done.stdout, done.stdout + done.stderr


def test_sql_is_judged_and_problems_are_made(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE item (name TEXT, price INTEGER)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", [("cup", 3), ("jug", 9)])
    count = "SELECT count(*) FROM item WHERE price >"
    queries = [{"question": f"How many items cost more than {price}?", "sql": f"{count} {price}"} for price in range(6)]
    questions = write(tmp_path / "questions.jsonl", queries)
    made = light(tmp_path, "init", "sql", "shop.sqlite", questions, "--out", "made")
    assert made.returncode == 0, made.stderr
    [problem, *_] = (json.loads(line) for line in (tmp_path / "made/problems/train.jsonl").read_text().splitlines())
    given = write(tmp_path / "given.jsonl", [{"id": problem["id"], "response": f"```sql\n{problem['answer']}\n```"}])
    words = ("verify", "--task", "records", "--data", "made/problems/train.jsonl", "--predictions", given)
    done = light(tmp_path, *words)
    assert done.returncode == 0 and "correct 1 (20.0 %)" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["sft", "presample", "train", "eval", "demo", "interpolate", "check", "verl"])
def test_a_command_that_loads_a_model_names_its_extra(tmp_path: Path, command: str) -> None:
    done = light(tmp_path, command, *([] if command == "interpolate" else ["--out", "run"]))
    [*_, last] = done.stderr.splitlines()
    assert done.returncode == 2 and last.startswith(f"dph: dph {command} needs torch"), done.stderr
    assert "'.[train]'" in last and not (tmp_path / "run").exists()


def test_a_table_in_parquet_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    done = light(tmp_path, "passk", "log.parquet")
    assert done.returncode == 2 and "'.[parquet]'" in done.stderr, done.stderr


def test_a_policy_of_a_library_names_its_extra(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", [{"id": "1", "prompt": "p", "answer": "2", "verifier": "math"}])
    words = ("verify", "--task", "records", "--data", data, "--predictions", data, "--policy", "math_verify")
    done = light(tmp_path, *words)
    assert done.returncode == 2 and "'.[math]'" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_certifying_a_model_names_its_extra_before_a_file_is_read(tmp_path: Path, logs: tuple[str, str]) -> None:
    done = light(tmp_path, "certify", logs[0], "some/model", "--out", "out")
    assert done.returncode == 2 and "'.[train]'" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert "as the verdict" not in done.stderr and not (tmp_path / "out").exists()
