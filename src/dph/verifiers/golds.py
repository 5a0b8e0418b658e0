"""Gold answers: which of them are weak tests, and how one looks as a response."""

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence

from dph.errors import counted
from dph.types import Problem, as_text
from dph.verifiers.exact import gold_list, gold_text
from dph.verifiers.protocol import Verifiers

FORMS: Mapping[str, str] = {"sql": "```sql\n{}\n```", "math": "\\boxed{{{}}}"}
"""How a response states its answer for a verifier; for another one, it is the answer alone."""

WEAK: Mapping[str, str] = {
    "changes": "another result each time: date('now') or random(), so never trained on",
    "decimal_comma": "two numbers, unless the comma is a decimal one",
    "empty": "no rows, which every query without rows equals",
    "limit_ties": "rows tie at its LIMIT",
    "order_ties": "its ORDER BY leaves rows tied",
}
"""What each flag of a weak gold means."""
NOTED: Mapping[str, str] = {
    "cleaned": "the answer is read without a label, its number in a list or a remark",
    "codes": "read as a date or a code in digits, which only the same digits equal",
    "names": "read as a name with a number, which only the same text equals",
    "words": "read as words, which only the same words equal, while others are values",
}
"""Flags of golds that are no weak tests, so that they are never skipped."""


_MOST_NOTED = 20
"""Golds with a note that are named where all that are left out are."""
_QUOTED = re.compile(r"""(?<![\w])(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?!\w)""")
"""A value that a reason quotes as Python writes it."""


def gold_response(problem: Problem) -> str:
    """The gold answer, the first of several, in the form in which the problem's verifier pays for it.

    >>> gold_response(Problem("a", "How many?", "SELECT 1", "sql"))
    '```sql\\nSELECT 1\\n```'
    >>> gold_response(Problem("b", "How many?", ["1/2", "0.5"], "math"))
    '\\\\boxed{1/2}'
    """
    return FORMS.get(problem.verifier, "{}").format(gold_text(gold_list(problem.answer)[0]))


def asked(problem: Problem) -> str:
    """What problems share that ask the same: the prompt without letter case, spacing, quotation marks, dollar signs and
    the punctuation of sentences. Signs of mathematics, points and commas within numbers and the prime of f' stay.

    >>> asked(Problem("a", "What is $3 + 4$?", "7", "math")) == asked(Problem("b", "what is 3+4", "7", "math"))
    True
    """
    text = unicodedata.normalize("NFKC", as_text(problem.prompt)).casefold().translate(_SAME_SIGNS)
    for pattern, usual in _SAID_ALIKE:
        text = pattern.sub(usual, text)
    return text.strip()


_SAME_SIGNS = dict.fromkeys(map(ord, '\u2018\u2019\u201c\u201d"`'), "'") | dict.fromkeys(range(0x2010, 0x2016), "-")
_SAID_ALIKE = [
    (re.compile(pattern), usual)
    for pattern, usual in (
        (r"\\[()\[\],;! ]|\$|[?\u00bf\u00a1\u3002\u3001\u2026]|[,.;:](?!\d)|(?<!\d)!(?!=)", " "),
        (r"(?<!\b[a-z])(?<!\b[a-z]')'", " "),
        (r"(?<=[a-z]{2})-(?=[a-z]{2})|\*\*(?=\S)|(?<=\S)\*\*|__", " "),
        (r"\s+", " "),
        (r" ?([-+*/=<>^(){}\[\]|]) ?", r"\1"),  # one space: of many, each would be the begin of a search
    )
]
"""What questions that ask the same may write differently, in the order of its replacement."""


def tried_golds(
    verifiers: Verifiers, problems: Sequence[Problem], most: int | None = 5, skip: Collection[str] = ()
) -> tuple[list[Problem], list[str]]:
    """Problems whose gold answer can be judged against; and a line about each reason why others cannot, about each flag
    (see `Verifiers.flags`), the most frequent one first, and about problems that ask the same and whose golds differ.

    most: ids that a line names; None: all. skip: problems with one of these flags are left out too.

    >>> from dph.verifiers import Verifiers
    >>> rows = [Problem("a", "1 + 1?", "2", "math"), Problem("b", "1 + 2?", "see above", "math")]
    >>> with Verifiers() as verifiers:
    ...     usable, lines = tried_golds(verifiers, rows)
    >>> [problem.id for problem in usable], lines
    (['a'], ["left out: b: the answer is 'see above', which says that it is missing"])
    """
    broken = verifiers.check(problems)
    usable = [problem for problem in problems if problem.id not in broken]
    lines = _left_out(broken, most)
    weak: dict[str, list[str]] = {}
    flagged = verifiers.flags(usable)
    for id, flags in flagged.items():
        for flag in flags:
            weak.setdefault(str(flag), []).append(id)
    for flag, ids in sorted(weak.items(), key=lambda item: -len(item[1])):
        if flag in NOTED:
            lines.append(f"{NOTED[flag]}: {counted(len(ids), 'gold')}: {_some(ids, most or _MOST_NOTED)}")
            continue
        done = "left out" if flag in skip else "weak"
        lines.append(f"{done}, {flag} ({WEAK.get(flag, flag)}): {counted(len(ids), 'gold')}: {_some(ids, most)}")
    usable = [problem for problem in usable if not {*map(str, flagged.get(problem.id, ()))} & {*skip}]
    if pairs := _contradictions(verifiers, usable):
        lines.append(f"the same question, but golds that contradict each other: {_some(pairs, most)}")
    return usable, lines


def _left_out(broken: Mapping[str, str], most: int | None) -> list[str]:
    """A line for each reason why golds cannot be used, the most frequent one first; reasons that differ in what they
    quote alone are one."""
    alike: dict[str, list[str]] = {}
    for id, reason in broken.items():
        alike.setdefault(_QUOTED.sub("…", reason), []).append(id)
    lines = []
    for ids in sorted(alike.values(), key=len, reverse=True):
        reasons = [broken[id] for id in ids]
        if len(ids) == 1:
            lines.append(f"left out: {ids[0]}: {reasons[0]}")
        elif len({*reasons}) == 1:
            lines.append(f"left out: {len(ids)} golds: {reasons[0]}: {_some(ids, most)}")
        else:
            quoted = [f"{id} ({found[0] if (found := _QUOTED.search(broken[id])) else ''})" for id in ids]
            lines.append(f"left out: {len(ids)} golds: {_QUOTED.sub('…', reasons[0])}: {_some(quoted, most)}")
    return lines


def _contradictions(verifiers: Verifiers, problems: Sequence[Problem]) -> list[str]:
    """Pairs of problems that ask the same of which one's gold is wrong by the other's, "3 and 7"."""
    first: dict[tuple[str, str, str], Problem] = {}
    tried: list[tuple[Problem, Problem]] = []
    for problem in problems:
        if verifiers.only or problem.verifier not in (*FORMS, "exact") or not (question := asked(problem)):
            continue
        before = first.setdefault((problem.verifier, question, str(problem.meta.get("db"))), problem)
        if before.answer != problem.answer:
            tried.append((before, problem))
    verdicts = verifiers.verify([(before, gold_response(problem)) for before, problem in tried])
    pairs = zip(tried, verdicts, strict=True)
    return [f"{a.id} and {b.id}" for (a, b), verdict in pairs if verdict.scored and not verdict.correct]


def _some(ids: Sequence[str], most: int | None) -> str:
    left = len(ids[most:]) if most else 0
    return ", ".join(ids[:most]) + (f" and {left} more" if left else "")
