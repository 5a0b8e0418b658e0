r"""Answers that leave the question's work undone are not paid; answers that only look like the question are."""

import time
from pathlib import Path

import pytest

from benchmarks.verifiers.copied_math import WRAPPERS, paid_wrappers
from dph.tasks import load_task
from dph.types import Outcome, Problem
from dph.verifiers.math.policy import gold_texts
from dph.verifiers.math.verifier import MathVerifier
from mathequal import compare, is_copied

FORMULAS = [
    ("Expand $F$.", "(x+1)(x+2)", "x^2+3x+2", ["2+3x+x^2"]),
    ("Factor $F$.", "x^2-9", "(x-3)(x+3)", ["(x+3)(x-3)", "-(3-x)(x+3)"]),
    (r"Simplify: \(F\)", "-10-4(n-5)", "10-4n", ["-4n+10", "2(5-2n)"]),
    ("Simplify $F$.", "(2xy)^4", "16x^4y^4", ["16y^4x^4"]),
    ("Combine like terms: $F$", "n+n", "2n", [r"n\cdot 2"]),
    ("Simplify $F$.", r"\sqrt{245}", r"7\sqrt{5}", [r"\sqrt{5}\cdot 7", r"7\cdot 5^{1/2}"]),
    ("Write $F$ with positive exponents.", "(ab)^{-1}", r"\frac{1}{ab}", [r"\frac{1}{ba}"]),
    ("Multiply: $F$", "6(p-7)", "6p-42", ["-42+6p"]),
    ("Write $F$ with a positive exponent.", "x^{-3}", r"\frac{1}{x^3}", ["1/x^3"]),
    (r"Rationalize $F$.", r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}", [r"\frac12\sqrt2", r"\sqrt{2}/2"]),
]


def verdicts(question: str, gold: str, answers: list[str]) -> list[str]:
    pairs = [(Problem("p", question, gold, "math"), rf"\boxed{{{answer}}}") for answer in answers]
    return [str(verdict.outcome) for verdict in MathVerifier().verify(pairs)]


@pytest.mark.parametrize(("question", "formula", "gold", "rights"), FORMULAS)
def test_a_formula_in_a_wrapper_is_the_formula(question: str, formula: str, gold: str, rights: list[str]):
    copies = [wrapper.replace("F", formula) for wrapper in WRAPPERS]
    question = question.replace("F", formula)
    assert {
        copy for copy, found in zip(copies, verdicts(question, gold, copies), strict=True) if found == "correct"
    } == set()
    assert verdicts(question, gold, [gold, f"z={gold}", *rights]) == ["correct"] * (2 + len(rights))
    assert any(compare(gold, copy)[0] for copy in copies)  # they are right in value


@pytest.mark.parametrize(
    ("question", "gold", "copies", "rights"),
    [
        (r"Find: $\frac{64}{7}\div\frac{8}{3}$", r"\frac{24}{7}",
         [r"\frac{64}{7}\div\frac{8}{3}", r"\frac{64/7}{8/3}"], ["24/7", r"3\frac{3}{7}"]),
        (r"Reduce $\frac{25}{20}$.", r"\frac{5}{4}", [r"\frac{25}{20}", "25/20"], ["5/4", "1.25"]),
        (r"What is $\frac{25}{20}$ of a litre?", r"\frac{5}{4}", [r"\frac{25}{20}"], ["5/4"]),
        ("Convert $7$ mi to yards.", r"12320\text{ yd}", ["7 mi", r"7\text{ miles}", r"7.0\text{ mi}"],
         ["12320", "12320 yards"]),
        (r"How many yards are $7\text{ mi}$?", r"12320\text{ yd}", [r"7\text{ mi}"], ["12320"]),
        (r"Convert $45^\circ$ to radians.", r"\frac{\pi}{4}", [r"45^\circ", r"1\cdot 45^\circ"], [r"\pi/4"]),
        (r"Convert $\frac54$ to a mixed number.", r"1\frac14", [r"\frac54", "5/4"], ["1 1/4"]),
        (r"Convert $\frac{\pi}{4}$ to degrees.", r"45^\circ", [r"\frac{\pi}{4}", r"\pi/4"], ["45"]),
        (r"Write $45\%$ as a decimal.", "0.45", [r"45\%"], ["0.45", ".45"]),
        ("Write $0.75$ as a fraction.", r"\frac34", ["0.75"], ["3/4"]),
        (r"Express $\frac{37}{80}$ as a terminating decimal.", "0.4625", [r"\frac{37}{80}"], ["0.46250"]),
        (r"Write in standard notation: $8.7\times 10^5$", "870000", [r"8.7\times 10^5"], ["870,000"]),
        (r"Write $\{x\mid x\ne 5\}$ in interval notation.", r"(-\infty,5)\cup(5,\infty)",
         [r"\{x\mid x\ne 5\}"], [r"(5,\infty)\cup(-\infty,5)"]),
        (r"Write with a common denominator: $\frac1x, \frac{1}{x+1}$", r"\frac{x+1}{x(x+1)}, \frac{x}{x(x+1)}",
         [r"\frac1x, \frac{1}{x+1}", r"\frac{1}{x+1}, \frac1x", r"\{\frac1x, \frac{1}{x+1}\}"],
         [r"\frac{x}{x(x+1)}, \frac{x+1}{x(x+1)}"]),
    ],
)  # fmt: skip
def test_numbers_quantities_and_lists_of_the_question(question: str, gold: str, copies: list[str], rights: list[str]):
    found = verdicts(question, gold, [*copies, gold, *rights])
    assert found == ["wrong"] * len(copies) + ["correct"] * (1 + len(rights))


@pytest.mark.parametrize(
    ("question", "gold", "answer"),
    [
        ("Simplify $x$.", "x", "1x"),  # nothing to do
        (r"The chance of heads is $\frac12$. What is that of tails?", "0.5", r"\frac12"),
        ("A wall has $3$ m. How long is the other?", r"3\text{ m}", "3 m"),
        ("A rope has $3$ m, that is $300$ cm. How long is it?", r"3\text{ m}", "3"),
        ("A game has $4$ of $8$ prizes left. Which share is it?", r"\frac12", "4/8"),
        (r"Is $\sqrt2+\sqrt5$ or $3$ larger?", r"\sqrt2+\sqrt5", r"\sqrt5+\sqrt2"),
        ("Expand $2(1+x)-(1+x)$, for x of 1+x+y", "x+1", "1+x"),
        ("Let $f(x)=x+1$. Differentiate $f(x)^2$.", "2x+2", "2(x+1)"),  # holds a formula, which is another function
        ("Simplify the power of $i$: $i^5$", "i", "i"),
        ("Find the range of $x^k$ on the interval $[1,\\infty)$.", "[1,\\infty)", "y\\in[1,\\infty)"),
        ("$197$ is converted to base $b$, at least $2$. How many digits has it?", "2", "n=2"),
        ("Who won, $A$ or $B$?", "A", "A"),
    ],
)
def test_right_answers_that_look_like_the_question(question: str, gold: str, answer: str):
    assert verdicts(question, gold, [answer]) == [Outcome.CORRECT]


def test_public_problems_do_not_pay_for_their_own_formulas(shared_data: Path):
    """Gold answers are paid as answers; fewer than 2 % of the problems of College Math pay for their own formula."""
    problems = load_task("college_math", root=str(shared_data / "math")).problems("test")[::25]
    with MathVerifier() as verifier:
        for problem in problems:
            question, golds = str(problem.prompt), gold_texts(problem)
            assert not any(is_copied(gold, golds, question) for gold in golds)
        paid = sum(bool(paid_wrappers(problem, verifier)) for problem in problems)
    assert len(problems) > 100 and paid <= len(problems) / 50


def test_wrappers_cost_bounded_time():
    deep, gold = "x+1", "y"
    for wrapper in WRAPPERS * 2:
        deep = wrapper.replace("F", deep) if len(deep) < 800 else deep
    started = time.thread_time()
    is_copied(deep, [gold], f"Find ${deep}+0$ and $x+1$.")
    assert time.thread_time() - started < 2
