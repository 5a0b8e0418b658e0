"""Spider: cross-domain text-to-SQL (Yu et al., arXiv 1809.08887), and its variants Syn, DK and Realistic."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dph.errors import DataError, SettingsError
from dph.tasks import register_task
from dph.tasks.sql.data import Databases, Question, SqlTask, existing
from dph.tasks.tables import read_rows

# For each split, the sets of files that can form it; the first complete set is read.
_FILES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "train": (("train_spider.json", "train_others.json"), ("train_8659.jsonl",), ("train_spider.json",)),
    "dev": (("dev.json",), ("dev.jsonl",)),
    "test": (("test.json",), ("test.jsonl",)),
    "syn": (("Spider-Syn/dev.json",), ("spider-syn/dev.json",), ("variants/spider_syn_dev.json",)),
    "syn_train": (("Spider-Syn/train_spider.json",), ("spider-syn/train_spider.json",)),
    "dk": (("Spider-DK.json",), ("Spider-DK/Spider-DK.json",), ("variants/spider_dk.json",)),
    "realistic": (
        ("spider-realistic.json",),
        ("spider-realistic/spider-realistic.json",),
        ("variants/spider_realistic.json",),
    ),
}
_DATABASES: Mapping[str, tuple[str, ...]] = {
    "test": ("test_database", "database"),
    "dk": ("Spider-DK/database", "variants/spider_dk_database", "database"),
}
_TABLES: Mapping[str, tuple[str, ...]] = {
    "test": ("test_tables.json", "tables.json"),
    "dk": ("Spider-DK/tables.json", "tables.json"),
}


@register_task("spider")
@dataclass(kw_only=True)
class Spider(SqlTask):
    """Spider's questions as problems for the SQL verifier.

    Splits: train (with train_others), dev, test, and of the variants syn, syn_train, dk, realistic. The files are the
    published ones, or the questions as JSONL (docs/guides/verifiers.md).
    """

    name = "spider"

    def questions(self, split: str) -> list[Question]:
        if split not in _FILES:
            raise SettingsError(f"spider has no split {split!r}; it has {', '.join(_FILES)}")
        text = "SpiderSynQuestion" if split.startswith("syn") else "question"
        choices = [[Path(self.root) / name for name in names] for names in _FILES[split]]
        for files in choices:
            if all(file.is_file() for file in files):
                rows = [row for file in files for row in read_rows(file, texts=("db_id", text, "query"))]
                return [
                    Question(
                        f"spider/{split}/{i:04d}", row[text].strip(), row["query"], row["db_id"], meta={"index": i}
                    )
                    for i, row in enumerate(rows)
                ]
        tried = "; or ".join(" and ".join(map(str, files)) for files in choices)
        raise DataError(f"no questions of spider's split {split!r} found; looked for {tried}")

    def files(self, split: str) -> Databases:
        root, names = Path(self.root), _DATABASES.get(split, ("database",))  # the test questions and DK have their own
        folders = [Path(self.databases)] if self.databases else existing(root, names, "folder of Spider databases")
        tables = [root / name for name in _TABLES.get(split, ("tables.json",))]
        return Databases(folders, [file for file in tables if file.is_file()])

    def rated(self, split: str) -> bool:
        return not split.endswith("train")
