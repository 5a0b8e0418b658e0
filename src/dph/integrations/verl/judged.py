# pyright: reportMissingImports=false
"""How a step's responses were judged, read back from verl's TransferQueue."""

from dataclasses import dataclass
from typing import Any

import transfer_queue as tq
from torch import Tensor
from transfer_queue import KVBatchMeta

from dph.errors import UserError
from dph.types import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class JudgedResponse:
    """One response of a step, with its verdict."""

    group: str
    """verl's id of the draw: one prompt, asked once for a whole group."""
    reward: float
    scored: bool
    """False where the judging itself failed, and for verl's padding rows."""
    outcome: str
    """The outcome that our verifiers gave; empty with another reward function."""
    response: Tensor
    """int64 [length]: its tokens."""
    old_logprobs: Tensor
    """[length], in nats."""
    ref_logprobs: Tensor | None
    """[length] under the reference model; None where there is none."""
    truncated: bool
    mask: Tensor
    """int64 [length]: verl's response mask."""
    padding: bool

    @property
    def length(self) -> int:
        return len(self.response)

    @property
    def verdict(self) -> Verdict:
        """As our verifiers gave it; with another reward function a reward of at least 1 is correct."""
        if self.padding or not self.scored:
            return Verdict(Outcome.INFRA_ERROR, 0.0)
        outcome = self.outcome or ("correct" if self.reward >= 1 else "wrong")
        return Verdict(Outcome(outcome), self.reward)


def reward_info(extra_fields: Any) -> dict[str, Any]:
    """What the reward function returned in addition to the score, from verl's column extra_fields."""
    fields = getattr(extra_fields, "data", extra_fields)
    info = fields.get("reward_extra_info", {}) if isinstance(fields, dict) else {}
    return info if isinstance(info, dict) else {}


def is_scored(info: dict[str, Any]) -> bool:
    """Whether a response could be judged; reward functions that do not say so always judge."""
    return bool(info.get("scored", 1.0))


def check_unjudged(failed: int, total: int, limit: float) -> None:
    """Raises UserError when judging failed for more than the share `limit` of `total` responses."""
    if failed > limit * total:
        raise UserError(
            f"the judging of {failed} of a step's {total} responses failed "
            f"(dph.max_unjudged={limit}); fix the verifiers' environment and resume"
        )


def read_judged(batch: KVBatchMeta, limit: int, eos: int, *, reference: bool = False) -> list[JudgedResponse]:
    """The rows of a batch, in its order.

    Args:
        reference: read the log-probabilities of the reference model, too.
        limit: length of the longest response, in tokens.
        eos: a response of that length that does not end with this token was cut off.
    Raises UserError for agent loops with several trajectories per session.
    """
    fields = ["uid", "responses", "response_mask", "rm_scores", "extra_fields", "old_log_probs"]
    fields += ["ref_log_prob"] * reference
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    columns = [list(data[name]) for name in fields]
    references = columns.pop() if reference else [None] * len(batch)
    rows = []
    every = zip(batch.keys, batch.tags, *columns, references, strict=True)
    for key, tag, uid, responses, mask, scores, extra, old, ref in every:
        if not key.endswith("_0"):
            raise UserError("trainer mode dph_sync does not support agent loops with several trajectories per session")
        info, padding = reward_info(extra), bool(tag.get("is_padding", False))
        rows.append(
            JudgedResponse(
                group=str(getattr(uid, "data", uid)),
                reward=float(scores.sum()),
                scored=not padding and is_scored(info),
                outcome=str(info.get("outcome", "")),
                response=responses,
                old_logprobs=old,
                ref_logprobs=ref,
                truncated=len(responses) >= limit and int(responses[-1]) != eos,
                mask=mask,
                padding=padding,
            )
        )
    return rows
