r"""What the question and the words around a box say about an answer."""

import pytest

from dph.types import Outcome, Problem
from dph.verifiers.math.verifier import MathVerifier


def paid(gold: str, *responses: str, question: str = "?") -> list[bool]:
    """Whether responses are correct. One without a box is the content of one."""
    boxed = [response if "boxed" in response else rf"So \boxed{{{response}}}." for response in responses]
    verdicts = MathVerifier().verify([(Problem("p", question, gold, "math"), response) for response in boxed])
    assert all(verdict.outcome in (Outcome.CORRECT, Outcome.WRONG) for verdict in verdicts)
    return [verdict.correct for verdict in verdicts]


@pytest.mark.parametrize(
    ("gold", "rights", "wrongs"),
    [
        (
            r"94\text{ m/s}",
            [r"$v=\boxed{94}\text{ m/s}.$", r"$\boxed{94}$ m/s", r"\boxed{94} m/s", r"$\boxed{94}$ is it"],
            [r"$v=\boxed{94}\text{ km/s}$", r"$\boxed{94}$ km/s", r"$\boxed{94}\mathrm{~m}$",
             r"\boxed{94} km per hour"],
        ),
        (
            r"25\text{ square feet}",
            [r"\(\boxed{25}\) square feet in all", r"$\boxed{25}\text{ ft}^2$", r"$A=\boxed{25}\,\text{ft}^2$"],
            [r"\(\boxed{25}\) square yards", r"$\boxed{25}\text{ feet}$", r"$A=\boxed{25}\text{ m}^2$"],
        ),
        (r"3\text{ hours}", [r"$\boxed{3}$ in hours", r"$\boxed{180}$ minutes"], [r"$\boxed{3}$ minutes"]),
        (r"5\text{ apples}", [r"$\boxed{5}\text{ apples}$", r"$\boxed{5}\text{ as said}$"],
         [r"$\boxed{5}\text{ pears}$"]),
        ("94", [r"$\boxed{94}$ km", r"$\boxed{94}\text{ pears}$", r"$\boxed{94}$ of them"], [r"$\boxed{95}$ km"]),
    ],
)  # fmt: skip
def test_a_unit_beside_the_box_belongs_to_the_answer(gold: str, rights: list[str], wrongs: list[str]):
    assert paid(gold, *rights, *wrongs) == [True] * len(rights) + [False] * len(wrongs)


def test_letters_that_something_is_divided_by_are_no_matrices():
    for fraction, product in [
        (r"\frac{A}{C}", "AC^{-1}"),
        (r"\frac{1}{PQ}", "P^{-1}Q^{-1}"),
        (r"\frac{1}{A}+\frac{1}{B}", "A^{-1}+B^{-1}"),
        (r"\frac{A+B}{C}", "(A+B)C^{-1}"),
    ]:
        assert paid(fraction, product) == [True]
        assert paid(product, fraction, question="Solve for the speed.") == [True]
        assert paid(product, fraction) == [product != "P^{-1}Q^{-1}"]  # of matrices (PQ)^{-1} is Q^{-1}P^{-1}
    assert paid("A^{-1}B", "BA^{-1}", r"\frac{B}{A}", "A^{-1}B") == [False, False, True]
    assert paid("2A^{-1}B", r"A^{-1}B\cdot 2", "2BA^{-1}", question="Find the matrix.") == [True, False]


def test_the_last_value_of_a_chain_counts_if_all_are_right():
    sums = ["m+n=256+37=293", "AB+CD=100+193=293", "m+n=2^8+37=293", "256+37=293"]
    assert paid("293", *sums) == [True] * 4
    assert paid("293", "m+n=256+38=293", "m+n=256+37=294", "m+n=256+37", "2x=256+37=293") == [False] * 4
    times = [r"3\text{ h }24\text{ min}=204\text{ min}", r"204\text{ minutes}=3\text{ h }24\text{ min}"]
    assert (
        paid("204", *times, r"204\text{ min}=3.4", r"3\text{ h }25\text{ min}=204\text{ min}")
        == [True] * 2 + [False] * 2
    )
    assert paid("150", r"1.5\text{ m}=150\text{ cm}", r"1.5\text{ m}=150\text{ mm}") == [True, False]
