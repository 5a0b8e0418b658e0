"""What a question asks of an answer beyond its value: a unit, a form, an order; and notation."""

import pytest

from dph.types import Problem
from dph.verifiers.math.verifier import MathVerifier
from mathequal import compare
from mathequal.asked_units import units_asked
from mathequal.notation import HEDGES, NOTATION
from mathequal.responses import statement
from mathequal.rulebook import told, without

_TRAIN = "A train travels 240 km in 3 hours. What is its average speed"
_AREA = "A rectangle has length 8 cm and width 6 cm. Find the area."
UNITS = [
    (f"{_TRAIN} in km/h?", "80", ["80", r"80\text{ km/h}", "80 km/h"],
     [r"80\text{ m/s}", r"80\text{ km/s}", r"80\text{ mph}", r"80\text{ kg}", r"80\text{ hours}", r"80\text{ km}"]),
    ("Find the speed in m/s.", "12", ["12 m/s"], [r"12\text{ km/h}", r"12\text{ m}", r"12\text{ s}"]),
    ("Give the answer in kg/m^3.", "12", [r"12\text{ kg/m}^3"], [r"12\text{ g/cm}^3", r"12\text{ kg}"]),
    ("Give the volume in cubic centimetres.", "12", [r"12\text{ cm}^3"], [r"12\text{ cm}^2", r"12\text{ m}^3"]),
    ("How many degrees is the angle?", "45", [r"45^\circ", r"45\text{ degrees}"], [r"45\text{ rad}", r"45\text{ cm}"]),
    ("By how many degrees did it warm up?", "45", [r"45^\circ\text{C}"], [r"45\text{ km}"]),
    ("What is the price in dollars?", "12", [r"\$12"], ["€12", r"12\text{ cents}"]),
    ("How many dollars did she gain?", "12", [r"\$12\text{ per month}"], [r"12\text{ kg per month}"]),
    ("How many miles has he traveled in total?", "80", [r"80\text{ miles}"], [r"80\text{ km}"]),
    (_AREA, "48", [r"48\text{ cm}^2", r"48\text{ square centimeters}"], [r"48\text{ kg}", r"48\text{ m}^2"]),
    ("If its height in feet is $16t^2$, when is it at $64$?", "2", [r"2\text{ seconds}"], []),
    ("The coins were changed into dollars. How much money, in cents, was left?", "59", [r"59\text{ cents}"], ["€59"]),
    ("Convert 72 km/h to m/s.", "20 m/s", ["20", r"20\text{ m/s}"], [r"72\text{ km/h}", "72 km/h"]),
    ("How many m/s is 72 km/h?", "20 m/s", ["20 m/s"], [r"72\text{ km/h}"]),
    ("A shirt costs $40 and is reduced by 15%. What is the new price?", "$34",
     ["34", r"\$34", r"34\text{ dollars}", r"3400\text{ cents}", "40-6=34", "US$34"],
     ["€34", r"34\%", r"34\text{ euros}", r"34\text{ kg}", "¥34"]),
    ("What is the profit?", "$1,200", ["1200", r"\$1200"], ["€1200"]),
    ("What is $x$?", "$34$", ["34"], ["43"]),
]  # fmt: skip
FORMS = [
    ("Multiply: $(x+2)(x+5)$", "x^2+7x+10", ["10+7x+x^2"], ["x(x+7)+10", "(x+2)(x+5)", "x^2+5x+2x+10"]),
    ("Expand $(x-3)^2(x+1)$.", "x^3-5x^2+3x+9", ["9+3x-5x^2+x^3"],
     ["x^2(x-5)+3x+9", "x(x^2-5x+3)+9", "x^3-(5x^2-3x)+9"]),
    (r"Expand $\ln(xy)$.", r"\ln x+\ln y", [r"\ln y+\ln x"], [r"\ln(xy)", r"\ln(yx)"]),
    ("Divide $x^2-1$ by $x-1$.", "x+1", ["1+x"], ["(x^2-1)(x-1)^{-1}", r"\frac{x^2-1}{x-1}"]),
    ("Factor $3x^3-12x$ completely.", "3x(x-2)(x+2)", ["3x(x+2)(x-2)"],
     [r"3x^2(x-\frac4x)", "3x(x^2-4)", r"3x(x-2)(x+2)\cdot1"]),
    (r"Decompose $\frac{1}{x(x+1)}$ into partial fractions.", r"\frac1x-\frac1{x+1}", [r"-\frac{1}{x+1}+\frac1x"],
     [r"\frac{1}{x(x+1)}", r"\frac{1}{x^2+x}", r"\frac{x+1-x}{x(x+1)}"]),
    (r"Write $\frac1x+\frac1y$ as a single fraction.", r"\frac{x+y}{xy}", [r"\frac{y+x}{xy}"],
     [r"\frac{x}{xy}+\frac{y}{xy}"]),
    ("Express $8^5$ as a power of 2.", "2^{15}", ["2^{15}"], ["32768", "(2^3)^5", r"2^{3\cdot5}", "4^{7.5}"]),
    ("Write $x^{-2}y^3$ with positive exponents only.", r"\frac{y^3}{x^2}", [r"\frac{yy^2}{x^2}"],
     ["y^3x^{-2}", r"\frac{x^{-2}}{y^{-3}}"]),
    (r"Express $\sin(2x)$ in terms of $\sin x$ and $\cos x$.", r"2\sin x\cos x", [r"2\cos x\sin x"],
     [r"\sin(2x)", r"\cos(\frac{\pi}{2}-2x)"]),
    (r"Simplify $\sqrt{112}$.", r"4\sqrt7", [r"4\cdot7^{1/2}"],
     [r"4\sqrt{14/2}", r"4\sqrt{\sqrt{49}}", r"(2\sqrt[4]{7})^2", r"|4|\sqrt7", r"\sqrt{16\cdot7}"]),
    ("Simplify the expression.", r"\sqrt{10}-\sqrt{5}", [r"\sqrt{15-2\sqrt{50}}"], []),
    (r"Rationalize the denominator: $\frac{6}{\sqrt3}$", r"2\sqrt3", [r"\sqrt3\cdot2"],
     [r"\frac{6\sqrt3}{3}", r"\frac{6}{\sqrt3}", r"\sqrt{12}"]),
    ("Simplify $i^{15}$.", "-i", ["-i"], [r"\frac1i", "i^3"]),
    (r"Write $6.03\times10^6$ in standard form (ordinary number).", "6030000", ["6030000", "6,030,000"],
     [r"6.03\text{ million}", r"6.03\times10^6"]),
    ("Write 4.05 million in digits.", "4050000", ["4050000"], [r"4.05\text{ million}", r"4.05\times10^6"]),
    ("Find the population.", "6030000", [r"6.03\text{ million}", r"6.03\times10^6"], []),
    ("Find the sum.", "100", ["100", "100.0"], ["10^2", r"10\times10"]),
    ("How many are there?", "1000000", ["10^6"], ["100^3"]),
]  # fmt: skip
WITHOUT_DOLLARS = [
    ("Multiply (x+2)(x+5).", "x^2+7x+10", ["(x+2)(x+5)"]),
    (r"Simplify \sqrt{112}.", r"4\sqrt7", [r"\sqrt{112}", r"\sqrt{112}\cdot1"]),
    ("Write as a single fraction: 1/x+1/y.", r"\frac{x+y}{xy}", [r"\frac1x+\frac1y"]),
    ("Collect like terms: 3x+2y-x+5y.", "2x+7y", ["3x+2y-x+5y"]),
]
NOTATIONS = [
    (r"Find $7^{100} \bmod 13$.", "9", [r"9\pmod{13}", r"7^{100}\equiv9\pmod{13}", r"9\bmod13", r"x\equiv9\pmod{13}"],
     [r"9\pmod{11}", r"22\pmod{13}"]),
    ("Solve $x=9$.", "9", [], [r"9\pmod{10}"]),
    ("Convert 45 to base 2.", "101101_2", ["0b101101", "45_{10}=101101_2", "45=101101_2"], ["44=101101_2", "0b101100"]),
    ("Convert 45 to base 2.", "101101", ["101101_2"], ["101101_3"]),
    ("Find the length to two decimal places.", "7.07",
     [r"5\sqrt2\approx7.07", r"\sqrt{50}\approx7.07", r"7.07\text{ (2 d.p.)}", r"7.07\text{ (to 2 decimal places)}",
      r"7.07\text{ to 2 decimal places}", r"\sim7.07"], [r"5\sqrt2\approx7.08", r"7.08\text{ (2 d.p.)}"]),
    ("Find the length.", "7.07", [], [r"5\sqrt3\approx7.07", r"\sim7.07"]),
    ("How many?", "100", [r"1+3+\cdots+19=100", r"10^2\Rightarrow100"],
     [r"1+3+\cdots+21=100", r"1+3+\cdots+19", r"10^2\Rightarrow99", r"99\to100", r"101\approx100"]),
    ("Find the area.", r"48\text{ cm}^2", [r"6\cdot8=48\text{ cm}^2"], [r"6\cdot7=48\text{ cm}^2", r"48=48\text{ kg}"]),
    ("Integrate.", r"\sin(x^2)+C", [r"\sin(x^2)+C,\ C\in\mathbb{R}",
     r"\sin(x^2)+C \text{ where } C \text{ is a constant}",
     r"\sin(x^2)+\text{constant}", r"\sin(x^2)+C\quad(C\in\mathbb R)"], [r"\sin(x^2)+C,\ C\in\mathbb{Z}"]),
    ("Differentiate.", "x(x+2)e^x", [r"\frac{d}{dx}f(x)=(x^2+2x)e^x", r"\frac{d}{dx}(x^2e^x)=(x^2+2x)e^x",
     r"\dfrac{\mathrm d}{\mathrm dx}\left[x^2e^x\right]=xe^x(x+2)"], [r"\frac{d}{dx}(x^2e^x)", r"\frac{d}{dx}x^2=2x"]),
    ("Solve.", "9", [r"\text{Only } x=9", r"\text{only } 9"], [r"\text{Only } x=3"]),
    ("Which is prime? A) 21 B) 29 C) 33", "B", ["(b)", r"\text{b}", "b"], ["c", "(a)"]),
    ("What is $b$?", "B", [], ["b"]),
    ("Arrange $7,-2,4,0$ in ascending order.", "-2, 0, 4, 7", ["-2<0<4<7"], ["-2<4<0<7", "-2<0<4"]),
    (r"Solve $|x-1| \le 4$.", "[-3,5]", [r"-3\le x\le5", r"5\ge x\ge-3"], [r"|x-1|\le4"]),
]  # fmt: skip


def _cases(table):
    return [
        pytest.param(question, gold, answer, right, id=f"{question[:30]} {gold}: {answer}")
        for question, gold, rights, wrongs in table
        for right, answers in ((True, rights), (False, wrongs))
        for answer in answers
    ]


@pytest.mark.parametrize(("question", "gold", "answer", "right"), _cases([*UNITS, *FORMS, *NOTATIONS]))
def test_an_answer_is_what_the_question_asks_for(question: str, gold: str, answer: str, right: bool):
    with MathVerifier() as verifier:
        [verdict] = verifier.verify([(Problem("p", question, gold, "math"), rf"So $\boxed{{{answer}}}$.")])
    assert verdict.correct == right


@pytest.mark.parametrize(("question", "gold", "copies"), WITHOUT_DOLLARS)
def test_formulas_of_a_question_without_dollar_signs_are_copied(question: str, gold: str, copies: list[str]):
    problem = Problem("p", question, gold, "math")
    with MathVerifier() as verifier:
        verdicts = verifier.verify([(problem, rf"\boxed{{{answer}}}") for answer in (*copies, gold)])
    assert [verdict.correct for verdict in verdicts] == [False] * len(copies) + [True]


@pytest.mark.parametrize("rule", [*NOTATION, *HEDGES], ids=lambda rule: rule.id)
def test_the_verdict_of_an_example_turns_on_its_rule(rule):
    example = told()[rule.id]

    def paid() -> bool:
        stated = statement(example.response, [example.gold], example.question)
        return stated is not None and compare(example.gold, stated.answer, question=example.question).equal

    assert paid() == example.paid
    with without(rule.id):
        assert paid() != example.paid


@pytest.mark.parametrize(
    "question",
    ["The height in feet of a ball is given. When does it land?", "In how many ways can 5 men sit?",
     "Find $x$ in terms of $m$.",
     "They went to the bank to convert coins into dollars. Who came?", "What place is he in after 3 hours?", "m", ""],
)  # fmt: skip
def test_units_that_a_question_only_speaks_of_are_not_asked_for(question: str):
    assert units_asked(question) == frozenset()
