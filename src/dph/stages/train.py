"""Training: loads what the settings name, runs the loop (`dph.training.loop`), and saves the trained policy."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from dph.build import load_problems, make_verifiers
from dph.config import TrainConfig
from dph.config.checks import check_train
from dph.errors import counted
from dph.evaluation.certification import CertificationSet
from dph.evaluation.evaluator import Evaluator
from dph.models.card import save_with_card
from dph.models.chat import noted_rendering
from dph.models.interpolation import save_share
from dph.models.loading import settled
from dph.models.policy import Policy
from dph.objective.advantages import Advantage
from dph.process.distributed import World
from dph.process.progress import say
from dph.rehearsal.check import CheckedSet, check_rehearsal, open_rehearsal, warn_of_another_judge
from dph.rehearsal.partition import reference_counts, training_problems
from dph.rehearsal.store import RehearsalSet
from dph.runs.coverage import drop_visits
from dph.runs.directory import RunDir
from dph.runs.pinned import pin
from dph.runs.samples import drop_samples
from dph.runs.tracking import Metrics
from dph.sampling.rollouts import usable_problems
from dph.tasks import Task
from dph.training import checkpoints
from dph.training.checkpoints import TrainState
from dph.training.frame import Frame, Saver, finish, load_policy, microbatch_tokens, newest_checkpoint, open_run
from dph.training.loop import Learner, Training, objective_of
from dph.training.monitor import Best, Certifier, Monitor, monitored_sets
from dph.training.optim import Optimizer
from dph.training.rollouts import Explorer
from dph.training.watch import Watch, ledger_after
from dph.types import Problem
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
    Advantage(config.advantage.name, config.advantage_options)  # a mistake in its settings shows before the run begins
    if unused := objective_of(config).unused:
        say(f"policy loss {config.loss.policy!r} does not use: {', '.join(unused)}")
    world, run = open_run(config, "train", resume=resume, versions=judging_versions())
    if run.complete:
        return run.path
    config = replace(config, model=settled(config.model, run, world))
    metrics = world.together(lambda: Metrics(run, config.tracker, world.leads))
    with make_verifiers(config.verifier, config.reward, reward) as verifiers, metrics:
        saved = newest_checkpoint(run, world)
        policy, training = world.together(lambda: load(config, run, verifiers, world, metrics, saved))
        metrics.begin(training.saver.state.step)
        updates = config.steps * config.optim.minibatches
        certifier, label = training.certifier, f"training {config.method}"
        ended = (lambda: certifier.ended) if certifier else (lambda: False)
        frame = Frame(config, world, training.saver, metrics.log, updates, label, "reward", ended)
        try:
            frame.repeat(training.step, training.measure)
        finally:
            training.learner.sampler.close()
    return finish(
        run,
        world,
        lambda folder: save_share(policy, config.model, config.trained_share, folder),
        lambda: {
            "method": config.method,
            "steps": training.saver.state.step,
            "tokenizer_hash": policy.tokenizer_hash(),
            **({"certified": certifier.certified} if certifier else {}),
        },
    )


def load(
    config: TrainConfig,
    run: RunDir,
    verifiers: Verifiers,
    world: World,
    metrics: Metrics,
    saved: Path | None,
) -> tuple[Policy, Training]:
    """The policy and all that trains it: from the settings at the start, or from a checkpoint."""
    fresh = saved is None
    task, problems, stored, held = data_of(config, run, verifiers, world, fresh=fresh)

    policy = load_policy(config.model, config.seed, saved)
    noted_rendering(run, policy, world)
    budget = microbatch_tokens(config.optim.tokens_per_microbatch, policy, run, world)
    optimizer = Optimizer(policy.trainable(), config.optim, config.steps * config.optim.minibatches)
    state = TrainState() if saved is None else checkpoints.restore(saved, policy, optimizer)
    done = -1 if fresh else state.step
    logged = done - (state.pending is not None)  # metrics of a pending step are not in the run yet
    if world.leads:
        run.rewind(logged)
        drop_samples(run.path, done)
        drop_visits(run.path, done)
    if stored is not None:  # which the model that training began with must have made
        check_rehearsal(stored, config.rehearsal, config.rollout, policy, run, budget, fresh=fresh, leads=world.leads)

    learner = Learner(config, task, problems, verifiers, policy, optimizer, world, budget, run)
    learner.updater.reduced_budget = state.token_budget
    monitor, certifier = measuring(learner.explorer, run, task, held, logged, fresh=fresh)
    initial = policy if fresh or config.model.lora_rank else learner.reference
    weights = initial.weight_hash() if initial else ""
    pinned = pin(run.path, problems, monitor.problems, weights, fresh=fresh, note=world.leads)
    ledger = ledger_after(run.path, state.step, reference_counts(config.rehearsal.path))
    by_function = verifiers.only == "function"
    best = Best.so_far(run.path, config.keep_best, config.keep_best_within, config.model.path)
    return policy, Training(
        config=config,
        world=world,
        learner=learner,
        rehearsal=RehearsalSet(stored.stored if stored else [], config.seed),
        watch=Watch(run.path, world, pinned, ledger, max_unjudged=config.max_unjudged, by_function=by_function),
        monitor=monitor,
        saver=Saver(run, policy, optimizer, state, world, keep=config.keep_checkpoints, best=best),
        metrics=metrics,
        certifier=certifier,
    )


def data_of(
    config: TrainConfig, run: RunDir, verifiers: Verifiers, world: World, *, fresh: bool
) -> tuple[Task, list[Problem], CheckedSet | None, CertificationSet | None]:
    """The task, the problems to draw prompts from, the stored responses, and the certification set, with all checks
    that need no model."""
    task, problems = load_problems(config.task)
    stored = open_rehearsal(config.rehearsal, config.rollout, run, fresh=fresh)
    if stored is not None and world.leads:
        warn_of_another_judge(stored.run, config.verifier, config.reward)
    held = CertificationSet.open(config.certify) if config.certify.set else None
    problems = training_problems(config.rehearsal.path, config.task, config.prompt_set, problems, fresh=fresh)
    if held is not None:
        problems = [problem for problem in problems if problem.id not in held.base]
        held.check_apart("rehearsed", (row.problem_id for row in (stored.stored if stored else ())))
    problems = usable_problems(verifiers, problems)
    if world.leads and config.rollout.prompts > len(problems):
        of = counted(len(problems), "problem")
        say(f"rollout.prompts is {config.rollout.prompts}, of {of}: steps draw some repeatedly")
    if world.leads and config.rehearsal.path and not config.rehearsal.rows and config.prompt_set == "all":
        say(f"method {config.method!r} does not rehearse: of {config.rehearsal.path} only the pass rates are read")
    return task, problems, stored, held


def measuring(
    explorer: Explorer, run: RunDir, task: Task, held: CertificationSet | None, logged: int, *, fresh: bool
) -> tuple[Monitor, Certifier | None]:
    """What measures the policy that draws on held-out problems, and what certifies it; logged: the last step that the
    run has metrics of."""
    policy, sampler, verifiers = explorer.policy, explorer.sampler, explorer.verifiers
    config, world, rollout = explorer.config, explorer.world, explorer.config.rollout
    params = rollout.params(config.monitor.n)
    evaluator = Evaluator(policy, sampler, verifiers, params, rollout.max_prompt_tokens, config.seed)
    sets = monitored_sets(config.monitor, task, shuffle=config.task.shuffle) if config.monitor.every else []
    monitor = Monitor(config.monitor, evaluator, sets, world, run.path, logged)
    if held is None:
        return monitor, None
    held.check_apart("monitored", (problem.id for problem in monitor.problems))
    held.check(policy, config, base=fresh)
    save = partial(save_with_card, run, policy.save)
    return monitor, Certifier(run.path, held, held.evaluator(policy, sampler, verifiers), world, save, logged)
