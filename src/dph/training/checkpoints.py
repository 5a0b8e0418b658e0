"""Checkpoints of training. They are written atomically, verified by checksums, loaded without pickle, and sufficient to
continue the same trajectory.

    checkpoints/step-00000040/
        model/                the policy, as AutoModelForCausalLM and vLLM load it
        trainer.safetensors   optimizer moments, and adapter weights if there are any
        state.json            step and cursors
        bank*                 three files of the bank, if there is one (`dph.rehearsal.bank_files`)
        interim               an empty file, only in a checkpoint that an interruption caused and that was not due
        checksums.json        SHA-256 of every file above
    checkpoints/best.json     which of the checkpoints had the best measurement
"""

import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import safetensors
from safetensors.torch import load_file, save_file

from dph.config.text import read_json
from dph.errors import RunError, SettingsError, UserError, refused
from dph.models.policy import Policy
from dph.process.progress import say
from dph.runs.directory import read_metrics
from dph.runs.files import directory_written_atomically, remove_atomically, sha256, write_atomically
from dph.training.optim import Optimizer

_CHECKSUMS, _INTERIM = "checksums.json", "interim"


@dataclass(frozen=True, slots=True)
class TrainState:
    """The progress of a training run, besides weights and optimizer. All randomness is a function of these fields."""

    step: int = 0
    """Steps finished."""
    explore_cursor: int = 0
    """Position in the endless order of exploration prompts."""
    rehearsal_cursor: int = 0
    """Position in the endless order of stored responses."""
    optimizer_steps: int = 0
    skipped_in_a_row: int = 0
    """The number of consecutive optimizer steps, up to the last step, that were skipped because loss or gradient was
    not finite."""
    token_budget: int = 0
    """The reduced number of tokens per micro-batch, after memory ran out with the number in the settings; 0 before
    that."""
    pending: Mapping[str, float] | None = None
    """The metrics of the last step if their line is not written yet, because the step was interrupted during its
    evaluation."""


def _folder(run: Path) -> Path:
    return run / "checkpoints"


def path_of(run: Path, step: int) -> Path:
    """Directory of the checkpoint after a step, whether it exists or not."""
    return _folder(run) / f"step-{step:08d}"


def save(
    run: Path,
    policy: Policy,
    optimizer: Optimizer,
    state: TrainState,
    keep: int,
    keep_too: Collection[int] = (),
    *,
    due: bool = True,
    further: Callable[[Path], None] | None = None,
) -> Path:
    """Write a checkpoint, and remove older checkpoints. Returns the folder of the checkpoint.

    Args:
        run: the run directory.
        policy, optimizer, state: the state to save.
        keep: how many of the newest checkpoints are kept; 0 keeps all.
        keep_too: the steps of further checkpoints that are kept.
        due: whether the settings ask for a checkpoint after this step. A checkpoint that is not due is not counted
            among the newest, and is removed when a later one is written, so that an interrupted run keeps the same
            checkpoints as an undisturbed run.
        further: writes more files into the folder of the checkpoint.
    Raises:
        UserError: the checkpoint cannot be written. Earlier checkpoints are then unchanged.
    """
    tensors = {f"optimizer/{name}": value for name, value in optimizer.state().items()}
    if hasattr(policy.model, "get_base_model"):
        tensors.update({f"weight/{name}": p.detach().contiguous() for name, p in policy.trainable()})
    target = path_of(run, state.step)
    try:
        with directory_written_atomically(target) as path:
            policy.save(path / "model")
            save_file({name: value.cpu() for name, value in tensors.items()}, path / "trainer.safetensors")
            (path / "state.json").write_text(json.dumps(asdict(state)) + "\n", encoding="utf-8")
            if further is not None:
                further(path)
            if not due:
                (path / _INTERIM).touch()
            files = sorted(entry for entry in path.rglob("*") if entry.is_file())
            sums = {entry.relative_to(path).as_posix(): sha256(entry) for entry in files}
            (path / _CHECKSUMS).write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")
        counted = [step for step in steps_saved(run) if not (path_of(run, step) / _INTERIM).exists()]
        kept = {state.step, *keep_too, *counted[-keep:]}  # with keep = 0, all steps
        for old in set(steps_saved(run)) - kept:
            remove_atomically(path_of(run, old))
    except (OSError, safetensors.SafetensorError) as error:
        before = [step for step in steps_saved(run) if step != state.step]
        then = f"--resume continues after step {before[-1]}" if before else "with --resume the run starts anew"
        message = refused(f"cannot write the checkpoint {target}", error, "free disk space")
        raise RunError(f"{message}; then {then}") from error
    return target


def steps_saved(run: Path) -> list[int]:
    """Steps of the existing checkpoints, oldest first."""
    return sorted(int(path.name[5:]) for path in _folder(run).glob("step-*") if path.name[5:].isdigit())


def damage(checkpoint: Path) -> str:
    """The fault of a checkpoint; "" if every file is as it was written."""
    try:
        sums: dict[str, str] = read_json(checkpoint / _CHECKSUMS)
        for name, expected in sums.items():
            if sha256(checkpoint / name) != expected:
                return f"{name} is not as it was written"
        read_state(checkpoint)
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (OSError, ValueError, AttributeError) as error:
        return f"{_CHECKSUMS} cannot be used: {error}"
    except UserError as error:
        return str(error)
    return ""


def newest_intact(run: Path) -> int | None:
    """The step of the newest intact checkpoint; None if the run has no checkpoint. Damaged checkpoints that are newer
    are renamed and reported. Raises UserError if all checkpoints are damaged."""
    damaged = []
    for step in reversed(steps_saved(run)):
        fault = damage(path_of(run, step))
        if not fault:
            for faulty, reason in damaged:
                aside = _folder(run) / f"damaged-{path_of(run, faulty).name}"
                remove_atomically(aside)
                os.replace(path_of(run, faulty), aside)
                say(f"the checkpoint after step {faulty} is damaged ({reason}): set aside as {aside.name}")
            if damaged:
                say(f"continuing from the previous one, after step {step}")
            return step
        damaged.append((step, fault))
    if damaged:
        step, reason = damaged[0]
        raise RunError(
            f"no checkpoint of {run} can be used: {path_of(run, step)} is damaged ({reason}), and no other is intact; "
            "delete the folder checkpoints to start over, or use a different --out"
        )
    return None


def read_state(checkpoint: Path) -> TrainState:
    """The state that a checkpoint records. Raises UserError if it cannot be read."""
    try:
        state = TrainState(**read_json(checkpoint / "state.json"))
        for name, value in asdict(state).items():
            if name != "pending" and (type(value) is not int or value < 0):
                raise ValueError(f"{name} is {value!r}")
        return state
    except (ValueError, TypeError) as error:
        raise RunError(f"state.json of {checkpoint} cannot be used: {error}") from error


def restore(checkpoint: Path, policy: Policy, optimizer: Optimizer) -> TrainState:
    """Load the optimizer state and the adapter weights of a checkpoint into an optimizer and a policy, and return the
    recorded state. A model without adapters is loaded from the folder `model` of the checkpoint instead. Raises
    UserError if the files belong to another policy."""
    state = read_state(checkpoint)
    parameters = dict(policy.trainable())
    try:
        tensors = load_file(checkpoint / "trainer.safetensors")
        for name, value in tensors.items():
            if name.startswith("weight/"):
                parameters[name.removeprefix("weight/")].data.copy_(value)
        moments = {k.removeprefix("optimizer/"): v for k, v in tensors.items() if k.startswith("optimizer/")}
        optimizer.load_state(moments, state.optimizer_steps, state.skipped_in_a_row)
    except (OSError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        raise RunError(f"the checkpoint {checkpoint} does not fit this run: {error}") from error
    return state


# The best checkpoint --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class BestCheckpoint:
    """The best of the measured steps, step 0 included. It depends on metrics.jsonl alone.

    Greedy accuracy may be highest after a policy has collapsed onto few solutions. Therefore steps whose metric lies
    within `within` of the highest value count as equal, and pass@k decides between them.
    """

    metric: str
    within: float
    start: str
    """The model that training began with, which is the best until a step is better."""
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the best step."""
    _highest: float = -math.inf

    @classmethod
    def so_far(cls, run: Path, metric: str, within: float, start: str) -> "BestCheckpoint":
        """The best of the steps that a run has logged and whose checkpoints still exist."""
        there = {0, *steps_saved(run)}
        lines = read_metrics(run)
        best = cls(metric, within, start)._after(lines)
        if best.step is not None and best.step not in there:  # somebody deleted the checkpoint
            best = cls(metric, within, start)._after([line for line in lines if line["step"] in there])
        return best

    def _after(self, lines: Sequence[Mapping[str, float]]) -> "BestCheckpoint":
        for line in lines:
            self.note(int(line["step"]), line)
        return self

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps whose checkpoints must be kept."""
        return (self.step,) if self.step else ()

    def check(self, values: Mapping[str, float]) -> None:
        """Raise UserError if the monitor does not measure the metric."""
        if self.metric and self.metric not in values:
            raise SettingsError(f"keep_best is {self.metric!r}, but the monitor measures: {', '.join(sorted(values))}")

    def note(self, step: int, values: Mapping[str, float]) -> bool:
        """Take the metrics of a step into account. Returns whether the step is a training step and the best so far."""
        if not self.metric or self.metric not in values:
            return False
        self._highest = max(self._highest, values[self.metric])
        near = self._highest - self.within
        if values[self.metric] < near:
            return False
        if self.step is not None and self.values[self.metric] >= near and self._rank(values) <= self._rank(self.values):
            return False
        self.step, self.values = step, dict(values)
        return step > 0

    def _rank(self, values: Mapping[str, float]) -> list[float]:
        return [*(values[name] for name in deciding(values)), values[self.metric]]

    def write(self, run: Path) -> None:
        """Write checkpoints/best.json, if there is a best step."""
        if self.step is not None:
            facts = {
                "step": self.step,
                "metric": self.metric,
                "value": self.values[self.metric],
                **{name: self.values[name] for name in deciding(self.values)},
                "model": f"{path_of(run, self.step).name}/model" if self.step else self.start,
            }
            write_atomically(run / "checkpoints" / "best.json", json.dumps(facts, indent=1) + "\n")


def deciding(values: Mapping[str, float], prefix: str = "eval/") -> list[str]:
    """The name of the metric that decides between steps of about the same accuracy, in a list, which is empty if no
    pass@k was measured.

    It is pass@k at the largest k for which there are at least 2k samples, or at k = 1 if there are fewer samples.
    prefix: of the names of the metrics of a set.
    """
    of_passes = f"{prefix}pass@"
    ks = sorted(int(name.removeprefix(of_passes)) for name in values if name.startswith(of_passes))
    return [f"{of_passes}{max(k for k in ks if k == 1 or 2 * k <= ks[-1])}"] if ks else []
