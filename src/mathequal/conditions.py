"""What an answer says beside its value, and whether the question bears it out: a hedge, and excluded values."""

import re

from mathequal.answers import VALUES, Answer, Equation
from mathequal.asked_formulas import formulas_of
from mathequal.budget import Budget
from mathequal.identity import identical
from mathequal.nodes import Function, Node, Power, Quotient, Relation
from mathequal.numeric import is_undefined
from mathequal.trees import holds, replaced, symbols

_ASKS_TO_ROUND = re.compile(
    r"\b(?:about|approximat\w*|round\w*|nearest|closest|estimat\w*|decimals?|significant|redonde\w*|arrond\w*|gerundet|"
    r"runden?|arrotond\w*|aproximad\w*|environ|etwa|ungef\w*)\b|округл|приближ|примерно|四舍五入|大约|约|近似|精确到|≈|"
    r"\\approx",
    re.I,
)
"""Questions for which "about 5" answers 5."""


def may_hedge(gold: Answer, gold_text: str, question: str) -> bool:
    """Whether "about 5" may stand for 5: the gold answer says so too, or the question asks for a rounded value."""
    rounded = gold.hedged or gold_text.lstrip("$ ").startswith(("\\approx", "≈"))
    return rounded or _ASKS_TO_ROUND.search(question) is not None


def may_exclude(gold: Answer, answer: Answer, question: str, budget: Budget) -> bool:
    """Whether the values that an answer excludes are the gold answer's, and others are points at which a
    formula of the question with the same letter is undefined."""
    points = [dict([x.sides]) for x in answer.excluded if isinstance(x, Relation)]
    nodes = [node for _, x in formulas_of(question) for node in _nodes(x) if symbols(node) & symbols(answer.excluded)]
    nodes = [node for node in nodes if holds(node, Quotient, Power, Function)]  # the others are defined everywhere

    def is_of_question(at: dict[Node, Node]) -> bool:
        return any(is_undefined(replaced(x, at), budget) for x in nodes)

    if not gold.excluded:
        return not nodes or all(map(is_of_question, points))
    sides = [x.sides for x in gold.excluded if isinstance(x, Relation)]
    found = [[name in at and identical(value, at[name], budget) is True for name, value in sides] for at in points]
    named = all(any(column) for column in zip(*found, strict=True)) and len(points) >= len(gold.excluded)
    return named and all(any(row) or is_of_question(at) for row, at in zip(found, points, strict=True))


def _nodes(answer: Answer) -> list[Node]:
    """The expressions of an answer: of its members, and the sides of an equation."""
    inner = [node for item in answer.items for node in _nodes(item)]
    if isinstance(answer, VALUES):
        return [answer.value]
    return [*answer.sides] if isinstance(answer, Equation) else inner
