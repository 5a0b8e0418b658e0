"""Reward schemes of the SQL verifier (docs/concepts/verifiers.md): each maps an outcome, the response and possibly a
score of a wrong result, between 0 and 1, to a number. Standard library only.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dph.types import Outcome
from dph.verifiers.sql.compare import Rows

_MOST = 0.8  # for a result that is not equal


def partial_credit(gold: Rows, predicted: Rows, correct: bool) -> float:
    """The authors' partial credit: 1 for an equal result, else 0.8·min(1, c²/(g·p)): g and p the numbers of columns of
    the distinct rows, c how many gold columns have the same set of values as some predicted column; 0 if either result
    has no rows."""
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
    """BIRD mini-dev's Soft-F1: F1 over cells of the distinct rows, the i-th predicted against the i-th gold row.

    Each pair of rows adds to the true positives (cells of the predicted row that occur in the gold row)/(gold columns).
    Predicted cells that do not occur count as false positives, and gold cells missing from the predicted row as false
    negatives, divided likewise; a row without a partner adds 1. The order of columns and repeated rows do not count.

    Other than there, a gold cell counts for one predicted cell: a column that is repeated earns nothing; and two empty
    results score 1 only if they are `correct`, which decides nothing else.
    """
    if not gold and not predicted:
        return float(correct)
    gold, predicted = list(dict.fromkeys(gold)), list(dict.fromkeys(predicted))
    paired = min(len(gold), len(predicted))
    matched = spurious = missing = 0.0
    for truth, guess in zip(gold[:paired], predicted[:paired], strict=True):
        found = (Counter(truth) & Counter(guess)).total()
        matched += found / len(truth)
        spurious += (len(guess) - found) / len(truth)
        missing += (len(truth) - found) / len(truth)
    spurious += len(predicted) - paired
    missing += len(gold) - paired
    # 2PR/(P + R) with P = matched/(matched + spurious), R = matched/(matched + missing)
    return 2 * matched / (2 * matched + spurious + missing)


CREDITS: dict[str, Callable[[Rows, Rows, bool], float]] = {"partial": partial_credit, "soft_f1": soft_f1}


RewardName = Literal["binary", "arctic", "paper", "soft_f1"]

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Reward:
    """One scheme."""

    fixed: Mapping[Outcome, float] = field(default_factory=dict)
    """Rewards by outcome; other outcomes get 0."""
    credit: str = ""
    """Name of the score that replaces the fixed reward if the query has run."""
    tool_bonus: float = 0.0
    """Added for a response with a tool call that contains a query."""


REWARDS: dict[str, Reward] = {
    "binary": Reward({Outcome.CORRECT: 1.0}),
    "arctic": Reward({Outcome.CORRECT: 1.0, Outcome.WRONG: 0.1}),
    "paper": Reward({Outcome.CORRECT: 1.0}, "partial", tool_bonus=0.2),
    "soft_f1": Reward({Outcome.CORRECT: 1.0}, "soft_f1"),
}


def calls_with_sql(response: str) -> bool:
    """Whether the last tool call of a response is JSON whose arguments contain a query under "sql"."""
    start = response.rfind(_OPENING)
    if start < 0:
        return False
    content = response[start + len(_OPENING) :].partition(_CLOSING)[0]
    try:
        call = json.loads(content)
    except (ValueError, RecursionError):
        return False
    arguments = call.get("arguments") if isinstance(call, dict) else None
    return isinstance(arguments, dict) and "sql" in arguments
