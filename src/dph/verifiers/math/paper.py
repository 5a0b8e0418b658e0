r"""The equality of the paper's math reward (seamoke/DPH-RL, `dapo_math`): equal text after the MATH data set's
normalization, or equal by sympy after PRM800K's normalization, or equal according to math-verify.

Re-implemented from its behaviour. One difference: expressions are never evaluated as Python. Only worker processes use
this module.
"""

import re
from contextlib import suppress

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from pylatexenc.latex2text import LatexNodes2Text

from dph.verifiers.math.python import read_python
from dph.verifiers.math.qwen_text import brace_fractions, drop_units

_TEXT = re.compile(r"\\text\{(?P<text>.+?)\}$")
_UNITS = ["degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week", "month", "year",
          "foot", "feet", "inch", "yard"]  # fmt: skip
_SCALES = {"million": "*10^6", "billion": "*10^9", "trillion": "*10^12"}
_LATEX = LatexNodes2Text()
_SYMBOLS = str.maketrans({"√": "sqrt", "π": "pi", "∞": "inf", "∪": "U", "·": "*", "×": "*"})
_THOUSANDS = re.compile(r"(\d),(\d\d\d)($|\D)")
_FRACTION = re.compile(r"-?[0-9]+.?/0*[1-9][0-9]*.?")
_HANGS = re.compile(r"\^[{(]|\^[0-9]+\^|\^[0-9][0-9]+")
_TARGETS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())


def paper_equal(given: str, gold: str) -> bool:
    """Whether an answer equals the gold answer."""
    return normalize_math(given) == normalize_math(gold) or _sympy_equal(given, gold) or _library_equal(given, gold)


def normalize_math(answer: str) -> str:
    """The MATH data set's normalization, with MathQA's unit words dropped; text that it cannot process stays
    unchanged."""
    text = answer.strip()
    if whole := _TEXT.match(text):
        text = whole["text"].strip()
    original = text
    text = text.replace("\n", "").replace(r"\!", "").replace(r"\\", "\\")
    text = re.sub(r"\\begin\{array\}\{.*?\}", r"\\begin{pmatrix}", text).replace(r"\end{array}", r"\end{pmatrix}")
    for old, new in (("bmatrix", "pmatrix"), ("tfrac", "frac"), ("dfrac", "frac"), (r"\neq", r"\ne"),
                     (r"\leq", r"\le"), (r"\geq", r"\ge"), (r"\left", ""), (r"\right", "")):  # fmt: skip
        text = text.replace(old, new)
    text = re.sub(r"\\text{.*?}$", "", text).strip() or text
    text = drop_units(text)
    for noise in (r"^{\circ}", r"^\circ", r"\$"):
        text = text.replace(noise, "")
    if text.count(r"\text{ ") > 1:
        return original
    text = text.split(r"\text{ ")[0].replace(r"\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if text.startswith("."):
        text = f"0{text}"
    left, equals, right = text.partition("=")
    if equals and "=" not in right and len(left) <= 2:
        text = right
    text = re.sub(r"\\sqrt([^{])", r"\\sqrt{\1}", text).replace(" ", "")
    text = brace_fractions(text)
    if text == "0.5":
        return r"\frac{1}{2}"
    return re.sub(r"^(0|-?[1-9]\d*)/(0|-?[1-9]\d*)$", r"\\frac{\1}{\2}", text)


def _sympy_equal(given: str, gold: str) -> bool:
    """PRM800K's rule: equal text; tuples element by element; unreduced fractions and integers by text; the rest by
    sympy, unless the text has more than two letters or a large exponent."""
    given, gold = _normalize_prm(given), _normalize_prm(gold)
    if given == gold:
        return True
    if not given:
        return False
    left, right = _elements(given), _elements(gold)
    if len(left) != len(right) or (len(right) > 1 and (given[0], given[-1]) != (gold[0], gold[-1])):
        return False
    return all(_element_equal(a, b) for a, b in zip(left, right, strict=True))


def _element_equal(given: str, gold: str) -> bool:
    if _FRACTION.fullmatch(given) and _FRACTION.fullmatch(gold):
        return given == gold
    if _is_integer(given) != _is_integer(gold):
        return False
    expression = f"({gold})-({given})"
    letters = {char for char in expression.replace("sqrt", "").replace("frac", "") if char.isalpha()}
    if len(letters) > 2 or _HANGS.search(expression):
        return False
    try:
        return sympy.simplify(read_python(expression.replace("^", "**"), implicit_products=True)) == 0
    except MemoryError:
        raise
    except Exception:  # the parser can raise anything
        return False


def _normalize_prm(answer: str) -> str:
    text = whole["text"] if (whole := _TEXT.match(answer)) else answer
    text = text.replace(r"\%", "%").replace(r"\$", "$").replace("$", "").replace("%", "")
    text = text.replace(" or ", " , ").replace(" and ", " , ")
    for word, factor in _SCALES.items():
        text = text.replace(word, factor)
    for unit in _UNITS:
        text = re.sub(rf"{unit}(es)?(s)? *(\^[0-9]+)?", "", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = re.sub(r",\\! *", "", text)
    text = _integer_text(text)
    if "\\" in text:
        text = _latex_to_text(text)
    text = re.sub(r"- *", "-", text)
    text = re.sub(r"([0-9]) +([0-9])", r"\1+\2", text)  # mixed numbers
    text = text.replace(" ", "").replace("{", "").replace("}", "").lower()
    return _integer_text(_without_thousands(text)) if _is_integer(text) else text


def _latex_to_text(text: str) -> str:
    """LaTeX as plain text, by the library of the authors' code; text that it cannot read stays unchanged."""
    text = re.sub(r"\\[dt]?frac", r" \\frac", text)  # the space: 7\frac34 is a mixed number
    with suppress(Exception):  # the library can raise anything
        return _LATEX.latex_to_text(text).translate(_SYMBOLS).strip()
    return text


def _elements(text: str) -> list[str]:
    text = _without_thousands(text)
    inner = text[1:-1]
    if len(text) > 2 and text[0] in "()[]" and text[-1] in "()[]" and not set(inner) & set("()[]"):
        return [element.strip() for element in inner.split(",")]
    return [text]


def _without_thousands(text: str) -> str:
    while (shorter := _THOUSANDS.sub(r"\1\2\3", text)) != text:
        text = shorter
    return text


def _integer_text(text: str) -> str:
    """An integer in its usual form; any other text unchanged."""
    return str(round(float(text))) if _is_integer(text) and "," not in text else text


def _is_integer(text: str) -> bool:
    try:
        value = float(_without_thousands(text))
        return abs(value - round(value)) <= 1e-7
    except (ValueError, OverflowError):
        return False


def _library_equal(given: str, gold: str) -> bool:
    left, right = (text if "$" in text else f"${text}$" for text in (given, gold))
    golds, answers = (
        parse(text, list(_TARGETS), fallback_mode="no_fallback", parsing_timeout=0) for text in (right, left)
    )
    return bool(verify(golds, answers, timeout_seconds=0))
