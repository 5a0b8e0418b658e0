r"""How a verdict came about: which answer a response states, how both were read, and the rules that decided.

>>> print(explain("5", r"There are at least $\boxed{5}$."))
not equal: sets of reals
gold    5  (number 5)
answer  \ge 5  (intervals)
rule    before.at-least: at least, in words
"""

from typing import NamedTuple

from mathequal.answers import VALUES, Answer, Expression, Quantity
from mathequal.extract import Decimals, Fallback
from mathequal.judge import Judgement, compare
from mathequal.rational import exact
from mathequal.reading import read
from mathequal.responses import Statement, statement
from mathequal.rulebook import rule_tables, told, without

_REWRITE = ("spelling", "phrases", "notation")


class Explanation(NamedTuple):
    """A verdict, and how it came about. As a text it is what people read."""

    judgement: Judgement
    gold: str
    answer: str | None
    """The answer that the response states; None without one."""
    rules: tuple[str, ...]
    """Ids of the rules for what stands beside the box that have changed the answer, and of those for notation and
    English without which the verdict would be another."""

    def __str__(self) -> str:
        equal, rule = self.judgement.equal, self.judgement.rule
        meanings = told()
        lines = [f"{'equal' if equal else 'not equal'}: {rule}", f"gold    {described(self.gold)}"]
        lines.append(f"answer  {'none found' if self.answer is None else described(self.answer)}")
        lines += [f"rule    {id}: {meanings[id].meaning}" if id in meanings else f"rule    {id}" for id in self.rules]
        return "\n".join(lines)


def explain(
    gold: str,
    response: str,
    *,
    decimals: Decimals = "exact",
    question: str = "",
    fallback: Fallback = "none",
    bare: bool | None = None,
) -> Explanation:
    """How a response, or an answer alone, is judged. It takes as long as some dozens of comparisons.

    decimals, question: as for `compare`; fallback: as for `find_answer`; bare: whether the text is an answer alone; by
    default it is if it has neither a box nor a tag.
    """
    bare = bare if bare is not None else not ("box" in response or "answer>" in response or fallback != "none")

    def found() -> Statement | None:
        return Statement(response) if bare else statement(response, [gold], question, fallback)

    stated = found()
    if stated is None:
        return Explanation(Judgement(False, "no answer"), gold, None, ())

    def equal() -> bool:
        again = found()
        return again is not None and compare(gold, again.answer, decimals=decimals, question=question).equal

    judgement = compare(gold, stated.answer, decimals=decimals, question=question)
    decisive = list[str]()
    for id in _candidates(gold + stated.answer):
        with without(id):
            if equal() != judgement.equal:
                decisive.append(id)
    return Explanation(judgement, gold, stated.answer, (*stated.rules, *decisive))


def _candidates(text: str) -> list[str]:
    """The rules that a text may have met on its way to its usual spelling."""
    low = text.lower()
    tables = [rules for name, rules in rule_tables().items() if name.startswith(_REWRITE)]
    found = [rule for rules in tables for rule in rules if rule.needs.lower().strip("\x01\x02") in low]
    return [rule.id for rule in found]


def described(text: str) -> str:
    """An answer's text, its kind, and its value if that is a rational number; 3 m is shown as a quantity."""
    answers = [answer for answer in (read(text, units=True), read(text)) if answer]
    answer = next((answer for answer in answers if isinstance(answer, Quantity)), answers[-1] if answers else None)
    return f"{text}  ({shown(answer) if answer else 'not read'})"


def shown(answer: Answer) -> str:
    """The kind of an answer, with those of its members, or its value if that is a rational number."""
    if isinstance(answer, VALUES):
        value = exact(answer.value)
        kind = "number" if isinstance(answer, Expression) and value is not None else answer.kind
        return kind if value is None else f"{kind} {value}"
    members = ", ".join(map(shown, answer.items))
    return f"{answer.kind} of {members}" if members else answer.kind
