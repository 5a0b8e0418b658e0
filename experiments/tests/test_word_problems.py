"""Arithmetic word problems: splits, golds, demonstrations and the styles of a solution."""

import random
import re
from fractions import Fraction

import pytest

from dph.errors import UserError
from dph.types import as_text
from dph.verifiers.math.verifier import MathVerifier
from experiments.word_problems import SHARES, STYLES, WordProblems, respond, style_of, tell


def value(expression: str) -> Fraction:
    """An expression of whole numbers, computed exactly."""
    return eval(re.sub(r"\d+", lambda number: f"Fraction({number[0]})", expression))


def test_golds_are_the_values_of_the_expressions_and_splits_share_none() -> None:
    task, seen = WordProblems(train_problems=200, test_problems=60, dev_problems=60), dict[str, str]()
    for split in (*SHARES, "longer"):
        problems = task.problems(split)
        assert len({problem.id for problem in problems}) == len(problems) == (200 if split == "train" else 60)
        for problem in problems:
            expression = problem.meta["expression"]
            assert value(expression) == int(problem.answer) > 0
            assert seen.setdefault(expression, split) == split
            operations = len(re.findall("[-+*/]", expression))
            assert problem.meta["kind"].startswith(f"{operations} ") and (operations == 3) == (split == "longer")
            numbers = [int(number) for number in re.findall(r"\d+", as_text(problem.prompt))]
            assert numbers == [int(number) for number in re.findall(r"\d+", expression)], "in the order of the story"
    assert [one.prompt for one in task.problems("test")] == [one.prompt for one in WordProblems().problems("test")][:60]


def test_demonstrations_are_right_in_every_style_and_share_no_expression_with_a_split() -> None:
    task = WordProblems()
    rows = task.demonstrations(400, seed=1)
    assert {row["style"] for row in rows} == set(STYLES) and rows == task.demonstrations(400, seed=1)
    asked = {as_text(problem.prompt) for split in SHARES for problem in task.problems(split)}
    assert not asked & {row["prompt"] for row in rows}
    rng = random.Random(0)
    for story in [tell(rng, 2) for _ in range(20)]:
        for style in STYLES:
            assert style_of(respond(story, style)) == style
            assert respond(story, style).endswith(f"\\boxed{{{value(story.expression)}}}")
    problems = task.problems("test")[:20]
    with MathVerifier() as verifier:
        right = verifier.verify([(one, f"1 + 1 = 2. \\boxed{{{one.answer}}}") for one in problems])
        wrong = verifier.verify([(one, f"1 + 1 = 2. \\boxed{{{int(one.answer) + 1}}}") for one in problems])
    assert all(one.correct for one in right) and not any(one.correct for one in wrong)


@pytest.mark.parametrize(
    ("response", "style"),
    [
        ("9 * 4 = 36, 36 + 2 = 38. \\boxed{38}", "steps"),
        ("9 * 4 + 2 = 38. \\boxed{38}", "expression"),
        ("9 * 4 = 36, 36 + 2 + 1 = 39. \\boxed{39}", "expression"),
        ("\\boxed{38}", "answer"),
        ("Thirty-eight. \\boxed{38}", "answer"),
        ("9 * 4 + 2 = 38", "other"),
    ],
)
def test_styles_by_form(response: str, style: str) -> None:
    assert style_of(response) == style


def test_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no split 'dve'"):
        WordProblems().problems("dve")
    with pytest.raises(UserError, match="test_problems is 0"):
        WordProblems(test_problems=0)
    with pytest.raises(UserError, match="fewer than 40 problems"), monkeypatch.context() as patched:
        patched.setattr("experiments.word_problems._SMALL", 3)
        patched.setattr("experiments.word_problems._LARGE", 3)
        patched.setattr("experiments.word_problems._OPERATIONS", (1,))
        WordProblems(dev_problems=40).problems("dev")
