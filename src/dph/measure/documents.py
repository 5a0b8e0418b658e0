"""Where samples are in a JSON document or in a record: lists of them, lists by id, columns, lists of verdicts."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from dph.errors import DataError
from dph.measure.fields import (
    MANY_VERDICTS,
    OF_TESTS,
    SAMPLE_LISTS,
    UNSURE_LISTS,
    role_of,
    verdict_number,
    verdict_rank,
)

_DEEPEST = 6
_NOT_SEARCHED = {
    *("config", "configs", "stats", "plan", "summary", "reductions", "aggregate", "metrics", "model_usage", "messages"),
    *("higher_is_better", "versions"),
}
"""Keys of a document below which no samples are."""
_NAMING = ("id", "prompt", "response")
"""Roles of which a row of samples has one, and a header has none."""


def names_sample(record: Mapping[str, Any]) -> bool:
    """Whether a record has an id, a prompt or a response; a `name` may be that of a metric."""
    flat = _flat(record).items()
    return any(v is not None and role_of(path) in _NAMING and path.rpartition(".")[2] != "name" for path, v in flat)


def _has_verdict(record: Any) -> bool:
    return isinstance(record, dict) and any(
        verdict_rank(path) for row in islice(spread(record, "", frozenset()), 1) for path in row
    )


def samples_in(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
    """Where in a document samples are: the path of keys, and the records."""
    if isinstance(value, list) and value and all(map(_is_list_of_verdicts, value)):
        yield path, [{"index": place, "correct": verdicts} for place, verdicts in enumerate(value, 1)]
    elif isinstance(value, list) and value and any(map(_has_verdict, value[:20])):
        yield path, value
    if not isinstance(value, dict) or not value or depth > 3:
        return
    if (rows := _by_key(value, path)) is not None:
        yield path, rows
        return
    inside = [
        samples
        for key, below in value.items()
        if key not in _NOT_SEARCHED
        for samples in samples_in(below, f"{path}.{key}".lstrip("."), depth + 1)
    ]
    names = not path and any(role_of(key) in ("id", "prompt") for key in value) and _has_verdict(value)
    if names and (not inside or len(list(spread(value, "", frozenset()))) > 1):
        yield path, [value]
    else:
        yield from inside


def _by_key(value: Mapping[str, Any], path: str) -> list[dict[str, Any]] | None:
    """The records of an object that has them by id, or their columns by name; None if it is neither."""
    items, leaf = list(value.values()), path.rpartition(".")[2]
    lists = [item for item in items if isinstance(item, list) and item]
    is_table = len(lists) == len(items) and len({*map(len, lists)}) == 1
    if is_table and any(map(verdict_rank, value)) and any(role_of(key) in ("id", "prompt") for key in value):
        return [dict(zip(value, row, strict=True)) for row in zip(*items, strict=True)]
    if any(map(verdict_rank, value)) or any(map(role_of, value)):
        return None
    if all(isinstance(item, dict) for item in items):
        rows = [{"id": key, **item} for key, item in value.items()]
    elif len(lists) == len(items) and all(isinstance(item[0], dict) for item in lists):
        rows = [{"id": key, **row} for key, item in value.items() for row in item if isinstance(row, dict)]
        ids = {(key, str(row[n])) for key, item in value.items() for row in item for n in row if role_of(n) == "id"}
        if len(ids) > len(value):
            return None  # sets of problems
    elif len(lists) == len(items) and all(map(_is_list_of_verdicts, items)):
        rows = [{"id": key, "correct": item} for key, item in value.items()]
    elif verdict_rank(leaf) and (all(map(_is_verdict, items)) or len(lists) == len(items)):
        rows = [{"id": key, leaf: item} for key, item in value.items()]
    elif not path and all(map(_is_verdict, items)):
        rows = [{"id": key, "correct": item} for key, item in value.items()]
    else:
        return None
    if all(map(_are_counts, rows)):
        return rows
    numbers = [
        v for row in rows[:50] for key, v in _flat(row).items() if verdict_rank(key) and isinstance(v, float | int)
    ]
    is_summary = any(abs(number) > 1 for number in numbers)  # percent, or counts
    return rows if any(map(_has_verdict, rows[:20])) and not is_summary else None


def _flat(record: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """A record's values by the path of their keys; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            flat |= _flat(value, f"{prefix}{key}.", depth + 1)
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def spread(record: Mapping[str, Any], place: str, named: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The samples of a record: one, or one for each element of its lists of verdicts."""
    flat = _flat(record)
    lists = {path: value for path, value in flat.items() if isinstance(value, list)}
    verdicts = {path: value for path, value in lists.items() if value and _are_verdicts(path, value, named)}
    if not verdicts:
        for path, value in lists.items():
            if role_of(path) == "answer" and len(value) == 1:
                flat[path] = value[0]
        yield flat
        return
    lengths = {path: len(value) for path, value in verdicts.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{place}: a row has lists of different lengths: {lengths}")
    length = next(iter(lengths.values()))
    # A row's own score next to the scores of its samples is their mean or their best.
    shared = {path: value for path, value in flat.items() if path not in lists and not verdict_rank(path)}
    shared |= {path: value for path, value in lists.items() if role_of(path) in ("prompt", "id")}
    shared |= {path: value for path, value in lists.items() if not (role_of(path) or path in verdicts or path in named)}
    roles = ("answer", "response", "error")
    joint = [path for path in lists if role_of(path) in roles and len(lists[path]) == length]
    joint += [path for path in lists if role_of(path) == "prompt" and [*map(type, lists[path])] == [str] * length]
    for place_in_list in range(length):
        row = dict(shared)
        for path in dict.fromkeys([*verdicts, *joint]):
            item = lists[path][place_in_list]
            if isinstance(item, dict):
                inside = _flat(item, f"{path}.").items()
                row |= {name: value for name, value in inside if role_of(name) not in ("id", "prompt", "task")}
            else:
                row[path] = item
        yield row


def by_its_only_key(record: dict[str, Any]) -> dict[str, Any]:
    """A record {id: [true, false]}, {id: true} or {id: {"c": 2, "n": 4}} as one with an id; a record with another
    single key as it is."""
    [(key, value)] = record.items()
    if role_of(key) or verdict_rank(key):
        return record
    if isinstance(value, dict) and _are_counts(value):
        return {"id": key, **value}
    return {"id": key, "correct": value} if _is_list_of_verdicts(value) or _is_verdict(value) else record


_WORDS = frozenset(("pass", "fail", "passed", "failed", "correct", "incorrect", "right", "wrong", "true", "false"))
"""Texts that are verdicts wherever they stand."""


def _is_verdict(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in _WORDS)


def _are_counts(row: Mapping[str, Any]) -> bool:
    """Whether a row has numbers of correct and of all samples."""
    correct = any(key in ("c", *MANY_VERDICTS) and type(value) is int for key, value in row.items())
    every = (role_of(key) == "count" and key not in OF_TESTS and type(value) is int for key, value in row.items())
    return correct and any(every)


def _is_list_of_verdicts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_verdict(v) or v in (0, 1) for v in value if v != [])


def _are_verdicts(path: str, values: list[Any], named: frozenset[str]) -> bool:
    """Whether a list holds one verdict for each sample."""
    leaf = path.lower().rpartition(".")[2]
    if all(isinstance(value, dict) for value in values):
        inside = _flat(cast(dict[str, Any], values[0]))
        judged = any(map(verdict_rank, inside)) or any(name.startswith(f"{path}.") for name in named)
        sure = leaf in SAMPLE_LISTS or (
            leaf in UNSURE_LISTS and any(role_of(name) in ("response", "answer") for name in inside)
        )
        return judged and sure
    plain = not any(
        isinstance(value, list | dict) or verdict_number(value) is None for value in values if value is not None
    )
    rank = verdict_rank(path)
    sure = path in named or rank in (1, 2) or (rank == 3 and all(map(_is_verdict, values)))
    return plain and sure and role_of(path) != "response"
