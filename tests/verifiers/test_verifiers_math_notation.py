r"""What the judge of mathematics reads besides plain LaTeX: see also `mathequal/data/*_notation.tsv`."""

import importlib
import re
import time

import pytest

from dph.rewards import reward_function
from dph.types import Outcome, Problem
from dph.verifiers import Verifiers
from dph.verifiers.golds import tried_golds
from dph.verifiers.math.verifier import MathVerifier
from mathequal import compare, read
from mathequal.extract import find_answer
from mathequal.languages import chinese_numeral, english_unit, fold, plain_numbers


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("He lost money: -$20.", "-20"),
        (r"The balance is -\$20", "-20"),
        ("x is −3", "-3"),
        ("It is .5 of it", ".5"),
        ("the mass is 1.5e2", "1.5e2"),
        (r"so we get $\frac{1}{2}$", r"\frac{1}{2}"),
        (r"so $x = \frac{1}{2}$", r"\frac{1}{2}"),
        (r"so $x = 3\text{ m}$", r"3\text{ m}"),
        ("It is 1 / 2", "1/2"),
        ("It takes 1 1/2 cups", "1 1/2"),
        ("The total is 70 000 dollars", "70000 dollars"),
        ("It costs $1,234.50.", "1,234.50"),
        ("costs $5 + $3 = $8", "8"),
        ("it is 5 feet long", "5 feet"),
        ("It is 5 cm^2.", "5 cm^2"),
        ("it goes 5 m/s", "5 m/s"),
        ("at 7:30 pm", "7:30 pm"),
        ("the point (3,4).", "(3,4)"),
        ("the area is 5π", "5π"),
        ("or 25 % of it", "25 %"),
        ("a 12-year-old", "12"),
        ("(as 5)", "5"),
        ("**42**!", "42"),
        ("<b>7</b>", "7"),
        ("所以共有5个", "5"),
        ("$n > 3$", "n > 3"),
        ("so 20 in total", "20"),
        ("none", None),
    ],
)
def test_the_last_number_is_whole(response, answer):
    assert find_answer(response, "last_number") == answer


def test_the_last_number_pays_what_it_says_only():
    score = reward_function("math", fallback="last_number").score
    paid = [("-20", "-$20"), ("0.5", "It is .5"), ("150", "so 1.5e2"), ("1/2", r"$\frac{1}{2}$"),
            ("70000", "70 000 dollars"), ("-3", "x is −3"), ("5", "5 feet"), ("5 feet", "it is 5 feet")]  # fmt: skip
    unpaid = [("20", "-$20"), ("5", "It is .5"), ("2", "so 1.5e2"), ("2", r"$\frac{1}{2}$"), ("0", "70 000 dollars"),
              ("3", "x is −3"), ("5 meters", "it is 5 feet"), ("4", "at (3,4)"), ("30", "at 7:30")]  # fmt: skip
    assert [pair for pair in paid if score(pair[1], pair[0]) != 1] == []
    assert [pair for pair in unpaid if score(pair[1], pair[0]) != 0] == []


def test_the_last_number_of_a_long_text_takes_no_time():
    started = time.process_time()
    for text in (
        "$" * 100_000 + "5",
        "5" * 100_000,
        "1 " * 50_000,
        "(" * 100_000 + "5",
        "5" + "\\" * 100_000,
        "1,000 " * 20_000,
    ):
        find_answer(text, "last_number")
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "gold", ["€13,50", "13,50 €", "3,5 km", "12,5 %", "1.234,56", "x = 3,5 cm", r"45,5^\circ", "13,50 zł"]
)
def test_a_gold_with_a_decimal_comma_beside_a_unit_is_left_out(gold):
    with Verifiers() as verifiers:
        usable, lines = tried_golds(verifiers, [Problem("p", "?", gold, "math")])
    assert usable == [] and "cannot read" in lines[0]


def test_a_bare_gold_that_may_have_a_decimal_comma_is_weak():
    golds = ["4,5", "4, 5", "1,234", "4.5", "1,2,3", "(4,5)", "2,13"]
    with Verifiers() as verifiers:
        usable, lines = tried_golds(verifiers, [Problem(gold, f"{gold}?", gold, "math") for gold in golds])
    assert len(usable) == len(golds)
    assert lines == ["weak, decimal_comma (two numbers, unless the comma is a decimal one): 2 golds: 4,5, 2,13"]


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        ("About how many people came?", r"\text{about } 689", True),
        ("Round to the nearest whole number.", r"\text{around } 689", True),
        ("Round to the nearest whole number.", r"\text{about } 690", False),
        ("Round to the nearest whole number.", r"689\text{ (rounded)}", True),
        ("¿Cuántas, aproximadamente?", r"\text{alrededor de } 689", True),
        ("How many people came?", r"\text{about } 689", False),
        ("How many people came?", r"689\text{ (rounded)}", False),
        ("How many people came?", r"\text{exactly } 689", True),
        ("How many people came?", r"\text{not exactly } 689", False),
    ],
)
def test_a_hedge_is_right_only_for_a_question_that_asks_for_a_rounded_value(question, answer, expected):
    assert compare("689", answer, question=question)[0] is expected


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (r"Simplify $\frac{x^2+x-30}{x^2-9x+20}$.", r"\frac{x+6}{x-4}, x\ne 5", True),
        (r"Simplify $\frac{x^2+x-30}{x^2-9x+20}$.", r"\frac{x+6}{x-4}, x\ne 5, x \ne 4", True),
        (r"Simplify $\frac{x^2+x-30}{x^2-9x+20}$.", r"\frac{x+6}{x-4}, x\ne 7", False),
        ("Simplify.", r"\frac{x+6}{x-4}, x\ne 5", True),
        (r"Simplify $\frac{x^2+x-30}{x^2-9x+20}$.", r"\frac{x-6}{x-4}, x\ne 5", False),
    ],
)
def test_values_that_an_answer_excludes_are_poles_of_the_question(question, answer, expected):
    assert compare(r"\frac{x+6}{x-4}", answer, question=question)[0] is expected


def test_a_value_in_two_boxes():
    problem = Problem("p", "?", r"\frac{1}{2}", "math")
    responses = [r"\boxed{\frac12} or \boxed{0.5}", r"$\boxed{\frac12}$, or $\boxed{0.6}$"]
    verdicts = MathVerifier().verify([(problem, response) for response in responses])
    assert [verdict.outcome for verdict in verdicts] == [Outcome.CORRECT, Outcome.WRONG]


def test_long_lists_of_numbers():
    numbers = [*range(3, 300, 3)]
    gold, backwards = (", ".join(map(str, x)) for x in (numbers, numbers[::-1]))
    assert compare(gold, backwards)[0] and compare(gold, rf"\{{{backwards}\}}")[0]
    assert compare(gold, r"3, 6, 9, \ldots, 297")[0]
    assert not compare(gold, backwards + ", 300")[0] and not compare(gold, backwards.replace("30", "31"))[0]


def test_words_of_other_languages():
    assert [fold(word) for word in ("Días", "Straße", "złotych", "Ангстрем", "시간", "ёлка", "й")] == [
        "dias", "strasse", "zlotych", "ангстрем", "시간", "елка", "й",
    ]  # fmt: skip
    units = {
        "kilómetros por hora": "kilometer per hour",
        "centímetros cuadrados": "centimeter squared",
        "平方厘米": "square centimeter",
        "米每秒": "meter per second",
        "Quadratmeter": "square meter",
        "apples": "apples",
        "m/s": "m/s",
    }
    assert {words: english_unit(words) for words in units} == units
    numbers = {
        "5万": "50000",
        "3.5万元": "35000元",
        "1億2000万": "120000000",
        "2万3千": "23000",
        "5千克": "5千克",
        "5万3": "5万3",
    }
    assert {text: plain_numbers(text) for text in numbers} == numbers
    assert [chinese_numeral(text) for text in ("五", "十二", "三百零五", "两万", "一二", "万二千")] == [
        5,
        12,
        305,
        20000,
        None,
        None,
    ]


def test_golds_are_read_once_for_all_verdicts():
    assert read("403 Stunden") is read("403 Stunden")


def test_numbers_of_digits_only_are_read_as_all_others(monkeypatch):
    module = importlib.import_module("mathequal.reading")
    texts = ["5", "-5", "007", "-0", "5.50", "-1234567.8900", "9" * 250, "0.1"]
    shortly = [read.__wrapped__(text) for text in texts]
    monkeypatch.setattr(module, "_ONLY_DIGITS", re.compile("(?!)"))
    assert shortly == [read.__wrapped__(text) for text in texts]
