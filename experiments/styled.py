"""The task `styled_sql`: BIRD's and Spider's questions, with gold queries written in five solution styles (Figure 2).

    dph sft --plugin experiments/styled.py --task.name styled_sql --task.options root DATA --model.path MODEL --out BASE

DATA has the folders `bird` and `spider`, as the tasks of these names read them. The repository's folder must be in
PYTHONPATH. `python -m experiments paper --methods figure-2` writes the whole recipe.
"""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from dph.errors import DataError, SettingsError
from dph.tasks import register_task
from dph.tasks.sql.published import Bird, Spider
from dph.types import Problem
from dph.verifiers.sql.verifier import SqlVerifier
from experiments.spider.styles import StyledQuery
from experiments.styles import STYLES, style_of, style_of_prefix

_SPLITS = {"train": ("bird", "train"), "bird": ("bird", "dev"), "spider": ("spider", "dev")}
_AT_ONCE = 512  # demonstrations that are judged together


@register_task("styled_sql")
class StyledSql:
    """Problems of `bird` and `spider` with their own prompts, and demonstrations of them in five styles.

    | split    | contents                                                          |
    |----------|-------------------------------------------------------------------|
    | `train`  | BIRD's training questions without those that are demonstrated     |
    | `bird`   | BIRD dev                                                          |
    | `spider` | Spider dev                                                        |
    """

    def __init__(
        self, *, root: str, share: float = 0.3, by: Literal["form", "prefix"] = "form", skip_missing: bool = False
    ) -> None:
        """
        Args:
            root: folder with the folders `bird` and `spider`.
            share: of the training questions of both, to demonstrate; the others of BIRD are for reinforcement learning.
            by: what decides a response's style: the whole response (`experiments.styles.style_of`), or its prefix
                alone, as in the paper (`style_of_prefix`).
            skip_missing: leave out questions whose database is missing.

        Raises UserError for values that cannot be meant.
        """
        if not 0 < share < 1:
            raise SettingsError(f"styled_sql: share must lie between 0 and 1, not {share}")
        if by not in ("form", "prefix"):
            raise SettingsError(f"styled_sql: by must be form or prefix, not {by!r}")
        self._share, self._classify = share, style_of if by == "form" else style_of_prefix
        self._tasks = {
            name: kind(root=str(Path(root) / name), skip_missing=skip_missing)
            for name, kind in (("bird", Bird), ("spider", Spider))
        }

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split or missing files."""
        if split not in _SPLITS:
            raise SettingsError(f"styled_sql has no split {split!r}; it has {', '.join(_SPLITS)}")
        task, source = _SPLITS[split]
        problems = self._tasks[task].problems(source)
        return [problem for problem in problems if split != "train" or not self._demonstrated(problem)]

    def style(self, problem: Problem, response: str) -> str | None:
        """One of the five styles, or "other"."""
        return self._classify(response)

    def demonstrations(self, count: int, seed: int) -> list[dict[str, Any]]:
        """At most `count` rows {prompt, response, problem_id, style} in random order, each checked by execution against
        its gold query. Raises UserError if there is none."""
        candidates = list(self._candidates())
        random.Random(f"styled_sql/{seed}").shuffle(candidates)
        rows: list[dict[str, Any]] = []
        with SqlVerifier() as verifier:
            for start in range(0, len(candidates), _AT_ONCE):
                drawn = candidates[start : start + _AT_ONCE]
                verdicts = verifier.verify([(problem, response) for problem, _, response in drawn])
                rows += [
                    {"prompt": problem.prompt, "response": response, "problem_id": problem.id, "style": style}
                    for (problem, style, response), verdict in zip(drawn, verdicts, strict=True)
                    if verdict.correct
                ]
                if len(rows) >= count:
                    break
        if not rows:
            raise DataError("styled_sql: no gold query could be written in a style; look at the folders and at share")
        return rows[:count]

    def _candidates(self) -> Iterator[tuple[Problem, str, str]]:
        """Problem, style and response of every demonstrated question in every style that its query can be written
        in."""
        for task in self._tasks.values():
            databases = task.files("train")
            for problem in filter(self._demonstrated, task.problems("train")):
                try:
                    query = StyledQuery(problem.answer, databases.schema(problem.meta["db_id"]))
                except ValueError:  # the parser rejects this gold query
                    continue
                for style in STYLES:
                    response = query.respond(style)
                    if response is not None:
                        yield problem, style, response

    def _demonstrated(self, problem: Problem) -> bool:
        digest = hashlib.sha256(f"styled_sql\0{problem.id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 < self._share
