"""Users' own problems from JSONL or Parquet files, including rows in verl's format (as the paper's authors publish)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.errors import DataError, SettingsError
from dph.tasks import Task, register_task
from dph.tasks.sql.data import json_meta
from dph.tasks.tables import absent, read_rows
from dph.types import Message, Problem
from dph.verifiers.exact import gold_fault, plain_gold

_KINDS = (".jsonl", ".jsonl.gz", ".json", ".parquet")
_TAKEN = {"id", "prompt", "messages", "answer", "verifier", "reward_model"}
_BUILT_IN = ("sql", "math", "exact")
_VERL_ANSWER = "reward_model.ground_truth"


@register_task("records")
@dataclass(kw_only=True)
class Records(Task):
    """Problems from files with the columns of docs/guides/problems.md.

    In verl's rows the answer is `reward_model.ground_truth`: a value, or {db_id, gold_sql} for SQL. Other columns go
    into the problem's meta. Raises UserError if the path does not exist.
    """

    path: str
    """A file, which serves every split, or a folder with one file per split."""
    db_root: str = ""
    """Folder of the SQLite databases."""
    verifier: str = ""
    """Judges rows that name none."""

    def __post_init__(self) -> None:
        if not Path(self.path).exists():
            raise DataError(f"records: there is no file or folder {self.path}")

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError, naming file and row, for invalid rows."""
        path = self._file(split)
        roots = [Path(self.db_root), path.parent] if self.db_root else [path.parent]
        return [
            read_problem(row, f"{path}, row {number}", f"{_stem(path)}-{number}", roots, self.verifier)
            for number, row in enumerate(read_rows(path), 1)
        ]

    def _file(self, split: str) -> Path:
        path = Path(self.path)
        if path.is_file():
            return path
        files = {_stem(file): file for file in sorted(path.iterdir()) if file.name.endswith(_KINDS)}
        if split not in files:
            has = ", ".join(files) or "none"
            raise SettingsError(f"{path} is a folder and has no file for the split {split!r}; it has: {has}")
        return files[split]


def read_problem(
    row: Mapping[str, Any], where: str, default_id: str, roots: Sequence[Path], verifier: str = ""
) -> Problem:
    """The problem of a row with the columns that `Records` describes. `where` names the row in messages; an SQL
    problem's database is looked for in `roots`; `verifier` judges a row that names none.

    Raises UserError for a row without a prompt, without an answer that its verifier can use, or whose database is
    missing.
    """
    prompt = read_prompt(row, where)
    verifier = row.get("verifier") or verifier
    answer, extra = _answer(row, where, needed=bool(verifier))
    verifier = verifier or ("sql" if "gold_sql" in extra else "")
    if not isinstance(verifier, str):
        raise DataError(f"{where}: 'verifier' must be a verifier's name, not {verifier!r}")
    if verifier in _BUILT_IN:
        if fault := gold_fault(answer):
            raise DataError(f"{where}: {fault}")
        answer = plain_gold(answer)
    else:
        answer = json_meta({"answer": answer}, ()).get("answer")
    meta = {**json_meta(dict(row), _TAKEN), **{k: v for k, v in extra.items() if k != "gold_sql"}}
    if verifier == "sql":
        meta["db"] = _database(row.get("db") or meta.get("db_id"), where, roots)
    id = row.get("id")
    if not isinstance(id, str | int | None) or isinstance(id, bool):
        raise DataError(f"{where}: the id must be text or a whole number, not {id!r:.100}")
    return Problem(default_id if id is None else str(id), prompt, answer, verifier, meta)


def _database(name: Any, where: str, roots: Sequence[Path]) -> str:
    if not isinstance(name, str):
        but = "" if name is None else f" of text, not {name!r:.100}"
        raise DataError(f"{where}: a problem for the SQL verifier needs a column 'db' or 'db_id'{but}")
    tried = [path for root in roots for path in (root / name, root / name / f"{name}.sqlite")]
    for path in tried:
        if os.path.isfile(path):  # unlike Path.is_file, it takes any text
            return str(path.absolute())
    raise DataError(f"{where}: no database {name!r}; looked for {', '.join(dict.fromkeys(map(str, tried)))}")


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def read_prompt(row: Mapping[str, Any], where: str) -> str | tuple[Message, ...]:
    """The column `prompt` or `messages` of a row. Raises UserError if it contains neither text nor messages."""
    prompt = row.get("prompt")
    if prompt is None:
        prompt = row.get("messages")
    if prompt is None:
        raise DataError(f"{where}: {absent(row, 'prompt', 'messages')}")
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt and all(_is_message(message) for message in prompt):
        if prompt[-1]["role"] == "assistant":
            raise DataError(
                f"{where}: the prompt ends with the assistant's turn, which may hold the answer; leave this turn out, "
                "or name another column"
            )
        return tuple(Message(role=message["role"], content=message["content"]) for message in prompt)
    raise DataError(f"{where}: the prompt must be text or a list of messages with 'role' and 'content'")


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def _answer(row: Mapping[str, Any], where: str, *, needed: bool) -> tuple[Any, dict[str, Any]]:
    """The answer and the other fields of verl's ground truth."""
    if row.get("answer") is not None:
        return row["answer"], {}
    model = row.get("reward_model")
    truth = model.get("ground_truth") if isinstance(model, dict) else None
    if truth is None and not needed:
        return None, {}
    if truth is None:
        raise DataError(f"{where}: {absent(row, 'answer', _VERL_ANSWER)}")
    if isinstance(truth, dict):
        if not isinstance(truth.get("gold_sql"), str):
            raise DataError(f"{where}: {_VERL_ANSWER} has no 'gold_sql'; it has: {', '.join(truth)}")
        return truth["gold_sql"], truth
    return truth, {}
