"""The order of a step's rows: whole groups in one place, stored responses everywhere. Plain arithmetic, no verl.

verl cuts the rows of a step into one contiguous share per data-parallel rank, and each share into mini-batches from the
front. The rows of one mini-batch on one rank are a cell. Every cell gets as many rows.
"""

from collections.abc import Sequence
from itertools import chain


def group_load(prompt: float, rows: Sequence[float]) -> float:
    """Work of a group whose prompt is computed once, from the work of its prompt alone and of each whole row."""
    return prompt + sum(row - prompt for row in rows)


def grouped_order(
    groups: Sequence[Sequence[int]], loads: Sequence[float], ranks: int, minibatches: int
) -> list[list[list[int]]]:
    """[ranks][minibatches] lists of rows: whole groups, and about the same work, mini-batches in the order of their
    first groups.

    The heaviest group goes first, into the cell with the least work that has room for all of it. If no cell has, which
    happens only if the groups do not fill the cells exactly, the group is cut.

    groups: rows of each group, which together divide evenly into ranks × minibatches. loads: work of each group.
    """
    cells = ranks * minibatches
    room, extra = divmod(sum(map(len, groups)), cells)
    if extra:
        raise ValueError(f"{sum(map(len, groups))} rows do not divide evenly into {cells} cells")
    rows: list[list[int]] = [[] for _ in range(cells)]
    work = [0.0] * cells
    without_room: list[list[int]] = []
    for index in sorted(range(len(groups)), key=lambda one: -loads[one]):
        fitting = [cell for cell in range(cells) if len(rows[cell]) + len(groups[index]) <= room]
        if not fitting:
            without_room.append(list(groups[index]))
            continue
        cell = min(fitting, key=lambda one: work[one])
        rows[cell] += groups[index]
        work[cell] += loads[index]
    for group in without_room:
        while group:
            cell = min(range(cells), key=lambda one: len(rows[one]))
            count = room - len(rows[cell])
            rows[cell] += group[:count]
            group = group[count:]
    heaviest = sorted(range(cells), key=lambda one: -work[one])
    dealt: list[list[int]] = []
    total = [0.0] * ranks
    for start in range(0, cells, ranks):  # the heaviest cell of each mini-batch to the rank with the least work so far
        lightest = sorted(range(ranks), key=lambda rank: total[rank])
        cell_of = dict(zip(lightest, heaviest[start : start + ranks], strict=True))
        total = [done + work[cell_of[rank]] for rank, done in enumerate(total)]
        dealt.append([cell_of[rank] for rank in range(ranks)])
    dealt.sort(key=lambda minibatch: min(min(rows[cell], default=0) for cell in minibatch))
    return [[rows[minibatch[rank]] for minibatch in dealt] for rank in range(ranks)]


def mixed_order(rollouts: int, lengths: Sequence[int], ranks: int, minibatches: int) -> list[int]:
    """A permutation of rollouts and stored responses: in every cell an equal part of the stored ones, about equally
    long together, follows the rollouts.

    rollouts: number of verl's rows, which come first. lengths: tokens of each stored response; these are the rows from
    `rollouts` on. ranks × minibatches divides both numbers.
    """
    share, extra = divmod(rollouts, ranks * minibatches)
    if extra:
        raise ValueError(f"{rollouts} rollouts do not divide evenly into {ranks * minibatches} cells")
    stored = grouped_order([[rollouts + index] for index in range(len(lengths))], lengths, ranks, minibatches)
    order: list[int] = []
    for number, cell in enumerate(chain.from_iterable(stored)):
        order += [*range(number * share, (number + 1) * share), *cell]
    return order


def stored_places(order: Sequence[int], rollouts: int, stored: int, ranks: int, minibatches: int) -> list[list[int]]:
    """The stored responses of each mini-batch, over all ranks, in ascending order.

    order: as `mixed_order` returns it, for this number of rollouts. stored: how many of the rows after the rollouts are
    stored responses; copies that pad them follow.
    """
    size = len(order) // (ranks * minibatches)
    found: list[list[int]] = [[] for _ in range(minibatches)]
    for place, row in enumerate(order):
        if rollouts <= row < rollouts + stored:
            found[place // size % minibatches].append(row - rollouts)
    return [sorted(one) for one in found]
