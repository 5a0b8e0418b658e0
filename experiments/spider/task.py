"""Spider for small models: short prompts, five solution styles, and held-out splits by query and by phrasing."""

import hashlib
import itertools
import random
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.errors import UserError
from dph.tasks import register_task
from dph.tasks.sql.data import Databases, Question
from dph.tasks.sql.prompt import compact_schema
from dph.tasks.sql.published import Spider
from dph.tasks.sql.schema import connect
from dph.types import Problem
from dph.verifiers.sql.verifier import SqlVerifier
from experiments.spider.styles import StyledQuery
from experiments.spider.templates import TemplateWriter
from experiments.styles import STYLES, Style, style_of

SPLITS = ("train", "heldout_sql", "heldout_phrasing", "dev")
STYLE_WEIGHTS: dict[Style, float] = {"direct": 0.28, "plan": 0.18, "cte": 0.18, "nested": 0.18, "stepwise": 0.18}
"""How often demonstrations show each style."""

_HELD_SQL = 0.10  # share of the queries that occur in no demonstration and no training problem
_HELD_PHRASING = 0.15  # share of the other queries with at least two questions whose second question is held out
_STEPS = 2_000_000  # virtual-machine steps that a gold query may take
_KINDS = (
    ("set", r"\b(?:union|intersect|except)\b"),
    ("nested", r"\(\s*select\b"),
    ("join", r"\bjoin\b"),
    ("group", r"\bgroup by\b"),
    ("order", r"\border by\b"),
    ("filter", r"\bwhere\b"),
)


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A candidate row of the supervised data; `problem` has the gold query and the database to check it."""

    problem: Problem
    style: Style
    response: str


@register_task("spider_small")
class SpiderSmall:
    """Real questions over real databases, reduced to prompts that a model of a few million parameters can read.

    | split              | contents                                                                                   |
    |--------------------|--------------------------------------------------------------------------------------------|
    | `train`            | Spider's training questions without the two held-out parts                                 |
    | `heldout_sql`      | questions whose queries occur in no other split of these databases and in no demonstration |
    | `heldout_phrasing` | second questions for queries that `train` asks in other words                              |
    | `dev`              | Spider dev: databases that occur in no demonstration                                       |

    Questions are left out, and counted by split in `dropped`, if their database is missing, their prompt is too long,
    or their gold query fails or returns no rows (any empty result would be correct).
    """

    def __init__(
        self,
        *,
        root: str,
        max_prompt_chars: int = 600,
        template_share: float = 0.5,
        seed: int = 0,
    ) -> None:
        """root: as for `spider`; max_prompt_chars: longest prompt; template_share: share of the demonstrations with
        generated questions; seed: of the split. Raises UserError for values out of range."""
        if not 0 <= template_share <= 1:
            raise UserError(f"spider_small: template_share must be between 0 and 1, not {template_share}")
        if max_prompt_chars < 1:
            raise UserError(f"spider_small: max_prompt_chars must be positive, not {max_prompt_chars}")
        self._root = Path(root)
        self._longest = max_prompt_chars
        self._template_share = template_share
        self._seed = seed
        self.dropped: dict[str, Counter[str]] = {}
        self._splits: dict[str, list[Problem]] = {}
        self._databases: dict[str, Databases] = {}

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split or missing files."""
        if split not in SPLITS:
            raise UserError(f"spider_small has no split {split!r}; it has {', '.join(SPLITS)}")
        if split not in self._splits:
            source = "dev" if split == "dev" else "train"
            spider = Spider(root=str(self._root))
            self._databases[source] = spider.files(source)
            questions = spider.questions(source)
            parts = {"dev": questions} if source == "dev" else split_questions(questions, self._seed)
            for name, part in parts.items():
                self.dropped[name] = Counter()
                self._splits[name] = list(self._usable(name, part, self._databases[source]))
        return self._splits[split]

    def style(self, problem: Problem, response: str) -> str | None:
        """One of the five styles, or "other"."""
        return style_of(response)

    def demonstrations(self, count: int, seed: int) -> list[dict[str, Any]]:
        """`count` supervised rows {prompt, response, problem_id, style}, each checked by execution against its gold
        query.

        Raises UserError if the data yield too few.
        """
        problems = self.problems("train")
        if not problems:
            raise UserError(f"spider_small: no training question under {self._root} can be used: {self.dropped}")
        rng = random.Random(f"spider_small/{self._seed}/{seed}")
        source = self._candidates(rng, problems)
        rows: list[dict[str, Any]] = []
        with SqlVerifier() as verifier:
            for _ in range(8):  # each round keeps well over half
                wanted = count - len(rows)
                if wanted <= 0:
                    break
                drawn = [next(source) for _ in range(wanted + wanted // 10 + 1)]
                verdicts = verifier.verify([(d.problem, d.response) for d in drawn])
                kept = [d for d, verdict in zip(drawn, verdicts, strict=True) if verdict.correct]
                rows += [_row(demonstration) for demonstration in kept[:wanted]]
        if len(rows) < count:
            raise UserError(f"spider_small: only {len(rows)} of {count} demonstrations could be made from {self._root}")
        return rows

    def _candidates(self, rng: random.Random, problems: Sequence[Problem]) -> Iterator[Demonstration]:
        """Endless candidates: real and generated training questions, in random styles that their SQL can be written
        in."""
        databases = self._databases["train"]
        held = {(p.meta["db_id"], normal_form(p.answer)) for p in self._splits["heldout_sql"]}
        paths = {p.meta["db_id"]: p.meta["db"] for p in problems}
        generated = self._generated(rng, databases, paths, held)
        while True:
            problem = next(generated) if rng.random() < self._template_share else rng.choice(problems)
            [style] = rng.choices(STYLES, [STYLE_WEIGHTS[style] for style in STYLES])
            try:
                query = StyledQuery(problem.answer, databases.schema(problem.meta["db_id"]))
            except ValueError:  # the parser rejects this gold query
                continue
            response = query.respond(style)
            if response is not None:
                yield Demonstration(problem, style, response)

    def _generated(
        self, rng: random.Random, databases: Databases, paths: dict[str, str], held: set[tuple[str, str]]
    ) -> Iterator[Problem]:
        """Endless generated questions over the databases in `paths` (db_id → file); none has a query in `held`."""
        writers = {db_id: TemplateWriter(databases.path(db_id), databases.schema(db_id)) for db_id in paths}
        names = [db_id for db_id, writer in writers.items() if writer.kinds]
        if not names:
            raise UserError(f"spider_small: no database under {self._root} holds rows to ask about")
        for number in itertools.count():
            db_id = rng.choice(names)
            asked = writers[db_id].ask(rng)
            prompt = self._prompt(databases, db_id, asked.question)
            if len(prompt) <= self._longest and (db_id, normal_form(asked.sql)) not in held:
                meta = {"db": paths[db_id], "db_id": db_id, "kind": asked.kind}
                yield Problem(f"template/{number:06d}", prompt, asked.sql, "sql", meta)

    def _usable(self, split: str, questions: Sequence[Question], databases: Databases) -> Iterator[Problem]:
        connections: dict[str, sqlite3.Connection] = {}
        rows_of: dict[tuple[str, str], str] = {}
        try:
            for question in questions:
                db = databases.path(question.db_id)
                if not db.is_file():
                    self.dropped[split]["database missing"] += 1
                    continue
                prompt = self._prompt(databases, question.db_id, question.text)
                if len(prompt) > self._longest:
                    self.dropped[split]["prompt too long"] += 1
                    continue
                if question.db_id not in connections:
                    connections[question.db_id] = connect(db)
                key = (question.db_id, question.gold)
                if key not in rows_of:
                    rows_of[key] = _gold_state(connections[question.db_id], question.gold)
                if rows_of[key]:
                    self.dropped[split][rows_of[key]] += 1
                    continue
                meta = {
                    "db": str(db.absolute()),
                    "db_id": question.db_id,
                    "question": question.text,
                    "kind": kind_of(question.gold),
                }
                yield Problem(question.id, prompt, question.gold, "sql", meta)
        finally:
            for connection in connections.values():
                connection.close()

    def _prompt(self, databases: Databases, db_id: str, question: str) -> str:
        return f"{compact_schema(databases.schema(db_id))} | {' '.join(question.split())} |"


def split_questions(questions: Sequence[Question], seed: int) -> dict[str, list[Question]]:
    """Split the training questions into train, heldout_sql and heldout_phrasing, by a hash of database and query.

    All questions of a query (in its normal form) go into the same part, except that a query in `heldout_phrasing`
    leaves its other questions in `train`. The parts keep the order of the questions.
    """
    groups: dict[tuple[str, str], list[Question]] = defaultdict(list)
    for question in questions:
        groups[(question.db_id, normal_form(question.gold))].append(question)
    place: dict[str, str] = {}
    for (db_id, sql), members in groups.items():
        asked = {" ".join(q.text.lower().split()) for q in members}
        if _share(seed, "sql", db_id, sql) < _HELD_SQL:
            place |= {q.id: "heldout_sql" for q in members}
        elif len(asked) > 1 and _share(seed, "phrasing", db_id, sql) < _HELD_PHRASING:
            held = min(asked, key=lambda text: _share(seed, "text", db_id, text))
            place |= {q.id: "heldout_phrasing" for q in members if " ".join(q.text.lower().split()) == held}
    parts: dict[str, list[Question]] = {"train": [], "heldout_sql": [], "heldout_phrasing": []}
    for question in questions:
        parts[place.get(question.id, "train")].append(question)
    return parts


def normal_form(sql: str) -> str:
    """A query without differences in case, spacing, kind of quotes and final semicolon."""
    return re.sub(r"\s*([(),;<>=!])\s*", r"\1", " ".join(sql.lower().replace('"', "'").split())).rstrip("; ")


def kind_of(sql: str) -> str:
    """The most complex construct in a query: set, nested, join, group, order, filter, or plain."""
    return next((kind for kind, pattern in _KINDS if re.search(pattern, sql, re.IGNORECASE)), "plain")


def _share(seed: int, *parts: str) -> float:
    """A pseudo-random number in [0, 1) that depends only on the arguments."""
    digest = hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _gold_state(connection: sqlite3.Connection, sql: str) -> str:
    """Why a gold query cannot be used; "" if it returns rows."""
    steps = iter(range(_STEPS // 1000))
    connection.set_progress_handler(lambda: next(steps, None) is None, 1000)
    try:
        return "" if connection.execute(sql).fetchone() is not None else "gold gives no rows"
    except sqlite3.Error:
        return "gold fails"
    finally:
        connection.set_progress_handler(None, 0)


def _row(demonstration: Demonstration) -> dict[str, Any]:
    return {
        "prompt": demonstration.problem.prompt,
        "response": demonstration.response,
        "problem_id": demonstration.problem.id,
        "style": demonstration.style,
    }
