"""The verifier countdown: values against Python's own evaluation of fractions, forms against enumerated rewritings,
hostile responses, and problems that cannot be judged."""

import re
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dph.rewards import reward_function
from dph.types import Outcome, Problem
from dph.verifiers import Verifiers
from dph.verifiers.countdown import LONGEST, Tree, canonical, numbers, parse, value, write

TREES = st.recursive(st.integers(0, 12), lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner), max_leaves=6)


def problem(answer: object = "15", given: object = (3, 4, 8, 9)) -> Problem:
    return Problem("p", "3,4,8,9>15:", answer, "countdown", {"numbers": given})


def outcome(text: str, **changes: object) -> Outcome:
    return Verifiers().verify([(problem(**changes), text)])[0].outcome


def in_full_brackets(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else f"({in_full_brackets(tree[1])}{tree[0]}{in_full_brackets(tree[2])})"


def by_python(text: str) -> Fraction | None:
    try:
        return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})
    except ZeroDivisionError:
        return None


# Reading and values ------------------------------------------------------------------------------------------------


@given(TREES)
def test_an_expression_has_the_value_that_python_gives_it_and_is_written_so_that_it_is_read_again(tree: Tree) -> None:
    text, full = write(tree), in_full_brackets(tree)
    assert parse(text) == parse(full) == tree or value(tree) == by_python(text), "a*(b*c) is written a*b*c"
    assert parse(full) == tree
    assert value(tree) == by_python(full) == by_python(text)
    assert len(text) <= len(full) and sorted(numbers(tree)) == sorted(map(int, re.findall(r"\d+", text)))


@given(st.lists(st.sampled_from(["1", "20", "+", "-", "*", "/", "(", ")", " "]), max_size=9).map("".join))
def test_a_text_is_read_if_and_only_if_python_reads_it_as_such_an_expression(text: str) -> None:
    unlike = re.search(r"\d +\d|\*\*|//|(^|[-+*/(]) *[-+]|\d *\(|\) *[\d(]", text)  # powers, signs, calls …
    try:
        expected = None if unlike else by_python(text)
    except SyntaxError:
        expected = None
    tree = parse(text)
    assert (None if tree is None else value(tree)) == expected


def test_verdicts_by_hand() -> None:
    assert outcome("8*3-9") is Outcome.CORRECT
    assert outcome(" ( 8 * 3 ) - 9 \n") is Outcome.CORRECT
    assert outcome("8*3-4") is outcome("3+4") is outcome("15") is Outcome.WRONG
    assert outcome("8/(4-4)") is outcome("9/(8-8)", given=[8, 8, 9]) is Outcome.WRONG
    assert outcome("8/(3-8/3)", answer="24", given=[3, 3, 8, 8]) is Outcome.CORRECT, "fractions on the way"
    assert outcome("7/2", answer="7/2", given=[2, 7]) is outcome("3-8", answer=-5) is Outcome.CORRECT
    assert outcome("0", answer=0, given=[0]) is Outcome.CORRECT


# Hostile responses -------------------------------------------------------------------------------------------------

NOT_EXPRESSIONS = {
    "power": "9**9**9**9**9",
    "floor division": "31//2",
    "text before": "the answer is 8*3-9",
    "text after": "8*3-9 = 15",
    "two lines": "8*3-9\n8*3-9",
    "arabic digits": "٨*٣-٩",
    "full-width digits": "８*３-９",
    "superscript": "8²",
    "other signs": "8×3−9",
    "sign": "-9+8*3",
    "decimals": "8.0*3-9",
    "exponent": "1e9",
    "underscore": "1_5",
    "leading zero": "08*3-9",
    "call": "exec('1')",
    "name": "x",
    "nothing": "",
    "brackets": "()",
    "open": "(" * LONGEST,
    "closed": "8)*3-9",
    "deep": "(" * 5000 + "8" + ")" * 5000,
    "long": "8" + "+8" * 5000,
    "huge number": "9" * 100_000,
    "null": "8*3-9\0",
}


@pytest.mark.parametrize("name", NOT_EXPRESSIONS)
def test_what_is_not_an_expression_is_no_answer_at_once(name: str) -> None:
    started = time.perf_counter()
    assert outcome(NOT_EXPRESSIONS[name]) is Outcome.NO_ANSWER
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize("text", ["8*3-9+4-4", "3*5", "9+9-3", "1*8*3-9", "8*3-9*1", "99999999*9", "(((8))*3)*8-9"])
def test_numbers_that_are_not_given_or_used_too_often_are_wrong(text: str) -> None:
    assert outcome(text) is Outcome.WRONG


def test_the_longest_texts_are_judged() -> None:
    depth = (LONGEST - 1) // 2
    assert outcome("(" * depth + "8" + ")" * depth, answer=8) is Outcome.CORRECT
    ones = (LONGEST + 1) // 2
    assert outcome("1" + "+1" * (ones - 1), answer=ones, given=[1] * ones) is Outcome.CORRECT


@pytest.mark.parametrize(
    "changes",
    [{"answer": answer} for answer in ("", "x", "1e9", "1/0", "٣", 1e300, True, None, [], [15, "x"], "9" * 10_000)]
    + [{"given": given} for given in (None, [], 3, "3489", "[3, x]", [3, "x"], [3, -4], [3, True], [1.5])],
)
def test_problems_that_cannot_be_judged_are_found_and_judge_nothing(changes: dict[str, object]) -> None:
    with Verifiers() as verifiers:
        assert verifiers.check([problem(**changes), problem()]).keys() == {"p"}
        [verdict] = verifiers.verify([(problem(**changes), "8*3-9")])
        assert verdict.outcome is Outcome.GOLD_ERROR and not verdict.scored
        assert verifiers.tell("solutions", [(problem(**changes), "8*3-9")]) == [None]
    assert not Verifiers().check([problem()])


FIFTEEN = {
    "numpy": np.int64(15), "float": 15.0, "float of numpy": np.float64(15), "Decimal": Decimal("15.0"),
    "Fraction": Fraction(15), "text": " 15 ", "text of a column with nulls": "15.0", "several": [7, 15],
    "array": np.array([15]), "array without dimensions": np.array(15), "tensor": torch.tensor(15),
    "tensor of one": torch.tensor([15]), "Arrow": pa.scalar(15), "array of Arrow": pa.array([15]),
}  # fmt: skip
GIVEN = {
    "array": np.array([3, 4, 8, 9]), "numbers of numpy": [np.int64(n) for n in (3, 4, 8, 9)],
    "floats": [3.0, 4.0, 8.0, 9.0], "Decimals": [Decimal(n) for n in (3, 4, 8, 9)], "texts": ["3", "4", "8", "9"],
    "text": "[3, 4, 8, 9]", "numpy's text": "[3 4 8 9]", "words": "3 4 8 9", "tensor": torch.tensor([3, 4, 8, 9]),
    "tensors": [*torch.tensor([3, 4, 8, 9])], "Arrow": pa.array([3, 4, 8, 9]),
    "Arrow's row": pa.array([[3, 4, 8, 9]])[0],
}  # fmt: skip


@pytest.mark.parametrize("name", FIFTEEN)
def test_targets_of_every_type(name: str) -> None:
    assert outcome("8*3-9", answer=FIFTEEN[name]) is Outcome.CORRECT
    assert outcome("8*3-4", answer=FIFTEEN[name]) is Outcome.WRONG


@pytest.mark.parametrize("name", GIVEN)
def test_given_numbers_of_every_type(name: str) -> None:
    assert outcome("8*3-9", given=GIVEN[name]) is Outcome.CORRECT
    assert outcome("3*5", given=GIVEN[name]) is Outcome.WRONG
    judge = reward_function("countdown")
    assert judge(["8*3-9", "15"], answer=[1.5e1] * 2, nums=[GIVEN[name]] * 2) == [1.0, 0.0]


def test_it_is_a_reward_of_other_trainers_too() -> None:
    judge = reward_function("countdown")
    assert judge(completions=["8*3-9", "9-3"], answer=["15", "15"], numbers=[[3, 4, 8, 9]] * 2) == [1.0, 0.0]


# Canonical forms ---------------------------------------------------------------------------------------------------


def rewritings(tree: Tree) -> set[Tree]:
    """The tree and all that one step makes of it or of a part: a swap, another grouping, two changes of sign, 1."""
    if isinstance(tree, int):
        return {tree}
    operator, left, right = tree
    found: set[Tree] = set()
    found.update((operator, one, right) for one in rewritings(left))
    found.update((operator, left, one) for one in rewritings(right))
    if operator in "+*":
        found.add((operator, right, left))
    if isinstance(left, tuple):
        inner, a, b = left
        if operator in "+-" and inner in "+-":  # (a ∘ b) ± c = a ∘ (b ± c) or a - (b ∓ c)
            swapped = operator if inner == "+" else {"+": "-", "-": "+"}[operator]
            found.add((inner, a, (swapped, b, right)))
            found.add((inner, (operator, a, right), b))
        if operator in "*/" and inner in "*/":
            swapped = operator if inner == "*" else {"*": "/", "/": "*"}[operator]
            found.add((inner, a, (swapped, b, right)))
            found.add((inner, (operator, a, right), b))
    if operator in "*/" and isinstance(left, tuple) and isinstance(right, tuple) and left[0] == right[0] == "-":
        found.add((operator, ("-", left[2], left[1]), ("-", right[2], right[1])))
    if operator in "*/" and right == 1:
        found.add(("*" if operator == "/" else "/", left, right))
    return found


@given(TREES)
def test_rewritings_of_a_solution_have_its_form(tree: Tree) -> None:
    reached, frontier = {tree}, {tree}
    for _ in range(3):
        frontier = {one for other in frontier for one in rewritings(other)} - reached
        reached |= frontier
        if len(reached) > 400:
            break
    assert {canonical(one) for one in reached} == {canonical(tree)}


@given(TREES, TREES)
def test_equal_forms_have_equal_values_and_numbers(one: Tree, other: Tree) -> None:
    if canonical(one) == canonical(other):
        assert value(one) == value(other) and sorted(numbers(one)) == sorted(numbers(other))


def test_forms_that_differ() -> None:
    texts = ["8*3-9", "9+8-3", "9-8/4*3", "3*(9-4)", "3*9-4*3", "(9-4)*3/1", "4+4", "8+0", "2*2*2", "8"]
    forms = [canonical(tree) for tree in map(parse, texts) if tree is not None]
    assert len(set(forms)) == len(texts)
    assert len({canonical(tree) for text in ("2+2", "2*2", "2+2*1", "2+2/1") if (tree := parse(text))}) == 3
