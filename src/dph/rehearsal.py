"""The rehearsal set: stored correct responses of the reference policy for the prompts it masters (D_pef).

Stored as Parquet beside a manifest (facts that training checks before it uses the set); never pickled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from dph.errors import UserError
from dph.models.batch import Row, collate, microbatches
from dph.models.policy import Policy
from dph.seeding import EpochOrder

_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("response_ids", pa.list_(pa.int32())),
        ("ref_logprobs", pa.list_(pa.float32())),
        ("text", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One stored response."""

    problem_id: str
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    ref_logprobs: Sequence[float]
    """log π_ref of each response token, untruncated, at the temperature of the set's manifest."""
    text: str

    def row(self) -> Row:
        """The response as a row of a mixed batch."""
        return Row(
            self.prompt_ids,
            self.response_ids,
            old_logprobs=self.ref_logprobs,
            ref_logprobs=self.ref_logprobs,
            is_rehearsal=True,
        )


class RehearsalSet:
    """Stored responses in an endless seeded order."""

    def __init__(self, stored: Sequence[Rehearsal], seed: int) -> None:
        self._stored = stored
        self._order = EpochOrder(len(stored), seed, "rehearsal") if stored else None

    def take(self, cursor: int, count: int) -> list[Row]:
        """Rows at positions cursor … cursor+count−1 of the order; none from an empty set."""
        if self._order is None:
            return []
        return [self._stored[index].row() for index in self._order.take(cursor, count)]


def write_rehearsal(path: Path, rows: Sequence[Rehearsal]) -> None:
    """Write stored responses as Parquet."""
    columns = {name: [getattr(row, name) for row in rows] for name in _SCHEMA.names}
    pq.write_table(pa.table(columns, schema=_SCHEMA), path)


def read_rehearsal(path: Path) -> list[Rehearsal]:
    """Read stored responses. Raises UserError when the file is missing, damaged or of another layout."""
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise UserError(f"there is no rehearsal set at {path}; run `dph presample` first") from error
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"the rehearsal set {path} cannot be read ({error}); run `dph presample` again") from error
    missing = [name for name in _SCHEMA.names if name not in table.column_names]
    if missing:
        raise UserError(f"the rehearsal set {path} lacks the column {missing[0]!r}; run `dph presample` again")
    return [Rehearsal(**row) for row in table.select(_SCHEMA.names).to_pylist()]


def check_fit(
    stored: Mapping[str, Any], policy: Policy, temperature: float, *, same_weights: bool, where: Path
) -> None:
    """Refuse a rehearsal set that was made with another tokenizer, temperature or model.

    Args:
        stored: manifest of the presample run.
        policy: the policy at the start of training, that is π_ref.
        temperature: sampling temperature of training.
        same_weights: also compare the weights; switched off when a run is resumed.
    """
    facts = {"tokenizer_hash": policy.tokenizer_hash(), "temperature": temperature}
    if same_weights:
        facts["weight_hash"] = policy.weight_hash()
    wrong = [
        f"{name} {stored.get(name)!r} there, {now!r} here" for name, now in facts.items() if stored.get(name) != now
    ]
    if wrong:
        raise UserError(
            f"the rehearsal set of {where} does not fit this run ({'; '.join(wrong)}); run `dph presample` with this "
            "model and temperature, or train with those of the set"
        )


@torch.no_grad()
def reference_logprobs(policy: Policy, rows: Sequence[Row], temperature: float, token_budget: int) -> list[list[float]]:
    """log π of every response token of rows under a policy, by the trainer's own forward pass."""
    results: dict[int, list[float]] = {}
    index = {id(row): position for position, row in enumerate(rows)}
    for part in microbatches(rows, token_budget):
        logprobs, _ = policy.logprobs(collate(part, policy.device), temperature)
        for row, values in zip(part, logprobs.float().cpu().tolist(), strict=True):
            results[index[id(row)]] = values[: len(row.response_ids)]
    return [results[position] for position in range(len(rows))]


def recheck(policy: Policy, rows: Sequence[Rehearsal], temperature: float, token_budget: int) -> float:
    """Largest deviation of stored log-probabilities from recomputed ones, in nats."""
    again = reference_logprobs(policy, [row.row() for row in rows], temperature, token_budget)
    pairs = [(a, b) for row, new in zip(rows, again, strict=True) for a, b in zip(row.ref_logprobs, new, strict=True)]
    return max(abs(a - b) for a, b in pairs)
