r"""The answer that a response states: that of its box with what stands beside it, or of its last tag. $x\ge\boxed{5}$
states \ge 5, and "\boxed{5} million" states 5\text{ million}."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from mathequal.answers import Answer, Chain, Expression, words_in
from mathequal.asked import letter_asked
from mathequal.beside import NOTHING, Around, Joined, after_it, before_it
from mathequal.beside_units import currency_beside, unit_beside
from mathequal.beside_words import ABOUT, NOT
from mathequal.extract import Box, Fallback, found_answer, the_box
from mathequal.last_number import last_number_in
from mathequal.nodes import Function, Negative, Power, Product, Quotient, Sum, Symbol
from mathequal.reading import read
from mathequal.retracted import retraction
from mathequal.trees import symbols

_LONGEST = 2000  # characters at the end of a response in which its last tag is looked for
_TOLD = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>\s*(?:<\|?[\w▁]{1,20}\|?>\s*)?\Z", re.S | re.I)
"""An answer in tags at the very end of a response."""
_NAME = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?")
_MEMBERS = re.compile(
    r"(?<![\\<>!])=|(?<!\\)&|\\\\|[,;:]|\\(?:q?quad|implies|iff|Rightarrow|therefore|to)(?![A-Za-z])|[\n$]"
)
_SPACING = re.compile(r"\\[,;:! ]|\\(?:left|right|displaystyle)(?![A-Za-z])|[{}]$")
_VALUE = r"[-+]?\d[\d.]*(?:/\d+)?|-?\\[dt]?frac\s*\{\d+\}\s*\{\d+\}|[-+]?\d*\\sqrt\s*\{?\d+\}?"
_LETTER = r"[A-Za-z](?:_\{?\w\}?)?"
_EARLIER = re.compile(
    rf"(?:^|[\s$,(:{{])(?:(?P<name>{_LETTER})\s*=\s*)?(?P<value>{_VALUE})\s*(?:\\[,;: ]|\\q?quad)*\s*"
    rf"(?P<link>\\text\s*\{{\s*(?:or|and)\s*\}}|\\l(?:or|and)(?![a-z])|,)\s*(?:(?P<own>{_LETTER})\s*=\s*)?$"
)
r"""A value before a box in one formula: x = 2, x = \boxed{9}."""
_EARLIER_FORMULA = re.compile(
    rf"(?:^|[\s(])\$(?P<name>{_LETTER})\s*=\s*(?P<value>{_VALUE})\$\s*,?\s*(?:or|and)\s+\$?(?P=name)\s*=\s*\$?$"
)
_ASKED = re.compile(
    r"\b(?:find|determine|what is|what's|calculate|compute|values? of|solutions? for|solve for)\s+"
    r"(?:the value of |all )?\$?\\?\(?([a-z])(?![\w^_(+*/'-]|\s*[-+^*/(_]|\\)|\bangle \$?([a-z])(?!\w)",
    re.I,
)
_SOLVE = re.compile(r"\bsolve\b", re.I)


class Statement(NamedTuple):
    """The answer that a response states."""

    answer: str
    rules: tuple[str, ...] = ()
    """The rules for what stands beside its box that have changed it."""


def statement(
    response: str, golds: Sequence[str] = (), question: str = "", fallback: Fallback = "none"
) -> Statement | None:
    """The answer that a response states; None without one. golds: the right answers, and question: what they answer,
    say what the words, units and conditions beside a box mean."""
    told = _TOLD.search(response, max(0, len(response) - _LONGEST)) if "answer>" in response else None
    if told and "boxed" not in told[1]:  # the tag is the last word
        answer = found_answer(told[1], "phrase") or told[1].strip(" *$\n")
        return Statement(answer) if answer else None
    answer = found_answer(response, fallback)
    if not answer:
        return None
    box = the_box(response, answer) or (_number(response, answer) if fallback == "last_number" else None)
    return Statement(answer) if box is None else _with_beside(answer, box, golds, question)


def _number(response: str, answer: str) -> Box | None:
    """The place of the last number of a response without a box, in place of the box."""
    number = last_number_in(response) if "box" not in response else None
    if number is None or number.text != answer:
        return None
    return Box(number.before, number.after.partition("\n")[0], "", "", number.formula)


def _with_beside(answer: str, box: Box, golds: Sequence[str], question: str) -> Statement:
    """An answer with what stands beside its box, or denied if the response takes the box back."""
    if taken_back := retraction(box, answer, golds, question):
        return Statement(f"{NOT}({answer})", (taken_back,))
    around = Around(answer, golds, question, box.before)
    before = box.before.rstrip("$ {(\\")[:-1] if box.left == "-" else box.before
    left = before_it(before, around) if box.left in ("", "-") else NOTHING
    if not left.text and box.left == "":
        left = _left_side(box, around)
    right = NOTHING if box.right else after_it(box.after, around)
    after = box.after if box.right else right.rest
    if ABOUT in (left.text, right.text) and any("." in gold for gold in golds):  # the gold answer is rounded itself
        left, right = (NOTHING if side.text == ABOUT else side for side in (left, right))
    joined, unit, currency = right.text, "", currency_beside(box.before[-20:])
    if after and (not joined or "text" in joined):
        unit = unit_beside(after, things="\\" in after and any(words_in(gold) for gold in around.golds))
    if (currency or unit) and _member(around.typed) != "expression":
        currency = unit = ""
    if currency:
        answer = f"{currency} {answer}"
    elif unit and not joined:
        answer = rf"{answer}\text{{ {unit}}}"
    elif unit and joined != ABOUT:
        joined = rf"{joined[:-1]} {unit}}}"
    if not left.text and not joined:
        return Statement(answer)
    first = left.text + joined if joined in (ABOUT, NOT) else left.text
    rules = tuple(side.rule for side in (left, right) if side.text)
    return Statement(f"{first}{answer}{'' if joined in (ABOUT, NOT) else joined}", rules)


def _member(typed: Answer | None) -> str:
    """The kind of an answer, or of the last member of a chain."""
    return "" if typed is None else (typed.items[-1] if isinstance(typed, Chain) else typed).kind


class LeftSide(NamedTuple):
    """A rule for what stands before a box in its formula."""

    id: str
    joined: Callable[[Box, str, Around], str]
    """(box, formula before it, what is known) → what stands for it before the answer; "" if it changes nothing."""


def _left_side(box: Box, around: Around) -> Joined:
    """What the formula before a box makes of its value."""
    formula = box.before if box.formula is None else box.formula
    end = formula[-24:].rstrip(" &{($*\n")
    if end[-1:] not in "=,}rd":  # an equation, a comma, \text{ or }, \lor and \land
        return NOTHING
    for rule in LEFT_SIDES:
        if joined := rule.joined(box, formula, around):
            return Joined(joined, rule.id)
    return NOTHING


def _equation(_box: Box, formula: str, around: Around) -> str:
    """The left side of an equation whose right side is the box, if that is not what is asked."""
    plain = _SPACING.sub("", formula).rstrip(" &{($*\n")
    return _equated(_MEMBERS.split(plain[:-1])[-1].strip(" &$"), around) if plain[-1:] == "=" else ""


def _earlier_value(box: Box, formula: str, around: Around) -> str:
    """A value that stands before the box in a list."""
    earlier = _EARLIER.search(formula[-60:]) or _EARLIER_FORMULA.search(box.before)
    if (
        earlier
        and earlier["name"] in (None, around.name, around.name or earlier["name"])
        and around.kind == "expression"
    ):
        alone = box.formula is None or earlier["name"] or formula[-60:][: earlier.start("value")].strip(" ({\\[") == ""
        if alone and earlier["value"] not in around.question:
            return rf"{earlier['value']}\text{{ and }}"
    return ""


def _equated(member: str, around: Around) -> str:
    r"""What is equal to a box, if it is not what is asked: 2x = \boxed{9}, x = \boxed{2x+1}."""
    if not member or len(member) > 40:
        return ""
    plain = _NAME.fullmatch(member) is not None
    if plain and (around.answer.isdecimal() or not around.asks_for("assigned")):
        return ""
    letter = "" if plain else _letter(around.question)
    named = around.asks_for("assigned")
    if not named and not (letter and letter in member):
        return ""
    left, typed = read(member), around.typed
    if not isinstance(left, Expression) or not isinstance(typed, Expression):
        return ""
    node = left.value
    computed = isinstance(node, (Power, Product, Sum, Negative, Quotient, Function))
    other = named and ({*symbols(node)} & {*symbols(typed.value)} or computed)
    if other and (computed or isinstance(node, Symbol)) and symbols(node):
        return f"{member}="
    asked = letter and symbols(node) == {letter} and computed
    return f"{member}=" if asked else ""


LEFT_SIDES = [LeftSide("before.left-side", _equation), LeftSide("before.further", _earlier_value)]


@lru_cache(maxsize=1024)
def _letter(question: str) -> str:
    """The letter whose value a question asks for; "" if it names none."""
    if letter := letter_asked(question):
        return letter
    if found := _ASKED.search(question):
        return found[1] or found[2]
    if not _SOLVE.search(question):
        return ""
    letters = {*re.findall(r"(?<![A-Za-z\\])([a-z])(?![A-Za-z])", question)} - {"a", "e", "i"}
    return letters.pop() if len(letters) == 1 else ""
