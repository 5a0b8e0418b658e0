"""Finds the answer in a mathematical response."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from mathequal.languages import LINK_WORDS
from mathequal.last_number import last_number

Decimals = Literal["exact", "rounded"]
Fallback = Literal["none", "phrase", "last_number", "library"]

_BOX = re.compile(r"\\f?box(?:ed)?\s*(?=\{)|\\boxed(?:(?=\d)|\s+(?!\\f?box))(?P<bare>(?<=d)[\d.]*\d|[^\s{}$]+)")
_MOST_BOXES = 20
_LONGEST_REST = 600  # characters after a box that may take it back
_NAME = r"[A-Za-z](?:_\{?\w{1,3}\}?)?\s*&?\s*="
_AND = rf"{LINK_WORDS}|and|or|y|e|o|ou"
_SAME_LINE = re.compile(
    r"(?:\.?[\s$*]*\n\s*\**(?:[-*•+–]|\d{1,2}[.)]|\(?[a-h]\)|\(?[ivx]{1,4}\)|"
    r"(?:\w+ )?(?:case|root|solution|fall|cas|caso|part)\b[^$\n:]{0,20}:)|"  # one in each line
    rf"&(?={_NAME}|\s*=)|[\s$,;/&~*、，；]|\\[()\[\],;:!& ]|\\q?quad|\\\\|\\lor|\\land|"
    rf"\\(?:text|mathrm|mbox)\s*\{{[ ,;]*(?:{_AND})?[ ,]*\}}|"
    rf"(?<![^\W\d_])(?:(?:{_AND}|maybe|perhaps|possibly|else|vs\.?|as well as)(?![A-Za-z])|{_NAME}))*",
    re.I,
)
_CLOSED = re.compile(r"(?:[\s$~]|\\[,;:! ]|\\right(?![a-z]))*\)")
_NAMED = re.compile(rf"(?<![A-Za-z\\])({_NAME})[\s$]*$")
_FORMULA_ENDS = re.compile(r"(?<!\\)(?:\$+|\\[()\[\]])|\n\s*\n")
_APART = re.compile(
    r"(?<![\\<>])(?<!(?<![\w)}])!)=|(?<!\\)[;&≈]|(?<![\d}]):(?!\s*\d)|,(?!\d{3}(?!\d))|\\\\|(?<!\d)\.(?=\s|$)|"
    r"\\(?:approx|simeq|cong|sim|doteq|implies|iff|to|rightarrow|therefore|because|q?quad|Rightarrow|Longrightarrow|"
    r"Leftrightarrow|in|equiv|colon|[pb]?mod)(?![A-Za-z])|\(\s*(?:\\text\s*\{\s*)?mod|"
    r"\\(?:end|begin)\s*\{[^{}]*\}(?:\{[^{}]*\})?|"
    r"\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s*\{(?!\s*(?:or|and|thousand|[mb]illion|hundred|dozen)\b)[^{}]*\}"
)
"""Signs and words that part a box from the rest of its formula."""
_LESS = re.compile(r"(?<!\\)[<>]|\\(?:leq?|geq?|l[et]|g[et]|leqslant|geqslant)(?![A-Za-z])")
_UNITS = re.compile(
    r"(?:[{}/~\s]|(?:\\(?:mu|AA|Omega|mathrm|rm)|[munkMG]?(?:eV|Hz|Pa|mol|[msgJKVNWLA])|cm|kcal|amu|Volt|rad|min|hr?|ft|in)"
    r"(?![A-Za-z])(?:[{}\s]*\^\{?-?\d\}?)?)*"
)
_CHOICE = re.compile(r"(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?\s*\(?[A-J]\)?\s*\}?")
_NO_MEANING = re.compile(
    r"\\(?:[,;:! >]|(?:displaystyle|textstyle|[lL]arge|LARGE|[hH]uge|bf|rm|it|left|right|[bB]igg?[lr]?|checkmark|"
    r"square|blacksquare|Box|qed|qedsymbol|hfill|color\s*\{\w*\}|tag\s*\{[^{}]*\})(?![A-Za-z]))|~"
)
_WRAPPED = re.compile(
    r"(?:\\(?:math(?:bf|rm|it|sf)|text(?:bf|it|rm|sf|color\{\w+\})?|boldsymbol|bm|underline|emph|ensuremath)|(?<![\w}^\]]))\{$|(?<!\w)\($"
)
_MINUS = re.compile(r"[=(&]\s*-\s*$")
_AFTER = re.compile(r"\s?\^\s?(?:\{[^{}]*\}|\w)|\\%|\d{1,9}")
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s")
_WITH_SETS = re.compile(r"(?:[(\[][^()\[\]=]*[)\]]\s*\\(?:cup|cap|setminus|triangle)\s*)+$")
"""Sets before a box that are joined with it."""
_LAST, _FIRST = re.compile(r"[^\W\d_]+$"), re.compile(r"[^\W\d_]+|\?")
_OR = re.compile(
    r"[\s$]*,?\s*\(?or\s+(?:(?:maybe|perhaps|possibly)\s+)?(?:\$([^$]{1,60})\$|(-?\d[\d./]*(?:\s?\\?%)?)(?!\w))"
)
_PHRASE = re.compile(
    r"answer\s{0,3}(?:is|:)|####|(?:respuesta|resposta)(?: final)? ?(?:es|é|:)|antwort ?(?:ist|lautet|:)|"
    r"r[ée]ponse ?(?:est|:)|risposta(?: finale)? ?(?:è|:)|ответ ?:|odpowied[źz] ?:|"
    r"答案\s?(?:[是为為][:：]?|[:：])|答え?\s?[:：は]|답\s?[:：은]",
    re.I,
)
FORMULA = re.compile(r"\s*(?:\$\$?([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\])", re.S)
_CLAUSE = re.compile(
    r"\.(?=\s|$)|\n|[,;]?\s(?:because|since|which|as|so|where|thus|hence|by)\b|[,;]\s(?:and|but)\s(?=[a-z])"
)


def find_answer(response: str, fallback: Fallback = "none") -> str | None:
    r"""The answer of a response: the content of its last \boxed{…}, braces balanced, with the rest of its formula; or
    that of several boxes in one line.

    None if there is no box, or the last one is empty or never closed. fallback: what is read without a box.
    "phrase": what follows the last "answer is", "answer:" or "####": the formula that follows at once, or else the
    words up to the end of the clause; "last_number": this, or else the last number (see `last_number`).
    """
    boxes = _boxes(response)
    if boxes and boxes[-1][2] and _is_denied(response, *boxes[-1][:2]):
        return rf"\text{{not }}({boxes[-1][2]})"
    return found_answer(response, fallback)


def found_answer(response: str, fallback: Fallback = "none") -> str | None:
    """The same, whatever words stand beside a box."""
    boxes, parts = _boxes(response), list[str | None]()
    end = len(response)
    for start, close, content in boxes[: -1 - _MOST_BOXES : -1]:
        if parts and not (content and end - close <= 40 and _SAME_LINE.fullmatch(response, close, end)):
            break
        parts.insert(0, content)
        end = start
    if len(parts) == 1 and parts[0]:
        start, close, _ = boxes[-1]
        before, after = ("", "") if _CHOICE.fullmatch(parts[0]) else _beside(response, start, close)
        return f"{before}({parts[0]}){after}" if before or after else parts[0]
    if parts and None not in parts:
        names = [_NAMED.search(response, max(0, start - 12), start) for start, *_ in boxes[-len(parts) :]]
        if None not in names:
            parts = [f"{name and name[1].replace('&', '')} {part}" for name, part in zip(names, parts, strict=True)]
    if parts:
        if len({*parts}) == 1 or None in parts:
            return parts[-1]
        listed = ", ".join(map(str, parts))
        return f"({listed})" if _are_a_pair(response, boxes[-len(parts) :]) else listed
    phrases = [*_PHRASE.finditer(response)] if fallback != "none" else []
    if phrases:
        rest = response[phrases[-1].end() :].lstrip(" :*")
        if (formula := FORMULA.match(rest)) and not re.match(r",?\s*or\b", rest[formula.end() :].lstrip("$ ")):
            return next(filter(None, formula.groups())).strip() or None
        return _CLAUSE.split(rest, maxsplit=1)[0].strip(" $*") or None
    return last_number(response) if fallback == "last_number" else None


def _are_a_pair(response: str, boxes: Sequence[tuple[int, int, str | None]]) -> bool:
    """Whether boxes are the coordinates of a point, (\\boxed{3}, \\boxed{5})."""
    before = response[max(0, boxes[0][0] - 8) : boxes[0][0]].rstrip(" $~")
    opened = before.endswith("(") and before[-2:] != "\\("
    if not opened or not _CLOSED.match(response, boxes[-1][1]):
        return False
    between = "".join(response[a[1] : b[0]] for a, b in pairwise(boxes))
    return re.sub(r"[\s$,~]|\\[,;:! ]", "", between) == ""


class Box(NamedTuple):
    """The box that an answer comes from."""

    before: str
    """The end of what precedes it."""
    after: str
    """The beginning of what follows it, in its line."""
    left: str
    """What `find_answer` has taken into the answer of the text before it, and after it."""
    right: str
    formula: str | None
    """What precedes it in its formula; None outside of formulas."""
    rest: str = ""
    """What follows it, as far as it may take the box back."""


def the_box(response: str, answer: str) -> Box | None:
    """The box that an answer comes from; None if the answer is not that of one box."""
    boxes = _boxes(response)
    if not boxes or not (content := boxes[-1][2]):
        return None
    start, end = boxes[-1][:2]
    left, whole, right = ("", answer, "") if content == answer else answer.partition(f"({content})")
    if not whole:
        return None
    before, after = response[max(0, start - 80) : start], response[end : end + 100].partition("\n")[0]
    formula = _formula_before(response[max(response.rfind("\n\n", 0, start), start - 2000, 0) : start])
    rest = response[end : end + _LONGEST_REST]
    return Box(before, after, left, right, None if formula is None else formula[0], rest)


@lru_cache(maxsize=4)  # the answer of a response, and what stands beside it
def _boxes(text: str) -> list[tuple[int, int, str | None]]:
    r"""Start, end and content of each box that is in no other one; its content is None if it is empty or never closed.
    In `\\}` the brace closes: `\\` ends a line."""
    closes, opened = dict[int, int](), list[int]()
    for mark in re.compile(r"\\.|[{}]", re.S).finditer(text):
        if mark[0] == "{":
            opened.append(mark.start())
        elif mark[0] == "}" and opened:
            closes[opened.pop()] = mark.start()
    found, outer = list[tuple[int, int, str | None]](), 0
    for box in _BOX.finditer(text):
        if box.start() >= outer:
            close = closes.get(box.end())
            content = box["bare"] or (text[box.end() + 1 : close].strip() if close is not None else "")
            outer = box.end() if box["bare"] or close is None else close + 1
            if _BOX.search(content):
                content = re.sub(r"^\{([^{}]*)\}$", r"\1", _BOX.sub(lambda inner: inner["bare"] or "", content))
            found.append((box.start(), outer, content or None))
    return found


def _is_denied(text: str, start: int, end: int) -> bool:
    """Whether words before or after a box say that it is not the answer."""
    before, after = text[max(0, start - 80) : start].rstrip("$ *{(\\[\n"), text[end : end + 60].lstrip("$ *})\\],")
    last, first = _LAST.search(before), _FIRST.match(after)
    if not last and not first:
        return False
    from mathequal.beside_words import may_begin_with, may_end_with, rule_after, rule_before

    if last and may_end_with(last[0].lower()) and (rule := rule_before(before)) and rule.id == "before.not":
        return True
    found = rule_after(after) if first and may_begin_with(first[0].lower()) else None
    return found is not None and found[0].id == "after.not"


def _formula_before(before: str) -> tuple[str, str] | None:
    """The part of a text that is in the formula which is open at its end, and the sign that opens it."""
    formula, since = "", 0
    for mark in _FORMULA_ENDS.finditer(before):
        sign = mark[0][:2].rstrip("$") or "$"
        formula = sign if sign in (r"\(", r"\[") or (sign == "$" and formula != "$") else ""
        since = mark.end()
    return (before[since:], formula) if formula else None


def _until_apart(text: str) -> str:
    """A text up to the first sign or words that part it from the rest, outside of brackets."""
    for mark in _APART.finditer(text):
        part = text[: mark.start()]
        if not any(part.count(a) > part.count(b) for a, b in ("()", "[]")) or mark[0][0] not in ",;":
            return part
    return text


def _beside(text: str, start: int, end: int) -> tuple[str, str]:
    """What belongs to a box: the rest of its formula, up to the next sign of equality, comma or words."""
    paragraph = max(text.rfind("\n\n", 0, start), start - 2000, 0)
    before = text[paragraph:start].replace("−", "-")
    if other := _OR.match(text, end, end + 100):
        return "", f" or {other[1] or other[2]}"
    formula = _formula_before(before)
    close = _FORMULA_ENDS.search(text, end, end + 300)
    if not formula or not close:
        after = _AFTER.match(text, end)
        return "-" * bool(_MINUS.search(before)), after[0] if after else ""
    left = _NO_MEANING.sub("", formula[0])
    right = _until_apart(_NO_MEANING.sub("", text[end : close.start()]))
    whole_left = _WITH_SETS.search(left)
    left = whole_left[0] if whole_left else _APART.split(left)[-1]
    if _WORDS.search(left):
        return "", ""
    if len(bounds := _LESS.split(left)) < 3:  # S ≥ 5 says what is at least 5; 3 < x < 5 is another answer than 5
        left = bounds[-1]
    is_unit = _UNITS.fullmatch(right) and right.count("{") == right.count("}")
    right = "" if is_unit else right.rstrip(". ")
    left, right = ("".join(side.split()) for side in (left, right))
    listed = "," in text[start:end]
    while (wrapper := _WRAPPED.search(left)) and right[:1] == ("}" if listed or wrapper[0] != "(" else ")"):
        left, right = left[: wrapper.start()], right[1:]
    left = left or "-" * bool(re.search(r"\$\s*-\s*\$\s*\$$", before))
    whole = left + right
    if any(whole.count(a) != whole.count(b) for a, b in ("()", "{}", "[]")):
        return "", ""
    return "" if left in ("+", ":") else left, right


@lru_cache(maxsize=4096)
def strip_dollars(text: str) -> str:
    r"""A text without spaces and dollar signs around it; \$, the currency, stays."""
    return re.sub(r"^\$+|(?<!\\)\$+$", "", text.strip()).strip()
