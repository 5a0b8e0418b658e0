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
from dph.rehearsal.bank import even_weights
from dph.rehearsal.store import Rehearsal
from dph.types import of_policy


@dataclass(frozen=True, slots=True)
class Row(Tokens):
    """One response with all that the loss needs of it.

    >>> row = Row([1, 2], [3, 4, 5], old_logprobs=[-0.1, -0.2, -0.3], advantage=0.5)
    >>> row.length, row.advances, row.token_advantages
    (5, True, [0.5, 0.5, 0.5])
    """

    old_logprobs: Sequence[float] = ()
    """Log-probabilities of the tokens, in nats, under the policy that generated the response. Rehearsal rows do not use
    them."""
    ref_logprobs: Sequence[float] | None = None
    """Log-probabilities of the tokens, in nats, under the reference policy; None if they are not stored."""
    advantage: float | Sequence[float] = 0.0
    """One value for the response, or one for each of its tokens."""
    is_rehearsal: bool = False
    """Whether the row is a stored response, of D_pef, and not a rollout, of D_exp."""
    weight: float = 1.0
    """How much the row counts within its set. 0 excludes the row from the loss, because its judging failed, or because
    it was truncated and is masked."""
    sampled_logprobs: Sequence[float] | None = None
    """Log-probabilities of the tokens, in nats, that the sampler reported; None if `old_logprobs` are the sampler's."""
    selected: Sequence[bool] | None = None
    """Whether the policy loss treats each token differently; None if the loss selects no tokens."""
    written: Sequence[bool] | None = None
    """Whether the policy wrote each token. A tool wrote the others: they have no part in the loss, in its denominators
    and in any mean. None: the policy wrote all."""

    @property
    def counted(self) -> int:
        """The number of tokens that the policy wrote."""
        return len(self.response_ids) if self.written is None else sum(self.written)

    @property
    def advances(self) -> bool:
        """Whether the advantage of any token is not 0."""
        return self.advantage != 0 if isinstance(self.advantage, int | float) else any(self.advantage)

    @property
    def mean_advantage(self) -> float:
        """The advantage of the response; the mean over the tokens if each token has its own."""
        by_token = self.advantage
        return fmean(of_policy(by_token, self.written)) if isinstance(by_token, Sequence) else by_token

    @property
    def token_advantages(self) -> Sequence[float]:
        """The advantage of each token of the response."""
        return self.advantage if isinstance(self.advantage, Sequence) else [self.advantage] * len(self.response_ids)


@dataclass(frozen=True, slots=True)
class Batch(TokenBatch, Inputs):
    """B rows as the inputs of the model and the tensors of the loss, in fp32. `Inputs` and `TokenBatch` document the
    shapes."""

    sampled_logprobs: Tensor | None = None
    """float [B, T]: the log-probabilities, in nats, that the sampler reported; None if no row has any apart from
    `old_logprobs`."""


def collate(
    rows: Sequence[Row], device: torch.device | str = "cpu", *, shared: bool = False, context: int | None = None
) -> Batch:
    """Rows as tensors on a device.

    shared: pack the rows, so that a prompt that several rows share is there once; otherwise they are padded. context:
    the longest sequence that the model takes, beyond which rows are not padded. Raises ValueError for no rows.

    >>> batch = collate([Row([1, 2], [3, 4], [-0.1, -0.2], advantage=1.0), Row([1], [2], [-0.3], is_rehearsal=True)])
    >>> batch.old_logprobs
    tensor([[-0.1000, -0.2000],
            [-0.3000,  0.0000]])
    >>> batch.response_mask
    tensor([[1., 1.],
            [1., 0.]])
    """
    inputs = collate_tokens(rows, shared=shared, context=context)
    steps = inputs.present.shape[1]

    def column(name: str, dtype: torch.dtype = torch.float32) -> Tensor | None:
        values = [getattr(row, name) for row in rows]
        return None if all(value is None for value in values) else padded([v or () for v in values], steps, dtype)

    response_mask = inputs.present * torch.tensor([float(row.weight > 0) for row in rows])[:, None]
    if any(row.written is not None for row in rows):
        own = [[True] * len(row.response_ids) if row.written is None else row.written for row in rows]
        response_mask = response_mask * padded(own, steps, response_mask.dtype)
    advantages = [row.advantage for row in rows]
    by_token = any(isinstance(value, Sequence) for value in advantages)
    batch = Batch(
        **{item.name: getattr(inputs, item.name) for item in fields(Inputs)},
        response_mask=response_mask,
        old_logprobs=padded([row.old_logprobs for row in rows], steps, torch.float32),
        ref_logprobs=column("ref_logprobs"),
        advantages=padded([row.token_advantages for row in rows], steps, torch.float32)
        if by_token
        else torch.tensor(advantages),
        is_rehearsal=torch.tensor([row.is_rehearsal for row in rows]),
        sampled_logprobs=column("sampled_logprobs"),
        selected=column("selected", torch.bool),
        row_weights=None if {row.weight for row in rows} <= {0.0, 1.0} else torch.tensor([row.weight for row in rows]),
    )
    return moved(batch, device)


def batches(policy: Policy, groups: Sequence[Sequence[Row]], token_budget: int) -> Iterator[tuple[list[Row], Batch]]:
    """Cut groups, each the rows of one prompt, into micro-batches of at most `token_budget` input tokens. Yields the
    rows of each micro-batch, and the rows as tensors on the policy's device."""
    microbatches, shared = policy.cut(groups, token_budget)
    for rows in microbatches:
        yield rows, collate(rows, policy.device, shared=shared, context=policy.context_length)


def rehearsal_row(stored: Rehearsal, weight: float = 1.0) -> Row:
    """A stored response as a row of a mixed mini-batch: log π_old is log π_ref, which the loss does not read."""
    return Row(
        stored.prompt_ids,
        stored.response_ids,
        old_logprobs=stored.ref_logprobs,
        ref_logprobs=stored.ref_logprobs,
        is_rehearsal=True,
        weight=weight,
        written=stored.written,
    )


def mix(
    rows_PG: Sequence[Sequence[Row | None]],
    places_P: Sequence[int],
    total: int,
    stored: Sequence[Rehearsal],
    minibatches: int,
    world: World,
    *,
    even: bool = False,
) -> list[list[list[Row]]]:
    """The share of this process in each mini-batch, as groups, each the rows of one prompt.

    Groups of rollouts are spread evenly over the mini-batches. So are stored responses, which are spread over the
    processes too. Stored responses to one prompt follow each other, so that most of them stay together.

    Args:
        rows_PG: the rows of this process's groups of rollouts; None for a rollout that is left out.
        places_P: the place of each of these groups among the groups of the step.
        total: the number of groups of the step, over all processes.
        stored: the stored responses of the step, over all processes.
        minibatches: the number of mini-batches.
        world: the processes that train together.
        even: whether, within a mini-batch, each problem with stored responses counts alike, and so does each of the
            stored responses of a problem (`even_weights`).
    """
    mixed: list[list[Row]] = [[] for _ in range(minibatches)]
    for place, rows_G in zip(places_P, rows_PG, strict=True):
        mixed[place * minibatches // total] += [row for row in rows_G if row is not None]
    for number, rows in enumerate(mixed):
        chosen = [row for index, row in enumerate(stored) if index * minibatches // len(stored) == number]
        weights = even_weights([row.problem_id for row in chosen]) if even else [1.0] * len(chosen)
        stored_rows = [rehearsal_row(row, weight) for row, weight in zip(chosen, weights, strict=True)]
        first, end = (rank * len(stored_rows) // world.size for rank in (world.rank, world.rank + 1))
        rows += stored_rows[first:end]
    return [by_prompt(rows) for rows in mixed]  # two problems, or two draws of one problem, may have the same prompt
