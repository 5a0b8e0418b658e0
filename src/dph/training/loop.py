"""One step of DPH-RL (paper §4.2) and, with other settings, of the baselines.

    draw → judge → shape → take → update → record

Names of nested lists and tensors end with their dimensions:

    P   this process's prompts of the step     R   stored responses of the step
    G   rollouts of one prompt, a group        T   tokens of a response

`frame.py` repeats the step and saves its state, so that any interruption can be followed by the same run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dph.config import TrainConfig
from dph.process.distributed import World
from dph.process.interrupts import Interrupts
from dph.process.progress import say
from dph.rehearsal.store import RehearsalSet
from dph.runs.samples import MONITOR, ROLLOUTS, Sample, write_samples
from dph.runs.tracking import Metrics
from dph.training.certifier import Certifier
from dph.training.checkpoints import TrainState
from dph.training.frame import Clock, Saver
from dph.training.monitor import Monitor
from dph.training.rollouts import Drawn, Explorer, Shaping
from dph.training.rows import Row, mix
from dph.training.update import Updater, recomputes_old
from dph.training.watch import StepStats, Watch


@dataclass(frozen=True, slots=True)
class Training:
    """The parts of a training run."""

    config: TrainConfig
    world: World
    explorer: Explorer
    shaping: Shaping
    rehearsal: RehearsalSet
    updater: Updater
    watch: Watch
    monitor: Monitor
    saver: Saver
    metrics: Metrics
    certifier: Certifier | None = None

    def step(self, clock: Clock, interrupts: Interrupts) -> None:
        """One step: rollouts on D_exp, stored responses of D_pef, and eq. 7 on both."""
        config, state, optimizer = self.config, self.saver.state, self.updater.optimizer
        step = state.step + 1

        # Draw prompts of D_exp and judge G responses to each. A cursor says which prompts: no generator's state is
        # kept. DAPO draws further prompts in place of groups that are all correct or all wrong.
        with interrupts.allowed(self.world.size == 1):
            drawn = self.explorer.draw(state.explore_cursor)
        stats = StepStats.of(drawn, self.world)
        coverage = self.watch.check(step, drawn, stats)  # may stop the run
        clock.lap("sample")

        # Shape: rewards become advantages, relative to the group. A response that could not be judged has no row: it
        # is not a wrong one.
        rows_PG = self.shaping.rows(drawn.groups)
        self._keep_rollouts(step, drawn, rows_PG)

        # Take stored correct responses of the reference policy to prompts of D_pef: nothing to sample or judge.
        stored_R = self.rehearsal.take(state.rehearsal_cursor, config.stored_rows)

        # Update: PPO-clip on rollouts, η·f(u) on stored responses. Each row says which set it belongs to, so that both
        # share mini-batches; denominators are counted over a whole mini-batch and all processes.
        minibatches = mix(rows_PG, drawn.places, drawn.total, stored_R, config.optim.minibatches, self.world)
        # If the sampler's log π_old is not what the trainer would compute (bf16, another engine), it is recomputed.
        recompute = recomputes_old(config.rollout.old_logprobs, config.sampler.engine, config.model.precision)
        with self.saver.changing():
            self.explorer.sampler.rest()  # frees what an engine holds on the GPU
            values = self.updater.update(minibatches, recompute_old=recompute)
            self.explorer.sampler.weights_changed()

            # Record: this state, the weights and the optimizer's moments are all that the next step depends on.
            self.saver.state = TrainState(
                step=step,
                explore_cursor=drawn.cursor,
                rehearsal_cursor=state.rehearsal_cursor + len(stored_R),
                optimizer_steps=optimizer.steps_taken,
                skipped_in_a_row=optimizer.skipped_in_a_row,
                token_budget=self.updater.reduced_budget,
                pending=values | stats.metrics() | coverage | {"lr": optimizer.lr},
            )
        clock.lap("update")
        clock.rate("tokens_per_second", stats.tokens)

    def measure(self, clock: Clock, interrupts: Interrupts) -> Mapping[str, float]:
        """Evaluate the held-out problems, keep some of their responses, say if pass@k has fallen, and check the
        certification set, all if they are due."""
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
        """Keep some rollouts of a monitored step with their advantages: before the update that uses them, so that every
        checkpoint after it has them."""
        if not self.monitor.due(step):
            return
        samples = [
            (place, Sample.of(step, ROLLOUTS, group.problem, index, rollout, row.mean_advantage if row else None))
            for place, group, rows_G in zip(drawn.places, drawn.groups, rows_PG, strict=True)
            for index, (rollout, row) in enumerate(zip(group.rollouts, rows_G, strict=True))
        ]
        self._keep(step, ROLLOUTS, self.monitor.pick(samples))

    def _keep(self, step: int, source: str, samples: Sequence[Sample]) -> None:
        """Write responses of a monitored step, and show some."""
        if not self.world.leads or not samples:
            return
        write_samples(self.saver.run.path, step, source, samples)
        self.metrics.log_samples(step, source, samples)
        if source == ROLLOUTS or step == 0:
            for sample in samples[: self.config.show_samples]:
                say(f"step {step}: {sample.line()}")
