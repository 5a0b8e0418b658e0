r"""The policy `strict`: what it refuses beyond math-verify, and which wrong answers each policy accepts."""

import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verifiers import perturbed_math
from benchmarks.verifiers.perturbed_math import POLICIES, WRONG, accepted, judge, right_answers, wrong_answers
from dph.tasks import load_task
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.math.policy import LONGEST, PolicyName, judge_at_sight, make_policy
from dph.verifiers.math.strict import strict_fault
from dph.verifiers.math.verifier import MathVerifier

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

# How many wrong answers each policy accepts: respect → (answers, qwen, math_verify, strict).
ACCEPTED = {
    "sign": (30, 1, 0, 0),
    "digit": (42, 0, 0, 0),
    "factor 10": (16, 0, 0, 0),
    "restated": (6, 4, 5, 0),
    "percent": (3, 3, 0, 0),
    "number of answers": (72, 35, 0, 0),
    "or": (66, 13, 0, 0),
    "number in words": (66, 64, 65, 0),
    "approximation": (68, 16, 43, 0),
    "false equation": (66, 64, 46, 0),
    "modulo": (66, 13, 31, 0),
    "base": (25, 22, 24, 0),
    "upside down": (5, 0, 0, 0),
    "exponent": (4, 0, 0, 0),
    "unit": (12, 10, 9, 0),
    "power of a unit": (4, 1, 2, 0),
    "no base": (3, 1, 2, 0),
    "order": (9, 1, 1, 0),
    "bracket": (11, 6, 8, 0),
    "end": (5, 5, 0, 0),
    "missing element": (10, 0, 0, 0),
    "operator": (1, 1, 0, 0),
    "relation": (4, 1, 0, 0),
    "variable": (13, 1, 1, 0),
    "one side": (5, 0, 1, 0),
    "direction": (2, 1, 0, 0),
    "strictness": (2, 1, 0, 0),
    "index": (4, 0, 0, 0),
    "function": (6, 0, 0, 0),
    "power": (1, 0, 0, 0),
}
RIGHT = {"qwen": 268, "math_verify": 348, "strict": 348}  # of 348 other spellings


@pytest.fixture(scope="module")
def strict():
    with MathVerifier(policy="strict", timeout=20.0) as made:
        yield made


def correct(verifier: MathVerifier, gold: object, *answers: str) -> list[bool]:
    problem = Problem("p", "?", gold, "math")
    verdicts = verifier.verify([(problem, f"So \\boxed{{{answer}}}.") for answer in answers])
    assert not any(verdict.outcome in (Outcome.INFRA_ERROR, Outcome.GOLD_ERROR) for verdict in verdicts)
    return [verdict.correct for verdict in verdicts]


@pytest.mark.parametrize("policy", POLICIES)
def test_wrong_answers_that_each_policy_accepts(policy: PolicyName):
    column = 1 + POLICIES.index(policy)
    assert Counter(respect for respect, _, _ in wrong_answers()) == {name: row[0] for name, row in ACCEPTED.items()}
    expected = Counter({respect: row[column] for respect, row in ACCEPTED.items() if row[column]})
    found = accepted(policy)
    assert (found.pop("right"), found) == (RIGHT[policy], expected)


def test_other_spellings_are_accepted():
    assert len(WRONG) == 66
    cases = list(right_answers())
    assert [case for case, verdict in zip(cases, judge("strict", cases), strict=True) if not verdict.correct] == []


def test_the_table_of_accepted_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(perturbed_math, "POLICIES", ("strict",))
    monkeypatch.setattr(perturbed_math, "WRONG", {"3": {"unit": "5 m"}})
    monkeypatch.setattr(perturbed_math, "RIGHT", {})
    monkeypatch.setattr(perturbed_math, "judge", lambda _, cases: [Verdict(Outcome.CORRECT, 1.0) for _ in cases])
    perturbed_math.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| differs in | answers | `strict` |" and "| unit | 1 | 1 |" in lines
    assert lines[-3:-1] == ["| **all wrong answers** | 8 | 8 |", "| **other spellings, all correct** | 4 | 4 |"]


@pytest.mark.parametrize(
    ("gold", "fault", "answers"),
    [
        ("(0,1)", "brackets", [r"\{0,1\}", "{0,1}", "[0,1]", "(0,1]", "[0,1)"]),
        ("0,1", "brackets", ["(0,1)", "[0,1]"]),
        (r"5\text{ cm}", "unit", ["5 m", r"5\text{ m}", r"5\text{ cm}^2", r"5\%", r"\$5", r"5^\circ"]),
        (r"5\text{ apples}", "words", [r"5\text{ oranges}"]),
        ("9.8 m/s^2", "unit", ["9.8 m/s", r"9.8\text{ m/h}^2"]),
        (r"30^\circ", "unit", [r"30\text{ rad}", r"30\text{ cm}"]),
        ("x+y=3", "relation", ["3"]),
        ("3", "relation", ["x+y=3", "2=3", "1=2=3", "x>3", r"3\approx 4"]),
        ("52_8", "base", ["52_9", "52"]),
        ("3", "base", ["3_8"]),
        ("1", "number of answers", ["0 or 1", "0, 1", r"1 \text{ or } 2", r"\{0, 1\}", r"1 \text{ and } 1", r"\pm 1"]),
        ("3", "number in words", [r"3\text{ (not 5)}", r"3\textbf{7}"]),
        ("10", "operation", [r"\binom{5}{2}", r"\sum_{k=1}^4 k", r"\gcd(20,30)", "5!/12", r"10 \mod 30"]),
        ("10", "number", ["2 \\cdot 5", "20-10", r"\sqrt{100}", "2(5)"]),
        ("5", "whole number", ["10/2", r"\frac{5}{1}"]),
        (r"\frac{\sqrt{3}}{2}", "function", [r"\sin 60^\circ", r"\cos\frac{\pi}{6}"]),
        (r"\frac{n(n+1)}{2}", "operation", [r"\sum_{k=1}^{n} k", r"\binom{n+1}{2}"]),
        ("3t", "variable", ["3"]),
        (r"x^2, \infty", "arithmetic with infinity", [r"x^2, \infty+99", r"x^2, 99 + \infty", r"x^2, 2\infty"]),
    ],
)
def test_the_rule_that_refuses_an_answer(strict: MathVerifier, gold: str, fault: str, answers: list[str]):
    verdicts = strict.verify([(Problem("p", "?", gold, "math"), rf"\boxed{{{answer}}}") for answer in answers])
    assert [(v.outcome, v.detail) for v in verdicts] == [
        (Outcome.WRONG, f"not of the gold answer's kind: {fault}") for _ in answers
    ]


@pytest.mark.parametrize(
    ("gold", "answers", "expected"),
    [
        ("50", [r"50\%", "0.5", "5000", r"0.5\%"], [True, False, False, False]),  # the question may ask for per cent
        (r"50\%", ["50", "0.5", r"\frac{1}{2}", "5000"], [True, True, True, False]),
        (r"45^\circ", ["45", r"\frac{\pi}{4}", "-45", "405"], [True, False, False, False]),
        ("5", ["5 cm", r"5\text{ apples}", "5 x", "5x"], [True, True, False, False]),
        (r"\$5", ["5", r"5\text{ cents}", "500"], [True, False, False]),
        ("(1,2)", ["1,2", "2,1", "x=1, y=2", "(1,2,2)", "(2,1)"], [True, False, True, False, False]),
        (r"\{1,2\}", ["2,1", r"\{2,1\}", "(1,2)", r"\{1,2,3\}"], [True, True, False, False]),
        (r"(-\infty,3]", [r"x\le 3", "x<3", r"(-\infty,3)", "3"], [False, False, False, False]),  # as math-verify
        (r"x\le 3", [r"(-\infty,3]", r"(-\infty,3)", r"3\ge x", r"x\ge 3"], [True, False, True, False]),
        (r"\pm 2", ["2,-2", r"\{-2,2\}", "2", "(-2,2)"], [True, True, False, False]),
        (
            "5",
            [r"5} or \boxed{7", r"7} \boxed{5", r"5} \boxed{", r"\boxed{5}", r"5}\boxed{5"],
            [False, True, False, True, True],
        ),
        ("1", ["9^{9^{9}}/9^{9^{9}}", "10^{99999999}", "1^{99999999}", "", " ", "{}"], [False] * 6),
        (
            "10",
            ["1О", "l0", "1\u0660", "１０", "−10", "10\u0336"],
            [False, False, True, True, False, False],
        ),  # look-alikes
        ("x", ["х", "X", "×", "𝑥", r"\chi"], [False, True, False, False, False]),
    ],
)
def test_attempts_at_a_reward(strict: MathVerifier, gold: str, answers: list[str], expected: list[bool]):
    assert correct(strict, gold, *answers) == expected


def test_each_of_several_golds_has_its_own_kind(strict: MathVerifier):
    assert correct(strict, ["(0,1)", "x+y=3", "7"], "(0,1)", r"\{0,1\}", "3", "y+x=3", "7.0", "3+4") == [
        True, False, False, True, True, False
    ]  # fmt: skip


def test_published_golds_are_of_their_own_kind():
    if not (DATA / "math").exists():
        pytest.skip("the published sets are not on this machine")
    sets = ("math", "math500", "gsm8k", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench", "college_math",
            "gaokao2023en", "dapo_math_17k/train", "math/train")  # fmt: skip
    policy, task = make_policy("strict", None), load_task("math_sets", root=str(DATA / "math"))
    judged = 0
    for problem in (problem for name in sets for problem in task.problems(name)):
        golds = policy.golds(problem)
        assert all(judge_at_sight(policy, golds, gold) is True for gold in golds if gold), problem
        judged += len(golds)
    assert judged > 30_000


_PIECES = st.sampled_from(
    [*"0125abcxmio,;:=<>()[]{}_^/.'!|@⟨⟩¦ \n\\$%", r"\frac", r"\text{", r"\{", r"\}", r"\cup", r"\in", " or ", "per ",
     "cm", "square ", r"\pm", r"\circ", r"\left(", "1,000", "π", "\x00"]
)  # fmt: skip
_TEXTS = st.lists(_PIECES, max_size=25).map("".join)


@given(_TEXTS, _TEXTS)
@settings(max_examples=500, deadline=None)
def test_no_text_upsets_the_rules(one: str, other: str):
    assert strict_fault(one, one) == ""
    assert isinstance(strict_fault(one, other), str)


@pytest.mark.parametrize(
    "piece", ["{", "[!", r"{\circ", r"\text{", "1,000", "a ", "per ", "1 cm", "x=", r"\frac{1}{", ";%"]
)
def test_the_longest_answers_are_read_at_once(piece: str):
    """The rules run in the caller's process, so that no answer may keep them busy."""
    longest = (piece * LONGEST)[:LONGEST]
    started = time.monotonic()
    strict_fault(longest, "5")
    strict_fault(f"5{longest[1:-1]}5", f"5{longest[1:-1]}6")
    assert time.monotonic() - started < 2.0
