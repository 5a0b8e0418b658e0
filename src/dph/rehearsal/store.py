"""The rehearsal set: stored correct responses of the reference policy to the prompts that it masters (D_pef), or to
those that can lose pass@k.

Stored as Parquet, never pickled. `dph.rehearsal.check` compares its manifest with the training run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dph.errors import DataError
from dph.models.batch import Tokens
from dph.runs.files import written_atomically
from dph.runs.parquet import read_parquet, rows_of
from dph.sampling.seeding import EpochOrder
from dph.types import Group, Rollout

_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("response_ids", pa.list_(pa.int32())),
        ("ref_logprobs", pa.list_(pa.float32())),
        ("text", pa.string()),
    ]
)
_ROUNDING = 1e-3  # a log-probability is at most 0, up to rounding


@dataclass(frozen=True, slots=True)
class Rehearsal(Tokens):
    """One stored response: its tokens, log π_ref of each, and its text."""

    problem_id: str
    ref_logprobs: Sequence[float]
    """log π_ref of each response token, untruncated, at the temperature in the set's manifest, in nats."""
    text: str

    @classmethod
    def drawn(cls, group: Group, rollout: Rollout) -> "Rehearsal":
        """A rollout of a group as a stored response; the policy that drew it is the reference."""
        tokens, values = rollout.completion.token_ids, rollout.completion.logprobs
        return cls(list(group.prompt_ids), list(tokens), group.problem.id, list(values), rollout.text)


class RehearsalSet:
    """Stored responses in an endless seeded order of their prompts.

    Several responses to one prompt follow each other, so that a step computes their prompt once.
    """

    def __init__(self, stored: Sequence[Rehearsal], seed: int) -> None:
        prompts: dict[str, list[Rehearsal]] = {}
        for rehearsal in stored:
            prompts.setdefault(rehearsal.problem_id, []).append(rehearsal)
        self._prompts = list(prompts.values())
        self._size = len(stored)
        self._order = EpochOrder(len(prompts), seed, "rehearsal") if stored else None
        self._epoch, self._responses = -1, list(stored)

    def take(self, cursor: int, count: int) -> list[Rehearsal]:
        """Responses at positions cursor … cursor+count−1 of the order; none from an empty set."""
        return [self._item(position) for position in range(cursor, cursor + count)] if self._size else []

    def _item(self, position: int) -> Rehearsal:
        epoch, offset = divmod(position, self._size)
        if epoch != self._epoch and self._order is not None:
            prompts = self._order.take(epoch * len(self._prompts), len(self._prompts))
            self._epoch, self._responses = epoch, [rehearsal for index in prompts for rehearsal in self._prompts[index]]
        return self._responses[offset]


def write_rehearsal(path: Path, rows: Sequence[Rehearsal]) -> None:
    """Write stored responses as Parquet."""
    columns = {name: [getattr(row, name) for row in rows] for name in _SCHEMA.names}
    with written_atomically(path) as file:
        pq.write_table(pa.table(columns, schema=_SCHEMA), file)


def read_rehearsal(path: Path) -> list[Rehearsal]:
    """Read stored responses. Raises UserError for a file that is missing, damaged, or not of a presample run."""
    try:
        stored = [Rehearsal(**row) for row in rows_of(read_parquet(path, _SCHEMA.names).cast(_SCHEMA))]
    except FileNotFoundError as error:
        raise DataError(f"there is no rehearsal set at {path}; run `dph presample` first") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"the rehearsal set {path} cannot be read ({error}); run `dph presample` again") from error
    for number, row in enumerate(stored, 1):
        if not _is_whole(row):
            raise DataError(f"the rehearsal set {path} is damaged in row {number}; run `dph presample` again")
    return stored


def _is_whole(row: Rehearsal) -> bool:
    """Whether a stored response is complete: otherwise training would fail late, or learn nonsense."""
    lists = (row.prompt_ids, row.response_ids, row.ref_logprobs)
    if row.problem_id is None or row.text is None or any(not part or None in part for part in lists):
        return False
    finite = all(math.isfinite(value) and value < _ROUNDING for value in row.ref_logprobs)
    return finite and len(row.response_ids) == len(row.ref_logprobs) and min(*row.prompt_ids, *row.response_ids) >= 0
