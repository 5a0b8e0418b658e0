"""The task `countdown`: reach a target with some of four numbers. It needs no files, and has no hidden convention.

Whether a response is right depends on the prompt alone, and most problems have several solutions.
"""

import hashlib
import random
from functools import lru_cache
from itertools import combinations

from dph.errors import UserError
from dph.tasks import register_task
from dph.types import Problem
from dph.verifiers.countdown import Form, Tree, canonical, form_text, joined, read, write

SHARES = {"test": range(10), "dev": range(10, 18), "train": range(18, 55)}
"""The percent of all pairs (numbers, target) that a split takes its problems from; demonstrations have the others."""
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
class Countdown:
    """Problems with the prompt `3,4,8,9>15:` and responses such as `8*3-9`.

    Splits: `train`, `dev` and `test`. No two of them share a pair of numbers and target, and no demonstration has a
    pair of theirs. `meta` holds "numbers", "ways" (how many canonical solutions with whole positive results on the way
    exist) and "kind" (the fewest numbers that a solution needs).
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        train_problems: int = 1000,
        test_problems: int = 200,
        dev_problems: int = 200,
        count: int = 4,
        highest: int = 9,
        lowest_target: int = 2,
        highest_target: int = 30,
        largest: int = 99,
        ways: int = 3,
        easy: int = 35,
        short: int = 75,
    ) -> None:
        """Generates nothing yet.

        Args:
            seed: seed of the generator; equal options give equal problems on every machine.
            train_problems, test_problems, dev_problems: size of each split.
            count, highest: how many numbers a problem has, and the highest of them; the lowest is 1.
            lowest_target, highest_target: bounds of the targets.
            largest: the largest result on the way to a target, in the solutions that are counted and shown.
            ways: the fewest canonical solutions that a problem has.
            easy: percent of the problems that have a solution with two of the numbers.
            short: percent of the demonstrations that use as few numbers as possible; in the others their number is
                drawn at random.

        Raises:
            UserError: for an option out of bounds.
        """
        self._sizes = {"train": train_problems, "test": test_problems, "dev": dev_problems}
        sizes = {f"{split}_problems": (size, 1, 10**6) for split, size in self._sizes.items()}
        shares = {"easy": (easy, 0, 100), "short": (short, 0, 100)}
        others = {"count": (count, 2, 5), "highest": (highest, 1, 99), "ways": (ways, 1, 10**6)}
        for name, (number, least, most) in (sizes | shares | others).items():
            if not least <= number <= most:
                raise UserError(f"countdown: {name} is {number}; it must be between {least} and {most}")
        self._seed, self._count, self._highest, self._largest = seed, count, highest, largest
        self._targets, self._ways = range(lowest_target, highest_target + 1), ways
        self._easy, self._short = easy, short
        self._own: dict[tuple[tuple[int, ...], str], frozenset[int]] = {}  # targets by numbers and split

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split, and for options that allow too few."""
        if split not in self._sizes:
            raise UserError(f"countdown has no split {split!r}; it has {', '.join(self._sizes)}")
        rng, size = random.Random(f"countdown {self._seed} {split}"), self._sizes[split]
        easy, rows = round(size * self._easy / 100), dict[tuple[tuple[int, ...], int], Solutions]()
        for _ in range(_TRIES * size):
            if len(rows) == size:
                break
            numbers, target, solutions = self._draw(rng, split, easy=len(rows) < easy)
            rows.setdefault((numbers, target), solutions)
        else:
            raise UserError(f"countdown: the split {split!r} has fewer than {size} problems with these options")
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
        rng, rows = random.Random(f"countdown {self._seed} demonstrations {seed}"), []
        for _ in range(count):
            numbers, target, solutions = self._draw(rng, "", easy=rng.random() * 100 < self._easy)
            sizes = sorted({size for size, _ in solutions.values()})
            size = sizes[0] if rng.random() * 100 < self._short else rng.choice(sizes)
            form = rng.choice(sorted(form for form, (used, _) in solutions.items() if used == size))
            rows.append({"prompt": prompt_of(numbers, target), "response": write(solutions[form][1])})
        return rows

    def style(self, problem: Problem, response: str) -> str:
        """The canonical form: every solution is a style of its own. "other" for a response that breaks a rule."""
        tree, _ = read(problem, response)
        return "other" if tree is None else canonical(tree)

    def _draw(self, rng: random.Random, split: str, *, easy: bool) -> tuple[tuple[int, ...], int, Solutions]:
        """Numbers in ascending order, target and solutions of a random pair of a split; "" for the demonstrations."""
        for _ in range(10_000):
            numbers = tuple(sorted(rng.randint(1, self._highest) for _ in range(self._count)))
            if (numbers, split) not in self._own:
                own = [t for t in self._targets if t not in numbers and self._split(numbers, t) == split]
                self._own[numbers, split] = frozenset(own)
            solved = solve(numbers, self._own[numbers, split], self._largest)
            found = [t for t in sorted(solved) if len(solved[t]) >= self._ways and (_fewest(solved[t]) == 2) == easy]
            if found:
                target = rng.choice(found)
                return numbers, target, solved[target]
        raise UserError("countdown: no problem has these options; lower the option ways or widen the targets")

    def _split(self, numbers: tuple[int, ...], target: int) -> str:
        digest = hashlib.blake2b(f"{self._seed} {numbers} {target}".encode(), digest_size=4).digest()
        share = int.from_bytes(digest) % 100
        return next((name for name, shares in SHARES.items() if share in shares), "")


def prompt_of(numbers: tuple[int, ...], target: int) -> str:
    """The prompt of a problem."""
    return f"{','.join(map(str, numbers))}>{target}:"


def _fewest(solutions: Solutions) -> int:
    return min(size for size, _ in solutions.values())
