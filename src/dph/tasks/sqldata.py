"""What Spider and BIRD share: rows of questions with gold SQL, turned into problems over database files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from dph.errors import UserError
from dph.tables import read_rows
from dph.tasks.schema import Schema, schema_of_entry, schema_of_file
from dph.tasks.sqlprompt import PROMPT_STYLES, PromptStyle, make_prompt
from dph.types import Problem


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a data set."""

    id: str
    text: str
    gold: str
    db_id: str
    evidence: str = ""
    meta: dict[str, Any] = field(default_factory=dict)


def prompt_style(value: str) -> PromptStyle:
    """Check a user's option. Raises UserError for an unknown style."""
    if value not in PROMPT_STYLES:
        raise UserError(f"no SQL prompt style is named {value!r}; known are: {', '.join(PROMPT_STYLES)}")
    return cast(PromptStyle, value)


def first_file(root: Path, names: Iterable[str], what: str) -> Path:
    """The first of several possible files that exists. Raises UserError naming all that were tried."""
    tried = [root / name for name in names]
    for path in tried:
        if path.exists():
            return path
    raise UserError(f"no {what} found; looked for {', '.join(map(str, tried))}")


class Databases:
    """Database files of a data set and their schemas, each read once."""

    def __init__(self, folder: Path, tables: Path | None) -> None:
        """folder: holds <db>/<db>.sqlite; tables: the data set's tables.json, else schemas are read from the files."""
        self.folder = folder
        entries = read_rows(tables, ("db_id",)) if tables is not None else []
        self._entries = {entry["db_id"]: entry for entry in entries}
        self._schemas: dict[str, Schema] = {}

    def path(self, db_id: str) -> Path:
        return self.folder / db_id / f"{db_id}.sqlite"

    def schema(self, db_id: str) -> Schema:
        """The schema from tables.json where it has the database, else from its file."""
        if db_id not in self._schemas:
            entry = self._entries.get(db_id)
            self._schemas[db_id] = schema_of_entry(entry) if entry else schema_of_file(self.path(db_id))
        return self._schemas[db_id]


def make_problems(
    questions: Sequence[Question], databases: Databases, style: PromptStyle, *, skip_missing: bool
) -> list[Problem]:
    """Problems with prompts. Raises UserError for a missing database, unless such questions are to be skipped."""
    problems = []
    for question in questions:
        db = databases.path(question.db_id)
        if not db.is_file():
            if skip_missing:
                continue
            raise UserError(
                f"question {question.id!r} needs the database {db}, which is missing; add it, "
                "or set the option skip_missing to leave such questions out"
            )
        prompt = make_prompt(style, databases.schema(question.db_id), db, question.text, question.evidence)
        meta = {"db": str(db.absolute()), "db_id": question.db_id, "question": question.text, **question.meta}
        problems.append(Problem(question.id, prompt, question.gold, "sql", meta))
    return problems


def json_meta(row: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """The row's other fields, those that JSON can hold."""
    meta = {}
    for key, value in row.items():
        if key in taken or value is None:
            continue
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            value = str(value)
        meta[key] = value
    return meta
