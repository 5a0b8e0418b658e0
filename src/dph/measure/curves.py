"""What trainers log of a run, as curves over steps and as groups of responses: TRL, verl, and runs of this package.

Read are TRL's trainer_state.json and its completions in Parquet, the lines of verl's file logger and the rollouts that
it dumps, and metrics.jsonl with the folder `samples` of `dph train`. Only the standard library; pyarrow for Parquet.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dph.config.files import opened, read_bytes
from dph.config.text import decoded, own_json, parse_json
from dph.errors import DataError, counted, reason_of
from dph.process.places import check_links
from dph.runs.directory import read_metrics
from dph.tasks.tables import read_rows

NAMES: Mapping[str, tuple[str, ...]] = {
    "reward": ("reward", "critic/score/mean", "critic/rewards/mean"),
    "spread of rewards": ("reward_std",),
    "entropy, nats": ("exp/entropy", "entropy", "actor/entropy", "actor/entropy_loss"),
    "response length": ("response_length", "completions/mean_length", "completion_length", "response_length/mean"),
    "cut responses": ("truncated", "completions/clipped_ratio", "response_length/clip_ratio"),
    "constant groups": ("frac_reward_zero_std",),
    "unread answers": ("unparsed",),
    "KL": ("exp/kl_loss", "kl", "actor/kl_loss"),
    "sampler's gap": (
        *("exp/sampler_gap", "sampling/sampling_logp_difference/mean", "training/rollout_probs_diff_mean"),
    ),
}
"""The curves that failures are told by, and their names in the logs of the trainers."""
_PROMPT, _RESPONSE = ("id", "prompt", "input"), ("response", "completion", "output")
_NOT_REWARDS = ("step", "advantage", "sample", "logprob", "tokens", "acc")
_GOLDS = ("gts", "ground_truth", "answer", "solution", "gold")
_DEEPEST = 3  # folders below the one that is named
_MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Group:
    """The responses to a prompt at one step."""

    step: int
    responses: tuple[str, ...]
    rewards: tuple[float, ...]
    """NaN: the response was not judged."""
    gold: str = ""
    """The right answer, if the log has it."""


@dataclass(slots=True)
class TrainerLog:
    """What was read of a run."""

    sources: list[str] = field(default_factory=list)
    """Each file or kind of files, in words."""
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    """By the names of NAMES, and pass@k as it is logged: the values by step."""
    groups: list[Group] = field(default_factory=list)

    @property
    def steps(self) -> list[int]:
        """The steps that something is known of."""
        return sorted(
            {*(group.step for group in self.groups), *(step for curve in self.curves.values() for step in curve)}
        )

    def note(self, step: int, values: Mapping[str, Any]) -> None:
        """Keep the values that failures are told by, of one line of a log."""
        for name, names in NAMES.items():
            value = next((values[each] for each in names if isinstance(values.get(each), int | float)), None)
            if (known := _finite(value)) is not None:
                self.curves.setdefault(name, {})[step] = known
        for name, value in values.items():
            if name.startswith("eval/pass@") and (known := _finite(value)) is not None:
                self.curves.setdefault(name.removeprefix("eval/"), {})[step] = known


def read_trainer_log(path: Path) -> TrainerLog:
    """What trainers logged in a file or a folder. Raises UserError if there is nothing that is known, or a file is
    damaged."""
    if not path.exists():
        raise DataError(f"there is no file or folder {path}; correct its path")
    log = TrainerLog()
    files = list(_files(path)) if path.is_dir() else [path]
    _read_state(log, [file for file in files if file.name == "trainer_state.json"])
    _read_run(log, path, [file for file in files if file.name == "metrics.jsonl"])
    lines = [file for file in files if file.suffix == ".jsonl" and file.name != "metrics.jsonl"]
    for file in lines:
        first = _first(file)
        if first.keys() >= {"step", "data"} and isinstance(first["data"], dict):
            for row in read_rows(file):
                log.note(_step(row, file), row["data"] if isinstance(row.get("data"), dict) else {})
            log.sources.append(f"verl's file logger {file.name}")
    dumps = [file for file in lines if first_is_rollout(_first(file))]
    tables = [file for file in files if file.suffix == ".parquet" and _holds_completions(file)]
    for kind, some in (("rollouts of verl", dumps), ("completions", tables)):
        if some:
            log.groups += _groups((_step(row, file), row) for file in some for row in read_rows(file))
            log.sources.append(f"{kind} in {counted(len(some), 'file')}")
    _add_of_groups(log)
    if not log.curves and not log.groups:
        raise DataError(
            f"{path} holds no log of a trainer that is known; name a folder with TRL's trainer_state.json or "
            "completions, the file of verl's file logger, its dumped rollouts (step, input, output, score), or a run "
            "of dph train"
        )
    return log


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder and of those below it, without hidden ones."""
    check_links(folder)
    found = 0
    for parent, folders, names in os.walk(folder):
        deep = len(Path(parent).relative_to(folder).parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            found += 1
            if found > _MOST_FILES:
                raise DataError(f"{folder} holds more than {_MOST_FILES} files; name the folder of one run")
            yield Path(parent, name)


def _read_state(log: TrainerLog, files: list[Path]) -> None:
    """The history of TRL's, which is that of the last checkpoint."""
    states = []
    for file in files:
        try:
            state = own_json(decoded(read_bytes(file)))
            states.append((int(state["global_step"]), list(state["log_history"]), file))
        except (ValueError, KeyError, TypeError, OverflowError, OSError) as error:
            raise DataError(f"{file} is no state of a trainer: {reason_of(error)}") from error
    if not states:
        return
    _, history, file = max(states, key=lambda state: state[0])
    for row in history:
        if isinstance(row, dict) and (step := _finite(row.get("step"))) is not None:
            log.note(int(step), row)
    log.sources.append(f"TRL's {'/'.join(file.parts[-2:])}")


def _read_run(log: TrainerLog, path: Path, files: list[Path]) -> None:
    for file in files:
        rows = read_metrics(file.parent)
        for row in rows:
            constant = {"frac_reward_zero_std": 1 - row["informative"]} if "informative" in row else {}
            log.note(_step(row, file), row | constant)
        log.sources += [f"metrics.jsonl of {'this run' if file.parent == path else file.parent}"] if rows else []


def first_is_rollout(row: Mapping[str, Any]) -> bool:
    """Whether a row is one that verl dumps."""
    return row.keys() >= {"step", "input", "output", "score"}


def _first(file: Path) -> dict[str, Any]:
    """The first row of a file of lines; an empty one if it is none."""
    try:
        with opened(file) as lines:
            row = parse_json(lines.readline(1 << 24).decode("utf-8-sig"))
    except (ValueError, OSError):
        return {}
    return row if isinstance(row, dict) else {}


def _holds_completions(file: Path) -> bool:
    return file.name.startswith(("completions_", "rollouts-"))


def _step(row: Mapping[str, Any], file: Path) -> int:
    """The step of a row. Raises DataError without one."""
    step = row.get("step")
    if (known := _finite(step)) is not None:
        return int(known)
    raise DataError(
        f"{file} has a row whose step is {step!r:.40}, and not a number: it is damaged, or no trainer's log"
    )


def _finite(value: Any) -> float | None:
    """A number that is known; None for everything else."""
    number = _float(value) if isinstance(value, int | float) else math.nan
    return number if math.isfinite(number) else None


def _float(value: float) -> float:
    """A number, and NaN for a whole number that is too large to be one."""
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _groups(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Group]:
    """The responses of one step to one prompt together, of rows with their steps."""
    found: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for step, row in rows:
        prompt = next((row[name] for name in _PROMPT if row.get(name) is not None), "")
        found.setdefault((step, json.dumps(prompt, default=str)), []).append(row)
    for (step, _), some in found.items():
        golds = {str(row[name]) for row in some for name in _GOLDS if row.get(name) is not None}
        responses = tuple(_text(next((row[name] for name in _RESPONSE if name in row), "")) for row in some)
        yield Group(step, responses, tuple(map(_reward, some)), golds.pop() if len(golds) == 1 else "")


def _reward(row: Mapping[str, Any]) -> float:
    """The reward of a row: the score, or the sum of TRL's reward functions, which have a column each."""
    for name in ("score", "reward"):
        if isinstance(row.get(name), int | float):
            return _float(row[name])
    each = [
        _float(value)
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _NOT_REWARDS
    ]
    return sum(each) if each else math.nan


def _text(response: Any) -> str:
    """The text of a response, which may be a list of messages."""
    if isinstance(response, list):
        response = next((turn.get("content") for turn in reversed(response) if isinstance(turn, Mapping)), "")
    return response if isinstance(response, str) else json.dumps(response, default=str)


def _add_of_groups(log: TrainerLog) -> None:
    """The curves that responses tell, where the trainer logged none."""
    of_step: dict[int, list[Group]] = {}
    for group in log.groups:
        of_step.setdefault(group.step, []).append(group)
    every = [reward for group in log.groups for reward in group.rewards if not math.isnan(reward)]
    worst, best = (min(every), max(every)) if every else (0.0, 0.0)
    told: dict[str, dict[int, float]] = {}
    for step, groups in of_step.items():
        lengths = [len(response) for group in groups for response in group.responses]
        told.setdefault("response length, characters", {})[step] = _mean(lengths)
        if rewards := [reward for group in groups for reward in group.rewards if not math.isnan(reward)]:
            told.setdefault("reward", {})[step] = _mean(rewards)
            if best > worst:
                told.setdefault("pass@1, of rollouts", {})[step] = _mean(
                    2 * reward > best + worst for reward in rewards
                )
        several = [group for group in groups if len(group.responses) > 1 and not any(map(math.isnan, group.rewards))]
        if several:
            n = min(len(group.responses) for group in several)
            told.setdefault("constant groups", {})[step] = _mean(len(set(group.rewards)) == 1 for group in several)
            different = [len(set(group.responses)) / len(group.responses) for group in several]
            told.setdefault("different responses", {})[step] = _mean(different)
            if best > worst:
                solved = [2 * max(group.rewards[:n]) > best + worst for group in several]
                told.setdefault(f"pass@{n}, of rollouts", {})[step] = _mean(solved)
    for name, curve in told.items():
        log.curves.setdefault(name, curve)


def _mean(values: Iterable[float]) -> float:
    each = list(values)
    return sum(each) / len(each)
