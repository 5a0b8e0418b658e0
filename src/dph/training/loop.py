"""The loop of DPH-RL (paper §4.2) and, with other settings, of the baselines.

`Training.step` is one step. The rest watches it, records it, and saves the state so that any interruption can be
followed by the same run.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dph.config import TrainConfig
from dph.errors import Interrupted, SharedUserError, UserError
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.interrupts import Interrupts
from dph.process.memory import FreedMemory, peak_memory
from dph.process.progress import progress, say
from dph.rehearsal.store import RehearsalSet
from dph.runs.coverage import Ledger, write_visits
from dph.runs.directory import RunDir
from dph.runs.pinned import Pinned
from dph.runs.samples import MONITOR, ROLLOUTS, Sample, write_samples
from dph.runs.tracking import Metrics
from dph.sampling.protocol import Sampler
from dph.training import checkpoints
from dph.training.alarms import PassAlarm, StepVerdicts, alarm
from dph.training.checkpoints import TrainState
from dph.training.explore import Drawn, Explorer, visits_of
from dph.training.guards import check_databases, check_judging, check_updates, step_verdicts
from dph.training.mixing import mix, recomputes_old
from dph.training.monitor import Best, Clock, Measured, Monitor, count_rollouts, deciding
from dph.training.optim import Optimizer
from dph.training.rows import Row
from dph.training.shaping import Shaping
from dph.training.update import Updater


@dataclass(slots=True)
class Training:
    """A training run: its parts and its progress."""

    config: TrainConfig
    world: World
    directory: RunDir
    policy: Policy
    sampler: Sampler
    optimizer: Optimizer
    explorer: Explorer
    shaping: Shaping
    rehearsal: RehearsalSet
    updater: Updater
    monitor: Monitor
    pinned: Pinned
    state: TrainState
    saved: TrainState
    """The state of the newest checkpoint."""
    tried: TrainState
    """The state of the last attempted checkpoint; if that attempt failed, an immediate second one would too."""
    best: Best
    passes: PassAlarm
    ledger: Ledger
    by_function: bool
    """Whether a reward function judges, not the verifiers."""
    whole: bool = True
    """Whether weights and optimizer belong to `state`; False during a step's updates."""
    judged: list[StepVerdicts] = field(default_factory=list)
    """Verdicts of the last steps, as far back as the alarms look."""

    def run(self, metrics: Metrics, interrupts: Interrupts) -> None:
        """Run the remaining steps. If anything interrupts them, the state is saved first if it is whole."""
        try:
            self._loop(metrics, interrupts)
        except Interrupted as error:
            where = f"stopped after step {self.state.step} of {self.config.steps}"
            kept = "which is saved" if self._rescue() else "but not saved"
            self.world.wait()  # torchrun ends the processes that are left, one of which may be saving, when one leaves
            raise Interrupted(error.number, f"{where}, {kept}; the same command with --resume continues") from error
        except Exception as error:
            if self._rescue() and isinstance(error, UserError | OSError):
                say(f"the state after step {self.state.step} is saved in {self._checkpoint()}")
            if isinstance(error, SharedUserError):
                self.world.wait()
            raise

    def _loop(self, metrics: Metrics, interrupts: Interrupts) -> None:
        config, alone = self.config, self.world.size == 1
        if self.state.step == 0 and self.monitor.due(0):
            with interrupts.allowed(alone):
                measured = self.monitor.measure(0)
            self.best.check(measured.values)
            self.watch(measured, metrics)
            metrics.log(0, measured.values, {})
            self.best.note(0, measured.values)
        updates = config.steps * config.optim.minibatches
        check_updates(self.state, config.optim.max_skipped, updates)  # a run that stopped here does not go on
        label, freed = f"training {config.method}", FreedMemory()
        with progress(label, config.steps, self.state.step, quiet=not self.world.leads) as shown:
            while self.state.step < config.steps or self.state.pending is not None:
                clock = Clock()
                if self.state.pending is None:
                    self.step(metrics, clock, interrupts)
                values = dict(self.state.pending or {})
                if self.monitor.due(self.state.step):
                    with interrupts.allowed(alone):
                        measured = self.monitor.measure(self.state.step)
                    values |= measured.values
                    self.watch(measured, metrics)
                    clock.lap("monitor")
                self.record(metrics, values, clock)
                freed.after_step()
                shown.advance(1, f"reward {values['reward']:.3f}")
                check_updates(self.state, config.optim.max_skipped, updates)
                stop = self.world.sum_values({"signal": float(interrupts.signal)})["signal"]
                if stop and not alone:  # all processes stop after the same step
                    raise Interrupted(interrupts.signal or signal.SIGTERM)

    def step(self, metrics: Metrics, clock: Clock, interrupts: Interrupts) -> None:
        """One step: rollouts on D_exp, stored responses of D_pef, and eq. 7 on both."""
        config, state = self.config, self.state
        with interrupts.allowed(self.world.size == 1):
            drawn = self.explorer.draw(state.explore_cursor)  # D_exp: sample, judge, (DAPO) refill
        check_judging(drawn, self.world, config.max_unjudged)
        check_databases(self.pinned, drawn, self.world)
        newest = step_verdicts(drawn, self.world)
        if not newest.all_failed and not newest.all_unrewarded:
            self.judged.clear()  # alarms look back to the last normal step only
        self.judged.append(newest)
        if (message := alarm(self.judged, by_function=self.by_function)) and self.world.leads:
            say(f"step {state.step + 1}: {message}")
        clock.lap("sample")
        visits = visits_of(drawn, self.world)
        coverage = self.ledger.note(visits)
        stored = self.rehearsal.take(state.rehearsal_cursor, config.rehearsal.rows)  # D_pef: nothing to sample or judge
        rows = self.shaping.rows(drawn.groups)  # rewards become advantages
        if self.world.leads:
            if state.step == 0 and self.ledger.reference:
                write_visits(self.directory.path, 0, self.ledger.reference)
            write_visits(self.directory.path, state.step + 1, visits)
        if self.monitor.due(state.step + 1):
            self.keep(metrics, state.step + 1, ROLLOUTS, self.monitor.pick(self._sampled(drawn, rows)))
        minibatches = mix(drawn, rows, stored, config.optim.minibatches, self.world)  # each row tagged with its set
        self.whole = False
        self.sampler.rest()
        # PPO-clip on rollouts, η·f(u) on stored responses
        values = self.updater.update(minibatches, recompute_old=recomputes_old(config))
        self.sampler.weights_changed()
        rollouts = count_rollouts(drawn, self.world)
        values |= rollouts.means() | coverage | {"lr": self.optimizer.lr}
        self.state = TrainState(
            step=state.step + 1,
            explore_cursor=drawn.cursor,
            rehearsal_cursor=state.rehearsal_cursor + len(stored),
            optimizer_steps=self.optimizer.steps_taken,
            skipped_in_a_row=self.optimizer.skipped_in_a_row,
            token_budget=self.updater.reduced_budget,
            pending=values,
        )
        self.whole = True
        clock.lap("update")
        clock.rate("tokens_per_second", rollouts.tokens)

    def _sampled(self, drawn: Drawn, rows: Sequence[Sequence[Row]]) -> list[tuple[int, Sample]]:
        """This process's rollouts of the next step as samples, each with the place of its group."""
        return [
            (place, Sample.of(self.state.step + 1, ROLLOUTS, group.problem, index, rollout, advantage))
            for place, group, own in zip(drawn.ranks, drawn.groups, rows, strict=True)
            for index, (rollout, advantage) in enumerate(
                zip(group.rollouts, self.shaping.advantages(group, own), strict=True)
            )
        ]

    def watch(self, measured: Measured, metrics: Metrics) -> None:
        """Keep what the monitor found at this step, and say if pass@k has fallen."""
        step = self.state.step
        self.keep(metrics, step, MONITOR, measured.samples)
        for name in deciding(measured.values):
            message = self.passes.note(step, name.removeprefix("eval/"), measured.values[name], measured.high)
            if message and self.world.leads:
                say(f"step {step}: {message}")

    def keep(self, metrics: Metrics, step: int, source: str, samples: Sequence[Sample]) -> None:
        """Write the responses of a monitored step that are kept, and show some. Rollouts are written before the update
        that uses them, so every checkpoint after it has them."""
        if self.world.leads and samples:
            write_samples(self.directory.path, step, source, samples)
            metrics.log_samples(step, source, samples)
            if source == ROLLOUTS or step == 0:
                for sample in samples[: self.config.show_samples]:
                    say(f"step {step}: {sample.line()}")

    def record(self, metrics: Metrics, values: Mapping[str, float], clock: Clock) -> None:
        """Write a step's metrics and, if it is due or the step is the best so far, a checkpoint."""
        step, config = self.state.step, self.config
        metrics.log(step, values, clock.laps | peak_memory())
        self.state = replace(self.state, pending=None)
        best = self.best.note(step, values)
        if best or step % config.checkpoint_every == 0 or step == config.steps:
            self.world.together(self.save)

    def save(self) -> None:
        """Write a checkpoint of the state; only the leading process does."""
        self.tried = self.state
        if self.world.leads:
            self.directory.sync()
            run, keep = self.directory.path, self.config.keep_checkpoints
            checkpoints.save(run, self.policy, self.optimizer, self.state, keep, self.best.steps)
            self.best.write(run)
        self.saved = self.state

    def _rescue(self) -> bool:
        """Save the state if it is whole and not saved yet; returns whether it is saved. Does not wait for other
        processes, because one of them may be the reason why this one ends."""
        if not self.whole or self.state.step == 0:
            return False
        if self.state != self.tried or self._removed():
            try:
                self.save()
            except (UserError, OSError) as error:
                say(str(error))
        return self.state == self.saved and not self._removed()

    def _removed(self) -> bool:
        """Whether somebody removed the run directory. Only the leading process can tell: the others do not wait for its
        checkpoints."""
        return self.world.leads and self.state == self.saved and not self._checkpoint().is_dir()

    def _checkpoint(self) -> Path:
        return checkpoints.path_of(self.directory.path, self.state.step)
