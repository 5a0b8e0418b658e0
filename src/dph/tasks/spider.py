"""Spider: cross-domain text-to-SQL (Yu et al., arXiv 1809.08887), and its variants Syn, DK and Realistic."""

from collections.abc import Mapping

from dph.errors import DataError, SettingsError
from dph.tasks import register_task
from dph.tasks.benchmarks import check_size
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
class Spider(SqlTask):
    """Spider's questions as problems for the SQL verifier.

    Splits: train (with train_others), dev, test, and of the variants syn, syn_train, dk, realistic.
    """

    def __init__(
        self,
        *,
        root: str,
        prompt_style: str = "omnisql",
        databases: str = "",
        test_suite: str = "",
        gold: str = "",
        subset: bool = False,
        skip_missing: bool = False,
    ) -> None:
        """root: folder of the published files, or of the questions as JSONL (docs/guides/verifiers.md); prompt_style:
        omnisql or compact; databases: folder of the databases, if elsewhere; test_suite: folder of the test-suite
        databases (<db>/*.sqlite), on all of which a query must match the gold; gold: file of gold queries to use
        instead (one line "SQL<TAB>db_id" per question); subset: the files intentionally hold only a part of the
        questions; skip_missing: leave out questions whose database is missing. Raises UserError for an unknown
        style."""
        super().__init__(root, prompt_style, databases, gold, subset, skip_missing, test_suite)

    def questions(self, split: str, *, subset: bool = False) -> list[Question]:
        if split not in _FILES:
            raise SettingsError(f"spider has no split {split!r}; it has {', '.join(_FILES)}")
        text = "SpiderSynQuestion" if split.startswith("syn") else "question"
        for names in _FILES[split]:
            files = [self._root / name for name in names]
            if all(file.is_file() for file in files):
                rows = [row for file in files for row in read_rows(file, texts=("db_id", text, "query"))]
                check_size("spider", split, len(rows), " and ".join(map(str, files)), subset=subset)
                ids = [f"spider/{split}/{number:04d}" for number in range(len(rows))]
                return [
                    Question(id, row[text].strip(), row["query"], row["db_id"], meta={"index": number})
                    for number, (id, row) in enumerate(zip(ids, rows, strict=True))
                ]
        tried = "; or ".join(" and ".join(str(self._root / name) for name in names) for names in _FILES[split])
        raise DataError(f"no questions of spider's split {split!r} found; looked for {tried}")

    def databases(self, split: str) -> Databases:
        names = _DATABASES.get(split, ("database",))  # the test questions and DK have their own folders
        folders = [self._folder] if self._folder else existing(self._root, names, "folder of Spider databases")
        tables = [self._root / name for name in _TABLES.get(split, ("tables.json",)) if (self._root / name).is_file()]
        return Databases(folders, tables)

    def rated(self, split: str) -> bool:
        return not split.endswith("train")
