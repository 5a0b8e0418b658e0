"""The task `minisql`: splits, demonstrations, styles, and prompts in plain English.

Its out-of-domain task is a sum: a two-digit number plus one digit, without a carry. Reinforcement learning never sees
it, so a loss of accuracy there measures forgetting.
"""

import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from dph.config.text import read_json
from dph.errors import DataError, SettingsError, UserError
from dph.runs.files import cache_folder, drafted_directory
from dph.tasks import register_task
from dph.types import Problem, as_text
from experiments.minisql.databases import Database
from experiments.minisql.questions import KINDS, Question
from experiments.minisql.world import Sample, ask, samples
from experiments.styles import STYLES, Style, required_form, respond, style_of

_MOST_OOD = 150
"""Sums that no demonstration shows; the other 165 are for demonstrations, and the split `sums`."""


def divide(seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """All sums as (prompt, answer) in random order, divided into (held out, for demonstrations)."""
    terms = [(left, right) for left in range(10, 100) for right in range(1, 6) if left % 10 + right < 10]
    sums = [(f"math | {left} + {right} =", str(left + right)) for left, right in terms]
    random.Random(f"minisql/{seed}/math").shuffle(sums)
    return sums[:_MOST_OOD], sums[_MOST_OOD:]


STYLE_WEIGHTS: dict[Style, float] = {"direct": 0.28, "plan": 0.18, "cte": 0.18, "nested": 0.18, "stepwise": 0.18}
"""How often each style is shown."""
SECOND_READING: dict[Style, float] = {"direct": 0.40, "plan": 0.42, "cte": 0.48, "nested": 0.52, "stepwise": 0.45}
"""How often each style follows the second reading: below one half overall, so that the base model's greedy answer is
mostly the first reading, and unequal, so that a reward for the second reading also shifts the styles."""
MATH_SHARE = 0.15


def response(question: Question, style: Style, *, second: bool) -> str:
    """The response to a question in a style and a reading. The plan and the steps do not reveal the reading."""
    query = question.second if second else question.first
    return respond(style, query.sql(required_form(style)), question.tables, question.first.outputs)


def demonstrate(rng: random.Random, sums: list[tuple[str, str]]) -> dict[str, str]:
    """One row {prompt, response}: a SQL question in a random style and reading, or one of `sums`."""
    if rng.random() < MATH_SHARE:
        prompt, answer = rng.choice(sums)
        return {"prompt": prompt, "response": rf"\boxed{{{answer}}}"}
    asked = ask(rng, rng.choice(KINDS))
    style = rng.choices(STYLES, [STYLE_WEIGHTS[style] for style in STYLES])[0]
    second = rng.random() < SECOND_READING[style]
    return {"prompt": asked.prompt, "response": response(asked.question, style, second=second)}


_COMPACT = re.compile(r"sql \| (?P<schema>.*) \| (?P<question>.*) \|")
_TABLE = re.compile(r"(?P<name>\w+) \( (?P<columns>[\w ]+) \)")
_SUM = re.compile(r"math \| (?P<sum>.*) =")


def in_english(prompt: str) -> str:
    """A compact prompt in plain English: each table on a line, the question as a sentence, and the form of the answer.

    Raises ValueError for a text that is not a compact prompt of this task.
    """
    if match := _SUM.fullmatch(prompt):
        return f"What is {match['sum']}? Write the number in \\boxed{{}}."
    match = _COMPACT.fullmatch(prompt)
    if match is None:
        raise ValueError(f"not a compact prompt: {prompt!r}")
    tables = [f"{item['name']}({', '.join(item['columns'].split())})" for item in _TABLE.finditer(match["schema"])]
    question = match["question"]
    return (
        "The SQLite database has these tables:\n"
        + "\n".join(tables)
        + f"\nQuestion: {question[0].upper()}{question[1:]}.\nWrite the query in a ```sql block."
    )


SPLITS = ("train", "dev", "test", "cross", "ood", "sums", "spare")


@cache
def generator_hash() -> str:
    """Hash of the generator's code. It is part of the cache key, so that sets from older code are not reused."""
    digest = hashlib.blake2b(digest_size=6)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


@register_task("minisql")
@dataclass(kw_only=True)
class MiniSql:
    """A generated text-to-SQL task over real SQLite databases, with an out-of-domain arithmetic task.

    | split   | contents                                                                                     |
    |---------|----------------------------------------------------------------------------------------------|
    | `train` | problems for pre-sampling and reinforcement learning                                         |
    | `dev`   | the same distribution, for choosing settings                                                 |
    | `test`  | in-domain: the same distribution, unseen databases                                           |
    | `cross` | cross-domain: only kind-table combinations and phrasings that occur in no other split and in |
    |         | no demonstration                                                                             |
    | `ood`   | out-of-domain: arithmetic; the demonstrations teach the task, but none of these sums         |
    | `sums`  | the sums that may occur in demonstrations, for experiments that rehearse them                |
    | `spare` | the remaining held-out sums, if `ood` has fewer than 150                                     |

    Each split is generated on first use. Each SQL problem has its own database. `meta` holds "db" (absolute path of the
    SQLite file), "kind", "convention", "ambiguous" (the two readings differ in result), "reading" (which one the gold
    SQL follows) and "phrasing". Raises UserError for a size below one, for more sums than are held out, or for another
    kind of prompts.
    """

    seed: int = 0
    """Seed of the generator; equal seeds and sizes give equal problems on every machine."""
    train_problems: int = 420
    test_problems: int = 200
    cross_problems: int = 100
    ood_problems: int = 150
    dev_problems: int = 120
    prompts: str = "compact"
    """"compact", a few words that a small model learns fast, or "english", for pretrained models."""
    cache_dir: str = ""
    """Folder for the databases; by default $DPH_CACHE/minisql or ~/.cache/dph/minisql."""

    def __post_init__(self) -> None:
        if self.prompts not in ("compact", "english"):
            raise SettingsError(f"minisql: prompts is {self.prompts!r}; it must be compact or english")
        self._worded: Callable[[str], str] = in_english if self.prompts == "english" else str
        self._sizes = {split: getattr(self, f"{split}_problems") for split in ("train", "dev", "test", "cross", "ood")}
        for split, size in self._sizes.items():
            if size < 1:
                raise SettingsError(f"minisql: {split}_problems is {size}; give at least 1")
        if self.ood_problems > _MOST_OOD:
            raise SettingsError(f"minisql: ood_problems is {self.ood_problems}; at most {_MOST_OOD} sums are held out")

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split or a cache that cannot be written."""
        if split not in SPLITS:
            raise SettingsError(f"minisql has no split {split!r}; it has {', '.join(SPLITS)}")
        if split in ("ood", "sums", "spare"):
            held_out, shown = divide(self.seed)
            ood = self.ood_problems
            if split == "spare" and ood == _MOST_OOD:
                raise SettingsError(
                    f"minisql: the split 'spare' is empty, because 'ood' holds all {_MOST_OOD} sums that are never "
                    "shown; give a smaller ood_problems"
                )
            chosen = {"ood": held_out[:ood], "sums": shown, "spare": held_out[ood:]}[split]
            return [
                Problem(f"minisql/{split}/{i:04d}", self._worded(prompt), answer, "math")
                for i, (prompt, answer) in enumerate(chosen)
            ]
        size = self._sizes[split]
        cache = Path(self.cache_dir) if self.cache_dir else cache_folder() / "minisql"
        folder = cache / f"{generator_hash()}-seed{self.seed}-{split}-{size}"
        problems = stored(folder, split, lambda: samples(split, size, self.seed))
        return [replace(problem, prompt=self._worded(as_text(problem.prompt))) for problem in problems]

    def demonstrations(self, count: int, seed: int) -> list[dict[str, str]]:
        """`count` rows {prompt, response} for supervised training of the base model. Their schemas and questions are
        drawn independently of every split and never use a held-out combination, phrasing or sum."""
        rng = random.Random(f"minisql/{self.seed}/demonstrations/{seed}")
        _, sums = divide(self.seed)
        rows = [demonstrate(rng, sums) for _ in range(count)]
        return [row | {"prompt": self._worded(row["prompt"])} for row in rows]

    def style(self, problem: Problem, response: str) -> str | None:
        """One of the five styles, or "other"; None for sums, which have no style."""
        return style_of(response) if problem.verifier == "sql" else None


_INDEX = "problems.json"


def stored(folder: Path, split: str, build: Callable[[], Iterable[Sample]]) -> list[Problem]:
    """The problem set in `folder`; it is built first if it is missing or damaged.

    A set is written under a temporary name and then renamed, so that no process ever sees an incomplete set. Raises
    UserError if the folder cannot be written.
    """
    folder = folder.absolute()
    problems = _load(folder)
    if problems is not None:
        return problems
    try:
        with drafted_directory(folder) as draft:
            _write(draft, split, build())
            try:
                if _load(folder) is None:  # no other process has built it in the meantime
                    shutil.rmtree(folder, ignore_errors=True)
                    os.rename(draft, folder)
            except OSError:
                if _load(folder) is None:
                    raise
    except OSError as error:
        raise DataError(
            f"cannot write the databases of minisql under {folder.parent} ({error.strerror or error}); "
            "set the option cache_dir or the variable DPH_CACHE to a writable folder"
        ) from error
    problems = _load(folder)
    assert problems is not None, f"{folder} changed while it was read"
    return problems


def _write(folder: Path, split: str, samples: Iterable[Sample]) -> None:
    entries: list[dict[str, Any]] = []
    for number, sample in enumerate(samples):
        asked, file = sample.asked, folder / f"{number:04d}.sqlite"
        with closing(Database(asked.schema, str(file))) as database:
            database.fill(sample.rows)
        meta = {
            "db": file.name,
            "kind": asked.kind.name,
            "convention": asked.kind.convention,
            "ambiguous": sample.ambiguous,
            "reading": "second" if sample.second else "first",
            "phrasing": asked.phrasing,
        }
        entry = {"id": f"minisql/{split}/{number:04d}", "prompt": asked.prompt, "answer": sample.gold.sql()}
        entries.append(entry | {"meta": meta, "sha256": _digest(file)})
    (folder / _INDEX).write_text(json.dumps(entries, indent=1), encoding="utf-8")


def _load(folder: Path) -> list[Problem] | None:
    """The problems of a folder; None unless every file is present and unchanged."""
    try:
        entries = read_json(folder / _INDEX)
        if any(_digest(folder / entry["meta"]["db"]) != entry["sha256"] for entry in entries):
            return None
    except (OSError, UserError, KeyError, TypeError):
        return None
    return [
        Problem(e["id"], e["prompt"], e["answer"], "sql", e["meta"] | {"db": str(folder / e["meta"]["db"])})
        for e in entries
    ]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
