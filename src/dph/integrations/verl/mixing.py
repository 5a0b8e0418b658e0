"""The place of stored responses in a step's update: evenly over ranks and mini-batches. Plain arithmetic, no verl.

verl cuts the rows of a step into one contiguous share per data-parallel rank, and each share into mini-batches from the
front. The rollouts stay where verl's balancing put them; in every (rank, mini-batch) cell an equal part of the stored
responses follows them.
"""

from collections.abc import Sequence


def padded_count(rows: int, cells: int) -> int:
    """The smallest multiple of `cells` that is at least `rows`."""
    return -(-rows // cells) * cells


def mixed_order(rollouts: int, lengths: Sequence[int], ranks: int, minibatches: int) -> list[int]:
    """Order of all rows of an update.

    Args:
        rollouts: number of verl's rows, which come first, in verl's order.
        lengths: tokens of each stored response; these are the rows from `rollouts` on.
        ranks, minibatches: their product divides both numbers of rows.
    Returns:
        A permutation of all rows. Stored responses are dealt by length, alternately forwards and backwards, so that
        every cell gets the same number of them and about the same number of tokens.
    """
    cells = ranks * minibatches
    if rollouts % cells or len(lengths) % cells:
        raise ValueError(f"{rollouts} rollouts and {len(lengths)} stored rows do not divide evenly into {cells} cells")
    dealt: list[list[int]] = [[] for _ in range(cells)]
    longest_first = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for place, index in enumerate(longest_first):
        turn, cell = divmod(place, cells)
        dealt[cell if turn % 2 == 0 else cells - 1 - cell].append(rollouts + index)
    share = rollouts // cells
    return [
        row
        for rank in range(ranks)
        for part in range(minibatches)
        for row in [
            *range((rank * minibatches + part) * share, (rank * minibatches + part + 1) * share),
            # Mini-batch by mini-batch, so that consecutive lengths land on different ranks of the same mini-batch
            *dealt[part * ranks + rank],
        ]
    ]
