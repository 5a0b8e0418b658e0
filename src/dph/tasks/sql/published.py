"""Published sets of questions with SQL: Spider (Yu et al., arXiv 1809.08887) with its variants Syn, DK and Realistic;
and BIRD, with large, noisy databases and evidence (Li et al., arXiv 2305.03111).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dph.tasks import register_task
from dph.tasks.sql.data import Question, SqlTask

_SPIDER: Mapping[str, tuple[tuple[str, ...], ...]] = {
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


@register_task("spider")
@dataclass(kw_only=True)
class Spider(SqlTask):
    """Spider's questions as problems for the SQL verifier; splits train (with train_others), dev, test, and of the
    variants syn, syn_train, dk, realistic. The files are the published ones, or the questions as JSONL."""

    name = "spider"
    question_files = _SPIDER
    folders = dict.fromkeys(_SPIDER, ("database",)) | {
        "test": ("test_database", "database"),
        "dk": ("Spider-DK/database", "variants/spider_dk_database", "database"),
    }
    tables = dict.fromkeys(_SPIDER, ("tables.json",)) | {
        "test": ("test_tables.json", "tables.json"),
        "dk": ("Spider-DK/tables.json", "tables.json"),
    }

    def questions(self, split: str) -> list[Question]:
        text = "SpiderSynQuestion" if split.startswith("syn") else "question"
        rows = self.rows(split, ("db_id", text, "query"))
        named = [(f"spider/{split}/{i:04d}", row, {"index": i}) for i, row in enumerate(rows)]
        return [Question(id, row[text].strip(), row["query"], row["db_id"], meta=meta) for id, row, meta in named]

    def rated(self, split: str) -> bool:
        return not split.endswith("train")


# The published archives unpack into these folders; the root may be that folder or its parent.
_UNPACKED: Mapping[str, tuple[str, ...]] = {
    "train": ("", "train/"),
    "dev": ("", "dev/", "dev_20240627/"),
    "mini_dev": ("", "minidev/", "MINIDEV/", "minidev/MINIDEV/", "mini_dev_data/"),
}


def _places(**names: tuple[str, ...]) -> dict[str, list[str]]:
    """The possible places of files by split, from their possible names."""
    return {split: [folder + name for folder in _UNPACKED[split] for name in names[split]] for split in names}


_QUESTIONS = _places(
    train=("train.json", "train_filtered_6601.json"), dev=("dev.json",), mini_dev=("mini_dev_sqlite.json",)
)
_BIRD = {split: [(place,) for place in places] for split, places in _QUESTIONS.items()}


@register_task("bird")
@dataclass(kw_only=True)
class Bird(SqlTask):
    """BIRD's questions as problems for the SQL verifier; splits train, dev, mini_dev.

    The root is a folder in the official layout (dev.json, dev_tables.json, dev_databases/<db>/<db>.sqlite), or its
    parent. A question that the file repeats is a problem of its own: the second has the suffix "-2" in its id.
    """

    name = "bird"
    question_files = _BIRD
    folders = _places(
        train=("train_databases", "databases_train"),
        dev=("dev_databases", "databases"),
        mini_dev=("dev_databases", "databases"),
    )
    tables = _places(train=("train_tables.json",), dev=("dev_tables.json",), mini_dev=("dev_tables.json",))
    evidence: bool = True
    """Put BIRD's hint before the question."""

    def questions(self, split: str) -> list[Question]:
        questions = []
        seen: Counter[str] = Counter()
        for number, row in enumerate(self.rows(split, ("db_id", "question", "SQL"))):
            evidence = str(row.get("evidence") or "") if self.evidence else ""
            meta = {"index": number} | ({"difficulty": row["difficulty"]} if row.get("difficulty") else {})
            published = str(row.get("question_id", number))
            id = f"bird/{split}/{published.rjust(4, '0')}"
            seen[published] += 1
            if seen[published] > 1:  # mini-dev repeats two questions, and its scores count them twice
                id, meta = f"{id}-{seen[published]}", meta | {"question_id": published}
            questions.append(Question(id, row["question"].strip(), row["SQL"], row["db_id"], evidence, meta))
        return questions
