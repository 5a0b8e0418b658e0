"""Gold answers: which of them are weak tests, and how one looks as a response."""

from collections.abc import Mapping, Sequence

from dph.types import Problem
from dph.verifiers.exact import gold_list, gold_text
from dph.verifiers.protocol import Verifiers

FORMS: Mapping[str, str] = {"sql": "```sql\n{}\n```", "math": "\\boxed{{{}}}"}
"""How a response states its answer for a verifier; for another one, it is the answer alone."""

WEAK: Mapping[str, str] = {
    "changes": "another result each time: date('now') or random()",
    "decimal_comma": "two numbers, unless the comma is a decimal one",
    "empty": "no rows, which every query without rows equals",
    "limit_ties": "rows tie at its LIMIT",
    "order_ties": "its ORDER BY leaves rows tied",
}
"""What each flag of a weak gold means."""


def gold_response(problem: Problem) -> str:
    """The gold answer, the first of several, in the form in which the problem's verifier pays for it."""
    return FORMS.get(problem.verifier, "{}").format(gold_text(gold_list(problem.answer)[0]))


def tried_golds(
    verifiers: Verifiers, problems: Sequence[Problem], most: int | None = 5
) -> tuple[list[Problem], list[str]]:
    """Problems whose gold answer can be judged against; and a line about each other one, and about each flag (see
    `Verifiers.flags`) of those that are kept, the most frequent flag first. most: ids that are named; None: all."""
    broken = verifiers.check(problems)
    usable = [problem for problem in problems if problem.id not in broken]
    lines = [f"left out: {id}: {reason}" for id, reason in list(broken.items())[:most]]
    if more := list(broken)[len(lines) :]:
        lines.append(f"left out: {_some(more, most)}")
    weak: dict[str, list[str]] = {}
    for id, flags in verifiers.flags(usable).items():
        for flag in flags:
            weak.setdefault(str(flag), []).append(id)
    for flag, ids in sorted(weak.items(), key=lambda item: -len(item[1])):
        lines.append(f"weak, {flag} ({WEAK.get(flag, flag)}): {_some(ids, most)}")
    return usable, lines


def _some(ids: Sequence[str], most: int | None) -> str:
    left = len(ids[most:]) if most else 0
    return ", ".join(ids[:most]) + (f" and {left} more" if left else "")
