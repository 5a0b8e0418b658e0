"""The policies of the math verifier: how each finds an answer and what it decides without algebra."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, get_args

from dph.errors import UserError
from dph.extras import require_installed
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.exact import gold_list, gold_text
from dph.verifiers.math.qwen import CHOICE_LETTERS, extract_choice, extract_qwen, normalize_qwen, qwen_equal
from dph.verifiers.thoughts import without_thoughts
from mathequal.extract import Decimals, Fallback, find_answer, strip_dollars
from mathequal.spelling import LONE_DOLLAR

PolicyName = Literal["typed", "math_verify", "qwen"]

LONGEST = 2000
"""Characters; a longer "answer" counts as wrong without a comparison."""
_LONGEST_TEXT = 50_000  # characters of a whole response that math-verify searches

_UNITS_MATTER = {"minerva_math", "carp_en"}  # sets in which the Qwen evaluation keeps units
_CHOICES = {"sat_math", "mmlu_stem", "aqua", "gaokao2023"}  # sets in which it looks for a choice letter
_WITHOUT_DOLLARS = {"college_math", "gaokao2023en", "gaokao_math_cloze"}  # sets whose gold answers lose every $
_NORMALIZED_ONCE = {"math", "minerva_math"}  # sets whose gold answers it normalizes once rather than twice


@dataclass(frozen=True, slots=True)
class AnswerPolicy:
    """How one policy reads answers."""

    algebra: str
    """Name of its equality in `dph.verifiers.math.worker`."""
    extract: Callable[[Problem, str], str | None]
    """(problem, response) → the answer, normalized for comparison; None if there is none."""
    golds: Callable[[Problem], tuple[str, ...]]
    """The accepted answers of a problem, normalized for comparison."""
    at_sight: Callable[[str, str], bool | None]
    """(answer, gold) → whether they are equal; None if that takes algebra."""
    longest: int = LONGEST
    judge: Callable[[Problem, str], Verdict] | None = None
    """(problem, answer) → the verdict, if the policy needs neither `at_sight` nor algebra."""
    gold_fault: Callable[[Problem], str] = lambda _: ""
    """Why the policy cannot compare with a problem's gold answer; "" if it can."""
    reading: Callable[[str], str] = str
    """What a gold answer is to the policy, in words."""
    explain: Callable[[Problem, str], str] | None = None
    """(problem, response) → how its verdict came about, in lines for people."""


def make_policy(name: str, fallback: Fallback | None, decimals: Decimals = "exact") -> AnswerPolicy:
    """A policy by name. fallback: where the answer of a response without a box comes from; None for the policy's
    default; decimals: whether `typed` takes a value for a decimal number to which it rounds."""
    check_policy(name)
    if decimals not in ("exact", "rounded") or (decimals == "rounded" and name != "typed"):
        raise UserError(f"the option decimals must be exact, or rounded with the policy typed, not {decimals!r}")
    if fallback == "library":
        if name != "math_verify":
            raise UserError(f"only the math policy math_verify can search the whole response, not {name}")
        return AnswerPolicy("math_verify_text", _whole, _formulas, _same_text, _LONGEST_TEXT)
    if name == "qwen":
        extract = partial(_extract_qwen, fallback=fallback or "last_number")
        return AnswerPolicy("qwen", extract, _qwen_golds, _qwen_at_sight)
    policy = AnswerPolicy("math_verify", partial(_extract, fallback=fallback or "none"), gold_texts, _same_text)
    if name == "typed":
        judge = partial(_judge_typed, decimals=decimals)
        extract = partial(_extract_typed, fallback=fallback or "none")
        explain = partial(_explain, fallback=fallback or "none", decimals=decimals)
        policy = replace(policy, algebra="", extract=extract, judge=judge, explain=explain)
        return replace(policy, gold_fault=_unread, reading=_reading)
    return policy


def _whole(problem: Problem, response: str) -> str | None:
    return without_thoughts(response, problem.prompt).strip() or None


def _extract(problem: Problem, response: str, *, fallback: Fallback) -> str | None:
    return find_answer(without_thoughts(response, problem.prompt), fallback)


def _extract_typed(problem: Problem, response: str, *, fallback: Fallback) -> str | None:
    """The answer, with what stands beside its box: relations, signs, words, scales and units."""
    from mathequal.responses import statement

    text = without_thoughts(response, problem.prompt)
    stated = statement(text, gold_texts(problem), _question(problem), fallback)
    return stated and stated.answer


def _same_text(given: str, gold: str) -> bool | None:
    return given.strip() == gold.strip() or None


def check_policy(name: str) -> None:
    """Raises UserError if there is no such policy, or it needs a library that is not installed."""
    if name == "strict":
        raise UserError("the math policy strict was removed; use typed, which compares answers by their types")
    if name not in get_args(PolicyName):
        raise UserError(
            f"no math policy is named {name!r}; use typed for training, qwen for published scores, or math_verify"
        )
    needed = {"math_verify": ["math_verify"], "qwen": ["math_verify", "word2number"]}
    require_installed(f"the math policy {name}", *needed.get(name, []))


def _unread(problem: Problem) -> str:
    """Why `typed` cannot read any of a problem's gold answers; "" if it can."""
    from mathequal import read
    from mathequal.doubts import is_of_a_sheet
    from mathequal.golds import is_missing, reads

    golds = _typed_golds(problem)
    if all(map(is_missing, golds)):
        return f"the answer is {golds[0][:80]!r}, which says that it is missing"
    if all(map(is_of_a_sheet, golds)):
        return f"the answer is {golds[0][:80]!r}, {_SHEET}"
    readable = [gold for gold in golds if (answer := read(gold)) and not _is_told(gold, answer.kind) and reads(gold)]
    if not readable:
        return f"the policy typed cannot read the answer {golds[0][:80]!r}; {_ALONE}"
    doubts = [_doubt(gold, _question(problem)) for gold in readable]
    return doubts[0] if all(doubts) else ""


@lru_cache(maxsize=4096)
def _doubt(gold: str, question: str) -> str:
    """Why a gold that `typed` reads says something else to a reader; "" if it does not."""
    from mathequal import doubts
    from mathequal.golds import is_beside_the_question

    told = f"the answer is {gold[:80]!r}"
    if doubts.is_decimal_comma(gold, question):
        return f"{told}, a number with a decimal comma or two numbers; write 0.5, or 0, 5 for two numbers"
    if doubts.is_ambiguous(gold):
        return f"{told}, which may be a value with a remark, a range, a product or a difference; {_ALONE}"
    if (word := doubts.split_words(gold)) and not doubts.is_name(gold):
        return f"{told}, of which the policy typed cannot read {word!r}; {_ALONE}"
    if doubts.is_unlisted_choice(gold, question):
        return f"{told}, and the question lists no choices"
    return f"the question asks for a value, and the answer is {gold[:80]!r}" * is_beside_the_question(gold, question)


def _typed_golds(problem: Problem) -> tuple[str, ...]:
    """The accepted answers without what is no part of them: "Ans. 15" is 15."""
    question = _question(problem)
    return tuple(_typed_gold(gold, question) for gold in _written_golds(problem))


def _written_golds(problem: Problem) -> tuple[str, ...]:
    """The accepted answers without the dollar signs around a formula; a lone one, of $34, is the currency and stays."""
    golds = map(gold_text, gold_list(problem.answer))
    return tuple(gold.strip() if _LONE_DOLLAR.fullmatch(gold) else strip_dollars(gold) for gold in golds)


def _typed_gold(gold: str, question: str) -> str:
    from mathequal.golds import stated

    return gold if _GLUED.match(gold) else stated(gold, question)


def is_words(problem: Problem) -> bool:
    """Whether `typed` reads every accepted answer as words, or as letters of choices that the question does not
    list."""
    from mathequal import read
    from mathequal.doubts import lists_choices

    kinds = ("text",) if lists_choices(_question(problem)) else ("text", "letters")
    answers = map(read, _typed_golds(problem))
    return all(answer is not None and answer.kind in kinds for answer in answers)


def noted(problem: Problem) -> list[str]:
    """What is worth a note about the accepted answers: `dph.verifiers.golds.NOTED` says what each flag means."""
    from mathequal.doubts import is_code, is_name

    golds = _typed_golds(problem)
    return [flag for flag, told in (("codes", is_code), ("names", is_name)) if any(map(told, golds))]


def is_cleaned(problem: Problem) -> bool:
    """Whether `typed` takes a label, a number in a list or a remark off one of the accepted answers."""
    return _typed_golds(problem) != _written_golds(problem)


@lru_cache(maxsize=4096)
def _is_told(gold: str, kind: str) -> bool:
    """Whether a gold of a type is no answer but tells one: a solution, "6, so (B) is correct", or a sentence with a
    number, "There are fifteen apples." What begins with yes or no is an answer with its reason."""
    if _GLUED.match(gold):
        return True
    if "\\text" in gold or len(_WORD.findall(gold)) < 4 or _YES_NO.match(gold):
        return False
    numbered = _TELLS_NUMBER.search(gold) or (gold.rstrip().endswith(".") and _NUMBER.search(gold))
    return bool(_CONCLUDES.search(gold) or (kind == "text" and numbered))


def _reading(gold: str) -> str:
    """A gold answer, its type, and its value if that is a number."""
    from mathequal import exact, read
    from mathequal.answers import Expression

    answer = read(_typed_gold(gold, ""))
    if answer is None:
        return f"{gold} (not read)"
    value = exact(answer.value) if isinstance(answer, Expression) else None
    return f"{gold} ({answer.kind if value is None else f'number {value}'})"


def _judge_typed(problem: Problem, answer: str, *, decimals: Decimals) -> Verdict:
    """The verdict by types; an answer that is only copied from the question is wrong."""
    from mathequal import compare, is_copied

    question, golds = _question(problem), _typed_golds(problem)
    results = [compare(gold, answer, decimals=decimals, question=question) for gold in golds]
    correct, _, detail = max(results, key=lambda result: result.equal)
    if (correct or detail == "form") and is_copied(answer, golds, question):
        return Verdict(Outcome.WRONG, 0.0, "copied")
    detail = "" if detail == "form" else detail
    return Verdict(Outcome.CORRECT if correct else Outcome.WRONG, float(correct), detail)


def _explain(problem: Problem, response: str, *, fallback: Fallback, decimals: Decimals) -> str:
    """How the verdict came about: the rules that decided, and how the gold answer and the response's were read. Of
    several gold answers it is one that the response equals, or the first."""
    from mathequal import explain, is_copied

    text, question, golds = without_thoughts(response, problem.prompt), _question(problem), _typed_golds(problem)
    options: Any = {"decimals": decimals, "question": question, "fallback": fallback, "bare": False}
    found = [explain(gold, text, **options) for gold in golds]
    best = max(found, key=lambda explanation: explanation.judgement.equal)
    copied = best.answer is not None and is_copied(best.answer, golds, question)
    return f"{best}\nrule    copied: the answer is only copied from the question" if copied else str(best)


def _question(problem: Problem) -> str:
    """The user's last message."""
    if isinstance(problem.prompt, str):
        return problem.prompt
    return next((message["content"] for message in problem.prompt[::-1] if message.get("role", "user") == "user"), "")


def gold_texts(problem: Problem) -> tuple[str, ...]:
    """The accepted answers as written, without surrounding dollar signs.

    >>> gold_texts(Problem("a", "1 + 1?", ["$2$", 2.0], "math"))
    ('2', '2.0')
    """
    return tuple(strip_dollars(gold_text(gold)) for gold in gold_list(problem.answer))


_LONE_DOLLAR = re.compile(LONE_DOLLAR)
_ALONE = "write the answer alone, or name it in a longer text with the option answer_pattern"
_SHEET = "a date, a time or a cut number as spreadsheets write them, also in place of 1/2 or 3-4; write the value"
_GLUED = re.compile(r"(?:ans|sol)\w*\.\d", re.I)  # "Ans.5": 5 or 0.5
_CONCLUDES = re.compile(r"(?<![A-Za-z\\])(?:(?<![Ii]f )(?<!or )so|therefore|thus|hence)(?=[\s,])")
_WORD = re.compile(r"[A-Za-z]{2,}")
_YES_NO = re.compile(r"\s*(?:yes|no|true|false)\b", re.I)
_NUMBER = re.compile(
    r"\d|\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|"
    r"sixty|seventy|eighty|ninety|hundred|thousand|million|billion|dozen|half)\b",
    re.I,
)
_TELLS_NUMBER = re.compile(rf"\b(?:is|are|was|were|be|has|have|had|equals|so)\b.*(?:{_NUMBER.pattern})", re.I | re.S)
_HOLDS_FORMULA = re.compile(r"(?<!\\)\$|boxed|\\\(|\\\[")  # \$ is the currency


def _formulas(problem: Problem) -> tuple[str, ...]:
    """Gold answers in the form that the library parses: between dollar signs, unless they are text with formulas."""
    golds = map(gold_text, gold_list(problem.answer))
    return tuple(gold if _HOLDS_FORMULA.search(gold) else f"${gold}$" for gold in golds)


def _extract_qwen(problem: Problem, response: str, *, fallback: Fallback) -> str | None:
    r"""The answer, normalized twice as the evaluation does.

    If the gold answer is a choice letter, the answer is the response's choice letter. If the gold answer consists of
    the letters A-E only, or is empty after normalization (\text{east}: a unit), only the letters A-E of the answer are
    kept.
    """
    kind = problem.meta.get("set")
    written = "".join(gold_texts(problem)[:1])
    gold = _normal_gold(written, kind)
    if kind in _CHOICES:
        answer = extract_choice(response)
    else:
        answer = extract_qwen(response, phrases=fallback != "none", last_number=fallback == "last_number")
        if len(answer) > LONGEST:
            return answer
        answer = normalize_qwen(answer, keep_units=kind in _UNITS_MATTER)
    if len(answer) <= LONGEST:
        answer = normalize_qwen(answer, keep_units=kind in _UNITS_MATTER)
    if gold in CHOICE_LETTERS:
        return answer if answer in CHOICE_LETTERS else extract_choice(response) or None
    if written and set(gold) <= CHOICE_LETTERS and (answer or not gold):
        return "".join(char for char in answer if char in CHOICE_LETTERS)
    return answer or None


@lru_cache(maxsize=4096)
def _normal_gold(gold: str, kind: str | None) -> str:
    if kind == "carp_en":
        return gold.replace(r"\neq", r"\ne").replace(r"\leq", r"\le").replace(r"\geq", r"\ge")
    if kind in _WITHOUT_DOLLARS:
        gold = gold.replace("$", "").strip()
    once = normalize_qwen(gold, keep_units=kind in _UNITS_MATTER)
    return once if kind in _NORMALIZED_ONCE else normalize_qwen(once)


def _qwen_golds(problem: Problem) -> tuple[str, ...]:
    return tuple(_normal_gold(gold, problem.meta.get("set")) for gold in gold_texts(problem))


class _TakesAlgebra(Exception):
    """Raised in place of an algebraic comparison."""


def _no_algebra(_given: str, _gold: str) -> bool:
    raise _TakesAlgebra


def _qwen_at_sight(given: str, gold: str) -> bool | None:
    try:
        return qwen_equal(given, gold, _no_algebra)
    except (_TakesAlgebra, RecursionError):
        return None


def judge_at_sight(policy: AnswerPolicy, golds: Sequence[str], given: str) -> bool | tuple[str, ...]:
    """Whether an answer equals one of several gold answers; if that takes algebra, those for which it does."""
    seen = [policy.at_sight(given, gold) for gold in golds]
    return True in seen or tuple(gold for gold, equal in zip(golds, seen, strict=True) if equal is None) or False
