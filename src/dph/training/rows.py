"""The rows of a training step: responses with all that the loss needs, their mini-batches, and batches as tensors.

Rows of one prompt stay together as a group, `list[Row]`, until `Policy.cut` and `collate` pack them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

import torch
from torch import Tensor

from dph.models.batch import Inputs, Tokens, by_prompt, collate_tokens, moved, padded
from dph.models.policy import Policy
from dph.objective.objective import TokenBatch
from dph.process.distributed import World
from dph.rehearsal.store import Rehearsal


@dataclass(frozen=True, slots=True)
class Row(Tokens):
    """One response with all that the loss needs of it."""

    old_logprobs: Sequence[float] = ()
    """Log-probabilities under the policy that generated the response. Rehearsal rows do not use them."""
    ref_logprobs: Sequence[float] | None = None
    """Log-probabilities under the reference policy; None if they are not stored."""
    advantage: float | Sequence[float] = 0.0
    """One value for the response, or one for each of its tokens."""
    is_rehearsal: bool = False
    """Which set the row belongs to: a property of the row, whatever micro-batch it is in."""
    weight: float = 1.0
    """0 excludes the row from the loss: its judging failed, or it was truncated and is masked."""
    sampled_logprobs: Sequence[float] | None = None
    """Log-probabilities that the sampler reported; None if `old_logprobs` are its own."""
    selected: Sequence[bool] | None = None
    """Tokens that the policy loss treats differently; None if it selects none."""

    @property
    def advances(self) -> bool:
        """Whether the advantage is nonzero anywhere."""
        return self.advantage != 0 if isinstance(self.advantage, int | float) else any(self.advantage)

    @property
    def mean_advantage(self) -> float:
        """The advantage, averaged over the tokens if each has its own."""
        return fmean(self.advantage) if isinstance(self.advantage, Sequence) else self.advantage

    @property
    def token_advantages(self) -> Sequence[float]:
        """The advantage of each token of the response."""
        return self.advantage if isinstance(self.advantage, Sequence) else [self.advantage] * len(self.response_ids)


@dataclass(frozen=True, slots=True)
class Batch(TokenBatch, Inputs):
    """B rows as the model's inputs and the loss's tensors, in fp32; see `Inputs` and `TokenBatch` for the shapes."""

    sampled_logprobs: Tensor | None = None
    """float [B, T]: the sampler's own log-probabilities, if any row has them apart from `old_logprobs`."""


def collate(
    rows: Sequence[Row], device: torch.device | str = "cpu", *, shared: bool = False, context: int | None = None
) -> Batch:
    """Rows as tensors, padded or packed as by `collate_tokens`. Raises ValueError for no rows."""
    inputs = collate_tokens(rows, shared=shared, context=context)
    steps = inputs.present.shape[1]

    def column(name: str, dtype: torch.dtype = torch.float32) -> Tensor | None:
        values = [getattr(row, name) for row in rows]
        return None if all(value is None for value in values) else padded([v or () for v in values], steps, dtype)

    advantages = [row.advantage for row in rows]
    by_token = any(isinstance(value, Sequence) for value in advantages)
    batch = Batch(
        **{item.name: getattr(inputs, item.name) for item in fields(Inputs)},
        response_mask=inputs.present * torch.tensor([row.weight for row in rows])[:, None],
        old_logprobs=padded([row.old_logprobs for row in rows], steps, torch.float32),
        ref_logprobs=column("ref_logprobs"),
        advantages=padded([row.token_advantages for row in rows], steps, torch.float32)
        if by_token
        else torch.tensor(advantages),
        is_rehearsal=torch.tensor([row.is_rehearsal for row in rows]),
        sampled_logprobs=column("sampled_logprobs"),
        selected=column("selected", torch.bool),
    )
    return moved(batch, device)


def batches(policy: Policy, groups: Sequence[Sequence[Row]], token_budget: int) -> Iterator[tuple[list[Row], Batch]]:
    """Groups of rows of a prompt as micro-batches of at most `token_budget` tokens: rows, and tensors on the device."""
    microbatches, shared = policy.cut(groups, token_budget)
    for rows in microbatches:
        yield rows, collate(rows, policy.device, shared=shared, context=policy.context_length)


def rehearsal_row(stored: Rehearsal) -> Row:
    """A stored response as a row of a mixed mini-batch."""
    return Row(
        stored.prompt_ids,
        stored.response_ids,
        old_logprobs=stored.ref_logprobs,
        ref_logprobs=stored.ref_logprobs,
        is_rehearsal=True,
    )


def mix(
    rows_PG: Sequence[Sequence[Row | None]],
    places_P: Sequence[int],
    total: int,
    stored: Sequence[Rehearsal],
    minibatches: int,
    world: World,
) -> list[list[list[Row]]]:
    """This process's share of each mini-batch, as groups: the rows of one prompt together, rollouts first.

    Groups of rollouts and stored responses are spread evenly over the mini-batches, and stored responses over
    processes. Stored responses to one prompt follow each other, so most of them stay together.

    Args:
        rows_PG: this process's rows; None for a rollout that is left out.
        places_P: place of each of these groups among the step's groups.
        total, stored: the step's groups, and its stored responses, over all processes.
    """
    mixed: list[list[Row]] = [[] for _ in range(minibatches)]
    for place, rows_G in zip(places_P, rows_PG, strict=True):
        mixed[place * minibatches // total] += [row for row in rows_G if row is not None]
    for number, rows in enumerate(mixed):
        stored_rows = [
            rehearsal_row(row) for index, row in enumerate(stored) if index * minibatches // len(stored) == number
        ]
        first, end = (rank * len(stored_rows) // world.size for rank in (world.rank, world.rank + 1))
        rows += stored_rows[first:end]
    return [by_prompt(rows) for rows in mixed]  # two problems, or two draws of one problem, may have the same prompt
