r"""The policies of the math verifier: where an answer is found, and what can be decided about it without algebra.

`math_verify` (our default) reads the last \boxed{…} and asks the library math-verify. `qwen` follows the Qwen2.5-Math
evaluation, by which the paper's scores were made. `paper` follows the reward of the paper's training code.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

from dph.errors import UserError
from dph.types import Problem
from dph.verifiers.math.answer import Fallback, equal_at_sight, extract_answer, normalize
from dph.verifiers.math.qwen import qwen_equal
from dph.verifiers.math.qwen_text import CHOICE_LETTERS, extract_choice, extract_qwen, normalize_qwen

PolicyName = Literal["math_verify", "qwen", "paper"]

LONGEST = 2000
"""Characters; a longer "answer" is no answer to compare."""
_LONGEST_TEXT = 50_000  # characters of a whole response that math-verify searches

_UNITS_MATTER = {"minerva_math", "carp_en"}  # sets in which the Qwen evaluation keeps units
_CHOICES = {"sat_math", "mmlu_stem", "aqua", "gaokao2023"}  # sets in which it looks for a letter
_WITHOUT_DOLLARS = {"college_math", "gaokao2023en", "gaokao_math_cloze"}  # whose gold answers it takes without any $
_NORMALIZED_ONCE = {"math", "minerva_math"}  # sets whose gold answers it normalizes once, and the others' twice


@dataclass(frozen=True, slots=True)
class AnswerPolicy:
    """How one policy reads answers."""

    algebra: str
    """Name of its algebra in `math_worker`."""
    extract: Callable[[Problem, str], str | None]
    """The answer of a response, in the form that is compared; None where there is none."""
    golds: Callable[[Problem], tuple[str, ...]]
    """The accepted answers of a problem, in the form that is compared."""
    at_sight: Callable[[str, str], bool | None]
    """Whether (answer, gold) are equal, or None where that takes algebra."""
    longest: int = LONGEST


def make_policy(name: str, fallback: Fallback | None) -> AnswerPolicy:
    """A policy by name. fallback: what answers a response without a box; None for the policy's own habit."""
    if fallback == "library":
        if name != "math_verify":
            raise UserError(f"only the math policy math_verify can search the whole response, not {name}")
        return AnswerPolicy("math_verify_text", _whole, _formulas, _identical_at_sight, _LONGEST_TEXT)
    if name == "math_verify":
        extract = partial(_extract_box, fallback=fallback or "none")
        return AnswerPolicy("math_verify", extract, gold_texts, _equal_at_sight)
    if name == "qwen":
        extract = partial(_extract_qwen, fallback=fallback or "last_number")
        return AnswerPolicy("qwen", extract, _qwen_golds, _qwen_at_sight)
    if name == "paper":
        return AnswerPolicy(
            "paper", partial(_extract_box, fallback=fallback or "none"), gold_texts, _identical_at_sight
        )
    raise UserError(f"no math policy is named {name!r}; known are: math_verify, paper, qwen")


def gold_texts(problem: Problem) -> tuple[str, ...]:
    """The accepted answers as written, without dollar signs around them."""
    answers = problem.answer if isinstance(problem.answer, list | tuple) else [problem.answer]
    return tuple("" if answer is None else str(answer).strip().strip("$") for answer in answers)


def _extract_box(_: Problem, response: str, *, fallback: Fallback) -> str | None:
    return extract_answer(response, fallback)


def _whole(_: Problem, response: str) -> str | None:
    return response.strip() or None


def _formulas(problem: Problem) -> tuple[str, ...]:
    """Gold answers as the library finds them: between dollar signs, unless they are a text with formulas."""
    answers = problem.answer if isinstance(problem.answer, list | tuple) else [problem.answer]
    return tuple(gold if re.search(r"\$|boxed|\\\(|\\\[", gold) else f"${gold}$" for gold in map(str, answers))


def _equal_at_sight(given: str, gold: str) -> bool | None:
    return equal_at_sight(normalize(gold), normalize(given))


def _identical_at_sight(given: str, gold: str) -> bool | None:
    return True if given.strip() == gold.strip() else None


def _extract_qwen(problem: Problem, response: str, *, fallback: Fallback) -> str | None:
    r"""The answer, normalized twice as the evaluation does. Where the gold answer is a choice letter, the response's
    own letter; where it consists of letters A-E, or of nothing (\text{east}: a unit), the letters A-E in the answer."""
    kind = problem.meta.get("set")
    written = "".join(gold_texts(problem)[:1])
    gold = _normal_gold(written, kind)
    if kind in _CHOICES:
        answer = extract_choice(response)
    else:
        answer = extract_qwen(response, phrases=fallback != "none", last_number=fallback == "last_number")
        if len(answer) > LONGEST:
            return answer
        answer = _normal(answer, kind in _UNITS_MATTER)
    if len(answer) <= LONGEST:
        answer = _normal(answer, kind in _UNITS_MATTER)
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
    once = _normal(gold, kind in _UNITS_MATTER)
    return once if kind in _NORMALIZED_ONCE else _normal(once, False)


def _qwen_golds(problem: Problem) -> tuple[str, ...]:
    return tuple(_normal_gold(gold, problem.meta.get("set")) for gold in gold_texts(problem))


@lru_cache(maxsize=16_384)
def _normal(answer: str, keep_units: bool) -> str:
    return normalize_qwen(answer, keep_units=keep_units)


class _TakesAlgebra(Exception):
    """Raised in place of an algebraic comparison."""


def _no_algebra(_given: str, _gold: str) -> bool:
    raise _TakesAlgebra


def _qwen_at_sight(given: str, gold: str) -> bool | None:
    try:
        return qwen_equal(given, gold, _no_algebra)
    except (_TakesAlgebra, RecursionError):
        return None


def judge_at_sight(policy: AnswerPolicy, golds: Sequence[str], given: str) -> bool | None:
    """Whether an answer equals one of several golds, or None where that takes algebra."""
    seen = [policy.at_sight(given, gold) for gold in golds]
    if True in seen:
        return True
    return None if None in seen else False
