"""What a run is pinned to: the weights, problems and database files that it started with.

inputs.json of the run directory holds their hashes. Where one of them changes under a run, its rewards would change
their meaning without a sign; so the run stops, or refuses to go on, and names what has changed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dph.errors import UserError
from dph.runs.files import write_atomically
from dph.types import Problem

_FILE = "inputs.json"


@dataclass(frozen=True, slots=True)
class _Stamp:
    """What a file's system says of it; only where this differs is the content read again."""

    size: int
    mtime_ns: int


class Pinned:
    """The database files of a run, as they were when it started."""

    def __init__(self, where: Path, hashes: Mapping[str, str], stamps: Mapping[str, _Stamp]) -> None:
        self._where, self._hashes, self._stamps = where, dict(hashes), dict(stamps)

    def check(self, problems: Iterable[Problem]) -> None:
        """Raises UserError when a database of these problems is not the one that the run started with."""
        for path in databases(problems):
            stamp = _stamp(path)
            if stamp is None and path not in self._hashes:  # a column named so that holds no path
                continue
            if stamp is not None and stamp == self._stamps.get(path):
                continue
            now = _hash(path)
            known = {self._hashes[path]} if path in self._hashes else set(self._hashes.values())
            if now not in known:
                what = "has changed" if now else "is gone"
                raise UserError(
                    f"the database {path} {what} since {self._where} was started; put the old file back, then "
                    "--resume goes on, or start over with another --out"
                )
            if stamp is not None:
                self._hashes[path], self._stamps[path] = now, stamp


def pin(
    run: Path, problems: Sequence[Problem], measured: Sequence[Problem], weights: str, *, fresh: bool, note: bool
) -> Pinned:
    """Note what a run starts with or, where it goes on, compare with what was noted.

    Args:
        problems: those it trains on, in order; measured: those of its evaluation.
        weights: hash of the weights that it starts from, or empty where a resumed run does not load them.
        fresh: the run is at its start.
        note: this process writes the note.
    Raises:
        UserError: something is no longer what the run started with.
    """
    facts = {"weights": weights, "problems": _problem_hashes(problems), "measured": _problem_hashes(measured)}
    every = [*problems, *measured]
    if fresh:
        stamps = {path: stamp for path in databases(every) if (stamp := _stamp(path)) is not None}
        hashes = {path: _hash(path) for path in stamps}
        noted = {path: asdict(stamps[path]) | {"sha256": hashes[path]} for path in stamps}
        if note:
            write_atomically(run / _FILE, json.dumps(facts | {"databases": noted}, indent=1) + "\n")
        return Pinned(run, hashes, stamps)
    try:
        before = json.loads((run / _FILE).read_text(encoding="utf-8"))
        noted = before["databases"]
        hashes = {path: entry["sha256"] for path, entry in noted.items()}
        stamps = {path: _Stamp(entry["size"], entry["mtime_ns"]) for path, entry in noted.items()}
        if weights and before["weights"] != weights:
            raise UserError(f"the model's weights are not those that {run} was started with; name another --out")
        for name in ("problems", "measured"):
            _compare(run, before[name], facts[name])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{run / _FILE} cannot be used ({error}); start over with another --out") from error
    pinned = Pinned(run, hashes, stamps)
    pinned.check(every)
    return pinned


def databases(problems: Iterable[Problem]) -> list[str]:
    """The database files of problems, each once: meta["db"] and the list meta["suite"], where there are any."""
    named = [path for p in problems for path in (p.meta.get("db"), *p.meta.get("suite", ())) if isinstance(path, str)]
    return list(dict.fromkeys(named))


def _compare(run: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    differing = [key for key in before.keys() | now.keys() if before.get(key) != now.get(key)]
    if not differing and list(before) != list(now):
        differing = [one for one, two in zip(before, now, strict=True) if one != two]
    if differing:
        raise UserError(
            f"the problems are not those that {run} was started with: {len(differing)} differ, such as "
            f"{min(differing)!r}; put the old ones back, or start over with another --out"
        )


def _problem_hashes(problems: Sequence[Problem]) -> dict[str, str]:
    """A short hash of what each problem asks and how it is judged, by id, in the problems' order."""
    return {
        p.id: hashlib.blake2b(json.dumps([p.prompt, p.answer, p.verifier]).encode(), digest_size=6).hexdigest()
        for p in problems
    }


def _stamp(path: str) -> _Stamp | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return _Stamp(status.st_size, status.st_mtime_ns)


def _hash(path: str) -> str:
    """SHA-256 of a file, or nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
