"""The task `bird_small`: a few of BIRD's databases for a small language model, with Spider's questions and arithmetic.

    python -m experiments bird --data DATA

DATA has the folders `bird` and `spider`, as the tasks of these names read them; questions about databases that are
missing there are left out. The repository's folder must be in PYTHONPATH.
"""

import hashlib
import random
from pathlib import Path
from typing import Any, Literal

from dph.errors import DataError, SettingsError
from dph.tasks import Task, register_task
from dph.tasks.sql.published import Bird, Spider
from dph.types import Problem, as_text
from dph.verifiers.sql.verifier import SqlVerifier
from experiments.styles import style_of
from experiments.word_problems import WordProblems
from experiments.word_problems import style_of as solution_style

MIX = {"bird": 0.45, "spider": 0.35, "maths": 0.2}
"""Share of each source among the demonstrations."""
SPLITS = {"train": ("bird", "train"), "bird": ("bird", "dev"), "spider": ("spider", "dev"), "maths": ("maths", "test")}
_AT_ONCE = 512  # gold queries that are executed together


@register_task("bird_small")
class BirdSmall(Task):
    """BIRD's questions as the adapter makes them, for reinforcement learning. The base model also sees Spider's
    training questions and arithmetic word problems, and all three are evaluated.

    | split    | contents                                                                     |
    |----------|------------------------------------------------------------------------------|
    | `train`  | BIRD's training questions, the demonstrated ones among them                  |
    | `bird`   | BIRD dev: databases that occur in no training                                |
    | `spider` | Spider dev                                                                   |
    | `maths`  | arithmetic word problems (`word_problems`, split `test`), out of domain      |
    """

    def __init__(
        self,
        *,
        root: str,
        share: float = 0.5,
        max_prompt_chars: int = 1200,
        prompt_style: Literal["compact", "omnisql"] = "compact",
        spider_problems: int = 0,
        maths_problems: int = 200,
    ) -> None:
        """
        Args:
            root: folder with the folders `bird` and `spider`.
            share: of BIRD's training questions, to demonstrate.
            max_prompt_chars: Spider's questions with longer prompts are left out.
            prompt_style: as for the tasks `bird` and `spider`.
            spider_problems: of Spider dev, at random but the same in every run; 0 for all.
            maths_problems: in the split `maths`.

        Raises UserError for values that cannot be meant.
        """
        if not 0 < share <= 1:
            raise SettingsError(f"bird_small: share must lie in (0, 1], not {share}")
        self._share, self._longest, self._spider = share, max_prompt_chars, spider_problems
        self._maths = WordProblems(test_problems=maths_problems)
        self._tasks: dict[str, Task] = {"maths": self._maths}
        for name, kind in (("bird", Bird), ("spider", Spider)):
            self._tasks[name] = kind(root=str(Path(root) / name), prompt_style=prompt_style, skip_missing=True)

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split or missing files."""
        if split not in SPLITS:
            raise SettingsError(f"bird_small has no split {split!r}; it has {', '.join(SPLITS)}")
        problems = self._read(*SPLITS[split])
        if split != "spider" or not 0 < self._spider < len(problems):
            return problems
        return random.Random("bird_small/spider").sample(problems, self._spider)

    def style(self, problem: Problem, response: str) -> str:
        """The style of a query, or of the solution of a word problem."""
        return solution_style(response) if problem.verifier == "math" else style_of(response)

    def demonstrations(self, count: int, seed: int) -> list[dict[str, Any]]:
        """`count` rows {prompt, response, problem_id} of BIRD, Spider and arithmetic, `MIX` of each; a response to a
        question is its gold query, which is executed first. Raises UserError if a source has none."""
        rng = random.Random(f"bird_small/{seed}")
        sources = {name: self._golds(name) for name in ("bird", "spider")}
        sources["maths"] = self._maths.demonstrations(count, seed)
        rows: list[dict[str, Any]] = []
        for name, share in MIX.items():
            wanted, found = round(count * share), sources[name]
            if not found:
                raise DataError(f"bird_small: {name} has no question to demonstrate; look at the folder and at share")
            while len(found) < wanted:  # a small set is shown several times
                found = found + found
            rows += rng.sample(found, wanted) if name == "spider" else found[:wanted]
        rng.shuffle(rows)
        return rows

    def _golds(self, name: str) -> list[dict[str, Any]]:
        """Rows of the demonstrated training questions of a data set whose gold query can be executed."""
        problems = [one for one in self._read(name, "train") if name != "bird" or self._demonstrated(one)]
        pairs = [(one, f"```sql\n{str(one.answer).strip()}\n```") for one in problems]
        with SqlVerifier() as verifier:
            starts = range(0, len(pairs), _AT_ONCE)
            verdicts = [verdict for start in starts for verdict in verifier.verify(pairs[start : start + _AT_ONCE])]
        return [
            {"prompt": one.prompt, "response": response, "problem_id": one.id}
            for (one, response), verdict in zip(pairs, verdicts, strict=True)
            if verdict.correct
        ]

    def _read(self, name: str, split: str) -> list[Problem]:
        problems = self._tasks[name].problems(split)
        return [one for one in problems if name != "spider" or len(as_text(one.prompt)) <= self._longest]

    def _demonstrated(self, problem: Problem) -> bool:
        digest = hashlib.sha256(f"bird_small\0{problem.id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 < self._share
