"""Problems from users' own files (JSONL, JSON, CSV, Parquet), including rows in verl's format, as the paper's authors
publish.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.errors import DataError, SettingsError
from dph.process.progress import say
from dph.tasks import register_task
from dph.tasks.rows import RowTask
from dph.tasks.tables import KINDS, placed_rows
from dph.types import Problem
from dph.verifiers import Verifiers
from dph.verifiers.golds import gold_response, tried_golds


@register_task("records")
@dataclass(kw_only=True)
class Records(RowTask):
    """Problems from files with the columns of docs/guides/problems.md; others go into the problem's meta. In verl's
    rows the answer is `reward_model.ground_truth`: a value, or {db_id, gold_sql} for SQL."""

    usual_id = "id"
    path: str
    """A file, which serves every split, or a folder with one file per split."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not Path(self.path).exists():
            path = Path(self.path).absolute()
            raise DataError(f"records: there is no file or folder {path}; correct --data, or begin in another folder")

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError, naming file and row, for invalid rows."""
        path = self._file(split)
        return self.problems_of(path, placed_rows(path))

    def problems_of(self, path: Path, rows: Sequence[tuple[str, dict[str, Any]]]) -> list[Problem]:
        """The problems of the rows of a file, each with its place for messages. Raises UserError as `problems`."""
        numbered = enumerate(rows, 1)
        return self.read([(where, f"{_stem(path)}-{number}", row) for number, (where, row) in numbered], [path.parent])

    def demonstrations(self, count: int, seed: int) -> list[dict[str, Any]]:
        """The prompts of the split `train`, each with its gold answer in the form in which its verifier pays for it: at
        most `count`, in the order of the file. Golds that the verifier cannot use are left out."""
        problems = self.problems("train")
        with Verifiers() as verifiers:
            usable, lines = tried_golds(verifiers, problems)
        if not usable:
            raise DataError(f"no gold answer can be used; {lines[0]}")
        for line in lines:
            say(line)
        return [{"prompt": problem.prompt, "response": gold_response(problem)} for problem in usable[:count]]

    def _file(self, split: str) -> Path:
        path = Path(self.path)
        if not path.is_dir():
            return path
        files = {_stem(file): file for file in sorted(path.iterdir()) if file.name.endswith(KINDS)}
        if split not in files:
            has = ", ".join(files) or "none"
            raise SettingsError(f"{path} is a folder and has no file for the split {split!r}; it has: {has}")
        return files[split]


@register_task("verl_rows")
@dataclass(kw_only=True)
class VerlRows(Records):
    """Rows in verl's form, as the paper's authors publish theirs: SQL if the ground truth has a `gold_sql`, else
    mathematics, unless `verifier` or a column says otherwise."""

    verifier: str = "math"


def _stem(path: Path) -> str:
    return path.name.split(".")[0]
