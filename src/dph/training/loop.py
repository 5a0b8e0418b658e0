"""One step of DPH-RL (paper §4.2) and, with other settings, of the baselines.

    draw → judge → shape → take → update → record

Names of nested lists and tensors end with their dimensions:

    P   this process's prompts of the step     R   stored responses of the step
    G   rollouts of one prompt, a group        T   tokens of a response

`run_loop.py` repeats the step and saves its state, so that any interruption can be followed by the same run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dph.process.distributed import World
from dph.process.interrupts import Interrupts
from dph.process.progress import say
from dph.rehearsal.bank import Bank
from dph.rehearsal.store import RehearsalSet
from dph.runs.samples import MONITOR, ROLLOUTS, Sample, write_samples
from dph.runs.tracking import Metrics
from dph.sampling.protocol import Sampler
from dph.training.advantages import AdvantageEstimator
from dph.training.banking import Banking
from dph.training.callbacks.certifier import Certifier
from dph.training.callbacks.guards import StepGuard
from dph.training.callbacks.monitor import Monitor
from dph.training.callbacks.statistics import StepStats
from dph.training.checkpoints import TrainState
from dph.training.rollouts import Drawn, RolloutCollector
from dph.training.rows import Row, mix
from dph.training.run_loop import Clock, Saver
from dph.training.update import Groups, Updater


@dataclass(frozen=True, slots=True)
class Learner:
    """The parts of a step that draw rollouts and learn from them."""

    sampler: Sampler
    collector: RolloutCollector
    advantages: AdvantageEstimator
    updater: Updater
    recompute_old: bool
    """Whether the trainer recomputes log π_old (`recomputes_old`)."""

    def update(self, minibatches: Sequence[Groups]) -> dict[str, float]:
        """Learn from mini-batches as `Updater.update` does, while the sampler rests. The sampler then gets the new
        weights."""
        self.sampler.rest()  # frees an engine's memory on the GPU
        values = self.updater.update(minibatches, recompute_old=self.recompute_old)
        self.sampler.weights_changed()
        return values


@dataclass(frozen=True, slots=True)
class Training:
    """The parts of a training run."""

    world: World
    learner: Learner
    rehearsal: RehearsalSet | Bank
    stored_rows: int
    """The number of stored responses of a step, over all processes."""
    minibatches: int
    """The number of optimizer steps on the rollouts of a step."""
    guard: StepGuard
    monitor: Monitor
    saver: Saver
    metrics: Metrics
    shown: int
    """The number of responses of each monitored step that are printed."""
    certifier: Certifier | None = None
    banking: Banking | None = None
    """Admits rollouts to the bank, which then is `rehearsal`."""

    def step(self, clock: Clock, interrupts: Interrupts) -> None:
        """Take one step: rollouts on D_exp, stored responses of D_pef, and an update by eq. 7 on both."""
        state, learner = self.saver.state, self.learner
        turns = learner.collector.rollout.turns
        step = state.step + 1

        # Draw prompts of D_exp and judge G responses to each. A cursor says which prompts: no generator's state is
        # kept. DAPO draws further prompts in place of groups that are all correct or all wrong.
        with interrupts.allowed(self.world.size == 1):
            drawn = learner.collector.draw(state.explore_cursor)
        stats = StepStats.of(drawn, self.world)
        coverage = self.guard.check(step, drawn, stats)  # may stop the run
        clock.lap("sample")

        # Shape: rewards become advantages, relative to the group. A response that could not be judged has no row: it
        # is not a wrong one.
        rows_PG = learner.advantages.rows(drawn.groups)
        self._keep_rollouts(step, drawn, rows_PG)

        # Take stored correct responses of the reference policy to prompts of D_pef: nothing to sample or judge. Or take
        # those that the bank has from earlier steps, and see what this step's rollouts would add to it.
        stored_R, rehearsal_cursor = self.rehearsal.draw(state.rehearsal_cursor, self.stored_rows)
        admission = self.banking.admission(step, drawn) if self.banking else None

        # Update: PPO-clip on rollouts, η·f(u) on stored responses. Each row says which set it belongs to, so that both
        # share mini-batches; denominators are counted over a whole mini-batch and all processes.
        even = self.banking is not None  # rows of the bank: each problem counts alike, and each way to solve it
        minibatches = mix(rows_PG, drawn.places, drawn.total, stored_R, self.minibatches, self.world, even=even)
        with self.saver.changing():
            values = learner.update(minibatches)
            values |= self.banking.commit(admission) if self.banking and admission else {}
            optimizer = learner.updater.optimizer

            # Record: this state, the weights and the optimizer's moments are all that the next step depends on.
            self.saver.state = TrainState(
                step=step,
                explore_cursor=drawn.cursor,
                rehearsal_cursor=rehearsal_cursor,
                optimizer_steps=optimizer.steps_taken,
                skipped_in_a_row=optimizer.skipped_in_a_row,
                token_budget=learner.updater.reduced_budget,
                pending=values | stats.metrics(turns=turns) | coverage | {"lr": optimizer.lr},
            )
        clock.lap("update")
        clock.rate("tokens_per_second", stats.sampled["tokens"])

    def measure(self, clock: Clock, interrupts: Interrupts) -> Mapping[str, float]:
        """Evaluate the held-out problems and check the certification set, if they are due after the present step.

        Some of the responses to the held-out problems are kept, and a fall of pass@k is said. Returns the metrics; none
        if nothing is due.
        """
        step = self.saver.state.step
        values: dict[str, float] = {}
        if self.monitor.due(step):
            with interrupts.allowed(self.world.size == 1):
                measured = self.monitor.measure(step)
            if step == 0:
                self.saver.best.check(measured.values)
            self._keep(step, MONITOR, measured.samples)
            for message in measured.warnings:
                if self.world.leads:
                    say(f"step {step}: {message}")
            clock.lap("monitor")
            values |= measured.values
        if self.certifier is not None and self.certifier.due(step):
            with interrupts.allowed(self.world.size == 1):
                values |= self.certifier.check(step)
            clock.lap("certify")
        return values

    def _keep_rollouts(self, step: int, drawn: Drawn, rows_PG: Sequence[Sequence[Row | None]]) -> None:
        """Write some rollouts of a monitored step, with their advantages. They are written before the update, so that
        a checkpoint after the step finds them."""
        if not self.monitor.due(step):
            return
        samples = [
            (place, Sample.of(step, ROLLOUTS, group.problem, index, rollout, row.mean_advantage if row else None))
            for place, group, rows_G in zip(drawn.places, drawn.groups, rows_PG, strict=True)
            for index, (rollout, row) in enumerate(zip(group.rollouts, rows_G, strict=True))
        ]
        self._keep(step, ROLLOUTS, self.monitor.pick(samples))

    def _keep(self, step: int, source: str, samples: Sequence[Sample]) -> None:
        """Write responses of a monitored step, and print some of them."""
        if not self.world.leads or not samples:
            return
        write_samples(self.saver.run.path, step, source, samples)
        self.metrics.log_samples(step, source, samples)
        if source == ROLLOUTS or step == 0:
            for sample in samples[: self.shown]:
                say(f"step {step}: {sample.line()}")
