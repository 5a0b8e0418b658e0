"""Spider: cross-domain text-to-SQL (Yu et al., arXiv 1809.08887)."""

from collections.abc import Mapping
from pathlib import Path

from dph.errors import UserError
from dph.tables import read_rows
from dph.tasks import sqldata
from dph.tasks.protocol import register_task
from dph.tasks.sqldata import Databases, Question, first_file, make_problems
from dph.tasks.sqlprompt import PromptStyle
from dph.types import Problem

# For each split the sets of files that can make it up; the first set that exists entirely is read.
_FILES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "train": (("train_spider.json", "train_others.json"), ("train_8659.jsonl",), ("train_spider.json",)),
    "dev": (("dev.json",), ("dev.jsonl",)),
    "test": (("test.json",), ("test.jsonl",)),
}


def spider_questions(root: Path, split: str) -> list[Question]:
    """The questions of a split, in the order of the files. Raises UserError for an unknown split or missing files."""
    if split not in _FILES:
        raise UserError(f"spider has no split {split!r}; it has {', '.join(_FILES)}")
    for names in _FILES[split]:
        if all((root / name).is_file() for name in names):
            rows = [row for name in names for row in read_rows(root / name, ("db_id", "question", "query"))]
            return [
                Question(f"spider/{split}/{number:04d}", row["question"].strip(), row["query"], row["db_id"])
                for number, row in enumerate(rows)
            ]
    tried = "; or ".join(" and ".join(str(root / name) for name in names) for names in _FILES[split])
    raise UserError(f"no questions of spider's split {split!r} found; looked for {tried}")


def spider_databases(root: Path, split: str) -> Databases:
    """The databases of a split: those of the test questions come in a folder of their own. Raises UserError."""
    test = split == "test"
    folder = first_file(root, ("test_database", "database") if test else ("database",), "folder of Spider databases")
    tables = [path for path in (root / "test_tables.json", root / "tables.json")[0 if test else 1 :] if path.is_file()]
    return Databases(folder, tables[0] if tables else None)


@register_task("spider")
class Spider:
    """Spider's questions as problems for the SQL verifier; splits train (with train_others), dev, test."""

    def __init__(self, *, root: str, prompt_style: str = "omnisql", skip_missing: bool = False) -> None:
        """root: folder of the official layout (train_spider.json, train_others.json, dev.json, tables.json,
        database/<db>/<db>.sqlite), or with the questions as JSONL; prompt_style: omnisql or compact; skip_missing:
        leave out questions whose database is missing. Raises UserError for an unknown style."""
        self._root = Path(root)
        self._style: PromptStyle = sqldata.prompt_style(prompt_style)
        self._skip_missing = skip_missing

    def problems(self, split: str) -> list[Problem]:
        questions = spider_questions(self._root, split)
        databases = spider_databases(self._root, split)
        return make_problems(questions, databases, self._style, skip_missing=self._skip_missing)

    def style(self, problem: Problem, response: str) -> str | None:
        """Free-form responses have no named styles."""
        return None
