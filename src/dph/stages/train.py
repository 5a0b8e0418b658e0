"""Training: the loop of DPH-RL (paper §4.2) and, with other settings, of its baselines."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dph import checkpoints
from dph.build import load_problems, make_sampler, make_verifiers, select
from dph.checkpoints import TrainState
from dph.config import TrainConfig
from dph.distributed import World
from dph.errors import UserError
from dph.explore import Drawn, Explorer, group_rows, is_informative
from dph.losses import check_loss_config, needs_rollout_ref
from dph.models.batch import Row
from dph.models.policy import Policy
from dph.optim import Optimizer
from dph.progress import progress, say
from dph.rehearsal import Rehearsal, check_fit, read_rehearsal, recheck
from dph.rollouts import Prompted, encode_problems, usable_problems
from dph.runs import RunDir
from dph.samplers.protocol import Sampler
from dph.seeding import EpochOrder
from dph.stages.evaluate import Scored, evaluate_split, metric_means, summarise
from dph.stages.presample import read_partition
from dph.tasks import Task
from dph.tracking import Metrics
from dph.types import Problem, SamplingParams
from dph.update import Updater
from dph.verifiers import Verifiers

_LARGEST_DEVIATION = 1.0
"""Nats by which a stored log-probability may differ from the recomputed one: far more than rounding in bf16 makes."""


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
    saved = checkpoints.newest(run.path)
    policy = _load_policy(config, saved)
    optimizer = Optimizer(policy.trainable(), config.optim, config.steps * config.optim.minibatches)
    state = checkpoints.restore(saved, policy, optimizer) if saved else TrainState()
    stored = _load_rehearsal(config, policy, fresh=saved is None)
    reference = Policy.load(config.model) if needs_rollout_ref(config.loss) and not config.model.lora_rank else None
    sampler = make_sampler(config.sampler, policy)
    if world.leads:
        run.rewind(state.step)

    with make_verifiers(config.verifier) as verifiers, Metrics(run, config.tracker, world.leads) as metrics:
        task, problems = load_problems(config.task)
        items = encode_problems(
            policy,
            _training_problems(config, usable_problems(verifiers, problems)),
            config.rollout.max_prompt_tokens,
            config.rollout.max_tokens,
        )
        explorer = Explorer(policy, sampler, verifiers, items, config, world)
        updater = Updater(policy, reference, optimizer, config, world)
        rehearsal_order = EpochOrder(len(stored), config.seed, "rehearsal") if stored else None
        monitor = Monitor(config, task, policy, sampler, verifiers, world)
        if state.step == 0 and config.monitor.every:
            metrics.log(0, monitor.measure(), {})

        with progress(f"training {config.method}", config.steps, state.step, quiet=not world.leads) as shown:
            while state.step < config.steps:
                clock = Clock()
                drawn = explorer.draw(state.explore_cursor)
                clock.lap("sample")
                chosen = rehearsal_order.take(state.rehearsal_cursor, config.rehearsal.rows) if rehearsal_order else []
                minibatches = mix(drawn, [stored[i].row() for i in chosen], config, world)
                values = updater.update(minibatches, recompute_old=recomputes_old(config))
                clock.lap("update")
                state = TrainState(
                    step=state.step + 1,
                    explore_cursor=drawn.cursor,
                    rehearsal_cursor=state.rehearsal_cursor + len(chosen),
                    optimizer_steps=optimizer.steps_taken,
                )
                values |= rollout_metrics(drawn, config, world) | {"lr": optimizer.lr}
                if config.monitor.every and state.step % config.monitor.every == 0:
                    values |= monitor.measure()
                    clock.lap("monitor")
                metrics.log(state.step, values, clock.laps)
                if world.leads and (state.step % config.checkpoint_every == 0 or state.step == config.steps):
                    checkpoints.save(run.path, policy, optimizer, state, config.keep_checkpoints)
                shown.advance(1, f"reward {values.get('reward', float('nan')):.3f}")

    if world.leads:
        policy.save(run.path / "model")
        run.finish(method=config.method, steps=config.steps, tokenizer_hash=policy.tokenizer_hash())
    world.wait()
    return run.path


def check_settings(config: TrainConfig) -> None:
    """Raises UserError for settings that contradict each other, before anything is loaded."""
    check_loss_config(config.loss)
    uses_rehearsal = config.rehearsal.rows > 0
    if uses_rehearsal != (config.loss.eta > 0):
        raise UserError(
            f"loss.eta is {config.loss.eta} but rehearsal.rows is {config.rehearsal.rows}: set both above 0 to "
            "rehearse, or both to 0"
        )
    if (uses_rehearsal or config.prompts == "explore") and not config.rehearsal.path:
        raise UserError(
            f"method {config.method!r} needs a presampled partition; run `dph presample` and add --rehearsal.path RUN"
        )
    if config.rollout.n < 2:
        raise UserError(f"rollout.n is {config.rollout.n}; advantages are relative to a group of at least 2 responses")
    if config.rollout.temperature <= 0:
        raise UserError("rollout.temperature must be above 0: greedy responses of a group would all be the same")
    if config.rollout.prompts < config.optim.minibatches:
        raise UserError(
            f"rollout.prompts {config.rollout.prompts} cannot be split into {config.optim.minibatches} mini-batches"
        )


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


def rollout_metrics(drawn: Drawn, config: TrainConfig, world: World) -> dict[str, float]:
    """Means over the step's rollouts (D_exp only: stored responses never enter) and over its groups."""
    rollouts = [rollout for group in drawn.groups for rollout in group.rollouts]
    scored = [rollout for rollout in rollouts if rollout.verdict.scored]
    sums = world.sum_values(
        {
            "groups": len(drawn.groups),
            "informative": sum(map(is_informative, drawn.groups)),
            "solved": sum(any(r.verdict.correct for r in group.rollouts) for group in drawn.groups),
            "rollouts": len(rollouts),
            "scored": len(scored),
            "reward": sum(rollout.reward for rollout in scored),
            "correct": sum(rollout.verdict.correct for rollout in scored),
            "tokens": sum(len(rollout.completion.token_ids) for rollout in rollouts),
            "truncated": sum(rollout.completion.finish_reason == "length" for rollout in rollouts),
        }
    )
    per_rollout, per_group, judged = max(1, sums["rollouts"]), max(1, sums["groups"]), max(1, sums["scored"])
    return {
        "reward": sums["reward"] / judged,
        "pass_rate": sums["correct"] / judged,
        "solved": sums["solved"] / per_group,
        "informative": sums["informative"] / per_group,
        "response_length": sums["tokens"] / per_rollout,
        "truncated": sums["truncated"] / per_rollout,
        "unscored": 1 - sums["scored"] / per_rollout,
        "groups": sums["groups"],
        "prompts_drawn": drawn.attempted,
    }


class Clock:
    """Seconds of each part of a step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[f"{name}_seconds"], self._last = now - self._last, now


class Monitor:
    """Evaluation during training on a few held-out problems, spread over processes."""

    def __init__(
        self, config: TrainConfig, task: Task, policy: Policy, sampler: Sampler, verifiers: Verifiers, world: World
    ) -> None:
        self._config, self._task, self._policy = config, task, policy
        self._sampler, self._verifiers, self._world = sampler, verifiers, world
        self._problems: list[Problem] = (
            select(task, config.monitor.split, config.monitor.limit) if config.monitor.every else []
        )

    def measure(self) -> dict[str, float]:
        """Metrics named eval/…, from the same random keys each time."""
        config, world = self._config, self._world
        rollout = config.rollout
        params = SamplingParams(config.monitor.n, rollout.temperature, rollout.top_p, rollout.max_tokens)
        own = [self._problems[i] for i in world.share(len(self._problems))]
        scored = self._score(own, params) if own else []
        every = [item for part in world.gather(scored) for item in part]
        return metric_means(summarise(every, config.monitor.n), "eval/")

    def _score(self, problems: Sequence[Problem], params: SamplingParams) -> list[Scored]:
        return evaluate_split(
            self._policy,
            self._sampler,
            self._verifiers,
            self._task,
            problems,
            params,
            self._config.seed,
            max_prompt_tokens=self._config.rollout.max_prompt_tokens,
            with_greedy=True,
            label="monitor",
            quiet=True,
        )[0]


def _load_policy(config: TrainConfig, saved: Path | None) -> Policy:
    """The policy at the start, or as the newest checkpoint has it (adapters are restored into the given model)."""
    if saved is None or config.model.lora_rank:
        return Policy.load(config.model, config.seed)
    return Policy.load(replace(config.model, path=str(saved / "model")))


def _load_rehearsal(config: TrainConfig, policy: Policy, *, fresh: bool) -> list[Rehearsal]:
    """Stored responses, checked against the policy that training starts from."""
    if config.rehearsal.rows == 0:
        return []
    path = Path(config.rehearsal.path)
    manifest = RunDir.open(path, "presample").manifest
    stored = read_rehearsal(path / "rehearsal.parquet")
    if not stored:
        raise UserError(
            f"the presample run {path} found no near-perfect prompt, so method {config.method!r} has nothing to "
            "rehearse; lower its threshold, use a stronger model, or train with a method without rehearsal"
        )
    check_fit(manifest, policy, config.rollout.temperature, same_weights=fresh, where=path)
    if fresh and config.rehearsal.check_rows:
        sample = stored[: config.rehearsal.check_rows]
        deviation = recheck(policy, sample, config.rollout.temperature, config.optim.tokens_per_microbatch)
        if deviation > _LARGEST_DEVIATION:
            raise UserError(
                f"the stored log-probabilities of {path} differ from this model's by {deviation:.1f} nats, so they are "
                "not its own; run `dph presample` again"
            )
        say(f"stored log-probabilities agree with recomputed ones to {deviation:.1e} nats ({len(sample)} rows)")
    return stored


def _training_problems(config: TrainConfig, problems: Sequence[Problem]) -> list[Problem]:
    """The exploration set, or all that pre-sampling did not drop, or without a partition all problems."""
    if not config.rehearsal.path:
        return list(problems)
    partition = read_partition(Path(config.rehearsal.path), config.task)
    wanted = {"explore"} if config.prompts == "explore" else {"explore", "perfect"}
    chosen = [problem for problem in problems if partition.get(problem.id) in wanted]
    if not chosen:
        raise UserError(f"the presample run {config.rehearsal.path} left no prompt to explore; train on --prompts all")
    return chosen


__all__ = ["Prompted", "check_settings", "mix", "recomputes_old", "rollout_metrics", "train"]
