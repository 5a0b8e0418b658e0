"""Gold answers: which of them are weak tests, and how one looks as a response."""

from collections.abc import Mapping, Sequence

from dph.types import Problem
from dph.verifiers.exact import gold_list, gold_text
from dph.verifiers.protocol import Verifiers

FORMS: Mapping[str, str] = {"sql": "```sql\n{}\n```", "math": "\\boxed{{{}}}"}
"""How a response states its answer for a verifier; for another one, it is the answer alone."""

WEAK: Mapping[str, str] = {
    "changes": "another result each time: date('now') or random()",
    "empty": "no rows, which every query without rows equals",
    "limit_ties": "rows tie at its LIMIT",
    "order_ties": "its ORDER BY leaves rows tied",
}
"""What each flag of a weak gold means."""


def gold_response(problem: Problem) -> str:
    """The gold answer, the first of several, in the form in which the problem's verifier pays for it."""
    return FORMS.get(problem.verifier, "{}").format(gold_text(gold_list(problem.answer)[0]))


def tried_golds(
    verifiers: Verifiers, problems: Sequence[Problem]
) -> tuple[list[Problem], dict[str, str], dict[str, list[str]]]:
    """Problems whose gold answer can be judged against; the reason by the id of each other one; and each flag (see
    `Verifiers.flags`) with the ids of the usable problems that have it, the most frequent flag first."""
    broken = verifiers.check(problems)
    usable = [problem for problem in problems if problem.id not in broken]
    weak: dict[str, list[str]] = {}
    for id, flags in verifiers.flags(usable).items():
        for flag in flags:
            weak.setdefault(str(flag), []).append(id)
    return usable, broken, dict(sorted(weak.items(), key=lambda item: -len(item[1])))


def some(ids: Sequence[str], most: int = 5) -> str:
    """The first of some ids, and how many more there are."""
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")
