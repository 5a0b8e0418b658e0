"""The files of judged samples that a command compares: the door of `dph passk` and of `dph certify`.

Both read through it, so that an option or a refusal of one is an option or a refusal of the other.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from dph.config import Reading
from dph.config.checks import unfinished
from dph.errors import DataError
from dph.measure.samples import NONE, Samples, read_samples
from dph.process.progress import say
from dph.runs.directory import RunDir, is_run

_OF_SAMPLES = ("eval", "verify")
"""The stages whose runs hold judged samples."""


def read_sides(paths: Sequence[str | Path], reading: Reading, *, each: bool = False) -> list[Samples]:
    """Judged samples of files, folders or runs, in their order; says how each was read, and which option changed
    nothing. each: as in `read_samples`.

    Raises DataError as `read_samples` does, for a run without judged samples, and for an option that describes what no
    file has.
    """
    if "" in map(str, paths):
        raise DataError("the path of one of the files is empty; name the file (is a variable of the shell unset?)")
    for path in map(Path, paths):
        if is_run(path):
            _check_run(path)
    sides = [_read(path, reading, each) for path in paths]
    for side in sides:
        say(side.read_as)
    if sides:
        _check_options(sides, reading)
    return sides


def _read(path: str | Path, reading: Reading, each: bool) -> Samples:
    try:
        return read_samples(path, reading, each=each)
    except MemoryError as error:
        much = f"{path} cannot be read: it takes more memory than this process may have"
        raise DataError(f"{much}, perhaps because it is damaged; name a smaller file") from error


def _check_run(path: Path) -> None:
    run = RunDir.open(path)
    stage = run.manifest["stage"]
    if stage not in _OF_SAMPLES:
        lacking = f"{path} is a run of `dph {stage}`, which holds no judged samples{unfinished(path)}"
        raise DataError(f"{lacking}; sample its model with `dph eval --model.path {path}`, and name the run of that")
    if not run.complete:
        what = unfinished(path) or "; finish it with --resume"
        raise DataError(f"{path} is a run of `dph {stage}` that did not finish{what}")


def _check_options(sides: Sequence[Samples], reading: Reading) -> None:
    """Refuse an option that describes what no side has; say which of the others changed nothing."""
    used = frozenset().union(*(side.used for side in sides))
    if not math.isinf(reading.threshold) and "threshold" not in used:
        named = {"=", "/"} & set(reading.correct)
        why = f"--correct {reading.correct} says it already" if named else "the verdicts are no scores"
        raise DataError(f"--threshold {reading.threshold:g} has no part in what is right: {why}; leave it out")
    _check_threshold(sides, reading.threshold)
    if reading.records and "records" not in used:
        where = "no file is a JSON document that has samples under keys"
        raise DataError(f"--records {reading.records} names nothing: {where}; leave it out")
    for text in reading.filter:
        if f"filter {text}" not in used:
            say(f"--filter {text} leaves no row out")
    for name, what in (("answer", "answers"), ("prompt", "prompts")):
        if getattr(reading, name) == NONE and name not in used:
            say(f"--{name} none changes nothing: no column holds {what}")
    alike = len({frozenset(side.problems) for side in sides}) == 1
    if reading.partial and "partial" not in used and alike:
        say("--partial changes nothing: no sample, verdict or problem is missing")


def _check_threshold(sides: Sequence[Samples], threshold: float) -> None:
    """Refuse a threshold that lies beyond the scale of the scores; say which one parts no scores."""
    scales = [side.scale for side in sides if side.scale is not None]
    if not scales:
        return
    least, highest = min(scale.least for scale in scales), max(scale.highest for scale in scales)
    option, between = f"--threshold {threshold:g}", f"the scores lie between {least:g} and {highest:g}"
    if threshold > max(1.0, *(scale.most for scale in scales)):
        raise DataError(f"{option} is above every score, so that none would be right: {between}; correct it")
    if threshold <= min(0.0, least):
        raise DataError(f"{option} is not above the least score, so that all would be right: {between}; correct it")
    if not least < threshold <= highest:
        say(f"{option}: {'every' if threshold <= least else 'no'} score reaches it ({between})")
    elif not any(scale.graded for scale in scales):
        say(f"{option} changes nothing: every score is {least:g} or {highest:g}")
