"""Pinned inputs: the weights, problems, database files and Python files that a run started with.

Hashes of the first three are stored in inputs.json in the run directory, and hashes of Python files in its manifest. If
an input changed during a run, rewards would silently change their meaning. The run therefore stops, or refuses to
resume, and names the input that changed.

Between runs a problem is identified by its id. `content_hashes` says whether two problems with one id are the same. A
presample run and an evaluation store these hashes, and training and reports compare them.
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dph.config import absolute
from dph.config.text import read_json
from dph.errors import RunError
from dph.runs.files import Stamp, file_stamp, write_atomically
from dph.types import TEMPLATE_COLUMN, Problem

_FILE = "inputs.json"
ANEW = "start a new run with a different --out"
RESTORE = f"restore the old file, then continue with --resume, or {ANEW}"


class Pinned:
    """The hashes of the database files of a run at its start."""

    def __init__(self, where: Path, hashes: Mapping[str, str]) -> None:
        self._where, self._hashes = where, hashes

    def check(self, problems: Iterable[Problem]) -> None:
        """Raise UserError if the content of a database of these problems is not one that the run started with."""
        for path in databases(problems):
            before, now = self._hashes.get(path), _hash(path)  # without a hash, the column holds no path
            if now != before and (before is not None or now not in ("", *self._hashes.values())):
                what = "has changed" if now else "is missing"
                raise RunError(f"the database {path} {what} since {self._where} was started; {RESTORE}")


def pin(
    run: Path, problems: Sequence[Problem], measured: Sequence[Problem], weights: str, *, fresh: bool, note: bool
) -> Pinned:
    """Record the inputs of a new run, or compare the inputs of a resumed run with the record.

    Args:
        run: the run directory.
        problems: the problems of training, in their order.
        measured: the problems of the evaluation, in their order.
        weights: the hash of the initial weights; "" if a resumed run does not load them.
        fresh: whether the run is new.
        note: whether this process writes the record.
    Raises:
        UserError: an input differs from the one that the run started with, or the record cannot be read.
    """
    facts = {"weights": weights, "problems": _problem_hashes(problems), "measured": _problem_hashes(measured)}
    judged = [*problems, *measured]
    if fresh:
        hashes = {path: digest for path in databases(judged) if (digest := _hash(path))}
        if note:
            recorded = {path: {"sha256": digest} for path, digest in hashes.items()}
            write_atomically(run / _FILE, json.dumps(facts | {"databases": recorded}, indent=1) + "\n")
        return Pinned(run, hashes)
    before = read_json(run / _FILE, ANEW)
    try:
        hashes = {path: entry["sha256"] for path, entry in before["databases"].items()}
        if weights and before["weights"] != weights:
            raise RunError(f"the model's weights are not those that {run} was started with; use a different --out")
        for name in ("problems", "measured"):
            compare_problems(run, before[name], facts[name], ANEW)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{run / _FILE} cannot be used ({error}); {ANEW}") from error
    pinned = Pinned(run, hashes)
    pinned.check(judged)
    return pinned


def databases(problems: Iterable[Problem]) -> list[str]:
    """The paths of the database files of problems, without duplicates: `meta["db"]` and the list `meta["suite"]`, as
    far as a problem has them."""
    named = [path for p in problems for path in (p.meta.get("db"), *p.meta.get("suite", ())) if isinstance(path, str)]
    return list(dict.fromkeys(named))


def content_hashes(problems: Sequence[Problem]) -> dict[str, str]:
    """A short hash of each problem, by its id.

    The hash covers the prompt, the answer and the verifier, and the content of the databases. If a problem has no
    answer, the hash also covers the other columns, by which a reward function judges.
    """
    texts = _problem_hashes(problems)
    hashes = {}
    for p in problems:
        columns = {} if p.answer is not None else {key: p.meta[key] for key in p.meta if key not in ("db", "suite")}
        hashes[p.id] = _short([texts[p.id], [_hash(path) or path for path in databases([p])], columns])
    return hashes


def compare_problems(run: Path, before: Mapping[str, str], now: Mapping[str, str], remedy: str) -> None:
    """Raise UserError if problems differ from those of a run, because hashes differ or the problems are in another
    order.

    before, now: the hashes by id, in the order of the problems. remedy: what to do if the old problems cannot be
    restored.
    """
    differing = [key for key in before.keys() | now.keys() if before.get(key) != now.get(key)]
    if not differing and list(before) != list(now):
        differing = [id_before for id_before, id_now in zip(before, now, strict=True) if id_before != id_now]
    if differing:
        example = f"{len(differing)} differ, for example {min(differing)!r}; restore the old problems, or {remedy}"
        raise RunError(f"the problems are not those that {run} was started with: {example}")


def _problem_hashes(problems: Sequence[Problem]) -> dict[str, str]:
    """A short hash of each problem, by its id, in the order of the problems. It covers the prompt, the answer and the
    verifier of the problem, and the variables of the chat template that it sets."""
    own = {p.id: [p.meta[TEMPLATE_COLUMN]] if p.meta.get(TEMPLATE_COLUMN) else [] for p in problems}
    return {p.id: _short([p.prompt, p.answer, p.verifier, *own[p.id]]) for p in problems}


def _short(facts: list[Any]) -> str:
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=6).hexdigest()


def _hash(path: str) -> str:
    """The SHA-256 of a file; "" if the file cannot be read."""
    try:
        return _hash_of_content(file_stamp(path))
    except OSError:
        return ""


@functools.cache
def _hash_of_content(stamp: Stamp) -> str:
    """The SHA-256 of a file with a stamp.

    The hash of a SQLite database includes its logs. It leaves out the counters, and the version of SQLite, that the
    last writer left in the header, so that the same data written by another version of SQLite have the same hash.
    """
    digest = hashlib.sha256()
    for name, *_ in stamp:
        with open(name, "rb") as file:
            head = file.read(100)
            if head.startswith(b"SQLite format 3\0"):
                head = head[:24] + bytes(4) + head[28:92] + bytes(8)
            digest.update(head)
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def code_hashes(config: Any) -> dict[str, str]:
    """The SHA-256 of each Python file that the settings of a stage name; "" for a file that cannot be read."""
    reward = getattr(config, "reward", None)
    files = [reward.function.rpartition(":")[0]] if reward is not None and reward.function else []
    files += [name for name in getattr(config, "plugins", ()) if name.endswith(".py")]
    return {file: _hash(file) for file in files}


def check_code(run: Path, before: object, code: Mapping[str, str]) -> None:
    """Raise UserError if the hash of a Python file is not the hash that was recorded at the start of the run.

    before: the hashes in the manifest. code: the hashes now, as `code_hashes` returns them.
    """
    recorded = {absolute(file): digest for file, digest in before.items()} if isinstance(before, Mapping) else {}
    for file, now in code.items():
        if recorded.get(absolute(file)) != now:
            what = "has changed" if now else "is missing"
            raise RunError(f"{file} {what} since {run} was started; {RESTORE}")
