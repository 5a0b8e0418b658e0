"""Equality of values with their names, and of chains of values that are said to be equal."""

from dataclasses import replace

from mathequal.answers import (
    VALUES,
    Answer,
    Chain,
    Code,
    Date,
    Equation,
    Expression,
    Inequality,
    Letters,
    Members,
    Quantity,
    Several,
    Text,
    Time,
    letters_of,
)
from mathequal.asked import asks_for_a_function, letter_asked
from mathequal.comparison import Comparison, all_of, any_of, same_name
from mathequal.equal_relations import equations, sides_of
from mathequal.equal_values import approximates, converted, same_value
from mathequal.nodes import Call, Node, Symbol
from mathequal.trees import numeral, replaced, symbols

_WITHOUT_NAMES = (Text, Letters, Time, Date, Code, Inequality)


def named(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """x = 5, f(x) = …, x ∈ S, and chains a = b = c."""
    if isinstance(gold, Equation) or isinstance(answer, Equation):
        if isinstance(gold, Chain) and asks_for_a_function(c.question):
            return False
        sides = sides_of(answer if isinstance(gold, Equation) else gold)
        curve = len(sides) == 2 and bool(symbols(sides[1])) and isinstance(sides[0], (Symbol, Call))
        return curve and equations(c, gold, answer)
    if isinstance(gold, Chain):
        if isinstance(answer, Chain):
            return _chains(c, gold, answer)
        return any_of(c.equal(member, answer) for member in _exact_members(gold))
    assert isinstance(answer, Chain)  # one of both is
    if isinstance(gold, Expression) and answer.name == gold.value and {*answer.links} == {"~"}:
        return all_of(approximates(c, gold, x) for x in answer.items)
    if answer.name is not None and not _may_have_name(c, gold, answer.name):
        return False
    together = len(answer.items) == 1 and isinstance(answer.items[0], (Several, Members))
    return (together or not isinstance(gold, (Several, Members))) and chain(c, gold, answer)


def _chains(c: Comparison, gold: Chain, answer: Chain) -> bool | None:
    """Equality of two values with names, or of two curves with others."""
    pairs = [(x, y) for x in gold.items for y in answer.items if isinstance(x, Quantity) and isinstance(y, Quantity)]
    if pairs and not any(x.unit == y.unit or c.equal(x, y) for x, y in pairs):
        return False  # though members without units are equal
    answer = _with_arguments_of(gold, answer) or answer
    if same_name(gold.name, answer.name):
        if len(gold.items) > 1 and any(isinstance(x, VALUES) and isinstance(x.value, Symbol) for x in gold.items):
            return c.in_order(gold.items, answer.items)  # a = b = 0
        return any_of(chain(c, member, answer) for member in _exact_members(gold))
    if asks_for_a_function(c.question):
        return False
    curves = [x for x in (gold, answer) if len(x.sides) == 2 and symbols(x.sides[1])]
    return len(curves) == 2 and equations(c, *curves)


def _may_have_name(c: Comparison, gold: Answer, name: Node) -> bool:
    """Whether a gold answer without a name may be what a name stands for."""
    if isinstance(gold, _WITHOUT_NAMES):
        return False
    if isinstance(name, Symbol) and isinstance(gold, VALUES):
        asked = letter_asked(c.question) if isinstance(gold, Expression) and not symbols(gold.value) else ""
        other_letter = len(name.name) == 1 and name.name.islower() and name.name != asked  # y = 5 for x
        return not (asked and other_letter) and not symbols(name) & symbols(gold.value)
    of_expression = isinstance(name, Call) and not all(isinstance(x, Symbol) for x in name.arguments)  # f(2x)
    return not (of_expression and letters_of(gold))


def chain(c: Comparison, gold: Answer, answer: Chain) -> bool | None:
    """Every member of the answer's chain must be right, or a right one in another unit (1.5 m = 150 cm); after an
    approximation sign, to its last digit. Formulas on the way to a number, of N = x + y = 76, only say what it is,
    as \\gcd(12, 18) does before 6."""
    exactly = _exact_members(answer)
    about = [x for link, x in zip(answer.links, answer.items, strict=True) if link != "="]
    if len(exactly) > 1 and isinstance(gold, VALUES) and not symbols(gold.value):
        *others, last = exactly
        exactly = [*(x for x in others if not _is_definition(x, answer)), last]
    if "~" in answer.links[1:] and _is_rounded_to(c, gold, exactly, about):
        return True
    equal = [c.equal(gold, x) for x in exactly]
    if len(answer.items) == 1:
        return equal[0]
    known = [x for same, x in zip(equal, exactly, strict=True) if same and isinstance(x, Quantity)]
    right = [
        any_of([same, same_value(c, gold, x, last=x is exactly[-1]), any_of(converted(c, y, x) for y in known)])
        for same, x in zip(equal, exactly, strict=True)
    ]
    rounded = [approximates(c, gold, x) for x in about]
    steps = [same is not False for same in right[:-1]]  # an integral before its value is not worked out again
    return all_of([*steps, right[-1], *rounded, any_of(equal)])


def _is_rounded_to(c: Comparison, gold: Answer, exactly: list[Answer], about: list[Answer]) -> bool:
    """Whether a chain ends with a gold number to which its exact members round: 5√2 ≈ 7.07 for 7.07."""
    if not isinstance(gold, Expression) or numeral(gold.value) not in ("int", "dec", "sci"):
        return False
    values = [x.value for x in exactly if isinstance(x, VALUES) and not symbols(x.value)]
    ends = [x.value for x in about if isinstance(x, VALUES)]
    errors = [abs(c.error(value, end)[0]) for end in ends for value in values]
    return len(errors) >= len(about) and max(errors) <= 0.5001 and all(c.equal(gold, x) for x in about)


def _is_definition(member: Answer, chain: Chain) -> bool:
    """Whether a member of a chain only says what its number is: xy of N = xy = 6, but not 2x of 2x = 6."""
    letters = symbols(member.value) if isinstance(member, Expression) else set()
    return len(letters) > (chain.name is None)


def _exact_members(answer: Chain) -> list[Answer]:
    """The members of a chain that are said to be equal; approximations follow the first."""
    return [x for n, (link, x) in enumerate(zip(answer.links, answer.items, strict=True)) if n == 0 or link == "="]


def _with_arguments_of(gold: Chain, answer: Chain) -> Chain | None:
    """f(t) = t² with the argument of f(x) = x²; None if the two are not calls of one function with other arguments."""
    left, right = gold.name, answer.name
    if not isinstance(left, Call) or not isinstance(right, Call) or left.name != right.name or left == right:
        return None
    arguments, others = left.arguments, right.arguments
    if len(arguments) != len(others) or not all(
        isinstance(x, Symbol) and not x.name[0].isupper() for x in (*arguments, *others)
    ):
        return None
    if {x.name for x in arguments} & {name for x in answer.items for name in letters_of(x)}:
        return None
    if {x.name for x in others} & {name for x in gold.items for name in letters_of(x)}:
        return None
    renamed = dict(zip(others, arguments, strict=True))
    items = (replace(x, value=replaced(x.value, renamed)) if isinstance(x, VALUES) else x for x in answer.items)
    return replace(answer, items=tuple(items), name=left)
