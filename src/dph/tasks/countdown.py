"""The task `countdown`: reach a target with some of four numbers. It needs no files, and has no hidden convention.

Whether a response is right depends on the prompt alone, and most problems have several solutions.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from dph.errors import UserError
from dph.tasks import Task, register_task
from dph.types import Problem
from dph.verifiers.countdown import Form, Tree, canonical, form_text, joined, read, write

SHARES = {"test": range(10), "dev": range(10, 18), "train": range(18, 55)}
"""The percent of all pairs (numbers, target) that a split takes its problems from; demonstrations have the others."""
_COUNT, _HIGHEST = 4, 9  # how many numbers a problem has, from 1 to the highest
_TARGETS = range(2, 31)
_LARGEST = 99  # result on the way to a target, in the solutions that are counted and shown
_WAYS = 3  # fewest canonical solutions of a problem
_EASY = 35  # percent of the problems that have a solution with two of the numbers
_SHORT = 75  # percent of the demonstrations that use as few numbers as possible; others use a random number of them
_TRIES = 60  # draws for each problem of a split, before it is too small

Solutions = dict[str, tuple[int, Tree]]
"""Each canonical solution: how many numbers it uses, and an expression."""


@lru_cache(maxsize=8192)
def solve(numbers: tuple[int, ...], targets: frozenset[int], largest: int) -> dict[int, Solutions]:
    """The solutions to each target that has any: all ways to use two or more of the numbers, each at most once, with
    whole positive results up to `largest`."""
    solutions: dict[int, Solutions] = {}
    for size in range(2, len(numbers) + 1):
        for chosen in dict.fromkeys(combinations(numbers, size)):
            for target, trees in _ways(chosen, targets, largest).items():
                for form, tree in trees.items():
                    solutions.setdefault(target, {}).setdefault(form_text(form), (size, tree))
    return solutions


@lru_cache(maxsize=8192)
def _ways(numbers: tuple[int, ...], targets: frozenset[int] | None, largest: int) -> dict[int, dict[Form, Tree]]:
    """The ways to use all numbers, by result (one of the targets; None: any) and by form. Of a sum or product, the
    larger operand is written first."""
    if len(numbers) == 1:
        return {numbers[0]: {(1, numbers[0]): numbers[0]}}
    results: dict[int, dict[Form, Tree]] = {}
    every = (1 << len(numbers)) - 1
    for part in range(every - 1, 0, -1):  # the numbers of the left operand, as bits
        left_numbers, right_numbers = (
            tuple(number for i, number in enumerate(numbers) if bits >> i & 1) for bits in (part, every ^ part)
        )
        for left, left_ways in _ways(left_numbers, None, largest).items():
            for right, right_ways in _ways(right_numbers, None, largest).items():
                for operator, result in _results(left, right, ordered=(left, part) > (right, every ^ part)):
                    if result <= largest and (targets is None or result in targets):
                        trees = results.setdefault(result, {})
                        for left_form, left_tree in left_ways.items():
                            for right_form, right_tree in right_ways.items():
                                form = joined(operator, left_form, right_form)
                                trees.setdefault(form, (operator, left_tree, right_tree))
    return results


def _results(left: int, right: int, *, ordered: bool) -> list[tuple[str, int]]:
    """The whole positive results of two positive numbers; of sum and product only if this is their order."""
    results = [("+", left + right)] * ordered + [("-", left - right)] * (left > right)
    return results + [("*", left * right)] * ordered + [("/", left // right)] * (left % right == 0)


@register_task("countdown")
@dataclass(kw_only=True)
class Countdown(Task):
    """Problems with the prompt `3,4,8,9>15:` and responses such as `8*3-9`.

    No two of the splits `train`, `dev` and `test` share a pair of numbers and target, and no demonstration has a pair
    of theirs. `meta` holds "numbers", "ways" (how many canonical solutions with whole positive results on the way
    exist) and "kind" (the fewest numbers that a solution needs). Raises UserError for a size below one.
    """

    seed: int = 0
    """Seed of the generator; equal options give equal problems on every machine."""
    train_problems: int = 1000
    test_problems: int = 200
    dev_problems: int = 200

    def __post_init__(self) -> None:
        self._sizes = {"train": self.train_problems, "test": self.test_problems, "dev": self.dev_problems}
        for split, size in self._sizes.items():
            if size < 1:
                raise UserError(f"countdown: {split}_problems is {size}; give at least 1")

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split, and for a size that it cannot have."""
        if split not in self._sizes:
            raise UserError(f"countdown has no split {split!r}; it has {', '.join(self._sizes)}")
        rng, size = random.Random(f"countdown {self.seed} {split}"), self._sizes[split]
        easy, rows = round(size * _EASY / 100), dict[tuple[tuple[int, ...], int], Solutions]()
        for _ in range(_TRIES * size):
            if len(rows) == size:
                break
            numbers, target, solutions = self._draw(rng, split, easy=len(rows) < easy)
            rows.setdefault((numbers, target), solutions)
        else:
            raise UserError(f"countdown: the split {split!r} has fewer than {size} problems; give a smaller size")
        problems = [
            Problem(
                f"countdown/{split}/{i:04d}",
                prompt_of(numbers, target),
                str(target),
                "countdown",
                {"numbers": list(numbers), "ways": len(solutions), "kind": f"{_fewest(solutions)} numbers"},
            )
            for i, ((numbers, target), solutions) in enumerate(rows.items())
        ]
        rng.shuffle(problems)
        return problems

    def demonstrations(self, count: int, seed: int) -> list[dict[str, str]]:
        """`count` rows {prompt, response} for supervised training of the base model."""
        rng, rows = random.Random(f"countdown {self.seed} demonstrations {seed}"), []
        for _ in range(count):
            numbers, target, solutions = self._draw(rng, "", easy=rng.random() * 100 < _EASY)
            sizes = sorted({size for size, _ in solutions.values()})
            size = sizes[0] if rng.random() * 100 < _SHORT else rng.choice(sizes)
            form = rng.choice(sorted(form for form, (used, _) in solutions.items() if used == size))
            rows.append({"prompt": prompt_of(numbers, target), "response": write(solutions[form][1])})
        return rows

    def style(self, problem: Problem, response: str) -> str:
        """The canonical form: every solution is a style of its own. "other" for a response that breaks a rule."""
        tree, _ = read(problem, response)
        return "other" if tree is None else canonical(tree)

    def _draw(self, rng: random.Random, split: str, *, easy: bool) -> tuple[tuple[int, ...], int, Solutions]:
        """Numbers in ascending order, target and solutions of a random pair of a split; "" for the demonstrations."""
        while True:
            numbers = tuple(sorted(rng.randint(1, _HIGHEST) for _ in range(_COUNT)))
            solved = solve(numbers, _targets(self.seed, numbers, split), _LARGEST)
            fitting = [t for t in sorted(solved) if len(solved[t]) >= _WAYS and (_fewest(solved[t]) == 2) == easy]
            if fitting:
                target = rng.choice(fitting)
                return numbers, target, solved[target]


@lru_cache(maxsize=8192)
def _targets(seed: int, numbers: tuple[int, ...], split: str) -> frozenset[int]:
    """The targets that these numbers have in a split; "" for the demonstrations."""
    targets = []
    for target in set(_TARGETS).difference(numbers):
        digest = hashlib.blake2b(f"{seed} {numbers} {target}".encode(), digest_size=4).digest()
        share = int.from_bytes(digest) % 100
        if split == next((name for name, shares in SHARES.items() if share in shares), ""):
            targets.append(target)
    return frozenset(targets)


def prompt_of(numbers: tuple[int, ...], target: int) -> str:
    """The prompt of a problem.

    >>> prompt_of((3, 4, 5), 35)
    '3,4,5>35:'
    """
    return f"{','.join(map(str, numbers))}>{target}:"


def _fewest(solutions: Solutions) -> int:
    return min(size for size, _ in solutions.values())
