"""Countdown with strategies: a response names its strategy before the expression, as in `aa 8*3-9`.

The strategy of an expression is its last operation (add, subtract, multiply, divide), or that it uses two numbers only.
A prompt such as `p3 3,4,8,9>15:` begins with the problem's dialect. Each dialect has five names, one for each strategy.
The share `common` of the problems speak one dialect, the others one of 40. So `common` says how much the problems have
in common of the tokens that a policy chooses its strategy by; everything else of the problems is equal.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dph.errors import UserError
from dph.tasks import register_task
from dph.tasks.countdown import Countdown, Solutions, prompt_of
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.countdown import CountdownVerifier, Tree, canonical, numbers, parse, write
from dph.verifiers.protocol import register_verifier

STRATEGIES = ("two", "+", "-", "*", "/")
DIALECTS = 40
"""Dialects of the problems that do not speak the common one, which is number 0."""
_VERIFIER = "countdown_strategies"


def strategy_of(tree: Tree) -> str:
    """The strategy of an expression: "two" if it uses two numbers, otherwise its last operation."""
    return "two" if len(numbers(tree)) == 2 or isinstance(tree, int) else tree[0]


def word(number: int) -> str:
    """A word of letters for a number; a tokenizer that keeps words whole has a token for each."""
    letters = ""
    for _ in range(2):
        number, rest = divmod(number, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def names_of(dialect: int) -> tuple[str, ...]:
    """The names of the strategies in a dialect, in their order; no two dialects share one."""
    return tuple(word(len(STRATEGIES) * dialect + i) for i in range(len(STRATEGIES)))


def dialect_of(seed: int, drawn: Sequence[int], target: int, common: float) -> int:
    """The dialect of a problem: a hash of it decides, so that with a larger share more problems speak the common one
    and the others keep theirs."""
    digest = hashlib.blake2b(f"dialect {seed} {tuple(drawn)} {target}".encode(), digest_size=8).digest()
    share, other = int.from_bytes(digest[:4]) / 2**32, int.from_bytes(digest[4:]) % DIALECTS
    return 0 if share < common else 1 + other


def marked(dialect: int, prompt: str) -> str:
    """A prompt of Countdown with the mark of a dialect."""
    return f"P{word(dialect)} {prompt}"


@register_task(_VERIFIER)
@dataclass(kw_only=True)
class CountdownStrategies(Countdown):
    """The splits and options of `countdown`, and `common`. `meta` also holds "dialect". Raises UserError for a share
    that is not between 0 and 1."""

    common: float = 1.0
    """Share of the problems, and of the demonstrations, that speak the common dialect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.common <= 1:
            raise UserError(f"{_VERIFIER}: common is {self.common}; it must be between 0 and 1")

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split; those of Countdown with the same seed, each with its dialect."""
        found = []
        for one in super().problems(split):
            dialect = dialect_of(self.seed, one.meta["numbers"], int(str(one.answer)), self.common)
            prompt = marked(dialect, prompt_of(tuple(one.meta["numbers"]), int(str(one.answer))))
            found.append(replace(one, prompt=prompt, verifier=_VERIFIER, meta={**one.meta, "dialect": dialect}))
        return found

    def demonstrations(self, count: int, seed: int) -> list[dict[str, str]]:
        """`count` rows {prompt, response}, with every strategy that a problem has equally often."""
        rng, rows = random.Random(f"{_VERIFIER} {self.seed} demonstrations {seed}"), []
        for _ in range(count):
            drawn, target, solutions = self._draw(rng, "", easy=rng.random() < 0.35)
            by_strategy = by_strategies(solutions)
            strategy = rng.choice(sorted(by_strategy))
            expression = rng.choice(sorted(by_strategy[strategy]))
            dialect = dialect_of(self.seed, drawn, target, self.common)
            name = names_of(dialect)[STRATEGIES.index(strategy)]
            rows.append({"prompt": marked(dialect, prompt_of(drawn, target)), "response": f"{name} {expression}"})
        return rows

    def style(self, problem: Problem, response: str) -> str:
        """The strategy that a response names; "other" for a word that names none in the problem's dialect."""
        return named(problem, response)[0] or "other"


def by_strategies(solutions: Solutions) -> dict[str, list[str]]:
    """The expressions of each strategy that solves a problem, each by the strategy that a reader of its text sees: of
    operations of one rank the last one, whichever bracket the solution had."""
    found: dict[str, list[str]] = {}
    for _, tree in solutions.values():
        written = write(tree)
        seen = parse(written)
        assert seen is not None
        found.setdefault(strategy_of(seen), []).append(written)
    return found


def named(problem: Problem, response: str) -> tuple[str, str]:
    """The strategy that a response names, or "", and the text after the name."""
    name, _, expression = response.strip().partition(" ")
    names = names_of(int(problem.meta["dialect"]))
    return (STRATEGIES[names.index(name)] if name in names else ""), expression


class StrategiesVerifier(CountdownVerifier):
    """Correct iff the response names a strategy of its problem's dialect and the expression after it solves the problem
    by that strategy."""

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        verdicts = super().verify([(problem, named(problem, response)[1]) for problem, response in items])
        return [self._checked(item, verdict) for item, verdict in zip(items, verdicts, strict=True)]

    def _checked(self, item: tuple[Problem, str], verdict: Verdict) -> Verdict:
        strategy, expression = named(*item)
        if not verdict.scored:
            return verdict
        if not strategy:
            return Verdict(Outcome.NO_ANSWER, 0.0, "names no strategy of its dialect")
        tree = parse(expression)
        if verdict.correct and tree is not None and strategy_of(tree) != strategy:
            return Verdict(Outcome.WRONG, 0.0, f"is not by the strategy {strategy!r}")
        return verdict

    def solutions(self, items: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """The strategy and the canonical form of each response, and None for one that breaks a rule."""
        found: list[str | None] = []
        for problem, response in items:
            strategy, expression = named(problem, response)
            tree = parse(expression)
            found.append(None if not strategy or tree is None else f"{strategy} {canonical(tree)}")
        return found


register_verifier(_VERIFIER)(StrategiesVerifier)
