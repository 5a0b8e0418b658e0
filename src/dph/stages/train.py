"""Training: the loop of DPH-RL (paper §4.2) and, with other settings, of its baselines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dph import checkpoints
from dph.build import load_problems, make_sampler, make_verifiers
from dph.checkpoints import TrainState
from dph.config import TrainConfig
from dph.distributed import World
from dph.explore import Drawn, Explorer, group_rows
from dph.losses import needs_rollout_ref
from dph.models.batch import Row
from dph.models.policy import Policy
from dph.optim import Optimizer
from dph.progress import progress, say
from dph.rehearsal import RehearsalSet
from dph.rollouts import encode_problems, usable_problems
from dph.runs import RunDir
from dph.stages.monitor import Clock, Monitor, rollout_metrics
from dph.stages.train_inputs import check_settings, load_policy, load_rehearsal, training_problems
from dph.tracking import Metrics
from dph.update import Updater
from dph.verifiers import Verifiers


def train(config: TrainConfig, *, resume: bool = False) -> Path:
    """Run the stage; returns its run directory, whose folder `model` holds the trained policy.

    Raises UserError for settings that contradict each other or do not fit the presampled data.
    """
    check_settings(config)
    world = World.join()
    run = RunDir.start(config.out, "train", config, resume=resume) if world.leads else None
    world.wait()
    run = run or RunDir.open(Path(config.out), "train")
    if run.complete:
        say(f"{run.path} is complete already")
        return run.path
    with make_verifiers(config.verifier) as verifiers, Metrics(run, config.tracker, world.leads) as metrics:
        training = Training.prepare(config, run, verifiers, world)
        training.loop(run, metrics)
    if world.leads:
        training.policy.save(run.path / "model")
        run.finish(method=config.method, steps=config.steps, tokenizer_hash=training.policy.tokenizer_hash())
    world.wait()
    return run.path


@dataclass(slots=True)
class Training:
    """A training run in progress: its parts, and where it stands."""

    config: TrainConfig
    world: World
    policy: Policy
    optimizer: Optimizer
    explorer: Explorer
    rehearsal: RehearsalSet
    updater: Updater
    monitor: Monitor
    state: TrainState

    @classmethod
    def prepare(cls, config: TrainConfig, run: RunDir, verifiers: Verifiers, world: World) -> "Training":
        """Load everything, as it is at the start or as the newest checkpoint of the run has it."""
        saved = checkpoints.newest(run.path)
        policy = load_policy(config, saved)
        optimizer = Optimizer(policy.trainable(), config.optim, config.steps * config.optim.minibatches)
        state = checkpoints.restore(saved, policy, optimizer) if saved else TrainState()
        if world.leads:
            run.rewind(state.step if saved else -1)
        stored = load_rehearsal(config, policy, run, fresh=saved is None, leads=world.leads)
        rehearsal = RehearsalSet(stored, config.seed)
        reference = Policy.load(config.model) if needs_rollout_ref(config.loss) and not config.model.lora_rank else None
        sampler = make_sampler(config.sampler, policy)
        task, problems = load_problems(config.task)
        problems = training_problems(config, usable_problems(verifiers, problems))
        items = encode_problems(policy, problems, config.rollout.max_prompt_tokens, config.rollout.max_tokens)
        return cls(
            config=config,
            world=world,
            policy=policy,
            optimizer=optimizer,
            explorer=Explorer(policy, sampler, verifiers, items, config, world),
            rehearsal=rehearsal,
            updater=Updater(policy, reference, optimizer, config, world),
            monitor=Monitor(config, task, policy, sampler, verifiers, world),
            state=state,
        )

    def loop(self, run: RunDir, metrics: Metrics) -> None:
        """All steps that are left, with their measurements and checkpoints."""
        config, every = self.config, self.config.monitor.every
        if self.state.step == 0 and every:
            metrics.log(0, self.monitor.measure(), {})
        label = f"training {config.method}"
        with progress(label, config.steps, self.state.step, quiet=not self.world.leads) as shown:
            while self.state.step < config.steps:
                clock = Clock()
                values = self.step(clock)
                step = self.state.step
                if every and step % every == 0:
                    values |= self.monitor.measure()
                    clock.lap("monitor")
                metrics.log(step, values, clock.laps)
                if self.world.leads and (step % config.checkpoint_every == 0 or step == config.steps):
                    checkpoints.save(run.path, self.policy, self.optimizer, self.state, config.keep_checkpoints)
                shown.advance(1, f"reward {values['reward']:.3f}")

    def step(self, clock: Clock) -> dict[str, float]:
        """One step: rollouts on D_exp, stored responses of D_pef, and eq. 7 on both. Returns its metrics."""
        config, state = self.config, self.state
        drawn = self.explorer.draw(state.explore_cursor)  # D_exp: sample, judge, (DAPO) refill
        clock.lap("sample")
        stored = self.rehearsal.take(state.rehearsal_cursor, config.rehearsal.rows)  # D_pef: nothing to sample or judge
        minibatches = mix(drawn, stored, config, self.world)  # each row tagged with its set
        values = self.updater.update(minibatches, recompute_old=recomputes_old(config))  # PPO-clip, η·f(u)
        clock.lap("update")
        self.state = TrainState(
            step=state.step + 1,
            explore_cursor=drawn.cursor,
            rehearsal_cursor=state.rehearsal_cursor + len(stored),
            optimizer_steps=self.optimizer.steps_taken,
        )
        values |= rollout_metrics(drawn, self.world) | {"lr": self.optimizer.lr}
        clock.rate("tokens_per_second", values["response_length"] * values["groups"] * config.rollout.n)
        return values


def mix(drawn: Drawn, stored: Sequence[Row], config: TrainConfig, world: World) -> list[list[Row]]:
    """This process's rows of each mini-batch: groups and stored responses are spread evenly over the mini-batches, and
    stored responses over processes."""
    parts = config.optim.minibatches
    minibatches: list[list[Row]] = [[] for _ in range(parts)]
    for place, group in zip(drawn.ranks, drawn.groups, strict=True):
        minibatches[place * parts // drawn.total] += group_rows(group, config)
    for index in world.share(len(stored)):
        minibatches[index * parts // len(stored)].append(stored[index])
    return minibatches


def recomputes_old(config: TrainConfig) -> bool:
    """Whether log π_old is recomputed by the trainer: where the sampler's own numbers are not exact."""
    if config.rollout.old_logprobs == "auto":
        return config.sampler.engine != "hf" or config.model.precision != "fp32"
    return config.rollout.old_logprobs == "recompute"
