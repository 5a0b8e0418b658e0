"""Where samples are in a JSON document or in a record: lists of them, lists by id, columns, lists of verdicts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dph.errors import DataError
from dph.measure.fields import MANY_VERDICTS, role_of, verdict_rank, verdict_word
from dph.measure.lists import (
    flat_of,
    has_samples,
    has_verdict,
    is_list_of_tests,
    is_list_of_verdicts,
    is_verdict,
)

_NOT_SEARCHED = {
    *("config", "configs", "stats", "plan", "summary", "reductions", "aggregate", "metrics", "model_usage", "messages"),
    *("higher_is_better", "versions"),
}
"""Keys of a document below which no samples are."""
_NAMING = ("id", "prompt", "response")
"""Roles of which a row of samples has one, and a header has none."""


def names_sample(record: Mapping[str, Any]) -> bool:
    """Whether a record has an id, a prompt or a response; a `name` may be that of a metric."""
    flat = flat_of(record).items()
    return any(v is not None and role_of(path) in _NAMING and path.rpartition(".")[2] != "name" for path, v in flat)


def is_settings(document: Any) -> bool:
    """Whether a document holds nothing but flags and texts of unknown names, as settings beside rows do."""
    if not isinstance(document, dict) or any(role_of(key) or verdict_rank(key) for key in document):
        return False
    return {list, dict}.isdisjoint(map(type, document.values()))


def samples_in(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
    """Where in a document samples are: the path of keys, and the records."""
    if isinstance(value, list) and value and all(map(is_list_of_verdicts, value)):
        yield path, [{"index": place, "correct": verdicts} for place, verdicts in enumerate(value, 1)]
    elif isinstance(value, list) and value and any(map(has_verdict, value[:20])):
        yield path, value
    if not isinstance(value, dict) or not value or depth > 3:
        return
    if (rows := _of_table(value)) is not None:
        yield path, rows
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
    names = not path and any(role_of(key) in ("id", "prompt") for key in value) and has_verdict(value)
    if names and (not inside or has_samples(value)):
        yield path, [value]
    elif not inside and (rows := _of_ids(value, path)) is not None:
        yield path, rows
    else:
        yield from inside


def _by_key(value: Mapping[str, Any], path: str) -> list[dict[str, Any]] | None:
    """The records of an object that has them by id, or their columns by name; None if it is neither."""
    items, leaf = list(value.values()), path.rpartition(".")[2]
    lists = [item for item in items if isinstance(item, list) and item]
    if (rows := _of_columns(value, path)) is not None:
        return rows
    if any(map(verdict_rank, value)) or any(map(role_of, value)):
        return None
    if lists and len(lists) == len(items) and all(map(_are_numbered, lists)):
        value = {key: [row for _, row in item] for key, item in value.items()}
        items = lists = [*value.values()]
    tables = {key: item for key, item in value.items() if isinstance(item, dict)}
    if items and len(tables) == len(items) and all(map(_statuses, items)):
        return [{"id": key, **row} for key, item in value.items() for row in _statuses(item)]
    if len(tables) > 1 and not any(isinstance(item, list) for item in items):
        alike = len({frozenset(item) for item in tables.values()}) == 1 and all(map(has_verdict, tables.values()))
        value, items = (tables, [*tables.values()]) if alike else (value, items)  # without words about them
    if all(isinstance(item, dict) for item in items):
        rows = [{"id": key, **item} for key, item in value.items()]
    elif len(lists) == len(items) > 1 and all(isinstance(item[0], dict) for item in lists):
        rows = [{"id": key, **row} for key, item in value.items() for row in item if isinstance(row, dict)]
        ids = {(key, str(row[n])) for key, item in value.items() for row in item for n in row if role_of(n) == "id"}
        if len(ids) > len(value):
            return None  # sets of problems
    elif len(lists) == len(items) and (
        all(map(is_list_of_verdicts, items))
        or all(isinstance(item[0], list) and is_list_of_tests(item) for item in lists)
    ):
        rows = [{"id": key, "correct": item} for key, item in value.items()]
    elif verdict_rank(leaf) and (all(map(is_verdict, items)) or len(lists) == len(items)):
        rows = [{"id": key, leaf: item} for key, item in value.items()]
    elif not path and all(map(is_verdict, items)):
        rows = [{"id": key, "correct": item} for key, item in value.items()]
    else:
        return None
    if all(map(_are_counts, rows)):
        return rows
    numbers = [
        v for row in rows[:50] for key, v in flat_of(row).items() if verdict_rank(key) and isinstance(v, float | int)
    ]
    is_summary = any(abs(number) > 1 for number in numbers)  # percent, or counts
    return rows if any(map(has_verdict, rows[:20])) and not is_summary else None


def _are_numbered(item: list[Any]) -> bool:
    """Whether a list holds pairs of a number and a record, as results of bigcode-evaluation-harness do."""
    return all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int) and isinstance(pair[1], dict)
        for pair in item
    )


def _statuses(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The samples of a problem of older EvalPlus: under `base` and `plus`, a list for each sample that begins with a
    word for its verdict; none if it has another form."""
    listed = {key: value for key, value in item.items() if isinstance(value, list) and value}
    words = {key: [each[0] for each in value if isinstance(each, list) and each] for key, value in listed.items()}
    if not words or any(len(words[key]) != len(value) for key, value in listed.items()):
        return []
    if len({*map(len, words.values())}) > 1 or not all(
        isinstance(word, str) and verdict_word(word) is not None for each in words.values() for word in each
    ):
        return []
    names = [f"{key}_status" for key in words]
    return [dict(zip(names, each, strict=True)) for each in zip(*words.values(), strict=True)]


def with_statistics(record: dict[str, Any]) -> dict[str, Any]:
    """A record with a list of named statistics, as in per_instance_stats.json of HELM, as one with a column for the
    mean of each; another record, and one in which a name is there twice, as it is."""
    stats = record.get("stats")
    if not isinstance(stats, list) or not stats:
        return record
    means: dict[str, float] = {}
    for one in stats:
        name = one.get("name") if isinstance(one, dict) else None
        name = name.get("name") if isinstance(name, dict) else name
        if not isinstance(name, str) or name in means:
            return record
        if isinstance(mean := one.get("mean"), int | float):
            means[name] = mean
        elif isinstance(one.get("sum"), int | float) and one.get("count"):
            means[name] = one["sum"] / one["count"]
    return {**record, "stats": means}


def _of_table(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The records of a table as W&B and pandas write it: {"columns": ["id", "correct"], "data": [["a", true]]}; None
    for other objects."""
    columns, data = value.get("columns"), value.get("data")
    if not isinstance(columns, list) or not isinstance(data, list) or not columns or not data:
        return None
    if not all(isinstance(name, str) for name in columns) or len({*columns}) < len(columns):
        return None
    if not all(isinstance(row, list) and len(row) == len(columns) for row in data):
        return None
    return [dict(zip(columns, row, strict=True)) for row in data]


def _of_columns(value: Mapping[str, Any], path: str) -> list[dict[str, Any]] | None:
    """The records of an object that has their columns by name, as {"ids": ["a", "b"], "correct": [true, false]}; None
    if it is none. Raises DataError for columns of different lengths, and for one beside the verdicts that may name
    the problems."""
    columns = {key: item for key, item in value.items() if isinstance(item, list) and item}
    nested = [key for key, item in columns.items() if all(map(is_list_of_verdicts, item)) and len(item) > 1]
    judged = [key for key in columns if verdict_rank(key)] or nested
    if not judged or any(
        role_of(key) in ("id", "prompt") and not isinstance(item, list) for key, item in value.items()
    ):
        return None
    names = {key: key if role_of(key) else key.removesuffix("s") for key in columns}
    naming = [key for key, name in names.items() if role_of(name) in ("id", "prompt") and key not in judged]
    length = len(columns[judged[0]])
    where = f"verdicts under {f'{path}.{judged[0]}'.lstrip('.')!r}"
    if not naming:
        several = nested and length > 1
        for key, item in columns.items() if several else ():
            plain = all(type(each) in (str, int) for each in item) and len(set(map(str, item))) == length == len(item)
            if plain and not role_of(key) and key not in nested:
                raise DataError(f"it has {where}, and beside them {key!r}, which may name the problems: call it 'ids'")
        return None
    if len(columns[naming[0]]) != length:
        if len(nested) + len(naming) < 2:
            return None
        sizes = f"{len(columns[naming[0]])} values under {naming[0]!r} and {length} {where}"
        raise DataError(f"it has {sizes}, so that nobody knows which belong together")
    called = {key: names[key] if key in naming else key for key in columns if len(columns[key]) == length}
    if not any(map(verdict_rank, called)):
        called |= {judged[0]: "correct"}
    table = {name: columns[key] for key, name in called.items()}
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


_OF_ALL = frozenset(("submitted", "completed", "all", "total", "generated", "attempted", "evaluated"))
_WITHOUT_ANSWER = frozenset(("empty_patch", "no_generation", "empty", "no_apply"))
_UNJUDGED = frozenset(("incomplete", "missing", "not_submitted"))
"""Words in the names of lists of ids: of all problems, of wrong ones, and of those that were not judged."""
_IDS = re.compile(r"(.+?)(_instance|_problem|_task|_question)?(_ids|_instances|_problems|_tasks|_questions)?")


def _of_ids(value: Mapping[str, Any], path: str) -> list[dict[str, Any]] | None:
    """The records of an object that has lists of the ids of right and of other problems, as SWE-bench's `resolved_ids`
    and `unresolved_ids`; None if it has none. Raises DataError if it has those of right ones alone."""
    verdicts: dict[str, bool | None] = {}
    kinds: set[bool | str | None] = set()
    right: set[str] = set()
    for key, ids in value.items():
        match = _IDS.fullmatch(key)
        if not isinstance(ids, list) or match is None or not all(type(each) in (str, int) for each in ids):
            continue
        texts = [str(each) for each in ids]
        if len({*texts}) < len(texts) or is_list_of_verdicts(ids) or len(match[1]) < 4:
            continue
        number = verdict_word(match[1])
        if number is None and match[1] not in _OF_ALL | _WITHOUT_ANSWER | _UNJUDGED:
            continue
        if number == 1:
            right |= {*texts}
            kinds.add(True if match[3] else "right")
        elif match[1] in _UNJUDGED:
            verdicts |= {id: None for id in texts if id not in verdicts}
        else:
            verdicts |= dict.fromkeys(texts, False)
            kinds.add(False)
    if kinds.isdisjoint((True, "right")) or not (right or verdicts) or kinds == {"right"}:
        return None
    if False not in kinds:
        raise DataError(f"it lists the ids of right problems alone{path and f' (under {path!r})'}; add those of all")
    return [{"id": id, "correct": True if id in right else verdicts[id]} for id in dict.fromkeys([*verdicts, *right])]


def by_its_only_key(record: dict[str, Any]) -> dict[str, Any]:
    """A record {id: [true, false]}, {id: true} or {id: {"c": 2, "n": 4}} as one with an id; a record with another
    single key as it is."""
    [(key, value)] = record.items()
    if role_of(key) or verdict_rank(key):
        return record
    if isinstance(value, dict) and _are_counts(value):
        return {"id": key, **value}
    return {"id": key, "correct": value} if is_list_of_verdicts(value) or is_verdict(value) else record


def _are_counts(row: Mapping[str, Any]) -> bool:
    """Whether a row has numbers of correct and of all samples, or of passed and of all tests."""
    names = ("c", "correct", "passed", *MANY_VERDICTS)
    correct = any(key in names and type(value) is int for key, value in row.items())
    every = (role_of(key) == "count" and type(value) is int for key, value in row.items())
    return correct and any(every)
