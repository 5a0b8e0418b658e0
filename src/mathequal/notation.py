r"""Notation of answers that says nothing about the value, or says it in another way: constants of integration, sums
with dots, and to how many places a value is rounded. Text is plain LaTeX, in which the words of \text{…} are
marked."""

import re
from itertools import pairwise

from mathequal.rulebook import table

_MARKS = r"[\s\x01\x02]*"
_LONGEST_SUM = 200
_TERM = r"\d{1,9}"


def _without_constant(found: re.Match[str]) -> str:
    """Nothing in place of what says that a letter of the expression before it is a constant."""
    return (
        "" if re.search(rf"(?<![A-Za-z\\]){found['letter']}(?![A-Za-z])", found.string[: found.start()]) else found[0]
    )


def _whole_sum(found: re.Match[str]) -> str:
    """All terms of 1 + 3 + … + 19; the text itself unless they are in arithmetic progression."""
    first = [int(term) for term in re.findall(_TERM, found["first"])]
    steps, last = {y - x for x, y in pairwise(first)}, int(found["last"])
    step = steps.pop() if len(steps) == 1 else 0
    count = (last - first[0]) / step + 1 if step else 0
    if count != int(count) or not len(first) < count <= _LONGEST_SUM:
        return found[0]
    return "+".join(str(first[0] + n * step) for n in range(int(count)))


NOTATION = table((
    ("notation.constant", "const", r"(?<=\+) ?\x01 ?(?:const|constante?)\.? ?\x02", " C "),
    ("notation.is-constant", "",
        rf"{_MARKS}[,;(]?{_MARKS}(?:where|with|for)?{_MARKS}(?P<letter>[A-Z]){_MARKS}(?:\\in ?\\RR(?![\^_])|"
        r"(?:is|being|denotes) (?:an?|any|the|some) (?:(?:arbitrary|real|integration) )*constant(?: of integration)?)"
        rf"{_MARKS}\)?{_MARKS}$",
        _without_constant),
    ("notation.only", "nly", r"^\x01 ?[Oo]nly ?\x02 ?(?=[a-z] ?=|[-\d\\])", ""),
    ("notation.sum-with-dots", r"\ldots",
        rf"(?<![\w^.)}}*/-])(?P<first>{_TERM}(?: ?\+ ?{_TERM}){{1,9}}) ?\+ ?\\ldots ?\+ ?(?P<last>{_TERM})"
        r"(?![\w^.(!])",
        _whole_sum),
))  # fmt: skip
"""Notations whose meaning needs more than another spelling, in the order of their replacement."""

_PLACES = (
    r"(?:d\. ?p\.?|dp|s\. ?f\.?|sf|decimals?|decimal[\s\x01\x02]+places?|"
    r"significant[\s\x01\x02]+(?:figures|digits)|sig\.? ?figs?\.?)"
)
HEDGES = table((
    ("hedge.places", "",
        rf"(?<=\d){_MARKS},?{_MARKS}(?:\({_MARKS}|(?=[\s\x01(]*(?:correct|rounded|accurate|to)\b))"
        rf"(?:(?:correct|rounded|accurate) )?(?:to{_MARKS})?(?:\d|one|two|three|four|five)"
        rf"{_MARKS}{_PLACES}{_MARKS}\)?{_MARKS}$",
        ""),
    ("hedge.similar", r"\sim", r"^\\sim ?(?=[-+]?[\d.])", ""),
))  # fmt: skip
"""What says that a value is rounded, and to how many places."""
