"""Words and signs beside the last number of a response without a box count as they do beside a box."""

import pytest

from mathequal import compare
from mathequal.responses import statement


def is_paid(gold: str, response: str) -> bool:
    stated = statement(response, [gold], "How many are there?", "last_number")
    return stated is not None and compare(gold, stated.answer, question="How many are there?").equal


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("5", "at least 5"),
        ("5", "It is about 5."),
        ("5", "not 5"),
        ("5", "minus 5"),
        ("5", "It is 5 million"),
        ("5", "5 dozen"),
        ("5", "five hundred and 5"),
        ("5", "between 3 and 5"),
        ("5", "half of 5"),
        ("5", "5 squared"),
        ("5", "It is 4 or 5"),
        ("5", r"$x\approx 5$"),
        ("3", "log_2 3"),
        ("3", "5, 3"),
        ("7", "(5, 7)"),
    ],
)
def test_words_beside_the_last_number_make_another_answer(gold: str, response: str):
    assert not is_paid(gold, response)


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("-5", "minus 5"),
        ("5", "It is 5."),
        ("5", "So $x=5$."),
        ("5", "The total is 5 apples."),
        ("5", "In step 3, we get 5."),
        ("5", "Half of 10 is 5."),
        ("12", "First 3, then 12"),
        ("18", "She makes 9 * 2 = $18 every day."),
        ("(5,7)", "The point is (5, 7)."),
        ("5000000", "It is 5 million"),
        ("5 cm", "It is 5 cm long."),
    ],
)
def test_prose_beside_the_last_number_changes_nothing(gold: str, response: str):
    assert is_paid(gold, response)
