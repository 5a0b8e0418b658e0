"""Training: loads what the settings name, runs the loop (`dph.training.loop`), and saves the trained policy."""

from dataclasses import replace
from pathlib import Path

from dph.build import load_problems, make_sampler, make_verifiers
from dph.config import TrainConfig
from dph.config.checks import check_train
from dph.evaluation.evaluator import Evaluator
from dph.models.card import write_card
from dph.models.interpolation import save_share
from dph.models.policy import Policy
from dph.models.precision import settled
from dph.objective.advantages import Advantage
from dph.objective.objective import Objective
from dph.process.distributed import World
from dph.process.interrupts import Interrupts
from dph.process.progress import say
from dph.rehearsal.partition import training_problems
from dph.runs.directory import RunDir
from dph.runs.files import directory_written_atomically
from dph.runs.pinned import pin
from dph.runs.tracking import Metrics
from dph.sampling.rollouts import encode_problems, usable_problems
from dph.training import checkpoints
from dph.training.checkpoints import TrainState
from dph.training.explore import Explorer
from dph.training.guards import check_extension
from dph.training.inputs import (
    begin_rehearsal,
    check_rehearsal,
    forget,
    load_policy,
    make_objective,
    microbatch_tokens,
    open_rehearsal,
)
from dph.training.loop import Training
from dph.training.monitor import Best, Monitor, pass_alarm
from dph.training.optim import Optimizer
from dph.training.shaping import Shaping
from dph.training.update import Updater
from dph.verifiers import Verifiers, judging_versions
from dph.verifiers.function import RewardFunction


def train(config: TrainConfig, *, resume: bool = False, reward: RewardFunction | None = None) -> Path:
    """Run the stage; returns its run directory, whose folder `model` holds the trained policy.

    reward: judges every response, in this process, instead of the verifiers: `(prompt, completion, **columns)` → a
    number, or None for a response that cannot be judged. It is not recorded with the run; `config.reward` is.

    Raises UserError for settings that contradict each other or do not fit the presampled data, and when the run must
    stop; Interrupted on SIGINT, SIGTERM and SIGHUP. In both cases the state is saved first.
    """
    check_train(config)
    objective = make_objective(config.loss, config.rehearsal.rows)
    advantage = Advantage(config.advantage.name, config.advantage.options)
    if objective.unused:
        say(f"policy loss {config.loss.policy!r} does not use: {', '.join(objective.unused)}")
    world = World.join()
    versions = judging_versions()
    run = world.decided(
        lambda: RunDir.start(config.out, "train", config, resume=resume, versions=versions, extend=check_extension)
    )
    if run.complete:
        say(f"{run.path} is complete already")
        return run.path
    config = replace(config, model=settled(config.model, run, world))
    metrics = world.together(lambda: Metrics(run, config.tracker, world.leads))
    with make_verifiers(config.verifier, config.reward, reward) as verifiers, metrics:
        step = world.decided(lambda: checkpoints.newest_intact(run.path))
        training = world.together(lambda: _load(config, objective, advantage, run, verifiers, world, step))
        metrics.begin(training.state.step)
        try:
            with Interrupts() as interrupts:
                training.run(metrics, interrupts)
        finally:
            training.sampler.close()
    if world.leads:
        with directory_written_atomically(run.path / "model") as path:
            save_share(training.policy, config.model, config.trained_share, path)
            write_card(path, run)
        run.finish(method=config.method, steps=config.steps, tokenizer_hash=training.policy.tokenizer_hash())
    world.wait()
    return run.path


def _load(
    config: TrainConfig,
    objective: Objective,
    advantage: Advantage,
    run: RunDir,
    verifiers: Verifiers,
    world: World,
    step: int | None,
) -> Training:
    """Everything that a run needs: from the settings at the start, or from the checkpoint after `step`."""
    fresh, rollout = step is None, config.rollout
    rehearsal = open_rehearsal(config.rehearsal, rollout, run, fresh=fresh)
    task, problems = load_problems(config.task)
    problems = training_problems(config.rehearsal.path, config.task, config.prompt_set, problems, fresh=fresh)
    problems = usable_problems(verifiers, problems)
    policy, optimizer, state, budget = _model(config, run, world, step)
    if world.leads:
        forget(run, -1 if fresh else state.step, pending=state.pending is not None)
    if rehearsal is not None:
        check_rehearsal(rehearsal, config.rehearsal, rollout, policy, run, budget, fresh=fresh, leads=world.leads)
    needs_reference = objective.needs_reference or advantage.needs_reference
    reference = Policy.load(config.model) if needs_reference and not config.model.lora_rank else None
    sampler = make_sampler(config.sampler, policy, config.model, rollout.longest, training=True)
    measured = rollout.params(config.monitor.n)
    evaluator = Evaluator(policy, sampler, verifiers, measured, rollout.max_prompt_tokens, config.seed)
    monitor = Monitor(config.monitor, evaluator, task, world, shuffle=config.task.shuffle)
    responses, ledger = begin_rehearsal(config, rehearsal, run.path, state.step)
    begun = policy if fresh or config.model.lora_rank else reference
    weights = begun.weight_hash() if begun else ""
    pinned = pin(run.path, problems, monitor.problems, weights, fresh=fresh, note=world.leads)
    updater = Updater(
        policy,
        objective,
        optimizer,
        temperature=rollout.temperature,
        token_budget=budget,
        reduced_budget=state.token_budget,
        importance_cap=rollout.importance_cap,
        own_reference=reference,
        world=world,
    )
    explorer = Explorer(
        policy,
        sampler,
        verifiers,
        encode_problems(policy, problems, rollout.max_prompt_tokens, rollout.max_tokens),
        prompts=rollout.prompts,
        params=rollout.params(),
        dynamic=config.dynamic_sampling,
        seed=config.seed,
        world=world,
    )
    return Training(
        config=config,
        world=world,
        directory=run,
        policy=policy,
        sampler=sampler,
        optimizer=optimizer,
        explorer=explorer,
        shaping=Shaping(
            advantage, config.overlong, rollout.max_tokens, rollout.mask_truncated, task.style, updater.reference
        ),
        rehearsal=responses,
        updater=updater,
        monitor=monitor,
        pinned=pinned,
        state=state,
        saved=state,
        tried=state,
        best=Best.so_far(run.path, config.keep_best, config.keep_best_within, config.model.path),
        passes=pass_alarm(run.path),
        ledger=ledger,
        by_function=verifiers.only == "function",
    )


def _model(
    config: TrainConfig, run: RunDir, world: World, step: int | None
) -> tuple[Policy, Optimizer, TrainState, int]:
    """The policy, its optimizer and the state at the start or after `step`, and the tokens of a micro-batch."""
    saved = checkpoints.path_of(run.path, step or 0)
    policy = load_policy(config.model, config.seed, None if step is None else saved)
    budget = microbatch_tokens(config.optim.tokens_per_microbatch, policy, run, world)
    optimizer = Optimizer(policy.trainable(), config.optim, config.steps * config.optim.minibatches)
    state = TrainState() if step is None else checkpoints.restore(saved, policy, optimizer)
    return policy, optimizer, state, budget
