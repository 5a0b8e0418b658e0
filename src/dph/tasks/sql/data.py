"""Turns questions with gold SQL into problems over database files: what Spider, BIRD and gold files share."""

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from dph.errors import DataError, SettingsError, counted, unknown
from dph.process.progress import say
from dph.tasks import Task, register_task
from dph.tasks.benchmarks import check_size
from dph.tasks.sql.prompt import PROMPT_STYLES, make_prompt
from dph.tasks.sql.schema import Schema, schema_of_entry, schema_of_file
from dph.tasks.tables import read_rows, read_text
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


def existing(root: Path, names: Iterable[str], what: str) -> list[Path]:
    """The existing ones of several possible files or folders. Raises UserError, naming all of them, if none exists."""
    tried = [root / name for name in names]
    there = [path for path in tried if path.exists()]
    if not there:
        raise DataError(f"no {what} found; looked for {', '.join(map(str, tried))}")
    return there


def with_gold(questions: Sequence[Question], path: Path) -> list[Question]:
    """Replace the questions' gold queries by the lines "SQL<TAB>db_id" of a file. Raises UserError if their number or a
    database does not match the questions."""
    golds = read_gold(path)
    if len(golds) != len(questions):
        raise DataError(f"{path} has {counted(len(golds), 'gold query')} for {counted(len(questions), 'question')}")
    for number, (question, (_, db_id)) in enumerate(zip(questions, golds, strict=True), 1):
        if db_id and db_id != question.db_id:
            raise DataError(
                f"{path}, line {number}: the database is {db_id!r}, but the question's is {question.db_id!r}"
            )
    return [replace(question, gold=sql) for question, (sql, _) in zip(questions, golds, strict=True)]


def read_gold(path: Path) -> list[tuple[str, str]]:
    """(SQL, db_id) of each line of a gold file, without empty lines, which separate dialogues in Spider's format."""
    parts = [line.split("\t") for line in read_text(path).split("\n") if line.strip()]
    return [(fields[0].strip(), fields[-1].strip() if len(fields) > 1 else "") for fields in parts]


class Databases:
    """The database files of a data set and their schemas, each read once."""

    def __init__(self, folders: Sequence[Path], tables: Sequence[Path]) -> None:
        """folders: each contains <db>/<db>.sqlite, and the first folder that has a database is used; tables: the data
        set's tables.json files; schemas that they lack are read from the database files."""
        self._folders = list(folders)
        self._entries: dict[str, tuple[Path, dict[str, Any]]] = {}
        for path in reversed(tables):
            self._entries |= {entry["db_id"]: (path, entry) for entry in read_rows(path, texts=("db_id",))}
        self._schemas: dict[str, Schema] = {}

    def path(self, db_id: str) -> Path:
        """Path of the database; if it is missing, its path in the first folder."""
        paths = [folder / db_id / f"{db_id}.sqlite" for folder in self._folders]
        return next((path for path in paths if path.is_file()), paths[0])

    def schema(self, db_id: str) -> Schema:
        """The schema from tables.json if it has the database, else from the database file. Raises UserError if that
        cannot be read."""
        if db_id not in self._schemas:
            path, entry = self._entries.get(db_id, (self.path(db_id), None))
            try:
                self._schemas[db_id] = schema_of_entry(entry) if entry else schema_of_file(path)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                what = f"{path}: the entry of {db_id!r} is not a schema"
                raise DataError(f"{what} ({type(error).__name__}: {error})") from error
        return self._schemas[db_id]


@dataclass(kw_only=True)
class SqlTask(Task):
    """A data set of questions with gold SQL; a subclass says how its files are named. Its fields are the task's
    options. Raises UserError for an unknown style of prompts."""

    name: ClassVar[str]
    question_files: ClassVar[Mapping[str, Sequence[Sequence[str]]]] = {}
    """The sets of files that can form each split; the first complete set is read."""
    folders: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The folders of databases of each split; the first that has a database is used."""
    tables: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The files with schemas of each split, the most important one first."""
    root: str
    """Folder of the published files."""
    prompt_style: str | None = "omnisql"
    """omnisql or compact; None for a task without prompts."""
    databases: str = ""
    """Folder of the databases, each <db>/<db>.sqlite, if elsewhere."""
    gold: str = ""
    """File of gold queries to use instead: one line "SQL<TAB>db_id" per question."""
    subset: bool = False
    """The files intentionally hold only a part of the questions."""
    skip_missing: bool = False
    """Leave out questions whose database is missing."""
    test_suite: str = ""
    """Folder of the test-suite databases (<db>/*.sqlite), on all of which a query must match the gold."""

    def __post_init__(self) -> None:
        if self.prompt_style not in (None, *PROMPT_STYLES):
            raise SettingsError(unknown("SQL prompt style", self.prompt_style, PROMPT_STYLES))

    @abstractmethod
    def questions(self, split: str) -> list[Question]:
        """The questions of a split in the order of its files. Raises UserError for an unknown split or missing
        files."""

    def rows(self, split: str, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of a split's files, which must have `texts`."""
        if split not in self.question_files:
            raise SettingsError(f"{self.name} has no split {split!r}; it has {', '.join(self.question_files)}")
        choices = [[Path(self.root) / name for name in names] for names in self.question_files[split]]
        for files in choices:
            if all(file.is_file() for file in files):
                return [row for file in files for row in read_rows(file, texts=texts)]
        tried = "; or ".join(" and ".join(map(str, files)) for files in choices)
        raise DataError(f"no questions of {self.name}'s split {split!r} found; looked for {tried}")

    def files(self, split: str) -> Databases:
        """The databases of a split. Raises UserError if no folder of databases exists."""
        root, what = Path(self.root), f"folder of {self.name} databases (or set the option databases)"
        folders = [Path(self.databases)] if self.databases else existing(root, self.folders[split], what)
        return Databases(folders, [root / name for name in self.tables.get(split, ()) if (root / name).is_file()])

    def rated(self, split: str) -> bool:
        """Whether the difficulty of a problem is Spider's hardness of its gold query."""
        return False

    def size(self, split: str) -> int:
        """Number of questions in a split, including those whose database is missing."""
        return len(self.questions(split))

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split; warns if their number is not the published one. Raises UserError for a missing
        database, unless such questions are skipped."""
        questions = self.questions(split)
        check_size(self.name, split, len(questions), self.root, subset=self.subset)
        if self.gold:
            questions = with_gold(questions, Path(self.gold))
        databases, problems = self.files(split), []
        missing: set[str] = set()
        for question in questions:
            db = databases.path(question.db_id)
            if db.is_file():
                problems.append(self._problem(question, databases, rated=self.rated(split)))
            elif self.skip_missing:
                missing.add(question.db_id)
            else:
                raise DataError(
                    f"question {question.id!r} needs the database {db}, which is missing; add it, "
                    "or set the option skip_missing to leave such questions out"
                )
        if missing:
            left, names = len(questions) - len(problems), sorted(missing)
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            of = counted(len(questions), "question")
            say(f"{left} of {of} are left out: no database {', '.join(names[:5])}{more}")
        return problems

    def _problem(self, question: Question, databases: Databases, *, rated: bool) -> Problem:
        db = databases.path(question.db_id)
        meta: dict[str, Any] = {"db": str(db.absolute()), "db_id": question.db_id}
        prompt = ""
        if self.prompt_style:
            schema = databases.schema(question.db_id)
            prompt = make_prompt(self.prompt_style, schema, db, question.text, question.evidence)
            meta["question"] = question.text
        meta |= question.meta
        if rated:
            from dph.tasks.sql.hardness import hardness  # its parser is slow to load

            meta |= {"difficulty": level} if (level := hardness(question.gold)) else {}
        if self.test_suite:
            meta["suite"] = suite_files(Path(self.test_suite), question.db_id)
        return Problem(question.id, prompt, question.gold, "sql", meta)


def suite_files(folder: Path, db_id: str) -> list[str]:
    """The test-suite databases of a database: as in the official evaluator, every file in its folder with ".sqlite" in
    the name. Raises UserError if there is none."""
    files = sorted(str(path.absolute()) for path in (folder / db_id).glob("*") if ".sqlite" in path.name)
    if not files:
        raise DataError(
            f"no test-suite database in {folder / db_id}; set the option test_suite to the folder of all databases"
        )
    return files


def json_meta(row: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """The row's other fields that can be stored as JSON.

    >>> json_meta({"id": 1, "level": 3, "note": None}, ["id"])
    {'level': 3}
    """
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


@register_task("gold")
@dataclass(kw_only=True)
class Gold(SqlTask):
    """Problems with only a gold query and a database, for any split: predictions can be judged, but there are no
    prompts. Raises UserError without `gold` or `databases`."""

    name = "gold"
    root: str = field(init=False, default="")
    prompt_style: str | None = field(init=False, default=None)
    subset: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        if not self.gold or not self.databases:
            raise SettingsError(
                "no problems were named; add --task NAME --data FOLDER, or --gold FILE --databases FOLDER for SQL alone"
            )

    def questions(self, split: str) -> list[Question]:
        questions = []
        for index, (sql, db_id) in enumerate(read_gold(Path(self.gold))):
            if not db_id:
                raise DataError(f"{self.gold}, query {index + 1}: no database; a line must be SQL<TAB>database")
            questions.append(Question(f"gold/{index:05d}", "", sql, db_id, meta={"index": index}))
        return questions

    def rated(self, split: str) -> bool:
        return True
