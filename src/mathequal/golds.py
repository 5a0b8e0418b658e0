r"""Whether a gold answer of mathematics is an answer, and what of it is none: a label, a number in a list, a remark.

A gold is cleaned only where what is left is a value to the judge and the whole was none.
"""

import re
from functools import lru_cache

from mathequal import compare, exact, read
from mathequal.answers import Expression
from mathequal.doubts import counted_in_brackets, of_lettered, split_words, written_twice
from mathequal.gold_words import BARE_REMARKS, LABELS, NOT_A_NUMBER, PLACEHOLDERS, REMARKS
from mathequal.phrases import DECIMAL_COMMA, is_decimal_comma
from mathequal.text import plain_latex

_LABEL = re.compile(
    rf"\s*(?:\[(?:{LABELS})\]|"
    rf"(?:the |my |our )?(?:correct |final |right |short |expected |model |numeric(?:al)? )*(?:{LABELS})\s*"
    r"(?:is\s*:?|[:=\uff1a\u2192]|[.\u2013\u2014](?!\d)|-(?=\s)|(?=\s+[-\d$\\]))|"
    r"A\s*:(?!.*[A-Z]\s*:)|[A-Za-z][A-Za-z ]{1,30}:(?!.*[A-Za-z]\s*:)|"
    r"(?:thus|hence|so|therefore|then|finally)\b,?(?: (?:we (?:get|have|find)|it is))?)\s*(?P<answer>\S.*)",
    re.I | re.S,
)
"""What says that an answer follows."""
_NUMBERED = re.compile(
    r"\s*(?:\d{1,3}[.)]\s+(?!.*\s\d{1,3}[.)]\s)|(?-i:\(?[a-hivx]{1,4}\))\s+|#\d{1,4}[.:)]?\s+|"
    r"(?:Q|No|Nr|Ex|Exercise|Example|Problem|Question|Task|Item|Part)\.?\s*\d{1,4}[a-h]?\s*[.:)]\s*)"
    r"(?P<answer>[-\d$\\.].*)",
    re.I | re.S,
)
"""The number that an answer has in a list."""
_WRAPPED = re.compile(
    r".*####\s*(?P<marked>\S[^\n]*)|\s*<(?P<tag>(?:final_?)?(?:answer|solution|result)|final)>(?P<answer>.*)</(?P=tag)>|"
    r"\s*(?P<fence>```+|~~~+)(?:[A-Za-z]*\n)?(?P<fenced>[^`~]*?)(?P=fence)",
    re.I | re.S,
)
"""Marks around an answer: GSM8K's, tags and fences."""
_REMARK = re.compile(
    rf"(?P<answer>.*?[\d)}}$\]%A-Za-z])\s*(?:[(\[{{]\s*(?:{REMARKS})(?!\w)[^()\[\]{{}}]*[)\]}}]"
    r"|[,;:\u2013\u2014-]\s*(?:see|pages?|pp?\.|cf\.?)(?!\w)\s*\S.*|\s(?:see|pages?|pp?\.) (?:p|\d|the|above|below).*"
    rf"|{BARE_REMARKS}|\\q?quad\s*\\text\s*\{{\s*\(?(?:{REMARKS})(?!\w)[^{{}}]*\}}|\s(?:or so|checked|correct|verified)"
    r"|\s*(?://|#|<!--|%)\s*[A-Za-z].*|\s*[\u2713\u2714\u2705]|\s(?:is|was) (?:the )?(?:correct |right |final )?"
    r"(?:answer|solution))\s*[.!]?\s*",
    re.I | re.S,
)
"""What is said after an answer and is no part of it."""
_ONE_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?!\w)")
_IN_TEXT = re.compile(r"\\(?:text\w*|mathrm|mbox|rm|hbox)\s*\{([^{}]*)\}|~")
_ABOUT_ANSWERS = re.compile(
    r"\b(?:see|answers?|solutions?|checked|verified|correct|incorrect|wrong|approx\w*|rounded|thus|hence|therefore|maybe|"
    r"probably|cf|ref)\b",
    re.I,
)
_OF_FORMULAS = re.compile(r"[\\^_+*/=<>{}-]")
_NO_VALUES = re.compile(PLACEHOLDERS)
_WANTS_VALUE = re.compile(
    r"\bhow (?:many|much|long|far|old|tall|fast|often|large|wide|deep|high|heavy)\b|"
    r"\b(?:what|find|calculate|compute|evaluate|determine)\b[^.?!]{0,60}\b(?:value|sum|difference|product|quotient|number|"
    r"area|volume|perimeter|length|remainder|probability|percentage|percent|average|mean|median|cost|price|total|distance|"
    r"speed)\b|\b(?:what is|what's|calculate|compute|evaluate|work out)\s+[$(\\-]*\s*\d|"
    r"\d\s*(?:[-+*/\u00d7\u00f7\u00b7]|\\times|\\cdot|\\div|plus|minus|times|divided by)\s*[$(]*\d[^?]{0,20}(?:=|\?)",
    re.I,
)
_WANTS_WORDS = re.compile(
    r"\b(?:which|who|whose|whom|where|name|whether|why|explain|describe|classify|true or false|yes or no|in words|"
    r"letter|word|type|kind|day|month|colou?r|shape|even or odd|is it|is there|are there|are they|does|prove|show)\b",
    re.I,
)
_WORDS_FOR_VALUES = re.compile(
    r"\b(?:undefined|infinit\w*|infty|exist\w*|dne|no|not|never|nothing|nobody|impossible|cannot|can't|indeterminate|"
    r"(?:di|con)verg\w+|any|all|every|each|equal|un\w+|many|neither|both|yes|true|false|only|zero)\b",
    re.I,
)
"""Words that say what a value is like, or that there is none."""
_EMPTY_WORDS = ("none", "empty", "nothing")
NO_ANSWERS = frozenset(
    ("na", "nil", "unknown", "missing", "-", "--", "?", "tbd", "todo", "proof", "notfound", "not found", "see solution")
)
"""What people write where a problem of mathematics has no answer, in lower case."""
_MISSING_BUT = re.compile(r"\s*(?:#?N/A|n/a|NaN|NULL|[Nn]ull|<NA>|\?+|[Uu]nknown|TBD|TODO)\s*[(\[:;,/|-].*", re.S)
"""Missing, and yet a value: N/A (15)."""
_DOTTED = {"n.a.", "n.a", "n.d.", "n.d", "t.b.d.", "t.b.a.", "t.b.c.", "k.a.", "k. a."}
_MAY_BE_EMPTY = re.compile(r"\b(?:solv|solution|root|intercept|domain|asymptote|real|all|any|list|exist)", re.I)


_BETWEEN_WORDS = re.compile(r"\\(?:text\w*|mbox|mathrm|rm)(?![a-z])|[\[\](){}$_*\"'.,;:!?\u2026\u2013\u2014-]+")
_YES_NO = re.compile(r"\W*(?:yes|no|true|false)\b", re.I)
_SINGLE = {"quantity", "date", "time", "assigned", "inequality", "intervals", "base"}
_PATTERNS = (_WRAPPED, _LABEL, _NUMBERED, _REMARK)
_TOLD = re.compile(r"\b(?:is|was) (?:the )?\w* ?(?:answer|solution)\W*$", re.I)
_NOTED = re.compile(r"\d\s*\[\d{1,2}\]\s*$|\sof (?:them|these|those)\W*$")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_SENTENCE = re.compile(r"[A-Za-z]+ [A-Za-z]{2,} \$")
_LONGEST = 300  # characters of a gold that may have a label


@lru_cache(maxsize=4096)
def stated(gold: str, question: str = "") -> str:
    """The answer that a gold states: without marks around it, a label or its number in a list before it, and a remark
    after it, if the judge reads one value then and not before. question: a letter before a value is a label if the
    question lists no choices.

    >>> stated("Ans = 15 (2 marks)"), stated("15 or equivalent"), stated("Team 15")
    ('15', '15', 'Team 15')
    >>> stated("B. 15", "What is 7 + 8?"), stated("B. 15", "What is 7 + 8? A. 14 B. 15")
    ('15', 'B. 15')
    """
    if (comma := DECIMAL_COMMA.fullmatch(plain_latex(gold))) and is_decimal_comma(comma):
        return gold
    if (value := of_lettered(gold, question)) and _is_one_value(value):
        return stated(value)
    if same := written_twice(gold) or counted_in_brackets(gold):
        return stated(same)
    if _is_one_value(gold) and not _TOLD.search(gold) and not _NOTED.search(gold) and not split_words(gold):
        return gold
    for pattern in _PATTERNS if len(gold) <= _LONGEST else _PATTERNS[:1]:
        found = pattern.fullmatch(gold)
        groups = found.groupdict() if found else {}
        rest = next(filter(None, map(groups.get, ("answer", "marked", "fenced"))), "").strip(" \n\t*")
        if rest in ("", gold):
            continue
        rest = stated(rest)
        kind, before = _kind(rest), _kind(gold)
        is_choice = kind == "letters" and pattern in (_WRAPPED, _LABEL)
        is_some = (
            before != "list" and kind not in ("", "text", "letters") and len(_WORD.findall(rest)) < 4 and reads(rest)
        )
        if _SENTENCE.match(rest):
            continue
        if _is_one_value(rest) or is_choice or is_some or (pattern is _WRAPPED and kind):
            return rest
    return gold


def _kind(gold: str) -> str:
    answer = read(gold)
    return answer.kind if answer else ""


def _is_one_value(gold: str) -> bool:
    """Whether a gold is a number, a quantity or the like to the judge."""
    answer = read(gold)
    if answer is None:
        return False
    return answer.kind in _SINGLE or (isinstance(answer, Expression) and exact(answer.value) is not None)


@lru_cache(maxsize=4096)
def reads(gold: str) -> bool:
    """Whether a gold is what it says: the judge pays for its number, if it holds just one, or none of the words beside
    it is about answers. "Team 2" and "log 5" are; "15 probably correct" is not."""
    plain = _IN_TEXT.sub(r" \1 ", gold)
    numbers = _ONE_NUMBER.findall(plain)
    words = _ONE_NUMBER.sub(" ", plain).strip(" -").replace(r"\$", "")
    if len(numbers) != 1 or not _ABOUT_ANSWERS.search(words) or _OF_FORMULAS.search(words):
        return True
    if _is_one_value(gold) or _YES_NO.match(gold):
        return True
    return compare(gold, numbers[0].rstrip(","), decimals="exact", question="")[0]


@lru_cache(maxsize=4096)
def is_missing(gold: str) -> bool:
    """Whether a gold says that there is no answer: N/A, see above, answers vary."""
    if not gold.strip(" .,;:?!-_*\u2026\u2013\u2014"):
        return True
    words = " ".join(_BETWEEN_WORDS.sub(" ", gold).lower().split())
    return (
        gold in NOT_A_NUMBER
        or gold.lower() in NO_ANSWERS | _DOTTED
        or words in NO_ANSWERS
        or bool(_NO_VALUES.fullmatch(words))
        or bool(_MISSING_BUT.fullmatch(gold))
    )


@lru_cache(maxsize=4096)
def is_beside_the_question(gold: str, question: str) -> bool:
    """Whether a gold is mere words, or none, where the question asks for a value and for no word."""
    kind, words = _kind(gold), gold.lower().strip(" .$")
    if not question or not _WANTS_VALUE.search(question) or _WANTS_WORDS.search(question):
        return False
    if words in _EMPTY_WORDS:
        return not _MAY_BE_EMPTY.search(question)
    told = "\\" in gold or _WORDS_FOR_VALUES.search(gold) or words in question.lower()
    return kind == "text" and not told
