"""Expressions whose functions can be letters are compared exactly; only others take numbers."""

import pytest

from mathequal import compare, identity


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        ("x(x+2)e^x", "(x^2+2x)e^x", True),
        (r"\log(a^2b)", r"\log(ba^2)", True),
        (r"\pi r^2", r"r^2\pi", True),
        (r"\frac{1}{\sqrt{x}}", r"\frac{2}{2\sqrt{x}}", True),
        (r"2^n+2^n", r"2\cdot 2^n", True),
        (r"e^{2x}+e^x", r"e^x+e^{2x}", True),
    ],
)
def test_functions_as_letters_take_no_numbers(gold: str, answer: str, equal: bool, monkeypatch):
    monkeypatch.setattr(identity, "_same_values", lambda *_: pytest.fail("it took numbers"))
    assert compare(gold, answer).equal == equal


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        (r"2\sin x\cos x", r"\sin 2x", True),
        (r"e^{2x}", r"e^xe^x", True),
        (r"\sqrt{x^2}", "x", False),
        (r"\ln|x|", r"\ln x", False),
        (r"2^{n+1}", r"2^n", False),
        (r"\sin x", r"\cos x", False),
        (r"\vec a\times\vec b", r"\vec b\times\vec a", False),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}0&1\\1&0\end{pmatrix}",
         r"\begin{pmatrix}0&1\\1&0\end{pmatrix}\begin{pmatrix}1&2\\3&4\end{pmatrix}", False),
    ],
)  # fmt: skip
def test_what_letters_do_not_decide_numbers_do(gold: str, answer: str, equal: bool):
    assert compare(gold, answer).equal == equal
