r"""What a response says around its last box that takes the box back: "\boxed{12}. Correction: 13." states no 12.

Another answer that is stated in the paragraph of the box, or after words such as "wait" and "sorry" in a later one,
takes the box back, and so do words such as "that is wrong". The last of them decides: one that states the value of the
box confirms it. Before the box, words such as "I first thought" and "a common mistake is" do.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from mathequal.answers import Expression
from mathequal.extract import Box
from mathequal.numeric import approximate
from mathequal.reading import read

_RIGHT = r"(?:right|correct|final|proper|corrected|revised)"
_ADJECTIVE = r"(?:right|correct|actual|real|true|final|proper|new|revised|corrected|intended)"
_NOUN = r"(?:answer|value|result|solution|number|total|count|sum|one)"
_IS = r"(?:is|was|should (?:be|have been|read)|must be|ought to be|has to be|turns out to be|becomes|equals|:|=)"
_VALUE = (
    r"(?:actually|really|in fact|just|simply|exactly)?\s*[*(_]*(?:\$(?P<formula>[^$\n]{1,60})\$|"
    r"\\\((?P<inline>[^\n]{1,60}?)\\\)|(?P<number>[-+−]?\\?\$?\d(?:[\d.,/]*\d)?)|"
    r"(?-i:(?P<choice>\(?[A-J]\)?(?![\w']))))"
)
_ENDS = (
    r"(?!\s*(?:is|was|are|were|fails?|does|do|doesn't|isn't|can|cannot|can't|would|to|times|more|less|of|"
    r"or|and|than|for|"
    r"if|when|in|with)\b)(?=[*_)\s]*(?:[A-Za-z°%²³]+[\s*]*){0,2}(?:[.,;:!?()]|$|\n))"
)
_SENTENCE = r"(?:^|[.;:!?—–\n(*]|\s-)[\s*_]*"
_CLAUSE = (
    r"(?:^|[.;:!?—–\n*]|\s-|\b(?:but|so|and|thus|hence|therefore|actually|wait|no|yet|while|whereas|however),?)[\s*_]*"
)
_CUE = (
    r"(?:correct(?:ion|ed)|edit(?:ed)?|updated?|errat(?:um|a)|sorry|oops|whoops|(?:my )?apologies|my (?:bad|mistake)|"
    r"i apologi[sz]e|i take (?:that|it|this) back|"
    r"(?:scratch|strike|cancel) (?:that|this)|never ?mind|no(?:pe)?|wait|hold on|hmm+|actually|(?:or )?rather|i meant?|"
    r"on second thoughts?|instead|make (?:that|it)|in fact)"
)
_THAT = (
    r"(?:that|this|it|(?:my|the) (?:(?:above|previous|first|boxed|last|initial|original|earlier) )?"
    r"(?:answer|value|result|computation|calculation|solution|box)(?: above)?)"
)
_IT_IS = (
    rf"(?:(?:i meant?|it|that|this|(?:the|my|our) (?:{_ADJECTIVE} )?{_NOUN}|we (?:get|have)|make (?:it|that))\s*)?"
    rf"(?:'s|{_IS}|to)?\s*"
)
_FOUND = (
    r"(?:thought|got|found|guessed|believed|assumed|said|wrote|computed|calculated|had|put|obtained|answered|"
    r"considered|gave)"
)
_THINK = r"(?:think|say|guess|believe|assume|answer|suspect|write|conclude|get|give)"
_IT = r"(?: (?:it|that|that it|(?:that )?the (?:answer|result|value)))?(?: (?:was|is|to be|would be|might be))?"
_FIRST_THOUGHTS = (
    rf"i (?:used to {_THINK}|guessed|would have (?:said|guessed|answered)){_IT}",
    r"(?:many|some|most|several) (?:students|people|others|readers) (?:answer|say|get|think|write|give)",
    rf"(?:don't|do not|never|one should not) {_THINK}{_IT}",
    rf"i (?:had )?(?:first|initially|originally|previously|mistakenly|wrongly|incorrectly|briefly) {_FOUND}{_IT}",
    rf"(?:at first|initially|originally|first|earlier),? i (?:had )?{_FOUND}{_IT}",
    r"(?:one|you|some(?:one)?|people|students|many|it) (?:might|may|could) (?:first |naively |initially |easily )?"
    rf"(?:(?:be tempted to |be tempting to )?{_THINK}|(?:seem|look|appear)(?: like| as if| that| to be)?){_IT}",
    rf"(?:is|was|am|be) tempt(?:ed|ing) to {_THINK}{_IT}",
    r"(?:common|typical|frequent|usual|classic|easy) (?:mistake|error|misconception|(?:wrong|incorrect) answer|trap) "
    rf"(?:is|was|would be)(?: to {_THINK}{_IT})?",
    r"my (?:very )?(?:first|initial|original|earlier|previous|old) (?:guess|answer|thought|attempt|idea|result) "
    r"(?:is|was|would be)",
    r"my guess was|the (?:naive|tempting|mistaken) (?:answer|guess|value|result) (?:is|was|would be)",
    rf"(?:mistakenly|wrongly|incorrectly|erroneously) {_FOUND}{_IT}",
)
_BLANKS = r"[\s$*_({\\]*$"
_CALLED = (
    r"(?:wrong|incorrect|mistaken|false|rejected)(?: (?:answer|value|result|solution|option|choice|guess)s?)?|mistake|"
    r"error|trap"
)
_LAST_WORD = re.compile(rf"([a-z]+)[*_]*:?{_BLANKS}", re.I)
_LAST_WORDS = frozenset(re.findall(r"(?<!\\)[a-z]{2,}", f"{_FOUND} {_THINK} {_IT} {_CALLED} like if seem look appear"))
"""The last words of what may take back the box that follows; other texts are not looked at."""
_ASKS_FOR_WRONG = re.compile(r"\b(?:not|wrong|false|incorrect|invalid|mistake|error)\b|n't\b", re.I)
_AFTER, _BESIDE, _BEFORE, _AROUND = "after", "beside", "before", "around"


class Retraction(NamedTuple):
    """A rule for words that take a box back."""

    id: str
    pattern: re.Pattern[str]
    place: str = _AFTER
    """Where it is looked for: before the box, in the rest of its paragraph (beside), in all that follows (after), or in
    what stands around the box, for which there is a □."""
    unless: re.Pattern[str] | None = None
    """Questions that such words answer."""


def _rule(id: str, pattern: str, place: str = _AFTER, unless: re.Pattern[str] | None = None) -> Retraction:
    """A rule; each but the first value in its pattern is named by its place."""
    first, *others = pattern.split(_VALUE)
    named = first + "".join(
        (_VALUE if not n else _VALUE.replace("?P<", f"?P<v{n}_")) + other for n, other in enumerate(others)
    )
    return Retraction(id, re.compile(named, re.I), place, unless)


RETRACTIONS = [
    _rule(
        "retracted.other-answer",
        rf"{_CLAUSE}(?:(?:the|my|our|its) )?(?:{_RIGHT} {_NOUN}|(?:actual |real |true )?answer)\s*{_IS}\s*"
        rf"{_VALUE}{_ENDS}|"
        rf"{_CLAUSE}{_RIGHT}\s*:\s*{_VALUE}{_ENDS}|"
        rf"\b(?:but|however,?|yet|actually,?|in fact,?) (?:it|that)(?:'s| is| should be| must be) {_VALUE}{_ENDS}",
        _BESIDE,
    ),
    _rule(
        "retracted.corrected",
        rf"(?:^|[.;:!?,—–(\n*]|\s-)[\s*_]*(?:(?:oh|ah|no|um|wait|but)[, ]+)?{_CUE}\b[\s,:;.!*—–-]*{_IT_IS}"
        rf"{_VALUE}{_ENDS}|"
        rf"{_SENTENCE}{_CUE}\b[^\n]{{0,80}}?\b(?:the|my|our) (?:{_ADJECTIVE} )?{_NOUN}\s*{_IS}\s*{_VALUE}{_ENDS}",
    ),
    _rule(
        "retracted.withdrawn",
        rf"{_SENTENCE}(?:(?:wait|no|oh|hm+|oops|hold on|actually|sorry|but|however|unfortunately)[,.! ]+)*{_THAT}"
        r"(?:(?:'s| is| was| seems| looks| must be) (?:clearly |obviously |actually |just |still )?"
        r"(?:wrong|incorrect|mistaken|false|an? (?:error|mistake)|not (?:right|correct|possible))|"
        r" (?:isn't|is not|wasn't|can't be|cannot be) (?:right|correct|possible)|"
        r" (?:doesn't|does not|didn't|did not) (?:work|check|fit|hold|add up|satisfy)| fails)\b|"
        r"\b(?:scratch|strike|disregard|ignore) (?:that|this|the (?:above|box\w*))\b|"
        r"\bI (?:made|see|found|notice) (?:a|an|my) (?:\w+ )?(?:mistake|error)\b|\bI was (?:wrong|mistaken)\b|"
        r"\blet me (?:correct|fix) (?:that|this|it|my)",
        unless=_ASKS_FOR_WRONG,
    ),
    _rule("retracted.first-thought", rf"(?<![A-Za-z])(?:{'|'.join(_FIRST_THOUGHTS)}):?{_BLANKS}", _BEFORE),
    _rule(
        "retracted.called-wrong",
        rf"(?:^|[^\w\s]|\n)[\s*_]*(?:(?:a|an|the|my|our|common) )?(?:{_CALLED})[*_ ]*:[*_]*{_BLANKS}",
        _BEFORE,
        _ASKS_FOR_WRONG,
    ),
    _rule(
        "retracted.asked",
        r"(?:^|[.!?;:,\n])[\s*_]*(?:so |then |but |or |and |hmm,? )?(?:is|are|was|could|can|might|would|does|"
        r"do|did|should|"
        r"maybe|perhaps|possibly|what if|what about|how about)\b[^.!?\n□]{0,50}□[\s$*)]*\?"
        r"(?!\s*\**(?:yes|indeed|correct|exactly|right|it is|yep|sure))",
        _AROUND,
    ),
]
"""Of those for what follows the box the last one decides."""
_SPEAKS = re.compile(r"[A-Za-z]{2}")
_CHOICE = re.compile(r"(?:\\(?:text|mathrm|textbf|mathbf)\s*\{\s*)?\(?[A-J]\)?\s*\}?")


def retraction(box: Box, answer: str, golds: Sequence[str], question: str) -> str:
    """The rule by which a response takes its last box back; "" if it does not."""
    word = _LAST_WORD.search(box.before[-30:])
    if word and word[1].lower() in _LAST_WORDS:
        for rule in _of(_BEFORE, question):
            if rule.pattern.search(box.before):
                return rule.id
    if box.rest[:4].lstrip(" $*)\\}")[:1] == "?":
        for rule in _of(_AROUND, question):
            if rule.pattern.search(f"{box.before}□{box.rest[:40]}"):
                return rule.id
    if len(box.rest) < 4 or not _SPEAKS.search(box.rest):
        return ""
    rest = box.rest.lstrip(" $}]),\\").replace("’", "'")
    last, decided = -1, ""
    for rule in (*_of(_BESIDE, question), *_of(_AFTER, question)):
        for found in rule.pattern.finditer(rest.partition("\n\n")[0] if rule.place == _BESIDE else rest):
            value = next(filter(None, found.groups()), "").strip(" .()")
            if found.end() > last and (not value or _is_choice(value) == _is_choice(answer)):
                last, decided = found.end(), "" if value and _is_same(value, answer, golds) else rule.id
    return decided


def _of(place: str, question: str) -> list[Retraction]:
    """The rules for a place that a question leaves."""
    rules = [rule for rule in RETRACTIONS if rule.place == place]
    return [rule for rule in rules if not rule.unless or not rule.unless.search(question)]


def _is_choice(text: str) -> bool:
    return _CHOICE.fullmatch(text) is not None


def _is_same(value: str, answer: str, golds: Sequence[str]) -> bool:
    """Whether a value that is stated after a box is that of the box, or is written in it."""
    from mathequal.judge import compare

    plain = value.replace("\\$", "").replace("$", "").replace("−", "-")
    if re.search(rf"(?<![\w.,]){re.escape(plain)}(?!\w|[.,]\d)", answer.replace("{,}", ",")):
        return True
    if any(compare(text, plain).equal or compare(plain, text).equal for text in (answer, *golds)):
        return True
    return "=" in plain or _is_near(plain, answer)


def _is_near(value: str, answer: str) -> bool:
    """Whether a decimal number may be the rounded value of an answer."""
    left, right = (read(text) for text in (value, answer))
    if "." not in value or not isinstance(left, Expression) or not isinstance(right, Expression):
        return False
    u, v = approximate(left.value), approximate(right.value)
    return u is not None and v is not None and abs(u[0] - v[0]) <= abs(v[0]) / 50
