"""Sentences of errors: numbers with their nouns."""

import pytest

from dph.errors import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        *((1, "query", "1 query"), (2, "query", "2 queries"), (3, "batch", "3 batches")),
        *((0, "day", "0 days"), (2, "row", "2 rows")),
    ],
)
def test_a_number_is_said_with_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
