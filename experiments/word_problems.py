"""Short arithmetic word problems in plain English, for pretrained models. They are generated; no data set is read."""

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dph.errors import UserError
from dph.tasks import Task, register_task
from dph.types import Problem

SHARES = {"test": range(15), "dev": range(15, 25), "train": range(25, 60)}
"""The percent of all expressions that a split takes its problems from; demonstrations have the others."""
STYLES = {"steps": 0.5, "expression": 0.3, "answer": 0.2}
"""How often demonstrations show each style; with one operation, `expression` is `steps`."""
LONGER = "longer"
"""The split of problems with three operations. All others, and the demonstrations, have one or two."""
_NAMES = ("Ann", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo", "Iris", "Jack")
_THINGS = ("apples", "books", "cards", "coins", "eggs", "marbles", "pencils", "shells", "stamps", "toys")
_SMALL, _LARGE = 9, 20  # largest number of an easy problem, and of the others
_EASY = 0.5  # share of the problems with small numbers
_OPERATIONS = (1, 1, 1, 2, 2)
_TRIES = 60  # draws for each problem of a split, before it is too small
_ASK = "Show your work and put the answer in \\boxed{}."
_STEP = re.compile(r"\d+ [-+*/] \d+ = \d+")


@dataclass(frozen=True, slots=True)
class Story:
    """A word problem: its sentences, one expression, and the operations one after the other."""

    sentences: tuple[str, ...]
    expression: str
    steps: tuple[str, ...]
    result: int

    @property
    def prompt(self) -> str:
        return " ".join((*self.sentences, _ASK))


def tell(rng: random.Random, operations: int) -> Story:
    """A random story with so many operations, each with a whole positive result."""
    name, thing = rng.choice(_NAMES), rng.choice(_THINGS)
    most = _SMALL if rng.random() < _EASY else _LARGE
    if operations > 1 and rng.random() < 0.5:
        bags, each = rng.randint(2, 9), rng.randint(2, _SMALL)
        result, sentences = bags * each, [f"{name} has {bags} bags with {each} {thing} in each."]
        expression, steps = f"{bags} * {each}", [f"{bags} * {each} = {result}"]
    else:
        result = rng.randint(2, most)
        expression, steps, sentences = str(result), [], [f"{name} has {result} {thing}."]
    while len(steps) < operations:
        last = len(steps) == operations - 1
        left, number = result, rng.randint(2, most)
        kind = rng.choice(("more", "fewer", "times", "share") if last else ("more", "fewer"))
        whole = f"({expression})" if re.search("[-+]", expression) else expression
        if kind == "more":
            result, expression, sign = left + number, f"{expression} + {number}", "+"
            sentences.append(f"{name} gets {number} more.")
        elif kind == "fewer" and number < left:
            result, expression, sign = left - number, f"{expression} - {number}", "-"
            sentences.append(f"{name} gives away {number}.")
        elif kind == "times":
            number = rng.randint(2, 5)
            result, expression, sign = left * number, f"{whole} * {number}", "*"
            sentences.append(f"A friend has {number} times as many. How many {thing} does the friend have?")
        elif kind == "share" and (ways := [n for n in range(2, 10) if left % n == 0 and n < left]):
            number = rng.choice(ways)
            result, expression, sign = left // number, f"{whole} / {number}", "/"
            sentences.append(f"{name} shares them equally among {number} friends. How many does each friend get?")
        else:
            continue
        steps.append(f"{left} {sign} {number} = {result}")
    if not sentences[-1].endswith("?"):
        sentences.append(f"How many {thing} does {name} have now?")
    return Story(tuple(sentences), expression, tuple(steps), result)


def respond(story: Story, style: str) -> str:
    """The solution in a style: every step, one expression, or the answer alone."""
    box = f"\\boxed{{{story.result}}}"
    shown = {"steps": ", ".join(story.steps), "expression": f"{story.expression} = {story.result}", "answer": ""}[style]
    return f"{shown}. {box}" if shown else box


@register_task("word_problems")
@dataclass(kw_only=True)
class WordProblems(Task):
    """Problems for the verifier `math`. Splits: `train`, `dev`, `test`, and `longer` with three operations. No two
    splits share an expression, and no demonstration has one of theirs. Raises UserError for a size below one."""

    seed: int = 0
    """Seed of the generator; equal options give equal problems on every machine."""
    train_problems: int = 1000
    test_problems: int = 200
    dev_problems: int = 200

    def __post_init__(self) -> None:
        sizes = {"train": self.train_problems, "test": self.test_problems, "dev": self.dev_problems}
        self._sizes = sizes | {LONGER: self.test_problems}
        for split, size in sizes.items():
            if size < 1:
                raise UserError(f"word_problems: {split}_problems is {size}; give at least 1")

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split. Raises UserError for an unknown split, and for a size that it cannot have."""
        if split not in self._sizes:
            raise UserError(f"word_problems has no split {split!r}; it has {', '.join(self._sizes)}")
        rng, size = random.Random(f"word_problems {self.seed} {split}"), self._sizes[split]
        stories: dict[str, tuple[int, Story]] = {}
        for _ in range(_TRIES * size):
            operations = 3 if split == LONGER else rng.choice(_OPERATIONS)
            story = tell(rng, operations)
            if split == LONGER or place(story.expression) == split:
                stories.setdefault(story.expression, (operations, story))
            if len(stories) == size:
                break
        else:
            raise UserError(f"word_problems: the split {split!r} has fewer than {size} problems; give a smaller size")
        return [
            Problem(
                f"word_problems/{split}/{i:04d}",
                story.prompt,
                str(story.result),
                "math",
                {"kind": f"{operations} operation{'s' * (operations > 1)}", "expression": story.expression},
            )
            for i, (operations, story) in enumerate(stories.values())
        ]

    def demonstrations(self, count: int, seed: int) -> list[dict[str, str]]:
        """`count` rows {prompt, response, style} for supervised training of the base model."""
        rng, rows = random.Random(f"word_problems {self.seed} demonstrations {seed}"), list[dict[str, str]]()
        while len(rows) < count:
            story = tell(rng, rng.choice(_OPERATIONS))
            if not place(story.expression):
                [style] = rng.choices(list(STYLES), list(STYLES.values()))
                response = respond(story, style)
                rows.append({"prompt": story.prompt, "response": response, "style": style_of(response)})
        return rows

    def style(self, problem: Problem, response: str) -> str:
        """`steps` (equations of two numbers), `expression` (another equation), `answer` (no equation), or `other`."""
        return style_of(response)


def style_of(response: str) -> str:
    """The style of a response by its form, whether it is right or not."""
    shown, box, _ = response.partition("\\boxed{")
    if not box:
        return "other"
    equations: Sequence[str] = [part for part in re.split(r"[,.]\s", shown.strip() + " ") if "=" in part]
    if not equations:
        return "answer"
    return "steps" if all(_STEP.fullmatch(part.strip(" .")) for part in equations) else "expression"


def place(expression: str) -> str:
    """The split that an expression belongs to, "" for the demonstrations."""
    percent = int.from_bytes(hashlib.sha256(expression.encode()).digest()[:8], "big") % 100
    return next((split for split, share in SHARES.items() if percent in share), "")
