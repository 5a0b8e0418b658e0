"""BIRD: text-to-SQL on large, noisy databases, with evidence (Li et al., arXiv 2305.03111)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dph.errors import SettingsError
from dph.tasks import register_task
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
@dataclass(kw_only=True)
class Bird(SqlTask):
    """BIRD's questions as problems for the SQL verifier; splits train, dev, mini_dev.

    The root is a folder in the official layout (dev.json, dev_tables.json, dev_databases/<db>/<db>.sqlite), or its
    parent. A question that the file repeats is a problem of its own: the second has the suffix "-2" in its id.
    """

    name = "bird"
    evidence: bool = True
    """Put BIRD's hint before the question."""

    def questions(self, split: str) -> list[Question]:
        if split not in _QUESTIONS:
            raise SettingsError(f"bird has no split {split!r}; it has {', '.join(_QUESTIONS)}")
        what = f"questions of BIRD's split {split!r}"
        [file, *_] = existing(Path(self.root), _places(split, _QUESTIONS[split]), what)
        rows = read_rows(file, texts=("db_id", "question", "SQL"))
        questions = []
        seen: Counter[str] = Counter()
        for number, row in enumerate(rows):
            evidence = str(row.get("evidence") or "") if self.evidence else ""
            meta = {"index": number} | ({"difficulty": row["difficulty"]} if row.get("difficulty") else {})
            published = str(row.get("question_id", number))
            id = f"bird/{split}/{published.rjust(4, '0')}"
            seen[published] += 1
            if seen[published] > 1:  # mini-dev repeats two questions, and its scores count them twice
                id, meta = f"{id}-{seen[published]}", meta | {"question_id": published}
            questions.append(Question(id, row["question"].strip(), row["SQL"], row["db_id"], evidence, meta))
        return questions

    def files(self, split: str) -> Databases:
        root, what = Path(self.root), "folder of BIRD databases (or set the option databases)"
        places = [Path(self.databases)] if self.databases else existing(root, _places(split, _DATABASES[split]), what)
        name = "train_tables.json" if split == "train" else "dev_tables.json"
        tables = [root / place for place in _places(split, (name,)) if (root / place).is_file()]
        return Databases(places[:1], tables[:1])


def _places(split: str, names: tuple[str, ...]) -> list[str]:
    return [str(Path(folder) / name) for folder in _FOLDERS[split] for name in names]
