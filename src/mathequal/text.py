r"""From what a model writes to plain LaTeX: Unicode, delimiters, fonts and words. Nothing here changes a value."""

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache, partial
from html import unescape

from mathequal.languages import ALONE_IN_TEXT, LINK_WORDS, link, plain_numbers
from mathequal.macros import without_packages
from mathequal.rulebook import rewritten
from mathequal.spelling import SPELLING


def word_list(text: str) -> list[str]:
    return text.split()


WORDS = "\x01\x02"
r"""Characters that enclose the words of \text{…} in plain LaTeX."""

_SIGNS = word_list(
    r"""
    π \pi ∞ \infty √ \surd × \times ✕ \times · \cdot ⋅ \cdot ∙ \cdot • \cdot ÷ \div ± \pm ∓ \mp ≤ \le ⩽ \le ≦ \le ≥ \ge
    ⩾ \ge ≧ \ge ≠ \ne ≈ \approx ≡ \equiv ∈ \in ∉ \notin ∪ \cup ⋃ \cup ∩ \cap ∅ \emptyset ⌀ \emptyset ∖ \setminus
    ° ^\circ º ^\circ ℝ \RR ℤ \ZZ ℚ \QQ ℂ \CC ℕ \NN ⟨ \langle ⟩ \rangle → \to ⌊ \lfloor ⌋ \rfloor ⌈ \lceil ⌉ \rceil
    ∑ \sum ∏ \prod ∫ \int € \euro £ \gbp ¥ \yen ¢ \cent ∠ \angle △ \triangle ∧ \land
    ∨ \lor ϕ \phi φ \phi ∣ | ′ ' ’ ' ‘ ' ″ '' ∛ \sqrt[3] ∜ \sqrt[4] ∶ : ⁄ / ∕ / ˚ ^\circ ₹ \rupee “ "
    ” " 。 . 、 , − - – - — - ‒ - ― - ‐ - ‑ - """
    "或 \x01or\x02 和 \x01and\x02 与 \x01and\x02"
)
_TRANSLATE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad\u2061\u2062\u2063"), "") | {
    ord(sign): f"{latex} " if latex[-1].isalpha() else latex
    for sign, latex in zip(_SIGNS[::2], _SIGNS[1::2], strict=True)
}  # fmt: skip
_usual = partial(unicodedata.normalize, "NFKC")
_RAISED = (("[⁰¹²³⁴-⁹⁺⁻ⁿ]+", "^"), ("[₀-₉₊₋]+", "_"))


def _ascii(text: str) -> str:
    """LaTeX for the Unicode signs of a text."""
    text = text.replace("‰", " permille ")
    text = re.sub("(?:\\d\u0305)+", lambda run: rf"\overline{{{run[0][::2]}}}", text)
    text = re.sub(r"[µμ](?=[msglLFAVW](?![A-Za-z]))", "u", text)
    for signs, mark in _RAISED:
        text = re.sub(signs, lambda run, mark=mark: f"{mark}{{{_usual(run[0])}}}", text)
    text = re.sub("[¼-¾⅐-⅞]", lambda sign: rf"\frac{{{_usual(sign[0])}}}".replace("⁄", "}{"), text)
    text = plain_numbers(_usual(text.translate(_TRANSLATE)).translate(_TRANSLATE))
    return re.sub("[Α-Ωα-ω]", _greek, text)


def _greek(letter: re.Match[str]) -> str:
    name = unicodedata.name(letter[0]).split()[-1].lower().replace("lamda", "lambda")
    return rf"\{name.capitalize() if letter[0].isupper() else name} "


_TEXT = re.compile(
    r"\\(text|textbf|textrm|textit|textsf|texttt|textnormal|textup|emph|mbox|hbox|fbox|mathrm|rm|textsc) ?"
    r"\{((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}"
)
_FONTS = "|".join(
    word_list(
        r"""mathbf boldsymbol bm mathit mathsf mathtt mathcal mathscr mathfrak mathnormal underline pmb bold mathop
        mathord mathstrut strut ensuremath displaystyle textstyle scriptstyle scriptscriptstyle limits nolimits hline
        nonumber phantom(?!\s?\{) hfill centering middle bf it sf tt cal sl sc em (?:math)?rm(?!\s?\{) bfseries itshape
        slshape scshape upshape mdseries rmfamily sffamily ttfamily normalfont boldmath tiny scriptsize
        footnotesize small
        normalsize [lL]arge LARGE [hH]uge therefore checkmark blacksquare smash(?:\[\w\])? noindent par relax null"""
    )
)
_SPACES = r"\\(?:q?quad|(?:neg)?(?:thin|med|thick)space|en(?:space|skip)|nobreakspace|space|hfil|newline)(?![A-Za-z])"
_NOISE = re.compile(
    rf"\\(?:{_FONTS})(?![A-Za-z])|{_SPACES}|(?<!\\)\\[!,;:> ]|~|"
    r"\\(?:tag|label|[hv]?phantom|[hv]space\*?|(?:text)?color(?:box)?) ?\{[^{}]*\}|"
    r"\\(?:m?kern|[hm]skip) ?-?[\d.]+ ?(?:mu|em|ex|pt)"
)
_END = re.compile(r"(?:(?<!\\)\\\\?|(?<!\.)\.(?!\.)|[,;]|\x01[.,;]\x02|\s)+$")
_LINK = re.compile(r"[,;.\s]*([^\W\d_]+)[,\s]*")
_CONDITION = re.compile(
    r"[,;\s]*\(?\s*(?:,\s*where|where|provided(?: that)?|assuming(?: that)?|given that|as long as|so long as|"
    r"when|for|if|with)",
    re.I,
)
_NEXT_VALUE = re.compile(r"[\s,]*(?:[-+]?\s*[\d(]|[A-Za-z](?:_\w)? ?=|\\(?:[dt]?frac|sqrt|pi)(?![a-z]))")
_FOREIGN_LINK = re.compile(
    rf"(?<=[\d)}}\]])\s*(?:\x01|,)?\s*(?<![^\W\d_])(?:({LINK_WORDS})|(?<=\s)([yo])(?=\s+\d))(?![^\W\d_])\s*\x02?"
    r"(?=\s*(?:[-+\\\d(\[]|[A-Za-z] ?=))",
    re.I,
)
"""3 oder 5: a connector of another language between values."""
_VALUE_END = re.compile(
    r"(?:[\d)}\]]|\\pi|\\infty|\\circ|%)\s*(?:\\[dt]?frac\s*\{\s*(?:\\[a-z]+\s*\{[^{}]*\}[^{}]*\}\s*\{\s*)?)?$"
)
_QUESTION_TOKEN = re.compile(r"\\[A-Za-z]+|[^\W\d_]+|\d+(?:\.\d+)?|[^\s{}]")
_BESIDE_FORMULAS = r"(?:[=<>.,:;?!\x01]|[^\W\d_]{2,})"
_ONE_LETTER_UNITS = "mskghtNJWKLlVCFTPQRSM"


def _words(match: re.Match[str]) -> str:
    r"""The words of \text{…} as marked words, a connector, or the mathematics that they are."""
    content = re.sub(r"(?<=[a-z]{3})\.$", "", re.sub(r"~|\\[ ,;:]|``|''|[\x01\x02]", " ", match[2]).strip())
    after_value = _VALUE_END.search(match.string[max(0, match.start() - 80) : match.start()])
    if nested := _TEXT.fullmatch(content):
        return _words(nested)
    condition = _CONDITION.fullmatch(content)
    if condition and (content[0] in ",(" or content[0].lower() not in "wif"):  # of a piecewise function: as it is
        return " ( " if "(" in condition[0] else " \x01where\x02 "
    if connector := _connector(content, match, after_value is not None):
        return f" \x01{connector}\x02 "
    elif edge := re.fullmatch(r"(.*?\w) (and|or)", content):  # 3 dollars and 25 cents
        return f" \x01{edge[1]}\x02 \x01{edge[2]}\x02 "
    elif re.search(r"[\\$]|(?<![-^{A-Za-z])\d", content) or not re.search(r"[^\W\d_]", content):
        return re.sub(
            r"(?<!\S)(?:(?!and |or |[A-Z]{2,4} ?=)[A-Za-z]{2,}(?![^\s,;]) ?)+", "\x01\\g<0>\x02 ", f" {content} "
        )
    elif re.fullmatch(r"\([^\W\d_]{2,}\)", content):  # 5 (meters)
        content = content[1:-1]
    elif (content.isascii() and len(content) == 1 and not (content in _ONE_LETTER_UNITS and after_value)) or (
        match[1] in ("mathrm", "rm") and re.fullmatch(r"[A-Za-z]{2,3}", content) and not after_value
    ):
        return f" {content} "
    return f" \x01{re.sub('[{}]', '', content)}\x02 "


def _connector(content: str, match: re.Match[str], after_value: bool) -> str:
    r""" "and" or "or" for a \text{…} that only joins what is around it, in any language; else ""."""
    word = _LINK.fullmatch("and" if content == "as well as" else content)
    low = word[1].lower() if word else ""
    if low in ("", "and", "or"):
        return low
    following = _NEXT_VALUE.match(match.string, match.end()) if after_value and low in ALONE_IN_TEXT else None
    alone = low not in ALONE_IN_TEXT or following is not None
    if following and low in ("e", "i"):  # not the numbers e and i, of 2\text{i}+3
        alone = match[2][0] == match[2][-1] == " " and "+" not in following[0]
    elif low == "of":  # 3 of 5 is no list in English
        alone = following is not None and following[0][-1] == "="
    return link(low) if alone and (after_value or not low.isascii()) else ""


def _in_degrees(angle: re.Match[str]) -> str:
    """An angle of degrees, minutes and seconds."""
    return rf"({Fraction(angle[1]) + Fraction(angle[2]) / 60 + Fraction(angle[3] or 0) / 3600})^\circ "


_DEGREES_IN_WORDS = re.compile(
    r"(\d{1,9})\s*(?:\x01?\s*degrees?|\^\s*\{?\\circ\}?)[\s,]*\x02?\s*(?:\x01?\s*and\s*\x02?)?\s*(\d\d?)\s*\x01?\s*"
    r"(?:arc ?)?minutes?\s*\x02?(?:\s*(?:\x01?\s*and\s*\x02?)?\s*(\d\d?(?:\.\d{1,9})?)\s*\x01?\s*"
    r"(?:arc ?)?seconds?\s*\x02?)?"
)


@lru_cache(maxsize=1024)
def plain_latex(text: str) -> str:
    r"""LaTeX without delimiters, spacing and fonts. Words of \text{…} are enclosed by `WORDS`."""
    text = re.sub(r"&#?\w+;", lambda entity: unescape(entity[0]), text)
    if not text.isascii():
        text = _ascii(text)
    if "\\" in text:
        text = without_packages(text)
    text = rewritten(text, SPELLING)
    text = re.sub(r"\s*\^\s*(?:\{\s*((?:\\prime\s*)+)\}|\\prime)", lambda m: "'" * m[0].count("prime"), text)
    text = re.sub(r"(\d{1,9}) *\^\\circ *(\d\d?)'(?: *(\d\d?(?:\.\d{1,9})?)'')?(?!')", _in_degrees, text)
    text = " ".join(_TEXT.sub(_words, _NOISE.sub(" ", text)).split())
    if "inute" in text:
        text = _DEGREES_IN_WORDS.sub(_in_degrees, text)
    text = _FOREIGN_LINK.sub(lambda found: f" \x01{link(found[1] or found[2])}\x02", text)
    return text[:-60] + _END.sub("", text[-60:])


def plain_words(text: str) -> str:
    """Plain LaTeX as words: without marks and braces, with single blanks."""
    text = " ".join(re.sub(f"[{WORDS}]", " ", text).translate({123: None, 125: None}).split()).strip(" .,;*")
    return text[1:-1] if len(text) > 2 and text[0] in "\"'`" and text[-1] in "\"'" else text


def bare_text(answer: str) -> str:
    """What answers share that are equal as text: letter case and blanks between letters or digits count."""
    if answer.isdecimal() and answer.isascii():
        return answer
    text = re.sub(rf"[{WORDS}]|\\([dt])(?=frac)", lambda mark: "\\" if mark[1] else " ", plain_latex(answer))
    group = r"(?<!\\)([_^]?) ?\{ ?(\w|[-+=:]|\\[A-Za-z]+) ?\}|([_^]?) ?(?<!\\)\{([^{}]*)(?<!\\)\}"
    for _ in range(3):  # long groups keep their braces
        text = re.sub(group, r"\1 \2 \3⟦\4⟧", text)
    text = re.sub(r"[{}]|(?<![_^])⟦⟧", " ", text)
    text = re.sub(r"\b[A-Z][a-z]{3,}", lambda word: word[0].lower(), " ".join(text.split()))
    return re.sub("^(?:an?|the) ", "", re.sub(r"\s+(?!\w)|(?<!\w)\s+", "", text))


def stands_in(answer: str, question: str) -> bool:
    """Whether an answer's text occurs in a question as a whole formula."""
    formula, text = _question_tokens(answer), _question_tokens(question.replace("$", " \x01 "))
    before, after = rf"(?:^|(?:^| ){_BESIDE_FORMULAS} )", rf"(?:$| {_BESIDE_FORMULAS}(?: |$))"
    return formula != "" and re.search(before + re.escape(formula) + after, text) is not None


@lru_cache(maxsize=1024)
def _question_tokens(text: str) -> str:
    plain = re.sub(r"\\[dt](?=frac)", r"\\", plain_latex(text).replace("\x02", "\x01"))
    return " ".join(_QUESTION_TOKEN.findall(plain))
