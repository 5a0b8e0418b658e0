"""Reward schemes of the SQL verifier: each maps an outcome, the response and possibly a partial score to a number.

binary    1 for a correct response
arctic    1 for a correct response, 0.1 for a query that runs but is wrong (Arctic-Text2SQL-R1)
paper     the authors' code: 1 for a correct response, partial credit for a query that runs but is wrong (see
          `dph.verifiers.sql.credit`), plus 0.2 for a response whose last tool call contains a query
soft_f1   BIRD mini-dev's Soft-F1 of the rows
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dph.types import Outcome

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

    def value(self, outcome: Outcome, credit: float | None) -> float:
        """The reward before any bonus; credit: the score of a query that has run."""
        return self.fixed.get(outcome, 0.0) if credit is None else credit


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
