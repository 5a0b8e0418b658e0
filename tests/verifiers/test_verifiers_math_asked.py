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
        (
            r"94\text{ m/s}",
            [r"$\boxed{94}\,\frac{\text{m}}{\text{s}}$", r"$\boxed{94}~\text{m}\cdot\text{s}^{-1}$"],
            [r"$\boxed{94}\,\frac{\text{km}}{\text{s}}$", r"\boxed{94} (km/s)"],
        ),
        (r"\$5", [r"\$\boxed{5}", r"$\$\boxed{5}$", r"\boxed{5} dollars"], [r"€$\boxed{5}$", r"\boxed{5} euros"]),
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


@pytest.mark.parametrize("a", [2, 3, 5])
@pytest.mark.parametrize(
    "lead", ["Factor ${}$ completely.", r"Write \({}\) in factored form.", "Please factorise ${}$."]
)
def test_what_is_to_be_factored_is_a_product_from_which_nothing_can_be_drawn(a: int, lead: str):
    gold, question = f"{a}(x+3)(x-3)", lead.format(f"{a}x^2-{9 * a}")
    rights = [
        f"{a}(x-3)(x+3)", f"-{a}(3-x)(x+3)", rf"(x-3)\cdot {a}\cdot (3+x)", f"{a}x^2-{9 * a}={a}(x+3)(x-3)", gold,
    ]  # fmt: skip
    wrongs = [
        f"{a}(x^2-9)", f"{a}(x^2-3^2)", f"({a}x+{3 * a})(x-3)", f"(x+3)({a}x-{3 * a})", f"{a}x^2-{9 * a}",
        rf"{a}x\cdot x-{9 * a}", f"x({a}x)-{9 * a}", rf"{a}\sqrt{{x^2-9}}\sqrt{{x^2-9}}",
        rf"\frac{{{a}(x^2-9)(x+1)}}{{x+1}}", rf"{a}(x^2-9)(\sin^2x+\cos^2x)",
    ]  # fmt: skip
    assert paid(gold, *rights, *wrongs, question=question) == [True] * len(rights) + [False] * len(wrongs)
    assert paid(gold, f"{a}(x^2-9)", question="What is the area?") == [True]  # nothing says how to write it
    assert paid(gold, f"{a}(x^2-9)", question="Its side is a factor of the area. Find the area.") == [True]


@pytest.mark.parametrize(("a", "b"), [(2, 5), (3, 4), (1, 7)])
@pytest.mark.parametrize("lead", ["Expand ${}$.", "Multiply: ${}$", "First multiply out ${}$."])
def test_what_is_to_be_expanded_is_a_sum_whose_like_terms_are_added(a: int, b: int, lead: str):
    gold, question = f"x^2+{a + b}x+{a * b}", lead.format(f"(x+{a})(x+{b})")
    rights = [f"{a * b}+{a + b}x+x^2", f"(x+{a})(x+{b})=x^2+{a + b}x+{a * b}"]
    wrongs = [
        f"(x+{b})(x+{a})", rf"x\cdot x+{a}x+{b}x+{a * b}", f"x^2+{a}x+{b}x+{a * b}", f"x(x+{b})+{a}(x+{b})",
        rf"x^2+{a + b}x+{a}\cdot {b}", f"({a}+x)(x+{b})",
    ]  # fmt: skip
    assert paid(gold, *rights, *wrongs, question=question) == [True] * len(rights) + [False] * len(wrongs)


@pytest.mark.parametrize("words", ["in lowest terms", "as a fraction in simplest form", "as a reduced fraction"])
@pytest.mark.parametrize(("top", "bottom"), [(3, 4), (5, 12), (7, 2)])
def test_what_is_asked_in_lowest_terms_is_reduced(words: str, top: int, bottom: int):
    gold, question = rf"\frac{{{top}}}{{{bottom}}}", rf"Write $\frac{{{6 * top}}}{{{6 * bottom}}}$ {words}."
    others = [rf"\frac{{{n * top}}}{{{n * bottom}}}" for n in (2, 3, 6)] + [f"{7 * top}/{7 * bottom}"]
    assert paid(gold, gold, f"{top}/{bottom}", *others, question=question) == [True] * 2 + [False] * 4
    assert paid(gold, *others, question="How likely is it?") == [True] * 4
    quotient = rf"\frac{{{top}x}}{{{bottom}}}"
    unreduced = [rf"\frac{{{2 * top}x}}{{{2 * bottom}}}", rf"\frac{{{top}x^2}}{{{bottom}x}}"]
    assert paid(quotient, quotient, *unreduced, question=f"Give the quotient {words}.") == [True, False, False]


def test_ratios_and_products_of_primes():
    assert paid("3:4", "3:4", "3/4", "6:8", question="Simplify the ratio $12:16$.") == [True, True, False]
    assert paid("3:4", "6:8", question="What is the ratio of cats to dogs?") == [True]
    primes = r"2^3\cdot 3^2\cdot 5"
    answers = [r"5\cdot 3^2\cdot 2^3", r"2\cdot2\cdot2\cdot9\cdot5", r"8\cdot 45", "360"]
    assert paid(primes, *answers, question="Find the prime factorization.") == [True, False, False, False]


@pytest.mark.parametrize(
    ("words", "gold", "other"),
    [
        ("in increasing order", "1,2,5", "2,1,5"),
        ("in ascending numerical order", "-1,2", "2,-1"),
        ("from least to greatest", "A, C, B", "A, B, C"),
        ("in descending order", "5,2,1", "1,2,5"),
        ("in the order in which they come", "b, a", "a, b"),
    ],
)
def test_an_order_that_is_asked_counts(words: str, gold: str, other: str):
    assert paid(gold, gold, other, question=f"List them {words}.") == [True, False]
    assert paid(gold, gold, other, question="List them, in order to win.") == [True, True]


def test_an_order_that_the_gold_answer_does_not_keep_is_not_asked():
    assert paid("2,1,5", "1,2,5", question="List them in increasing order.") == [True]
    assert paid("3,5", "5,3", question="Find the length and the width, respectively.") == [False]


def test_numbers_are_worked_out_wherever_they_stand():
    for gold, answer in [
        ("3", "6/2"), ("x=3", "x=6/2"), ("x>3", "x>6/2"), ("[3,5)", "[6/2,5)"), (r"(-\infty,3)\cup(5,\infty)",
        r"(-\infty,6/2)\cup(5,\infty)"), (r"x\ne 3", r"x\ne 6/2"), ("(3,1)", "(6/2,1)"), (r"\{3,1\}", r"\{6/2,1\}"),
        (r"\begin{pmatrix}3\\1\end{pmatrix}", r"\begin{pmatrix}6/2\\1\end{pmatrix}"), (r"7\pi", r"3\pi+4\pi"),
        ("x>1024", "x>2^{10}"), (r"x>7\pi", r"x>3\pi+4\pi"),
    ]:  # fmt: skip
        assert paid(gold, gold, answer) == [True, False], gold
    assert paid("x>3/4", "x>6/8", "x>0.75") == [True, True]
    assert paid(r"\begin{pmatrix}3\\1\end{pmatrix}", r"\frac12\begin{pmatrix}6\\2\end{pmatrix}") == [True]


def test_like_terms_are_functions_of_their_letters_unless_the_question_asks_to_add_them():
    assert paid("5x", "2x+3x", question="How long is it?") == [True]
    for words in ("Simplify", "Combine like terms:", "Add", "Reduce"):
        assert paid("5x", "2x+3x", "5x", question=f"{words} $x+x+3x$.") == [False, True]
