"""`dph init`: problems, settings and commands from a file of questions, ready to run in a new folder."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from dph.config import InitConfig, absolute
from dph.errors import DataError, RowsError, SettingsError
from dph.runs.files import write_atomically
from dph.tasks.mathsets import INSTRUCTION, read_answer
from dph.tasks.records import PROMPTS, Records, usual_column
from dph.tasks.sql.prompt import make_prompt
from dph.tasks.sql.schema import schema_of_file
from dph.tasks.tables import read_rows
from dph.types import Problem, as_text

ANSWERS: Mapping[str, Sequence[str]] = {
    "sql": ("query", "sql", "gold_sql", "gold", "answer", "solution"),
    "maths": ("answer", "final_answer", "gold", "target", "label", "solution"),
}
"""Usual names of the column of answers, by kind."""
_NAMED = ("prompt", "answer", "id")
_IDS = ("id", "question_id")
_EVIDENCE = ("evidence", "hint")
_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
_LONGEST = 512  # tokens of a response
_COMMANDS = """\
dph check --config dph.toml
dph presample --config dph.toml --out runs/presample
dph train --config dph.toml --preset dph_js --rehearsal.path runs/presample --out runs/dph_js
dph eval --config dph.toml --model.path runs/dph_js/model --out runs/eval
dph report runs/eval runs/dph_js --out runs/report
"""


def init(config: InitConfig) -> None:
    """Write the folder and print the commands.

    Raises UserError for a folder that has settings already, for files that cannot be read, for columns that are not
    found, and for rows that cannot be used; then nothing is written.
    """
    database, questions = _files(config)
    out = Path(config.out)
    if (out / "dph.toml").exists() or (out / "problems").exists():
        raise SettingsError(f"{out} holds settings or problems already; give another --out")
    problems = _problems(config, questions, database)
    test = _in_test(problems, config.test_share)
    out.joinpath("problems").mkdir(parents=True, exist_ok=True)
    for split, rows in {
        "train": [problem for problem in problems if problem.id not in test],
        "test": [problem for problem in problems if problem.id in test],
    }.items():
        text = "".join(json.dumps(_row(problem), ensure_ascii=False) + "\n" for problem in rows)
        write_atomically(out / "problems" / f"{split}.jsonl", text)
        print(f"{out / 'problems' / split}.jsonl: {len(rows)} problems")
    write_atomically(out / "dph.toml", _settings(config, database))
    print(
        f"{out / 'dph.toml'}: the settings; its comments say what to change\n\ncd {shlex.quote(str(out))}\n{_COMMANDS}"
    )


def _files(config: InitConfig) -> tuple[Path | None, Path]:
    """The database, for SQL, and the file of questions."""
    usage = "write: dph init sql DATABASE FILE --out FOLDER, or dph init maths FILE --out FOLDER"
    if config.kind not in ANSWERS:
        raise SettingsError(f"dph init makes problems of the kind sql or maths, not {config.kind!r}; {usage}")
    if len(config.files) != 1 + (config.kind == "sql"):
        raise SettingsError(f"dph init {config.kind} was given {len(config.files)} files; {usage}")
    if not config.out:
        raise SettingsError(f"no folder was named; {usage}")
    *databases, questions = map(Path, config.files)
    for path in databases:
        if not path.is_file():
            raise DataError(f"there is no database {path}; {usage}")
    return (databases[0] if databases else None), questions


def _problems(config: InitConfig, questions: Path, database: Path | None) -> list[Problem]:
    """The problems of all rows, with whole prompts."""
    rows = read_rows(questions)
    columns = _columns(config, questions, rows[0])
    verifier = "math" if database is None else "sql"
    task = Records(path=str(questions), verifier=verifier, db=str(database or ""), **columns)
    problems = task.problems("train")
    if database is None:
        return _boxed(problems, questions)
    schema = schema_of_file(database)
    if not schema.tables:
        raise DataError(f"the database {database} has no tables; give the file that the queries are for")
    return [
        replace(problem, prompt=make_prompt("omnisql", schema, database, as_text(problem.prompt), _evidence(row)))
        for problem, row in zip(problems, rows, strict=True)
    ]


def _columns(config: InitConfig, path: Path, row: Mapping[str, Any]) -> dict[str, str]:
    """The columns of prompt, answer and id: those that the settings name, else those with usual names."""
    pairs = [text.partition("=") for text in config.columns]
    if wrong := ["".join(pair) for pair in pairs if pair[0] not in _NAMED or not pair[2]]:
        raise SettingsError(f"--columns takes prompt=COLUMN, answer=COLUMN and id=COLUMN, not {wrong[0]!r}")
    named = {name: column for name, _, column in pairs}
    usual = {"prompt": PROMPTS, "answer": ANSWERS[config.kind], "id": _IDS}
    columns = {name: named.get(name) or usual_column(row, names) for name, names in usual.items()}
    for name, column in columns.items():
        if (name != "id" and not column) or (column and column not in row):
            fault = f"no column {column!r}" if column else f"no column for the {name} ({', '.join(usual[name])})"
            raise DataError(f"{path} has {fault}; it has: {', '.join(row)}; name one with --columns {name}=COLUMN")
    return columns


def _boxed(problems: Sequence[Problem], path: Path) -> list[Problem]:
    """Problems of mathematics with the instruction to box the answer, and with the answer alone as their gold."""
    answers = [read_answer(problem.answer) for problem in problems]
    if unread := [p.id for p, answer in zip(problems, answers, strict=True) if answer in (None, "")]:
        raise RowsError([f"{path}: no answer in the last box of the problem {id!r}; write one" for id in unread])
    return [
        replace(
            problem,
            prompt=text if r"\boxed" in (text := as_text(problem.prompt)) else f"{text}\n{INSTRUCTION}",
            answer=answer,
        )
        for problem, answer in zip(problems, answers, strict=True)
    ]


def _evidence(row: Mapping[str, Any]) -> str:
    column = usual_column(row, _EVIDENCE)
    return str(row[column] or "") if column else ""


def _in_test(problems: Sequence[Problem], share: float) -> set[str]:
    """Ids of the problems for tests. The id alone decides; but each split has at least one problem of several."""
    digests = {problem.id: hashlib.sha256(f"0\0test\0{problem.id}".encode()).digest() for problem in problems}
    ordered = sorted(digests, key=digests.__getitem__)
    count = sum(int.from_bytes(digest[:8]) < share * 2**64 for digest in digests.values())
    return set(ordered[: min(max(count, 1), len(ordered) - 1) if share else 0])


def _row(problem: Problem) -> dict[str, Any]:
    row = {"id": problem.id, "prompt": problem.prompt, "answer": problem.answer, "verifier": problem.verifier}
    return row | ({"db": Path(problem.meta["db"]).name} if problem.verifier == "sql" else {})


def _settings(config: InitConfig, database: Path | None) -> str:
    """The text of dph.toml."""
    options = {"path": "problems"} | ({} if database is None else {"db_root": str(database.absolute().parent)})
    model = tomli_w.dumps({"path": absolute(config.model) or _MODEL}).strip()
    return f"""\
# Settings of every command in this folder: dph COMMAND --config dph.toml. `dph COMMAND --help` explains each.
[model]
{model} # a name on a hub or a folder; a small model shows whether all works, a larger one solves more
precision = "auto"
[task]
name = "records"
[task.options]
{tomli_w.dumps(options).strip()}
[rollout]
max_tokens = {_LONGEST} # of a response; longer ones are cut off
[sampler]
rows = 64 # responses that are sampled together; fewer need less memory

[presample]
threshold = 7 # right responses of 8 that make a problem near-perfect
tokens_per_microbatch = 0 # as many as fit into memory
[presample.rollout]
n = 8

[sft] # on gold answers, if the model solves nothing: dph sft --config dph.toml --out runs/sft
steps = 100
batch = 8
[sft.optim]
lr = 1e-5
schedule = "constant"
warmup_steps = 5
tokens_per_microbatch = 0

[train]
steps = 100
[train.rollout]
prompts = 16
n = 8
[train.loss]
reduction = "per_set"
[train.optim]
lr = 1e-6
minibatches = 2
tokens_per_microbatch = 0
[train.for.dph_js.loss]
eta = 0.5
[train.for.dph_js.rehearsal]
rows = 16
[train.for.dph_f.rehearsal]
rows = 16

[eval.rollout]
n = 16
"""
