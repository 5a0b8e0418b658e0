"""The run loop that supervised training and reinforcement learning share.

A run directory is opened. Steps are repeated, logged and saved. Signals and errors stop the run with its state saved.
At the end the trained model is written.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from dph.config import SftConfig, TrainConfig
from dph.errors import Interrupted, RunError, SharedUserError, UserError
from dph.models.card import save_with_card
from dph.models.device import settled
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.interrupts import Interrupts
from dph.process.memory import peak_memory, return_freed
from dph.process.progress import progress, say
from dph.runs.directory import RunDir
from dph.training import checkpoints
from dph.training.checkpoints import BestCheckpoint, TrainState, steps_saved
from dph.training.optim import Optimizer


class Clock:
    """The seconds that each part of a step took."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[f"{name}_seconds"], self._last = now - self._last, now

    def rate(self, name: str, count: float) -> None:
        """Record `count` units per second, over the seconds of all laps so far."""
        self.laps[name] = count / max(1e-9, sum(self.laps.values()))


class Saver:
    """The state of a run, and its checkpoints."""

    def __init__(
        self,
        run: RunDir,
        policy: Policy,
        optimizer: Optimizer,
        state: TrainState,
        world: World,
        *,
        keep: int,
        best: BestCheckpoint | None = None,
        further: Callable[[Path], None] | None = None,
    ) -> None:
        """state: of the newest checkpoint, or of a new run. keep: how many of the newest checkpoints are kept. The
        checkpoint of the step `best` is kept too. further: writes more of the state into the folder of a checkpoint."""
        self.run, self.state, self.best = run, state, best or BestCheckpoint("", 0.0, "")
        self._policy, self._optimizer, self._world, self._keep = policy, optimizer, world, keep
        self._further, self._saved = further, state
        self._tried = state  # the state of the last attempt; if that failed, a second attempt would fail too
        self._consistent = True

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Context in which weights and optimizer are ahead of `state`. The caller sets the new state afterwards. If an
        error leaves the context, nothing is saved any more."""
        self._consistent = False
        yield
        self._consistent = True

    def save(self, *, due: bool = True) -> None:
        """Write a checkpoint of the state, in the leading process only. due: as in `checkpoints.save`."""
        self._tried = self.state
        if self._world.leads:
            self.run.sync()
            what = (self.run.path, self._policy, self._optimizer, self.state)
            checkpoints.save(*what, self._keep, self.best.steps, due=due, further=self._further)
            self.best.write(self.run.path)
        self._saved = self.state

    def rescue(self) -> bool:
        """Save the state, if it can be saved and is not saved yet. Returns whether the state is saved.

        The process does not wait for other processes, because one of them may be the reason why this process ends.
        """
        if not self._consistent or self.state.step == 0:
            return False
        if self.state != self._tried or self._removed():
            try:
                self.save(due=False)
            except (UserError, OSError) as error:
                say(str(error))
        return self.state == self._saved and not self._removed()

    @property
    def path(self) -> Path:
        """The folder of the checkpoint of the state, whether it exists or not."""
        return checkpoints.path_of(self.run.path, self.state.step)

    def _removed(self) -> bool:
        """Whether somebody removed the checkpoint of the state after it was saved. Only the leading process can tell,
        because the others do not wait for it."""
        return self._world.leads and self.state == self._saved and not self.path.is_dir()


Action = Callable[[Clock, Interrupts], Any]
C = TypeVar("C", bound=TrainConfig | SftConfig)


@dataclass(frozen=True, slots=True)
class RunLoop:
    """Repeats the steps of a run until it has all of them."""

    steps: int
    checkpoint_every: int
    """The number of steps between checkpoints. The last step is always saved."""
    max_skipped: int
    """The number of consecutive updates at which a run stops because loss or gradient was not finite; 0 allows any
    number."""
    world: World
    saver: Saver
    log: Callable[[int, Mapping[str, float], Mapping[str, float]], None]
    """Writes the metrics and the timings of a step. Only the leading process calls it."""
    label: str
    """The name of the work, shown next to its progress."""
    shown: str
    """The name of the metric that is shown next to the progress."""
    ended: Callable[[], bool] = lambda: False
    """Whether the run ends before it has all of its steps."""

    def repeat(self, step: Action, measure: Action | None = None) -> None:
        """Run the remaining steps. If anything interrupts them, the state is saved first if that is possible.

        Args:
            step: takes a step. The state of the saver becomes the state after the step, with the metrics of the step
                pending.
            measure: returns further metrics of the state, or no metrics if no measurement is due.
        Raises:
            Interrupted: a signal came. The message says what is saved.
            UserError: too many updates in a row were skipped, or a step or a checkpoint failed.
        """
        saver, steps = self.saver, self.steps
        finishing = "a signal came: the step is finished and its state saved, then the run stops"
        with Interrupts(finishing) as interrupts:
            try:
                self._repeat(step, measure or (lambda *_: {}), interrupts)
            except Interrupted as error:
                stopped = f"stopped after step {saver.state.step} of {steps}"
                if saver.rescue():
                    kept = ", which is saved; the same command with --resume continues"
                elif before := steps_saved(saver.run.path):
                    kept = f", which is not saved; the same command with --resume continues after step {before[-1]}"
                else:
                    kept = "; nothing is saved, and the same command with --resume starts anew"
                # torchrun ends all processes when one leaves, and the leading process may still be saving
                self.world.wait()
                raise Interrupted(error.number, stopped + kept) from error
            except Exception as error:
                if saver.rescue() and isinstance(error, UserError | OSError):
                    say(f"the state after step {saver.state.step} is saved in {saver.path}")
                if isinstance(error, SharedUserError):
                    self.world.wait()
                raise

    def _repeat(self, step: Action, measure: Action, interrupts: Interrupts) -> None:
        saver, steps, world = self.saver, self.steps, self.world
        if saver.state.step == 0 and (values := measure(Clock(), interrupts)):
            if world.leads:
                self.log(0, values, {})
            saver.best.note(0, values)
        self._check_updates()  # a run that was stopped by this check does not continue
        with progress(self.label, steps, saver.state.step, quiet=not world.leads) as tracker:
            # Metrics are pending if a run was stopped between the update of a step and its line in metrics.jsonl
            while saver.state.pending is not None or (saver.state.step < steps and not self.ended()):
                clock = Clock()
                if saver.state.pending is None:
                    step(clock, interrupts)
                values = {**(saver.state.pending or {}), **measure(clock, interrupts)}
                self._record(values, clock)
                return_freed(saver.state.step)
                tracker.advance(1, f"{self.shown} {values[self.shown]:.3f}")
                self._check_updates()
                if world.sum_values({"signal": float(interrupts.signal)})["signal"]:
                    raise Interrupted(interrupts.signal or signal.SIGTERM)  # all processes stop after the same step

    def _record(self, values: Mapping[str, float], clock: Clock) -> None:
        """Write the metrics of a step, and a checkpoint if it is due or the step is the best so far."""
        saver = self.saver
        if self.world.leads:
            self.log(saver.state.step, values, clock.laps | peak_memory())
        saver.state = replace(saver.state, pending=None)
        step = saver.state.step
        best = saver.best.note(step, values)
        if best or step % self.checkpoint_every == 0 or step == self.steps or self.ended():
            self.world.together(saver.save)

    def _check_updates(self) -> None:
        """Raise SharedUserError if loss or gradient has not been finite for `max_skipped` updates in a row."""
        state = self.saver.state
        if 0 < self.max_skipped <= state.skipped_in_a_row:
            raise SharedUserError(
                f"loss or gradient was not finite in {state.skipped_in_a_row} updates in a row, up to step "
                f"{state.step}; restart from an earlier checkpoint with a lower --optim.lr, or raise "
                "--optim.max-skipped"
            )


# Before the first step, and after the last --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened(Generic[C]):
    """The run directory in which a training begins or continues."""

    world: World
    run: RunDir
    config: C
    """The settings of the stage. The precision "auto" is replaced by the precision that the run keeps."""
    checkpoint: Path | None
    """The folder of the checkpoint to continue from; None if the training begins, or is complete."""


def open_run(config: C, stage: str, *, resume: bool, versions: Mapping[str, str] | None = None) -> Opened[C]:
    """Join the processes that train together, and open their run directory as `RunDir.start` does. Raises UserError as
    `RunDir.start` and `checkpoints.newest_intact` do.

    config: the settings of the stage. stage: its name. versions: of other things that the stage depends on.
    """
    world = World.join()
    run = world.decided(
        lambda: RunDir.start(config.out, stage, config, resume=resume, versions=versions, extend=_check_extension)
    )
    if run.complete:
        return Opened(world, run, config, None)
    settings = replace(config, model=settled(config.model, run, world))
    step = world.decided(lambda: checkpoints.newest_intact(run.path))
    return Opened(world, run, settings, None if step is None else checkpoints.path_of(run.path, step))


def say_if_idle(steps: int, lr: float, world: World) -> None:
    """Say so if a run takes no step or changes no weight."""
    if world.leads and not (steps and lr):
        said = "optim.lr is 0" if steps else "steps is 0"
        say(f"{said}: nothing is trained, and the final model is the one that the run begins with")


def finish(run: RunDir, world: World, save: Callable[[Path], None], facts: Callable[[], Mapping[str, Any]]) -> Path:
    """Write the final model with its card into the folder `model`, mark the run as complete, and return the run
    directory.

    save: writes the model into a folder. facts: returns further entries of the manifest.
    """
    if world.leads:
        save_with_card(run, save, run.path / "model")
        run.finish(**facts())
    world.wait()
    return run.path


def _check_extension(run: RunDir, before: TrainConfig | SftConfig) -> None:
    """Raise UserError unless a run can continue for more steps exactly as if it had been started with them. before: the
    settings with which the run was started."""
    if before.optim.schedule != "constant":
        raise RunError(
            f"{run.path} was started with {before.steps} steps, and its learning rate depends on their number "
            f"(optim.schedule {before.optim.schedule}), so it cannot be extended; use a different --out"
        )
    if run.complete and before.steps and before.steps not in steps_saved(run.path):
        raise RunError(
            f"{run.path} has no checkpoint after its last step {before.steps}, so it cannot be extended; use a "
            "different --out"
        )
