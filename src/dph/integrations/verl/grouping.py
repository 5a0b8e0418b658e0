"""The place of a step's rows: whole groups in one share of one rank. Plain arithmetic, no verl.

verl cuts the rows of a step into one contiguous share per data-parallel rank, and each share into mini-batches from the
front. Its own order balances rows one by one, which scatters a group over all ranks.
"""

from collections.abc import Sequence


def group_load(prompt: float, rows: Sequence[float]) -> float:
    """Work of a group whose prompt is computed once, from the work of its prompt alone and of each whole row."""
    return prompt + sum(row - prompt for row in rows)


def grouped_order(
    groups: Sequence[Sequence[int]], loads: Sequence[float], ranks: int, minibatches: int
) -> list[list[list[int]]]:
    """Rows of each mini-batch of each rank: every such cell gets as many rows, and about the same work.

    The heaviest group goes first, into the cell with the least work that has room for all of it. Where no cell has, the
    group is cut, which happens only if the groups do not fill the cells exactly.

    Args:
        groups: rows of each group; all rows together divide evenly into ranks × minibatches.
        loads: work of each group.
    Returns:
        [ranks][minibatches] lists of rows. Mini-batches are in the order of their first groups; the ranks of one
        mini-batch have cells of similar work.
    """
    cells = ranks * minibatches
    room, extra = divmod(sum(map(len, groups)), cells)
    if extra:
        raise ValueError(f"{sum(map(len, groups))} rows do not divide evenly into {cells} cells")
    rows: list[list[int]] = [[] for _ in range(cells)]
    work = [0.0] * cells
    left: list[list[int]] = []
    for index in sorted(range(len(groups)), key=lambda one: -loads[one]):
        fitting = [cell for cell in range(cells) if len(rows[cell]) + len(groups[index]) <= room]
        if not fitting:
            left.append(list(groups[index]))
            continue
        cell = min(fitting, key=lambda one: work[one])
        rows[cell] += groups[index]
        work[cell] += loads[index]
    for group in left:
        while group:
            cell = min(range(cells), key=lambda one: len(rows[one]))
            count = room - len(rows[cell])
            rows[cell] += group[:count]
            group = group[count:]
    heaviest = sorted(range(cells), key=lambda one: -work[one])
    dealt: list[list[int]] = []
    total = [0.0] * ranks
    for start in range(0, cells, ranks):  # the heaviest cell of each mini-batch to the rank with the least work so far
        part = dict(
            zip(sorted(range(ranks), key=lambda rank: total[rank]), heaviest[start : start + ranks], strict=True)
        )
        total = [done + work[part[rank]] for rank, done in enumerate(total)]
        dealt.append([part[rank] for rank in range(ranks)])
    dealt.sort(key=lambda part: min(min(rows[cell]) for cell in part))
    return [[rows[part[rank]] for part in dealt] for rank in range(ranks)]
