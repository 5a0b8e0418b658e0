"""BIRD: text-to-SQL on large, noisy databases, with evidence (Li et al., arXiv 2305.03111)."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from dph.errors import SettingsError
from dph.tasks import register_task
from dph.tasks.benchmarks import check_size
from dph.tasks.sql.data import Databases, Question, SqlTask, existing
from dph.tasks.tables import read_rows

# The published archives unpack into these folders; the root may be that folder or its parent.
_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "train": ("", "train"),
    "dev": ("", "dev", "dev_20240627"),
    "mini_dev": ("", "minidev", "MINIDEV", "minidev/MINIDEV", "mini_dev_data"),
}
_QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "train": ("train.json", "train_filtered_6601.json"),
    "dev": ("dev.json",),
    "mini_dev": ("mini_dev_sqlite.json",),
}
_DATABASES: Mapping[str, tuple[str, ...]] = {
    "train": ("train_databases", "databases_train"),
    "dev": ("dev_databases", "databases"),
    "mini_dev": ("dev_databases", "databases"),
}


@register_task("bird")
class Bird(SqlTask):
    """BIRD's questions as problems for the SQL verifier; splits train, dev, mini_dev.

    A question that the file repeats is a problem of its own: the second has the suffix "-2" in its id.
    """

    def __init__(
        self,
        *,
        root: str,
        prompt_style: str = "omnisql",
        evidence: bool = True,
        databases: str = "",
        gold: str = "",
        subset: bool = False,
        skip_missing: bool = False,
    ) -> None:
        """root: folder in the official layout (dev.json, dev_tables.json, dev_databases/<db>/<db>.sqlite), or its
        parent; prompt_style: omnisql or compact; evidence: put BIRD's hint before the question; databases: folder of
        the databases, if elsewhere; gold: file of gold queries to use instead (one line "SQL<TAB>db_id" per question:
        BIRD has published corrections); subset: the files intentionally hold only a part of the questions;
        skip_missing: leave out questions whose database is missing. Raises UserError for an unknown style."""
        super().__init__(root, prompt_style, databases, gold, subset, skip_missing)
        self._evidence = evidence

    def questions(self, split: str, *, subset: bool = False) -> list[Question]:
        if split not in _QUESTIONS:
            raise SettingsError(f"bird has no split {split!r}; it has {', '.join(_QUESTIONS)}")
        [file, *_] = existing(self._root, _places(split, _QUESTIONS[split]), f"questions of BIRD's split {split!r}")
        rows = read_rows(file, texts=("db_id", "question", "SQL"))
        check_size("bird", split, len(rows), file, subset=subset)
        questions = []
        seen: Counter[str] = Counter()
        for number, row in enumerate(rows):
            evidence = str(row.get("evidence") or "") if self._evidence else ""
            meta = {"index": number} | ({"difficulty": row["difficulty"]} if row.get("difficulty") else {})
            published = str(row.get("question_id", number))
            id = f"bird/{split}/{published.rjust(4, '0')}"
            seen[published] += 1
            if seen[published] > 1:  # mini-dev repeats two questions, and its scores count them twice
                id, meta = f"{id}-{seen[published]}", meta | {"question_id": published}
            questions.append(Question(id, row["question"].strip(), row["SQL"], row["db_id"], evidence, meta))
        return questions

    def databases(self, split: str) -> Databases:
        what = "folder of BIRD databases (or set the option databases)"
        folder = self._folder or existing(self._root, _places(split, _DATABASES[split]), what)[0]
        name = "train_tables.json" if split == "train" else "dev_tables.json"
        tables = [self._root / place for place in _places(split, (name,)) if (self._root / place).is_file()]
        return Databases([folder], tables[:1])


def _places(split: str, names: tuple[str, ...]) -> list[str]:
    return [str(Path(folder) / name) for folder in _FOLDERS[split] for name in names]
