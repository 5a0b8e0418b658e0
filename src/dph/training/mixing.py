"""How the rows of a step become this process's mini-batches."""

from collections.abc import Sequence

from dph.config import TrainConfig
from dph.process.distributed import World
from dph.rehearsal.store import Rehearsal
from dph.training.explore import Drawn
from dph.training.rows import Row, rehearsal_row


def mix(
    drawn: Drawn, rows: Sequence[Sequence[Row]], stored: Sequence[Rehearsal], parts: int, world: World
) -> list[list[Row]]:
    """This process's rows of each of `parts` mini-batches.

    Groups and stored responses are spread evenly over the mini-batches, and stored responses over processes. Stored
    responses to one prompt follow each other, so most of them stay together.

    Args:
        rows: those of each of this process's groups.
        stored: the step's stored responses over all processes.
    """
    minibatches: list[list[Row]] = [[] for _ in range(parts)]
    for place, group in zip(drawn.ranks, rows, strict=True):
        minibatches[place * parts // drawn.total] += group
    for part in range(parts):
        own = [rehearsal_row(row) for index, row in enumerate(stored) if index * parts // len(stored) == part]
        first, end = (rank * len(own) // world.size for rank in (world.rank, world.rank + 1))
        minibatches[part] += own[first:end]
    return minibatches


def recomputes_old(config: TrainConfig) -> bool:
    """Whether the trainer recomputes log π_old, because the sampler's own numbers are not exact."""
    if config.rollout.old_logprobs == "auto":
        return config.sampler.engine != "hf" or config.model.precision != "fp32"
    return config.rollout.old_logprobs == "recompute"
