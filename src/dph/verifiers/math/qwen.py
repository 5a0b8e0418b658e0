r"""The equality of the Qwen2.5-Math evaluation, on normalized answers.

Re-implemented from the grader's behaviour, oddities included; docs/concepts/verifiers.md lists its rules.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from math import isclose

_LAST_NUMBER = re.compile(r"-?\d*\.?\d+")
_CHOICE = re.compile(r"\b[ABCDE]\b")
CHOICE_LETTERS = frozenset("ABCDE")

# Words that are dropped if they occur as separate words, in this order. A dot matches any character.
_UNIT_WORDS = """
    m sqaure| m east|sq m|q .|profit of rs|p . m|a .|b .|c .|d .|e .|f .|g .|h .|o|t|a|h|no change|a . m|π r 2|sq . m
    ° f|c|l|cu cm|v â € ™|s|sq inch|∏ cm ³|cu . m|cm 2|rs .|pi sq m
    east|west|way|degree|deg|mph|kmph|kmh|mp|ft|feet|inches|inch|mile|yard|metre|meter|km|cm|mm|dm|mt|mtr
    square|sq|cubic|cube|cc|acre|hectare|liter|litre|lt|gal|gallon|unit
    day|month|year|yr|hour|hr|noon|am|pm|minute|min|minw|second|sec|kg|gm|lb|ohm
    rs|rd|rupee|coin|profit|loss|gain|percent|per|by|increase|decrease|more|less|rise|excess|pure
    number|prime|ratio|rounds|mark|th|st|men|man|women|woman|soldier|monkey|tile|toy|pie|apple|are|ab|bc|Surface
    g|m|d|s .
"""


_UNITS = [
    (name.split(".")[0], re.compile(rf"(^|\W){name}($|\W)"))
    for plural in ("", "s")
    for line in _UNIT_WORDS.strip("\n").split("\n")
    for name in (word + plural for word in line[4:].split("|"))
]
"""(literal start, pattern) of each unit and its plural; a text without the start is skipped for speed."""

_BEFORE_UNITS = (
    ("bmatrix", "pmatrix"), ("tfrac", "frac"), ("dfrac", "frac"), (r"\neq", r"\ne"), (r"\leq", r"\le"),
    (r"\geq", r"\ge"), (r"\left", ""), (r"\right", ""), (r"\{", "{"), (r"\}", "}"),
)  # fmt: skip
_AFTER_UNITS = (r"^{\circ}", r"^\circ", "$", r"\(", r"\)")
_ASSIGNED = tuple(f"{name}{sign}" for sign in ("=", r"\in", r"\to") for name in "xyz")
Algebra = Callable[[str, str], bool]
"""(given, gold) → whether algebra finds them equal."""

_TOLERANCE = 1e-4
_BRACKETED = re.compile(r"[(\[].+[)\]]")
_WITHOUT_BRACES = str.maketrans("", "", "{}()")
_OPENINGS = (r"\begin{pmatrix}", r"\begin{bmatrix}")
_CLOSINGS = (r"\end{pmatrix}", r"\end{bmatrix}")


def extract_qwen(response: str, *, phrases: bool = True, last_number: bool = True) -> str:
    r"""The answer as written, or "" if there is none.

    Tried in this order: Minerva's "final answer is $…$. I hope"; the text after the last "boxed", up to its closing
    brace or, if none closes it, to the end; the text after "he answer is" or "final answer is"; the last number
    (including GSM8K's "#### 18"). phrases, last_number: whether these sources besides the box are used.
    """
    response = response.replace("ки", "")  # the evaluation drops this fragment, which some models repeat
    if phrases and "final answer is $" in response and "$. I hope" in response:
        found = response.split("final answer is $", 1)[1].split("$. I hope", 1)[0].strip()
    elif "boxed" in response:
        found = _boxed(response.rsplit("boxed", 1)[1])
    elif phrases and (mark := next((m for m in ("he answer is", "final answer is") if m in response), None)):
        found = response.rsplit(mark, 1)[1].strip()
    elif phrases and "答案是" in response:
        found = response.split("答案是")[1].strip().split("\n\n")[0].strip()
    elif last_number:
        found = next(iter(_LAST_NUMBER.findall(response.replace(",", ""))[-1:]), "")
    else:
        found = ""
    return re.sub(r"\n\s*", "", found).removeprefix(":").removesuffix(".").removesuffix("/")


def _boxed(rest: str) -> str:
    if not rest.startswith("{"):
        return rest.split("$")[0].strip()
    depth = 0
    for index, char in enumerate(rest):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return rest[1:index]
    return rest[1:]


def extract_choice(response: str) -> str:
    """A choice: the first separate A–E after the last "answer is" or "choice is", else the last one, else the text."""
    text = response.strip("\n")
    if text.count("choice is") > 1 or text.count("answer is") > 1:
        text = text.split("\n\n")[0]  # the model continued with questions of its own
    *_, text = parts = re.split("choice is|answer is", text)
    return choice_letter(text, first=len(parts) > 1)


def choice_letter(text: str, *, first: bool = False) -> str:
    """The last (or first) separate letter A–E of a text, in upper case; the trimmed text if there is none."""
    text = text.strip("\n").rstrip(".").rstrip("/").strip(" ").lstrip(":")
    letters = _CHOICE.findall(text.upper())
    chosen = letters[0 if first else -1] if letters else text.strip().strip(".")
    return chosen.rstrip(".").rstrip("/")


@lru_cache(maxsize=16_384)
def normalize_qwen(answer: str, *, keep_units: bool = False) -> str:
    """Normalize an answer for comparison. keep_units: keep unit words (for Minerva's problems)."""
    from word2number.w2n import word_to_num  # of the extra `math`; `make_policy` says so if it is missing

    text = answer.strip().replace("\n", "").rstrip(".").replace(r"\!", "")
    text = re.sub(r"\\begin\{array\}\{.*?\}", r"\\begin{pmatrix}", text)
    text = re.sub(r"\\end\{array\}", r"\\end{pmatrix}", text)
    for old, new in _BEFORE_UNITS:
        text = text.replace(old, new)
    text = re.sub(r"\\text{.*?}$", "", text).strip() or text  # a unit at the end
    if not keep_units:
        text = drop_units(text)
    for sign in _AFTER_UNITS:
        text = text.replace("\\$" if sign == "$" else sign, "").replace(sign, "")
    with suppress(ValueError, IndexError):  # no number words, or words in an order that the library cannot read
        text = str(word_to_num(text))  # it skips other words: "of the two hundred men" becomes 200
    text = re.sub(r"\\text\{(.*?)\}", r"\1", text)
    for start in _ASSIGNED:
        text = text.replace(start, "")
    text = text.replace(r"\emptyset", "{}").replace(r"(-\infty,\infty)", r"\mathbb{R}")
    text = text.replace(r"\%", "").replace("%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    text = text.replace("infinity", r"\infty")
    if r"\infty" not in text:
        text = text.replace("inf", r"\infty")
    text = re.sub(r"\\mbox{.*?}", "", text.replace("and", "").replace(r"\mathbf", ""))
    if "j" in text and "i" not in text:  # the imaginary unit
        text = text.replace("j", "i")
    text = re.sub(r"(\d)\.0*(\D|$)", r"\1\2", text)
    if text.startswith("."):
        text = f"0{text}"
    left, equals, right = text.partition("=")
    if equals and "=" not in right and len(left) <= 2:  # k = 5
        text = right
    text = re.sub(r"\\sqrt(\w+)", r"\\sqrt{\1}", text).replace(" ", "")
    return _ratio(brace_fractions(text))


def drop_units(text: str) -> str:
    """Remove unit words (and the other words of that list) from a text."""
    for _ in range(2):  # a match consumes the separators that the next one needs
        for start, pattern in _UNITS:
            if start in text:
                text = pattern.sub(r"\1\2", text) or text
    return text


def brace_fractions(text: str) -> str:
    r"""\frac12 → \frac{1}{2}, \frac1{72} → \frac{1}{72}; a text with an incomplete \frac stays unchanged."""
    first, *rest = text.split(r"\frac")
    if any(len(part) < 2 and not part.startswith("{") for part in rest):
        return text
    parts = [first]
    for part in rest:
        if not part.startswith("{"):
            bottom = part[1:] if part[1] == "{" else f"{{{part[1]}}}{part[2:]}"
            part = f"{{{part[0]}}}{bottom}"
        parts.append(part)
    return r"\frac".join(parts)


def _ratio(text: str) -> str:
    r"""a/b → \frac{a}{b} where both are integers (in their usual form) or contain a root."""
    top, _, bottom = text.partition("/")
    if not bottom or "/" in bottom:
        return text
    if all("sqrt" in part or re.fullmatch(r"0|-?[1-9][0-9]*", part) for part in (top, bottom)):
        return rf"\frac{{{top}}}{{{bottom}}}"
    return text


def qwen_equal(given: str, gold: str, algebra: Algebra) -> bool:
    """Whether a normalized answer equals a normalized gold answer.

    The relation is not symmetric: the gold answer decides how choice letters, percentages and sets in braces are read.
    algebra: called if no other rule decides; its exceptions propagate.
    """
    if given.strip().lower() == gold.strip().lower():
        return True
    if gold in CHOICE_LETTERS and choice_letter(given) == gold:
        return True
    numbers = as_number(given), as_number(gold)
    if numbers[0] is not None and numbers[1] is not None:
        return _numbers_equal(numbers[0], numbers[1])
    given, gold = given.strip(), gold.strip()
    if not given:
        return False
    if "pmatrix" in given and "pmatrix" not in gold:
        gold = _braces_to_matrix(gold)
    return (
        _equal_but_for_brackets(given, gold)
        or _elements_equal(given, gold, algebra)
        or _matrices_equal(given, gold, algebra)
        or _equations_equal(given, gold, algebra)
        or algebra(given, gold)
    )


def as_number(text: str) -> float | None:
    r"""The value of a decimal number (thousands commas, exponents and a closing % or \% are read), or None."""
    text = text.replace(",", "")
    with suppress(ValueError):
        return float(text)
    with suppress(ValueError):
        return float(text[:-1].removesuffix("\\")) / 100 if text.endswith("%") else None
    return None


def _numbers_equal(given: float, gold: float) -> bool:
    return any(isclose(value, given, rel_tol=_TOLERANCE) for value in (gold / 100, gold, gold * 100))


def _equal_but_for_brackets(given: str, gold: str) -> bool:
    square = given.startswith("[") and given.endswith("]") and not gold.startswith("(")
    round_ = given.startswith("(") and given.endswith(")") and not gold.startswith("[")
    if square or round_:
        given, gold = given.strip("[]()"), gold.strip("[]()")
    return given.translate(_WITHOUT_BRACES).lower() == gold.translate(_WITHOUT_BRACES).lower()


def _elements_equal(given: str, gold: str, algebra: Algebra) -> bool:
    """Tuples and intervals: open and closed ends count as equal, and a comma inside an element splits it too."""
    if not (_BRACKETED.match(given) and _BRACKETED.match(gold)):
        return False
    return _all_equal(given[1:-1].split(","), gold[1:-1].split(","), algebra)


def _matrices_equal(given: str, gold: str, algebra: Algebra) -> bool:
    if not all(text.startswith(_OPENINGS) and text.endswith(_CLOSINGS) for text in (given, gold)):
        return False
    left, right = _matrix_rows(given), _matrix_rows(gold)
    return len(left) == len(right) and all(_all_equal(a, b, algebra) for a, b in zip(left, right, strict=True))


def _matrix_rows(text: str) -> list[list[str]]:
    body = text[len(_OPENINGS[0]) : -len(_CLOSINGS[0])]
    return [row.strip().split("&") for row in body.split(r"\\") if row.strip()]


def _all_equal(given: Sequence[str], gold: Sequence[str], algebra: Algebra) -> bool:
    if len(given) != len(gold):
        return False
    return all([qwen_equal(a, b, algebra) for a, b in zip(given, gold, strict=True)])


def _equations_equal(given: str, gold: str, algebra: Algebra) -> bool:
    """Compares equations by the difference of their sides, up to sign; "x=5" (a name of up to two characters) is 5."""
    left, right = given.split("="), gold.split("=")
    if len(left) == len(right) == 2:
        first, second = (f"{a.strip()} - ({b.strip()})" for a, b in (left, right))
        return algebra(first, second) or algebra(f"-({first})", second)
    if len(left) == 2 and len(right) == 1 and len(left[0].strip()) <= 2:
        return qwen_equal(left[1], gold, algebra)
    if len(right) == 2 and len(left) == 1 and len(right[0].strip()) <= 2:
        return qwen_equal(given, right[1], algebra)
    return False


def _braces_to_matrix(gold: str) -> str:
    r"""Rewrite {1,2} as a column vector, its meaning if the answer is a matrix."""
    bodies = (found.strip("{}").replace(",", "\\") for found in re.findall(r"\{.*,.*\}", gold.strip()))
    return ", ".join(f"{_OPENINGS[0]}{body}{_CLOSINGS[0]}" for body in bodies)
