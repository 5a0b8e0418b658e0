"""The task `minisql`: splits, demonstrations and styles."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from dph.errors import UserError
from dph.runs.files import cache_folder
from dph.tasks.minisql import arithmetic
from dph.tasks.minisql.demonstrations import demonstrate
from dph.tasks.minisql.english import in_english
from dph.tasks.minisql.store import stored
from dph.tasks.minisql.world import samples
from dph.tasks.protocol import register_task
from dph.tasks.styles import style_of
from dph.types import Problem, as_text

SPLITS = ("train", "dev", "test", "cross", "ood", "sums", "spare")
_MOST_OOD = 150
"""The other 165 sums are for demonstrations, and the split `sums`."""


@cache
def generator_hash() -> str:
    """Hash of the generator's code. It is part of the cache key, so that sets from older code are not reused."""
    digest = hashlib.blake2b(digest_size=6)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


@register_task("minisql")
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

    Each SQL problem has its own database. `meta` holds "db" (absolute path of the SQLite file), "kind", "convention",
    "ambiguous" (the two readings differ in result), "reading" (which one the gold SQL follows) and "phrasing".
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        train_problems: int = 420,
        test_problems: int = 200,
        cross_problems: int = 100,
        ood_problems: int = 150,
        dev_problems: int = 120,
        prompts: str = "compact",
        cache_dir: str = "",
    ) -> None:
        """Generates nothing yet: each split is generated on first use.

        Args:
            seed: seed of the generator; equal seeds and sizes give equal problems on every machine.
            train_problems, test_problems, cross_problems, ood_problems, dev_problems: size of each split.
            prompts: "compact", a few words that a small model learns fast, or "english", for pretrained models.
            cache_dir: folder for the databases; by default $DPH_CACHE/minisql or ~/.cache/dph/minisql.

        Raises:
            UserError: for a size below one, for more sums than are held out, or for another kind of prompts.
        """
        if prompts not in ("compact", "english"):
            raise UserError(f"minisql: prompts is {prompts!r}; it must be compact or english")
        self._worded: Callable[[str], str] = in_english if prompts == "english" else str
        self._seed = seed
        self._cache = Path(cache_dir) if cache_dir else cache_folder() / "minisql"
        self._sizes = {
            "train": train_problems,
            "dev": dev_problems,
            "test": test_problems,
            "cross": cross_problems,
            "ood": ood_problems,
        }
        for split, size in self._sizes.items():
            if size < 1:
                raise UserError(f"minisql: {split}_problems is {size}; give at least 1")
        if ood_problems > _MOST_OOD:
            raise UserError(f"minisql: ood_problems is {ood_problems}; at most {_MOST_OOD} sums are held out")

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split or a cache that cannot be written."""
        if split not in SPLITS:
            raise UserError(f"minisql has no split {split!r}; it has {', '.join(SPLITS)}")
        if split in ("ood", "sums", "spare"):
            held_out, shown = self._sums()
            ood = self._sizes["ood"]
            if split == "spare" and ood == _MOST_OOD:
                raise UserError(
                    f"minisql: the split 'spare' is empty, because 'ood' holds all {_MOST_OOD} sums that are never "
                    "shown; give a smaller ood_problems"
                )
            chosen = {"ood": held_out[:ood], "sums": shown, "spare": held_out[ood:]}[split]
            return [
                Problem(
                    id=f"minisql/{split}/{i:04d}",
                    prompt=self._worded(drawn.prompt),
                    answer=drawn.answer,
                    verifier="math",
                )
                for i, drawn in enumerate(chosen)
            ]
        size = self._sizes[split]
        folder = self._cache / f"{generator_hash()}-seed{self._seed}-{split}-{size}"
        found = stored(folder, split, lambda: samples(split, size, self._seed))
        return [replace(problem, prompt=self._worded(as_text(problem.prompt))) for problem in found]

    def demonstrations(self, count: int, seed: int) -> list[dict[str, str]]:
        """`count` rows {prompt, response} for supervised training of the base model. Their schemas and questions are
        drawn independently of every split and never use a held-out combination, phrasing or sum."""
        rng = random.Random(f"minisql/{self._seed}/demonstrations/{seed}")
        sums = self._sums()[1]
        rows = [demonstrate(rng, sums) for _ in range(count)]
        return [row | {"prompt": self._worded(row["prompt"])} for row in rows]

    def style(self, problem: Problem, response: str) -> str | None:
        """One of the five styles, or "other"; None for sums, which have no style."""
        return style_of(response) if problem.verifier == "sql" else None

    def _sums(self) -> tuple[list[arithmetic.Sum], list[arithmetic.Sum]]:
        return arithmetic.divide(self._seed, _MOST_OOD)
