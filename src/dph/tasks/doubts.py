"""What a row says against its use: choices that its prompt does not show, an answer that is wrong, a sum of others."""

import ast
import re
from collections.abc import Collection, Mapping
from typing import Any

from dph.columns import is_named
from dph.config.text import parse_json
from dph.errors import DataError

_CHOICE = re.compile(r"(?:option|choice|opt|answer)[ _-]?([a-h]|[1-8])", re.I)
_LETTER = re.compile(r"\W*([A-Ha-h])\W*")
_SUMS = re.compile(r"(?:grand |sub)?(?:total|sum|average|mean|avg|median|maximum|max|score|points)s?\W*", re.I)
_FALSE = ("false", "0", "no", "f", "wrong", "incorrect")


def refuse_unseen_choices(row: Mapping[str, Any], prompt: str, answer: Any, where: str) -> None:
    """Raises DataError if an answer is the letter or the number of a choice, and the prompt does not show the choices
    that other columns hold: nobody could know it."""
    columns, choices = _choices_of(row)
    texts = [str(choice) for choice in choices]
    if not texts or not isinstance(answer, str | int) or answer in choices or all(text in prompt for text in texts):
        return
    letter = _LETTER.fullmatch(str(answer))
    place = ord(letter[1].lower()) - ord("a") if letter else int(answer) if re.fullmatch(r"\d", str(answer)) else -1
    if 0 <= place <= len(texts) - bool(letter):
        raise DataError(
            f"{where}: the answer {answer!r:.50} is one of the choices in the column {columns[0]!r}, which the prompt "
            "does not show; write the choices into the prompt, as the option template does, or give the chosen one"
        )


def _choices_of(row: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """The columns that hold the choices of a row, and the choices."""
    for name, value in row.items():
        if is_named(name, "choices") and value:
            inner = value.get("text", [*value.values()]) if isinstance(value, Mapping) else value
            texts = (
                inner if isinstance(inner, list) else re.split(r"\s*(?:,|;|\n)\s*(?=\(?[A-Ha-h]\s*[).:])", str(inner))
            )
            return [name], texts
    numbered = {name: value for name, value in row.items() if _CHOICE.fullmatch(name) or re.fullmatch("[A-H]", name)}
    filled = {name: value for name, value in numbered.items() if value not in (None, "")}
    return ([*filled], [*filled.values()]) if len(filled) > 1 else ([], [])


def refuse_wrong_answer(row: Mapping[str, Any], used: Collection[str], where: str) -> None:
    """Raises DataError for a row with a column, read by nothing else, which says that its answer is wrong."""
    for name, value in row.items():
        if name in used or not is_named(name, "truth of the answer"):
            continue
        words = ("false",) if name.lower() == "correct" else _FALSE  # which may also be the letter of a choice
        if value is False or str(value).strip().lower() in words:
            raise DataError(f"{where}: the column {name!r} says that the answer is wrong; leave the row out")


def is_sum(prompt: str) -> bool:
    """Whether a prompt is the first cell of a row that sums up others: Total, Average.

    >>> is_sum("Total:"), is_sum("What is the total?")
    (True, False)
    """
    return _SUMS.fullmatch(prompt.strip()) is not None


def accepted(answer: Any) -> Any:
    """An answer that is a list of texts written as text, as in a CSV file, as that list; another answer as it is.

    >>> accepted("['7', 'seven']"), accepted("[7, 8]")
    (['7', 'seven'], '[7, 8]')
    """
    if not isinstance(answer, str) or not re.match(r"\s*\[\s*['\"]", answer):
        return answer
    for read in (parse_json, ast.literal_eval):
        try:
            found = read(answer.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list) and found and all(isinstance(item, str) and item.strip() for item in found):
            return found
    return answer
