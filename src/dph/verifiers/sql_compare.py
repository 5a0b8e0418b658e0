"""Decides whether two query results are equal, under four rules. Standard library only: worker processes load this.

strict   rows as a bag, in order where the gold orders its rows; columns in order; numbers to a relative 1e-9
bird     BIRD's official rule: the sets of rows are equal
spider   Spider's official rule: some permutation of the columns makes the rows equal as a bag, or as a list where the
         gold orders them
paper    the rule of the paper's authors: Spider's, but order is never enforced
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Row = tuple[Any, ...]
Rows = Sequence[Row]

RELATIVE_TOLERANCE = 1e-9
"""Covers sums taken in another order (about 1e-15 a term); keeps large identifiers stored as REAL apart."""
_ABSOLUTE_TOLERANCE = 1e-12  # only for results that should be zero and are left as rounding noise


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float)


def _close_cells(a: object, b: object) -> bool:
    if a == b:
        return True
    if not (_is_number(a) and _is_number(b)) or not (isinstance(a, float) or isinstance(b, float)):
        return False
    return math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE, abs_tol=_ABSOLUTE_TOLERANCE)  # type: ignore[arg-type]


def _close_rows(a: Row, b: Row) -> bool:
    return len(a) == len(b) and all(map(_close_cells, a, b))


def _split(row: Row) -> tuple[Row, Row]:
    """The row with its numbers blanked out, and the numbers."""
    return tuple("#" if _is_number(c) else (type(c).__name__, c) for c in row), tuple(filter(_is_number, row))


def _close_bags(left: list[Row], right: list[Row]) -> bool:
    """Match rows one to one within the tolerance; only called with what is left after exact matching.

    Rows are grouped by their text cells and sorted by their numbers, so that the first candidate nearly always fits.
    """
    groups: dict[Row, list[Row]] = {}
    for row in sorted(right, key=lambda r: _split(r)[1]):
        groups.setdefault(_split(row)[0], []).append(row)
    for row in sorted(left, key=lambda r: _split(r)[1]):
        candidates = groups.get(_split(row)[0], [])
        for index, candidate in enumerate(candidates):
            if _close_rows(row, candidate):
                del candidates[index]
                break
        else:
            return False
    return True


def strict_equal(gold: Rows, predicted: Rows, ordered: bool) -> bool:
    """Equality as a list (ordered) or as a bag; duplicates count, columns must stand in the gold's order."""
    if len(gold) != len(predicted):
        return False
    if ordered:
        return all(map(_close_rows, gold, predicted))
    left = Counter(gold)
    left.subtract(Counter(predicted))
    if not any(left.values()):
        return True
    missing = [row for row, count in left.items() for _ in range(count)]
    surplus = [row for row, count in left.items() for _ in range(-count)]
    return _close_bags(missing, surplus)


def set_equal(gold: Rows, predicted: Rows, ordered: bool) -> bool:
    """BIRD: equality of the sets of rows; order and duplicates are ignored, 1 == 1.0, no tolerance."""
    return set(gold) == set(predicted)


def _cells_sorted(row: Row) -> Row:
    return tuple(sorted(row, key=lambda cell: str(cell) + str(type(cell))))


def permuted_equal(gold: Rows, predicted: Rows, ordered: bool) -> bool:
    """Spider: equality under some permutation of the columns, the same for all rows.

    Two empty results are equal whatever their columns. As in the official evaluator, rows are first compared with
    their cells sorted by text, as a list or as sets; this rejects a few results that differ only in 2 against 2.0.
    """
    if not gold and not predicted:
        return True
    if len(gold) != len(predicted) or len(gold[0]) != len(predicted[0]):
        return False
    quick_gold, quick_predicted = list(map(_cells_sorted, gold)), list(map(_cells_sorted, predicted))
    if quick_gold != quick_predicted if ordered else set(quick_gold) != set(quick_predicted):
        return False
    view: Callable[[Any], Any] = list if ordered else Counter
    return _match_columns(list(zip(*gold, strict=True)), list(zip(*predicted, strict=True)), [], view)


def _match_columns(gold: list[Row], predicted: list[Row], chosen: list[int], view: Callable[[Any], Any]) -> bool:
    """Extend a choice of predicted columns for the first gold columns, as long as the rows so far agree."""
    width = len(chosen)
    if width == len(gold):
        return True
    target = view(zip(*gold[: width + 1], strict=True))
    tried: set[Row] = set()
    for index, column in enumerate(predicted):
        if index in chosen or column in tried:  # equal columns are interchangeable
            continue
        tried.add(column)
        candidate = [*chosen, index]
        rows = zip(*(predicted[i] for i in candidate), strict=True)
        if view(rows) == target and _match_columns(gold, predicted, candidate, view):
            return True
    return False


def results_equal(comparator: str, gold: Rows, predicted: Rows, widths: tuple[int, int], ordered: bool) -> bool:
    """Compare under a rule by name. widths: columns of both results, known even where there are no rows."""
    if comparator == "strict" and widths[0] != widths[1]:
        return False
    return _EQUAL[comparator](gold, predicted, ordered)


_EQUAL: dict[str, Callable[[Rows, Rows, bool], bool]] = {
    "strict": strict_equal,
    "bird": set_equal,
    "spider": permuted_equal,
    "paper": permuted_equal,
}
