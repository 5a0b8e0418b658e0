"""One step of DPH-RL (paper §4.2) and, with other settings, of the baselines.

    draw → judge → shape → take → update → record

Names of nested lists and tensors end with their dimensions:

    P   this process's prompts of the step     R   stored responses of the step
    G   rollouts of one prompt, a group        T   tokens of a response

`frame.py` repeats the step and saves its state, so that any interruption can be followed by the same run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dph.build import make_sampler
from dph.config import TrainConfig
from dph.models.policy import Policy
from dph.objective.advantages import Advantage
from dph.objective.objective import Objective
from dph.process.distributed import World
from dph.process.interrupts import Interrupts
from dph.process.progress import say
from dph.rehearsal.store import RehearsalSet
from dph.runs.directory import RunDir
from dph.runs.samples import MONITOR, ROLLOUTS, Sample, write_samples
from dph.runs.tracking import Metrics
from dph.sampling.rollouts import encode_problems, settled_rows
from dph.tasks import Task, style_of
from dph.training.checkpoints import TrainState
from dph.training.frame import Clock, Saver
from dph.training.monitor import Certifier, Monitor
from dph.training.optim import Optimizer
from dph.training.rollouts import Drawn, Explorer, Shaping
from dph.training.rows import Row, mix
from dph.training.update import Groups, Updater, recomputes_old
from dph.training.watch import StepStats, Watch
from dph.types import Problem
from dph.verifiers import Verifiers


def objective_of(config: TrainConfig) -> Objective:
    """The objective of a run. Without stored responses the rehearsal term is off, whatever its weight."""
    return Objective(config.loss if config.rehearsal.rows else replace(config.loss, eta=0.0))


class Learner:
    """The parts of a step that draw rollouts and learn from them."""

    def __init__(
        self,
        config: TrainConfig,
        task: Task,
        problems: Sequence[Problem],
        verifiers: Verifiers,
        policy: Policy,
        optimizer: Optimizer,
        world: World,
        token_budget: int,
        run: RunDir | None = None,
    ) -> None:
        """problems: those to draw prompts from. token_budget: tokens per micro-batch of an update. run: the run
        directory that keeps the number of rows that are sampled together."""
        rollout, advantage = config.rollout, Advantage(config.advantage.name, config.advantage_options)
        objective = objective_of(config)
        needs_reference = objective.needs_reference or advantage.needs_reference
        self.reference = Policy.load(config.model) if needs_reference and not config.model.lora_rank else None
        """π_ref, if rollouts need it; a policy with adapters needs none."""
        items = encode_problems(policy, problems, rollout.max_prompt_tokens, rollout.max_tokens)
        settings = config.sampler
        if run is not None:
            step = -(-rollout.prompts // world.size) * rollout.n
            settings = settled_rows(settings, policy, items, rollout, run, world, step)
        self.sampler = make_sampler(settings, policy, config.model, rollout.longest, training=True)
        self.explorer = Explorer(policy, self.sampler, verifiers, items, config, world)
        self.updater = Updater(
            policy,
            objective,
            optimizer,
            temperature=rollout.temperature,
            token_budget=token_budget,
            importance_cap=rollout.importance_cap,
            own_reference=self.reference,
            world=world,
        )
        limits = (config.overlong, rollout.max_tokens, rollout.mask_truncated)
        self.shaping = Shaping(advantage, *limits, partial(style_of, task), self.updater.reference_logprobs)
        # If the sampler's log π_old is not what the trainer would compute (bf16, another engine), it is recomputed
        self._recompute_old = recomputes_old(rollout.old_logprobs, config.sampler.engine, config.model.precision)

    def update(self, minibatches: Sequence[Groups]) -> dict[str, float]:
        """Learn from mini-batches as `Updater.update`, while the sampler rests."""
        self.sampler.rest()  # frees an engine's memory on the GPU
        values = self.updater.update(minibatches, recompute_old=self._recompute_old)
        self.sampler.weights_changed()
        return values


@dataclass(frozen=True, slots=True)
class Training:
    """The parts of a training run."""

    config: TrainConfig
    world: World
    learner: Learner
    rehearsal: RehearsalSet
    watch: Watch
    monitor: Monitor
    saver: Saver
    metrics: Metrics
    certifier: Certifier | None = None

    def step(self, clock: Clock, interrupts: Interrupts) -> None:
        """One step: rollouts on D_exp, stored responses of D_pef, and eq. 7 on both."""
        config, state, learner = self.config, self.saver.state, self.learner
        step = state.step + 1

        # Draw prompts of D_exp and judge G responses to each. A cursor says which prompts: no generator's state is
        # kept. DAPO draws further prompts in place of groups that are all correct or all wrong.
        with interrupts.allowed(self.world.size == 1):
            drawn = learner.explorer.draw(state.explore_cursor)
        stats = StepStats.of(drawn, self.world)
        coverage = self.watch.check(step, drawn, stats)  # may stop the run
        clock.lap("sample")

        # Shape: rewards become advantages, relative to the group. A response that could not be judged has no row: it
        # is not a wrong one.
        rows_PG = learner.shaping.rows(drawn.groups)
        self._keep_rollouts(step, drawn, rows_PG)

        # Take stored correct responses of the reference policy to prompts of D_pef: nothing to sample or judge.
        stored_R = self.rehearsal.take(state.rehearsal_cursor, config.stored_rows)

        # Update: PPO-clip on rollouts, η·f(u) on stored responses. Each row says which set it belongs to, so that both
        # share mini-batches; denominators are counted over a whole mini-batch and all processes.
        minibatches = mix(rows_PG, drawn.places, drawn.total, stored_R, config.optim.minibatches, self.world)
        with self.saver.changing():
            values = learner.update(minibatches)
            optimizer = learner.updater.optimizer

            # Record: this state, the weights and the optimizer's moments are all that the next step depends on.
            self.saver.state = TrainState(
                step=step,
                explore_cursor=drawn.cursor,
                rehearsal_cursor=state.rehearsal_cursor + len(stored_R),
                optimizer_steps=optimizer.steps_taken,
                skipped_in_a_row=optimizer.skipped_in_a_row,
                token_budget=learner.updater.reduced_budget,
                pending=values | stats.metrics() | coverage | {"lr": optimizer.lr},
            )
        clock.lap("update")
        clock.rate("tokens_per_second", stats.sampled["tokens"])

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
        """Keep some rollouts of a monitored step with advantages, before the update: later checkpoints have them."""
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
