r"""What stands beside a box counts as it would in the box; boxes that only separators part are one answer; remarks on
an answer leave its value as it is."""

import time

import pytest

from dph.rewards import reward_function
from dph.types import Outcome

MATH = reward_function("math")


def unpaid(gold: str, *responses: str, question: str = "How many are there?") -> list[str]:
    return [text for text in responses if MATH.verdict(text, gold, question).outcome is not Outcome.CORRECT]


def paid(gold: str, *responses: str, question: str = "How many are there?") -> list[str]:
    return [text for text in responses if MATH.verdict(text, gold, question).outcome is Outcome.CORRECT]


def boxes(*answers: str) -> list[str]:
    return [rf"\boxed{{{answer}}}" for answer in answers]


CHANGED = {
    "relations": [
        r"$x\ge\boxed{5}$",
        r"$n\leq\boxed{5}$",
        r"$x>\boxed{5}$",
        r"x >= $\boxed{5}$",
        r"$x\geq\mathbf{\boxed{5}}$",
        r"$\begin{aligned} x &\ge \boxed{5}\end{aligned}$",
        r"$x\not=\boxed{5}$",
        r"$x ≤ \boxed{5}$",
    ],
    "words before": [
        *(
            rf"It is {words} $\boxed{{5}}$."
            for words in (
                "at least",
                "at most",
                "more than",
                "less than",
                "no more than",
                "twice",
                "half of",
                "three times",
                "minus",
                "negative",
                "the square root of",
                "nearly",
                "about",
                "other than",
                "up to",
                "between 3 and",
                "3 or",
                "anything but",
                "mindestens",
                "au moins",
                "al menos",
            )
        ),
        r"至少 $\boxed{5}$",
        r"$\text{at least }\boxed{5}$",
        "It is at least\n$$\\boxed{5}$$",
        r"**More than** $\boxed{5}$",
    ],
    "signs before": [
        r"-$\boxed{5}$",
        r"x is -$\boxed{5}$",
        r"−\boxed{5}",
        r"√$\boxed{5}$",
        r"\overline{\boxed{5}}",
        r"1/$\boxed{5}$",
        r"1$\boxed{5}$",
        r"0.\boxed{5}",
        r"$2\cdot$ $\boxed{5}$",
    ],
    "words after": [
        rf"There are $\boxed{{5}}$ {words}."
        for words in (
            "million",
            "thousand people",
            "hundred",
            "dozen",
            "percent",
            "squared",
            "or more",
            "or so",
            "and above",
            "times $10^3$",
            "plus 3",
            "to 7",
            "and a half",
            "at least",
            "approximately",
            "thirds",
            "divided by 2",
            "or maybe 6",
            "x 10^3",
        )
    ],
    "signs after": [
        r"$\boxed{5}$%",
        r"\boxed{5}i",
        r"$\boxed{5}$ i",
        r"\boxed{5}{,}000",
        r"$\boxed{5}$,000",
        r"\boxed{5}.5",
        r"\boxed{5}/6",
        r"$\boxed{5}$ × 10",
        r"\boxed{5}x",
        r"$\boxed{5}$²",
        r"$\boxed{5}$½",
        r"$\boxed{5}$–7",
        r"$\boxed{5}$ + 1",
        r"$\boxed{5}$万",
        r"$\boxed{5}$以上",
        r"**$\boxed{5}$** million",
        r"$\boxed{5}$&nbsp;million",
        r"$\boxed{5}$ (million)",
    ],
}


@pytest.mark.parametrize("kind", CHANGED)
def test_what_changes_a_value_beside_its_box_changes_the_answer(kind: str):
    assert paid("5", *CHANGED[kind]) == []


def test_prose_and_marks_beside_a_box_change_nothing():
    before = [
        "=> ",
        "-> ",
        "> ",
        "- ",
        "Hence:\n- ",
        r"$\implies$ ",
        "exactly ",
        "a total of ",
        "The answer—",
        "The answer -- ",
        "Since $x>0$, ",
        "so it is less than a page: ",
        "by a factor of ",
        "the least number is ",
        "1. ",
        "A) ",
        "in 2023: ",
        "half of it is red, and ",
        r"$\text{Answer: }$ ",
    ]
    after = [
        " ways",
        " times",
        " times as many",
        " in total",
        " because $x>3$",
        " more than Tom has",
        " (five)",
        "! We are done.",
        ", as claimed.",
        " to two decimal places",
        ". Million",
        " $x$-intercepts",
        "</answer>",
        "。",
        " or $5.0$",
        " over the years",
        " points",
        " (see above)",
        " - done",
        " = 5",
        r" \blacksquare",
        "<|im_end|>",
        " i.e. five",
        "\n\nmillion",
    ]
    assert unpaid("5", *(rf"{text}$\boxed{{5}}$" for text in before)) == []
    assert unpaid("5", *(rf"It is $\boxed{{5}}${text}" for text in after)) == []
    assert unpaid("5", r"$x>4 \implies x=\boxed{5}$", r"<b>\boxed{5}</b>") == []


def test_what_stands_beside_a_box_may_be_what_is_asked():
    assert unpaid("5", r"$x\ge\boxed{5}$", r"at least $\boxed{5}$", question="Find the minimum value of $x$.") == []
    assert unpaid(r"x\ge 5", r"$x\ge\boxed{5}$", r"x is at least $\boxed{5}$", question="Solve.") == []
    assert unpaid("-5", r"-$\boxed{5}$", r"minus $\boxed{5}$", r"x is −\boxed{5}") == []
    assert unpaid("5000000", r"$\boxed{5}$ million", r"**$\boxed{5}$** million people.") == []
    assert unpaid("5.33", r"about $\boxed{5.33}$") == []  # the gold answer is rounded itself


@pytest.mark.parametrize(
    ("unit", "own", "other"),
    [
        ("m", "meters", "kilometers"),
        ("s", "seconds", "minutes"),
        ("h", "hours", "minutes"),
        ("g", "grams", "kilograms"),
        ("L", "liters", "milliliters"),
        ("t", "tonnes", "kilograms"),
        ("hours", "hours", "minutes"),
        ("m^2", None, "acres"),
        ("°C", "degrees Celsius", "degrees Fahrenheit"),
    ],
)
def test_a_unit_is_read_in_every_place_beside_a_box(unit: str, own: str | None, other: str):
    places = [
        r"$\boxed{5}$ %s.",
        r"$\boxed{5}$%s",
        r"**$\boxed{5}$** %s",
        r"$\boxed{5}$ ($%s$)",
        r"$\boxed{5}$ [%s]",
        r"$\boxed{5}$ in %s",
        r"$\boxed{5}$ *%s*",
        r"$\boxed{5}$&nbsp;%s",
        r"\(\boxed{5}\) %s",
        r"$\boxed{5}$ %s after that",
    ]
    texts = [place % unit for place in places]
    gold = rf"5\text{{ {own}}}" if own else r"5\text{ m}^2"
    assert (unpaid(gold, *texts, question=""), paid(rf"5\text{{ {other}}}", *texts, question="")) == ([], [])


def test_boxes_that_separators_part_are_one_answer():
    between = [
        r",\ ",
        r",\;",
        r";\ ",
        "$ & $",
        r"\text{ and }",
        "$ und $",
        "$ et $",
        "$ y $",
        "$和$",
        "$\n\n$",
        "$、$",
        r" \& ",
    ]
    for part in between:
        assert unpaid("6, 85", rf"$\boxed{{85}}{part}\boxed{{6}}$", question="Find all solutions.") == []
        assert paid("6", rf"$\boxed{{85}}{part}\boxed{{6}}$", question="Find the solution.") == []
    pairs = [
        r"$(\boxed{3},\boxed{5})$",
        r"($\boxed{3}$, $\boxed{5}$)",
        r"$x=\boxed3$, $y=\boxed5$",
        "$$x=\\boxed{3}$$\n$$y=\\boxed{5}$$",
        r"x = $\boxed{3}$, y = $\boxed{5}$",
    ]
    assert unpaid("(3,5)", *pairs) == []
    assert paid("(3,5)", r"$(\boxed{5},\boxed{3})$", r"x = $\boxed{5}$, y = $\boxed{3}$") == []


def test_remarks_leave_a_value_as_it_is():
    remarks = [
        r"x=8\text{ (as }x>0)",
        r"8\text{ since }x>0",
        r"8\text{ (}-8\text{ is rejected)}",
        r"8\text{ (only solution)}",
        r"8\text{ (exact)}",
        r"8\text{ (eight)}",
        r"8\text{ (multiplicity 2)}",
        r"8\text{ (double root)}",
        r"8\ (x=-8\text{ rejected})",
        r"8,\text{ as }x\ge0",
        r"8\text{ (the other root is negative)}",
        r"8\;(\because x>0)",
        r"8\text{, which is the only solution}",
        r"8\text{ with multiplicity }2",
    ]
    other = [
        r"9\text{ since }x>8",
        r"9\text{ (}8\text{ is rejected)}",
        r"8\text{ (rejected)}",
        r"8\text{ (eighteen)}",
        r"8\text{ (}8\text{ is rejected)}",
        r"8\text{ (or more)}",
        r"8\text{ (double the answer)}",
        r"8\text{ (not valid)}",
        r"8\text{ (dozen)}",
        r"8\text{ (or 9)}",
        r"8\text{ to}",
    ]
    assert (unpaid("8", *boxes(*remarks)), paid("8", *boxes(*other))) == ([], [])
    assert unpaid("4, 13", *boxes(r"x=4\text{ (double root)}, x=13", r"4\ (\text{multiplicity }2), 13")) == []
    assert paid("4, 13", *boxes(r"4\text{ (double root)}", r"4, 13\text{ (extraneous)}")) == []


def test_connectors_that_are_also_letters_or_other_words():
    lists = boxes(*(rf"x=25 \text{{ {word} }} x=88" for word in ("e", "i", "en", "of", "y", "o")))
    assert (unpaid("25, 88", *lists), paid("25, 89", *lists)) == ([], [])
    assert paid("3, 5", *boxes(r"3\text{ of }5")) == []
    assert unpaid(r"3+2i", *boxes(r"3+2\text{i}", r"2\text{ i }+3")) == []
    assert unpaid(r"8\text{ t}", *boxes(r"8000\text{ kg}", r"8\text{ tonnes}")) == []
    assert unpaid(r"35\text{ years}", *boxes(r"35\text{ yıl}")) == []


def test_tags_at_the_end_have_the_last_word():
    assert paid("5", r"I try \boxed{5}. <answer>6</answer>", "<plan>\\boxed{5}</plan>\n<answer>6</answer>") == []
    assert unpaid("5", r"\boxed{6} <answer>5</answer>", r"\boxed{5} <answer>The answer is 5.</answer>") == []


@pytest.mark.parametrize("text", ["(" * 5000, r"\," * 5000, "- " * 5000, r"\boxed{1}, " * 2000, "at least " * 2000])
def test_no_text_beside_a_box_keeps_the_judge_busy(text: str):
    started = time.thread_time()
    MATH.verdict(rf"{text}\boxed{{5}}{text}", "5", "?")
    assert time.thread_time() - started < 0.5
