"""The rehearsal set: stored correct responses of the reference policy to the prompts that it masters (D_pef), or to
those that can lose pass@k.

Stored as Parquet, never pickled. `dph.rehearsal.check` compares its manifest with the training run.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dph.errors import DataError
from dph.models.batch import Tokens
from dph.runs.files import written_atomically
from dph.runs.parquet import read_parquet, rows_of
from dph.sampling.seeding import EpochOrder
from dph.types import Group, Rollout

SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("response_ids", pa.list_(pa.int32())),
        ("ref_logprobs", pa.list_(pa.float32())),
        ("text", pa.string()),
    ]
)
"""The columns of stored responses in files."""
WRITTEN = pa.field("written", pa.list_(pa.bool_()))
"""A further column, in files with responses that called a tool."""
_ROUNDING = 1e-3  # a log-probability is at most 0, up to rounding


@dataclass(frozen=True, slots=True)
class Rehearsal(Tokens):
    """One stored response: its tokens, log π_ref of each token, and its text."""

    problem_id: str
    ref_logprobs: Sequence[float]
    """log π_ref of each response token, in nats: of the untruncated distribution at the temperature that the manifest
    of the set names."""
    text: str
    written: Sequence[bool] | None = None
    """Whether the policy wrote each response token; a tool wrote the others, whose log π_ref is 0. None: the policy
    wrote all."""

    @classmethod
    def drawn(cls, group: Group, rollout: Rollout) -> "Rehearsal":
        """A rollout of a group as a stored response; the policy that drew it is the reference."""
        drawn = rollout.completion
        ids, values = list(drawn.token_ids), list(drawn.logprobs)
        return cls(list(group.prompt_ids), ids, group.problem.id, values, rollout.text, drawn.written)

    def with_logprobs(self, values: Sequence[float]) -> "Rehearsal":
        """The same response with other log-probabilities."""
        return replace(self, ref_logprobs=array("f", values))


class RehearsalSet:
    """Stored responses in an endless order, which a seed decides.

    The order is one of prompts: several responses to one prompt follow each other, so that a step computes the prompt
    once. Every response comes once before any response comes again.

    >>> stored = [Rehearsal([1], [token], problem, [-0.1], "") for problem, token in (("a", 5), ("b", 6), ("b", 7))]
    >>> rehearsal = RehearsalSet(stored, seed=0)
    >>> sorted(row.response_ids[0] for row in rehearsal.take(0, 3)), len(rehearsal.take(cursor=3, count=2))
    ([5, 6, 7], 2)
    >>> rehearsal.take(1, 2) == RehearsalSet(stored, seed=0).take(1, 2)  # a cursor is all that a resumed run needs
    True
    """

    def __init__(self, stored: Sequence[Rehearsal], seed: int) -> None:
        prompts: dict[str, list[Rehearsal]] = {}
        for rehearsal in stored:
            prompts.setdefault(rehearsal.problem_id, []).append(rehearsal)
        self._prompts = list(prompts.values())
        self._size = len(stored)
        self._order = EpochOrder(len(prompts), seed, "rehearsal") if stored else None
        self._epoch, self._responses = -1, list(stored)

    def draw(self, cursor: int, count: int) -> tuple[list[Rehearsal], int]:
        """The responses that `take` returns, and the next cursor."""
        rows = self.take(cursor, count)
        return rows, cursor + len(rows)

    def take(self, cursor: int, count: int) -> list[Rehearsal]:
        """The responses at the positions cursor … cursor + count − 1 of the order; none from an empty set."""
        return [self._item(position) for position in range(cursor, cursor + count)] if self._size else []

    def _item(self, position: int) -> Rehearsal:
        epoch, offset = divmod(position, self._size)
        if epoch != self._epoch and self._order is not None:
            prompts = self._order.take(epoch * len(self._prompts), len(self._prompts))
            self._epoch, self._responses = epoch, [rehearsal for index in prompts for rehearsal in self._prompts[index]]
        return self._responses[offset]


def write_rehearsal(path: Path, rows: Sequence[Rehearsal]) -> None:
    """Write stored responses as Parquet."""
    schema = SCHEMA if all(row.written is None for row in rows) else SCHEMA.append(WRITTEN)
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    with written_atomically(path) as file:
        pq.write_table(pa.table(columns, schema=schema), file)


def read_rehearsal(path: Path) -> list[Rehearsal]:
    """Read stored responses. Raises UserError if the file is missing or damaged, or was not written by a presample
    run."""
    try:
        table = read_parquet(path, SCHEMA.names, [WRITTEN.name])
        schema = SCHEMA.append(WRITTEN) if WRITTEN.name in table.column_names else SCHEMA
        stored = [Rehearsal(**row) for row in rows_of(table.cast(schema))]
    except FileNotFoundError as error:
        raise DataError(f"there is no rehearsal set at {path}; run `dph presample` first") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"the rehearsal set {path} cannot be read ({error}); run `dph presample` again") from error
    for number, row in enumerate(stored, 1):
        if not is_whole(row):
            raise DataError(f"the rehearsal set {path} is damaged in row {number}; run `dph presample` again")
    return stored


def is_whole(row: Rehearsal) -> bool:
    """Whether a stored response is complete. With an incomplete one training would fail late, or learn nonsense."""
    lists = (row.prompt_ids, row.response_ids, row.ref_logprobs)
    if row.problem_id is None or row.text is None or any(not part or None in part for part in lists):
        return False
    if row.written is not None and (len(row.written) != len(row.response_ids) or None in row.written):
        return False
    finite = all(math.isfinite(value) and value < _ROUNDING for value in row.ref_logprobs)
    return finite and len(row.response_ids) == len(row.ref_logprobs) and min(*row.prompt_ids, *row.response_ids) >= 0
