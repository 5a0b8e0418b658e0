"""BIRD: text-to-SQL on large, dirty databases, with evidence (Li et al., arXiv 2305.03111)."""

from pathlib import Path

from dph.errors import UserError
from dph.tables import read_rows
from dph.tasks import sqldata
from dph.tasks.protocol import register_task
from dph.tasks.sqldata import Databases, Question, first_file, make_problems
from dph.tasks.sqlprompt import PromptStyle
from dph.types import Problem

_QUESTIONS = {
    "train": ("train.json", "train/train.json", "train_filtered_6601.json"),
    "dev": ("dev.json", "dev/dev.json"),
    "mini_dev": ("mini_dev_sqlite.json", "minidev/mini_dev_sqlite.json"),
}
_DATABASES = {
    "train": ("train_databases", "train/train_databases", "databases_train"),
    "dev": ("dev_databases", "dev/dev_databases", "databases"),
    "mini_dev": ("dev_databases", "minidev/dev_databases", "databases"),
}
_TABLES = {
    "train": ("train_tables.json", "train/train_tables.json"),
    "dev": ("dev_tables.json", "dev/dev_tables.json"),
    "mini_dev": ("dev_tables.json", "minidev/dev_tables.json"),
}


@register_task("bird")
class Bird:
    """BIRD's questions as problems for the SQL verifier; splits train, dev, mini_dev."""

    def __init__(
        self, *, root: str, prompt_style: str = "omnisql", evidence: bool = True, skip_missing: bool = False
    ) -> None:
        """root: folder of the official layout; prompt_style: omnisql or compact; evidence: put BIRD's hint before
        the question; skip_missing: leave out questions whose database is missing. Raises UserError for an unknown
        style."""
        self._root = Path(root)
        self._style: PromptStyle = sqldata.prompt_style(prompt_style)
        self._evidence = evidence
        self._skip_missing = skip_missing

    def problems(self, split: str) -> list[Problem]:
        if split not in _QUESTIONS:
            raise UserError(f"bird has no split {split!r}; it has {', '.join(_QUESTIONS)}")
        file = first_file(self._root, _QUESTIONS[split], f"questions of BIRD's split {split!r}")
        questions = []
        for number, row in enumerate(read_rows(file, ("db_id", "question", "SQL"))):
            evidence = (row.get("evidence") or "") if self._evidence else ""
            meta = {"difficulty": row["difficulty"]} if row.get("difficulty") else {}
            id = f"bird/{split}/{row.get('question_id', number):04d}"
            questions.append(Question(id, row["question"].strip(), row["SQL"], row["db_id"], evidence, meta))
        folder = first_file(self._root, _DATABASES[split], "folder of BIRD databases")
        tables = [self._root / name for name in _TABLES[split] if (self._root / name).is_file()]
        databases = Databases(folder, tables[0] if tables else None)
        return make_problems(questions, databases, self._style, skip_missing=self._skip_missing)

    def style(self, problem: Problem, response: str) -> str | None:
        """Free-form responses have no named styles."""
        return None
