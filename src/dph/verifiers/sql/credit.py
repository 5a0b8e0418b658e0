"""Scores between 0 and 1 that give partial credit to a result. Standard library only.

partial   the authors' partial credit: at most 0.8, by the columns that agree as sets of values
soft_f1   BIRD mini-dev's Soft-F1, row by row
"""

from collections.abc import Callable, Sequence
from typing import Any

from dph.verifiers.sql.compare import Row, Rows

_MOST = 0.8  # for a result that is not equal


def partial_credit(gold: Rows, predicted: Rows, correct: bool) -> float:
    """1 for an equal result, else 0.8·min(1, c²/(g·p)): g and p the numbers of columns of the distinct rows, c how many
    gold columns have the same set of values as some predicted column; 0 if either result has no rows."""
    if correct:
        return 1.0
    gold_columns, predicted_columns = _column_sets(gold), _column_sets(predicted)
    pairs = len(gold_columns) * len(predicted_columns)
    if not pairs:
        return 0.0
    agreeing = sum(any(column == other for other in predicted_columns) for column in gold_columns)
    return min(agreeing * agreeing / pairs, 1.0) * _MOST


def _column_sets(rows: Rows) -> list[set[Any]]:
    return [set(column) for column in zip(*set(rows), strict=True)]


def soft_f1(gold: Rows, predicted: Rows, correct: bool) -> float:
    """F1 over cells of the distinct rows, the i-th predicted against the i-th gold row.

    Each pair of rows adds to the true positives (cells of the predicted row that occur in the gold row)/(gold columns).
    Predicted cells that do not occur count as false positives, and gold cells missing from the predicted row as false
    negatives, divided likewise; a row without a partner adds 1. Two empty results score 1. `correct` is ignored.
    """
    if not gold and not predicted:
        return 1.0
    gold, predicted = _distinct(gold), _distinct(predicted)
    paired = min(len(gold), len(predicted))
    matched = spurious = missing = 0.0
    for truth, guess in zip(gold[:paired], predicted[:paired], strict=True):
        found = sum(cell in truth for cell in guess)
        matched += found / len(truth)
        spurious += (len(guess) - found) / len(truth)
        missing += sum(cell not in guess for cell in truth) / len(truth)
    spurious += len(predicted) - paired
    missing += len(gold) - paired
    # 2PR/(P + R) with P = matched/(matched + spurious), R = matched/(matched + missing)
    return 2 * matched / (2 * matched + spurious + missing)


def _distinct(rows: Rows) -> Sequence[Row]:
    return list(dict.fromkeys(rows))


CREDITS: dict[str, Callable[[Rows, Rows, bool], float]] = {"partial": partial_credit, "soft_f1": soft_f1}
