"""Decides whether two query results are equal. Standard library only: worker processes load this."""

import hashlib
import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

Row = tuple[Any, ...]
Rows = Sequence[Row]

RELATIVE_TOLERANCE = 1e-12
"""Allows for sums in another order (about 1e-16 per term), and for nothing else."""
_EXACT = 2.0**53  # below it, a REAL holds every whole number
_TRIED = 300_000  # pairs of rows that differ, after which a bag is unequal


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float)


def _is_whole(number: float) -> bool:
    return isinstance(number, int) or (abs(number) < _EXACT and number.is_integer())


def _close_cells(a: Any, b: Any, tolerance: float) -> bool:
    """Equal, or two numbers, not both whole, within the relative tolerance; only zero is close to zero."""
    if a == b:
        return True
    if not (tolerance and _is_number(a) and _is_number(b)) or (_is_whole(a) and _is_whole(b)):
        return False
    return math.isclose(a, b, rel_tol=tolerance)


def _close_rows(a: Row, b: Row, tolerance: float) -> bool:
    return len(a) == len(b) and all(_close_cells(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _numbers(row: Row) -> Row:
    return tuple(filter(_is_number, row))


def _close_bags(left: list[Row], right: list[Row], tolerance: float) -> bool:
    """Match rows one to one within the tolerance; called only with the rows that exact matching leaves.

    Rows are grouped by their texts and by their numbers, of which those in a chain of close ones count as one. So the
    first candidate of a group fits, unless a chain is longer than the tolerance: then others are tried, up to a limit.
    """
    if not tolerance or len(left[0]) != len(right[0]):
        return False
    chains = [_chains(column, tolerance) for column in zip(*left, *right, strict=True)]
    groups: dict[Row, list[Row]] = {}
    for row in sorted(right, key=_numbers, reverse=True):
        groups.setdefault(_grouped(row, chains), []).append(row)
    tried = 0
    for row in sorted(left, key=_numbers):
        candidates = groups.get(_grouped(row, chains), [])
        for index in reversed(range(len(candidates))):
            if _close_rows(row, candidates[index], tolerance):
                del candidates[index]
                break
            tried += 1
            if tried > _TRIED:
                return False
        else:
            return False
    return True


def _chains(column: Row, tolerance: float) -> dict[Any, float]:
    """Each number of a column → the least one of those that steps within the tolerance connect with it."""
    least: dict[Any, float] = {}
    start = before = math.nan
    for number in sorted(set(_numbers(column))):
        start = start if math.isclose(before, number, rel_tol=tolerance) else number
        least[number] = start
        before = number
    return least


def _grouped(row: Row, chains: Sequence[Mapping[Any, float]]) -> Row:
    return tuple(chain.get(cell, cell) for cell, chain in zip(row, chains, strict=True))


def strict_equal(
    gold: Rows,
    predicted: Rows,
    ordered: bool,
    *,
    tolerance: float = RELATIVE_TOLERANCE,
    free_columns: bool = False,
) -> bool:
    """Equality as a list (ordered) or as a bag; duplicates count, and so does the number of columns.

    With free_columns, the results are equal if some permutation of the predicted columns, the same for all rows, makes
    them equal.
    """
    same = partial(_same_rows, ordered=ordered, tolerance=tolerance)
    if not free_columns or not gold or len(gold) != len(predicted):
        return same(gold, predicted)
    return len(gold[0]) == len(predicted[0]) and _match_columns(_columns(gold), _columns(predicted), [], same)


def _same_rows(gold: Rows, predicted: Rows, ordered: bool, tolerance: float) -> bool:
    if len(gold) != len(predicted):
        return False
    if ordered:
        return all(_close_rows(a, b, tolerance) for a, b in zip(gold, predicted, strict=True))
    left = Counter(gold)
    left.subtract(Counter(predicted))
    if not any(left.values()):
        return True
    missing = [row for row, count in left.items() for _ in range(count)]
    surplus = [row for row, count in left.items() for _ in range(-count)]
    return _close_bags(missing, surplus, tolerance)


def set_equal(gold: Rows, predicted: Rows) -> bool:
    """BIRD: equality of the sets of rows; order and duplicates are ignored, 1 == 1.0, no tolerance.

    >>> set_equal([(1,), (2,)], [(2,), (1,), (1,)])
    True
    """
    return set(gold) == set(predicted)


def _cells_sorted(row: Row) -> Row:
    return tuple(sorted(row, key=lambda cell: str(cell) + str(type(cell))))


def permuted_equal(gold: Rows, predicted: Rows, ordered: bool) -> bool:
    """Spider: equality as a list (ordered) or as a bag under some permutation of the columns, the same for all rows.

    Two empty results are equal whatever their columns. As in the official evaluator, rows are first compared with their
    cells sorted by text, as a list or as sets; this rejects a few results that differ only in 2 versus 2.0.

    >>> permuted_equal([(1, "a")], [("a", 1)], False)
    True
    """
    if gold is predicted or (not gold and not predicted):
        return True
    if len(gold) != len(predicted) or len(gold[0]) != len(predicted[0]):
        return False
    if gold == predicted and _types(gold) == _types(predicted):
        return True  # only for speed
    quick_gold, quick_predicted = list(map(_cells_sorted, gold)), list(map(_cells_sorted, predicted))
    if quick_gold != quick_predicted if ordered else set(quick_gold) != set(quick_predicted):
        return False
    same = operator.eq if ordered else _bags_equal
    return _match_columns(_columns(gold), _columns(predicted), [], same)


def _types(rows: Rows) -> list[type]:
    return list(map(type, chain.from_iterable(rows)))


def _bags_equal(gold: Rows, predicted: Rows) -> bool:
    return Counter(gold) == Counter(predicted)


def _columns(rows: Rows) -> list[Row]:
    return list(zip(*rows, strict=True))


def _match_columns(
    gold: list[Row], predicted: list[Row], chosen: list[int], same: Callable[[Rows, Rows], bool]
) -> bool:
    """Search for a permutation by backtracking: extend `chosen` while the rows of the chosen columns are equal."""
    width = len(chosen)
    if width == len(gold):
        return True
    target = list(zip(*gold[: width + 1], strict=True))
    tried: set[Row] = set()
    for index, column in enumerate(predicted):
        if index in chosen or column in tried:  # equal columns are interchangeable
            continue
        tried.add(column)
        candidate = [*chosen, index]
        rows = list(zip(*(predicted[i] for i in candidate), strict=True))
        if same(target, rows) and _match_columns(gold, predicted, candidate, same):
            return True
    return False


def digest(rows: Rows, *, ordered: bool = False) -> str:
    """A text that is the same for rows in any order, or (`ordered`) in this one; numbers agree in nine digits."""
    lines = ["\x1f".join(map(_written, row)) for row in rows]
    lines = lines if ordered else sorted(lines)
    return hashlib.blake2b("\x1e".join(lines).encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _written(cell: object) -> str:
    if isinstance(cell, float):
        return f"n{int(cell)}" if cell.is_integer() else f"n{cell:.9g}"
    return f"n{cell}" if isinstance(cell, int) else f"{type(cell).__name__}{cell}"
