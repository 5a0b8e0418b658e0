"""Last rows of a file that sum the others up, and problems that are only called so."""

import math
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dph.measure.documents import names_sample
from dph.measure.fields import role_of, verdict_number, verdict_rank
from dph.measure.lists import flat_of

_WORDS = (
    "total,totals,overall,average,avg,mean,all,summary,sum,accuracy,aggregate,std,stdev,std dev,stddev,stderr,se,"
    "median,min,max,count,grand total,n,macro avg,micro avg,weighted avg,macro,micro,pass rate,score"
)
_NAMES = frozenset(_WORDS.split(","))
"""What a last row has in place of an id if it sums the others up; a problem may have such a name too."""
_OTHER: Mapping[str, Callable[[NDArray[np.float64]], Any]] = {
    **dict.fromkeys(("count", "n", "total"), len),
    **dict.fromkeys(("std", "se"), np.std),
    **{"median": np.median, "min": np.min, "max": np.max},
}
"""What a row may hold besides the sum and the mean, by a part of its name."""
_ROUNDED = 0.006
"""A mean is written with two decimals at least."""


def is_summary(record: Mapping[str, Any], usual: set[str]) -> bool:
    """Whether a row at the end of a file, whose first one has the usual keys, has the form of one that sums the others
    up: it names no sample and has further keys or a count, or it has a word such as "total" in place of an id."""
    there = {name: value for name, value in record.items() if value is not None}
    if not names_sample(there) and is_unnamed_sample(there, usual):
        return False
    ids = [_word(value) for name, value in there.items() if role_of(name) == "id"]
    if names_sample(there):
        return bool(ids) and all(id in _NAMES for id in ids)
    if not any(role_of(name) in ("id", "prompt", "response") for name in usual):
        return False
    numbers = [verdict_number(value) for name, value in there.items() if verdict_rank(name)]
    return bool(there.keys() - usual) or any(number is not None and number > 1 for number in numbers)


def is_unnamed_sample(record: Mapping[str, Any], usual: Set[str]) -> bool:
    """Whether a row without an id is a sample all the same: it says an error, or it has a verdict as the rows of
    samples have, of which `usual` are columns. A 1 beside other columns than theirs may be a sum."""
    found = {path: value for path, value in flat_of(record).items() if value is not None}
    if any(role_of(path) == "error" and value for path, value in found.items()):
        return True
    verdicts = [found[path] for path in found.keys() & usual if verdict_rank(path)]
    numbers = [value for value in verdicts if found.keys() <= usual and isinstance(value, int | float)]
    return any(isinstance(value, bool) for value in verdicts) or any(value in (0, 1) for value in numbers)


def ids_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The values that name a row's problem, by their columns."""
    return {path: value for path, value in flat_of(record).items() if role_of(path) == "id" and value is not None}


def told(record: Mapping[str, Any], columns: Mapping[str, Iterable[Any]]) -> Literal["sample", "summary", "either"]:
    """What a row with the form of a summary is beside the columns of the other rows. It is a sample if another row has
    its id, or if it has a response or prompt as they have. Otherwise its verdict decides: one that no other row could
    have sums up; one that is neither their sum, mean, spread nor extreme does not."""
    flat, ids = flat_of(record), ids_of(record)
    if not ids:
        return "summary"
    if any(value in columns.get(path, ()) for path, value in ids.items()):
        return "sample"
    if any(role_of(path) in ("response", "prompt") and value not in (None, "", []) for path, value in flat.items()):
        return "sample"
    names = {*map(_word, ids.values())}
    found = {
        _of_verdict(flat[path], [value for value in column if value is not None], names)
        for path, column in columns.items()
        if verdict_rank(path) and flat.get(path) is not None
    }
    if not found or "summary" in found:
        return "summary"
    return "sample" if "sample" in found else "either"


def _of_verdict(own: Any, others: list[Any], names: set[str]) -> Literal["sample", "summary", "either"]:
    if isinstance(own, bool):  # "all" may say whether all were right
        return "either" if names == {"all"} and own == all(others) else "sample"
    number, rest = verdict_number(own), [verdict_number(value) for value in others]
    if number is None or math.isnan(number):
        return "summary" if number is None else "sample"
    if isinstance(own, str) and own.strip()[:1].isalpha():  # "fail"
        return "sample"
    values = np.array([value for value in rest if value is not None and not math.isnan(value)])
    if not len(values) or any(isinstance(value, bool) for value in others):
        return "summary" if isinstance(own, int | float) else "either"
    binary = set(values.tolist()) <= {0.0, 1.0}
    if binary and number not in (0.0, 1.0):
        return "summary"
    sums = [values.sum(), values.mean(), *(of(values) for word, of in _OTHER.items() if word in " ".join(names))]
    if not any(abs(number - float(value)) <= _ROUNDED for value in sums):
        return "sample"
    return "either" if binary else "summary"


def _word(id: Any) -> str:
    """An id as a word for a sum, as "total" of "Total:" and of "** TOTAL **"."""
    return str(id).lower().strip(" :.=*-_#()[]")
