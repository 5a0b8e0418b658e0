"""Lists in a record of judged samples: those of its samples, one value for each, and those of a sample's parts.

A list of verdicts may be of samples, of the tests of one sample, or of its steps, turns or judges. The name says which.
A list with as many responses beside it is of samples.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, cast

from dph.columns import ignored
from dph.errors import DataError, counted
from dph.measure.fields import (
    ALL,
    MANY_VERDICTS,
    SAMPLE_LISTS,
    UNSURE_LISTS,
    is_maximum,
    leaf_of,
    may_be_maximum,
    parts_of,
    role_of,
    verdict_number,
    verdict_rank,
)

_DEEPEST = 6
_HASH, _SHORTEST_HASH = re.compile(r"[0-9a-f]+"), 16
"""A key that no other record has, as those of the attachments of Inspect."""
_OF_POINTS = frozenset(("rubric", "rubrics", "criteria", "criterion", "criterions"))
"""Words in the names of lists with as many entries as a score has points."""
_GOLDS = ("answer", "answers")
"""Names of lists that may hold the golds of a problem instead of an answer for each sample."""
_JOINT = ("answer", "response", "error")
"""Roles of lists that have a value for each sample."""
_WORDS = frozenset(("pass", "fail", "passed", "failed", "correct", "incorrect", "right", "wrong", "true", "false"))
"""Texts that are verdicts wherever they stand."""


def flat_of(record: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """A record's values by the path of their keys; lists stay whole, and tables whose keys are hashes."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            first = next(iter(value), "")
            if len(first) >= _SHORTEST_HASH and _HASH.fullmatch(first):
                flat[f"{prefix}{key}"] = value
                continue
            flat |= flat_of(value, f"{prefix}{key}.", depth + 1)
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def is_verdict(value: Any) -> bool:
    """Whether a value is a verdict wherever it stands: a truth value, or a word such as "pass"."""
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in _WORDS)


def is_list_of_verdicts(value: Any) -> bool:
    """Whether a value is a list of verdicts, as words, truth values, 0 and 1."""
    return isinstance(value, list) and bool(value) and all(is_verdict(v) or v in (0, 1) for v in value if v != [])


def is_list_of_tests(value: Any) -> bool:
    """Whether a value is a list with the verdicts of the tests of each sample: [[true, false], [true, true]].
    A negative number says why a test failed."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(tests, list) and tests for tests in value)
        and all(is_verdict(test) or test in (1, 0, -1, -2, -3, -4) for tests in value for test in tests)
    )


def has_verdict(record: Any) -> bool:
    """Whether a record has a verdict, or a list of them, as far as names say."""
    if not isinstance(record, dict):
        return False
    flat = flat_of(record)
    return any(map(verdict_rank, flat)) or bool(_verdicts(flat, frozenset()))


def has_samples(record: Mapping[str, Any]) -> bool:
    """Whether a record holds several samples in a list."""
    return any(len(values) > 1 for values in _verdicts(flat_of(record), frozenset()).values())


def spread(
    record: Mapping[str, Any], place: str, named: frozenset[str], note: Callable[[str], Any] = lambda text: None
) -> Iterator[dict[str, Any]]:
    """The samples of a record: one, or one for each element of its lists of verdicts. place: of the record, for errors;
    named: columns that the user named, also as COLUMN=all; note: is told what was left out. Raises DataError for lists
    of different lengths, and for verdicts that are of parts of a sample."""
    flat = flat_of(record)
    lists = {path: value for path, value in flat.items() if isinstance(value, list)}
    verdicts = _verdicts(flat, named)
    of_samples = {path: value for path, value in verdicts.items() if not _are_parts(path, flat, named)}
    if len(of_samples) < len(verdicts):
        _combine(flat, verdicts.keys() - of_samples.keys(), bool(of_samples), place, named)
    for path, value in lists.items():
        words = set(leaf_of(path).split("_"))
        if words & _OF_POINTS and path in flat and len(value) > 1:
            flat[f"{path[: -len(path.rpartition('.')[2])]}num_{path.rpartition('.')[2]}"] = len(value)
    if not of_samples:
        for path, value in lists.items():
            if role_of(path) == "answer" and len(value) == 1:
                flat[path] = value[0]
            if role_of(path) == "response" and _are_responses(value):
                note(ignored([path], "a row has several responses, and one verdict"))
        yield flat
        return
    yield from _rows(flat, of_samples, place, named, note)


def _verdicts(flat: Mapping[str, Any], named: frozenset[str]) -> dict[str, list[Any]]:
    """The lists of a record that hold verdicts."""
    lists = {path: value for path, value in flat.items() if isinstance(value, list) and value}
    return {path: value for path, value in lists.items() if _are_verdicts(path, value, named)}


def _rows(
    flat: Mapping[str, Any],
    verdicts: Mapping[str, list[Any]],
    place: str,
    named: frozenset[str],
    note: Callable[[str], Any],
) -> Iterator[dict[str, Any]]:
    """A row for each element of the lists of verdicts."""
    lists = {path: value for path, value in flat.items() if isinstance(value, list)}
    joint = _joint(lists, verdicts, place, note)
    length = len(next(iter(verdicts.values())))
    # A row's own score next to the scores of its samples is their mean or their best.
    shared = {path: value for path, value in flat.items() if path not in lists and not verdict_rank(path)}
    shared |= {path: value for path, value in lists.items() if role_of(path) in ("prompt", "id")}
    shared |= {path: value for path, value in lists.items() if not (role_of(path) or path in verdicts or path in named)}
    tested = {path for path, value in verdicts.items() if is_list_of_tests(value)}
    for number in range(length):
        row = {path: value for path, value in shared.items() if path not in joint}
        for path in dict.fromkeys([*verdicts, *joint]):
            item = lists[path][number]
            if isinstance(item, dict):
                inside = flat_of(item, f"{path}.").items()
                row |= {name: value for name, value in inside if role_of(name) not in ("id", "prompt", "task")}
            elif path in tested:
                row[f"{path}{ALL}"] = _all(item)
            else:
                row[path] = item
        yield row


def _joint(
    lists: Mapping[str, list[Any]], verdicts: Mapping[str, list[Any]], place: str, note: Callable[[str], Any]
) -> list[str]:
    """The further lists that have a value for each sample. Raises DataError for lists of verdicts, responses or answers
    of different lengths; golds may have another one, which is noted."""
    lengths = {path: len(value) for path, value in verdicts.items()}
    length = next(iter(lengths.values()))
    joint: list[str] = []
    for path, value in lists.items():
        role = role_of(path)
        if (
            (role in _JOINT and len(value) == length)
            or (role == "prompt" and [*map(type, value)] == [str] * length)
            or _are_maxima(path, value, length)
        ):
            joint.append(path)
        elif path in verdicts or role not in ("answer", "response") or _is_conversation(value):
            continue
        elif leaf_of(path) in _GOLDS:
            note(f"{path!r} and the verdicts of a row differ in number, so that {path!r} counts as no answers")
        else:
            lengths[path] = len(value)
    if len(set(lengths.values())) > 1:
        raise DataError(f"{place}: a row has lists of different lengths: {lengths}; write one value for each sample")
    return joint


def _are_maxima(path: str, values: list[Any], length: int) -> bool:
    """Whether a list holds the most points of each sample's score."""
    numbers = len(values) == length and all(type(value) in (int, float) for value in values)
    return numbers and (is_maximum(path) or may_be_maximum(path))


def _is_conversation(values: list[Any]) -> bool:
    return all(isinstance(value, dict) and "role" in value for value in values)


def _are_responses(values: list[Any]) -> bool:
    """Whether a list holds several responses: texts, also within one list as in lm-eval's `resps`, or objects with a
    text."""
    while len(values) == 1 and isinstance(values[0], list):
        [values] = values
    first = values[0] if len(values) > 1 else None
    return isinstance(first, str) or (isinstance(first, dict) and any(role_of(key) == "response" for key in first))


def _are_parts(path: str, flat: Mapping[str, Any], named: frozenset[str]) -> bool:
    """Whether a list of verdicts is of parts of one sample, or may be: by its name, or by that of another list with as
    many entries. A list with as many responses beside it is of samples."""
    values = flat[path]
    if path in named or any(isinstance(value, dict) for value in values):
        return f"{path}{ALL}" in named
    if leaf_of(path) in SAMPLE_LISTS or is_list_of_tests(values):
        return is_list_of_tests(values) and parts_of(path) == "parts"
    beside = [name for name, value in flat.items() if isinstance(value, list) and len(value) == len(values)]
    if len(values) > 1 and any(
        role_of(name) in ("response", "answer") and leaf_of(name) not in _GOLDS for name in beside
    ):
        return False
    plain = [name for name in beside if not any(isinstance(value, list | dict) for value in flat[name])]
    return bool(parts_of(path)) or leaf_of(path) == "results" or any(map(parts_of, plain))


def _combine(flat: dict[str, Any], paths: Set[str], judged: bool, place: str, named: frozenset[str]) -> None:
    """Put into a record whether all tests of its sample passed, unless it has another verdict; the lists themselves are
    no verdicts. judged: whether it has lists of its samples' verdicts. Raises DataError where it is not certain that a
    sample is right only if all of its parts are."""
    own = (path for path, value in flat.items() if not isinstance(value, list) and value is not None)
    judged = judged or any(verdict_rank(path) in (1, 2) and leaf_of(path) not in MANY_VERDICTS for path in own)
    for path in sorted(paths):
        values = flat.pop(path)
        wanted = f"{path}{ALL}" in named
        if not wanted and judged:
            continue
        if not wanted and parts_of(path) != "tests":
            what = "of a sample's parts" if parts_of(path) else "of samples, or of the tests of one"
            ways = f"--correct {path}{ALL} counts a row as one sample, right if all are"
            ways += f", --correct {path} takes each as a sample"
            raise DataError(f"{place}: {path!r} is a list of {counted(len(values), 'verdict')} {what}; {ways}")
        flat[f"{path}{ALL}"] = _all(values)


def _all(values: list[Any]) -> Any:
    """Whether all verdicts are right; None if one is missing or no verdict."""
    numbers = [None if value is None else verdict_number(value) for value in values]
    return None if None in numbers else all(number is not None and number >= 1 for number in numbers)


def _are_verdicts(path: str, values: list[Any], named: frozenset[str]) -> bool:
    """Whether a list holds verdicts."""
    leaf = leaf_of(path)
    if all(isinstance(value, dict) for value in values):
        inside = flat_of(cast(dict[str, Any], values[0]))
        judged = any(map(verdict_rank, inside)) or any(name.startswith(f"{path}.") for name in named)
        sure = leaf in SAMPLE_LISTS or (
            leaf in UNSURE_LISTS and any(role_of(name) in ("response", "answer") for name in inside)
        )
        return judged and sure
    rank = verdict_rank(path)
    chosen = path in named or f"{path}{ALL}" in named
    if role_of(path) == "response" and not chosen:
        return False
    if is_list_of_tests(values):
        return bool(rank) or chosen
    plain = not any(
        isinstance(value, list | dict) or verdict_number(value) is None for value in values if value is not None
    )
    named_so = (rank == 3 and is_list_of_verdicts(values)) or (
        parts_of(path) == "tests" and all(map(is_verdict, values))
    )
    return plain and (chosen or rank in (1, 2) or named_so)
