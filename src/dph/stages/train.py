"""Training: everything that the settings name is loaded, the loop (`dph.training.loop`) runs, and the trained policy is
saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dph.build import load_problems, make_sampler, make_verifiers
from dph.config import RewardConfig, TrainConfig
from dph.errors import DataError, counted
from dph.evaluation.certification import CertificationSet
from dph.evaluation.evaluator import Evaluator
from dph.measure.metrics import answer_of
from dph.models.card import save_with_card
from dph.models.chat import noted_rendering
from dph.models.fitting import settled_tokens
from dph.models.interpolation import save_share
from dph.models.policy import Policy
from dph.objective.advantages import Advantage
from dph.objective.objective import Objective
from dph.process.distributed import World
from dph.process.progress import say
from dph.rehearsal.bank_files import BankFiles
from dph.rehearsal.check import check_rehearsal, check_settings
from dph.rehearsal.modes import BankKey, Forms
from dph.rehearsal.presampled import Presampled
from dph.rehearsal.store import RehearsalSet
from dph.runs.coverage import drop_visits
from dph.runs.directory import RunDir
from dph.runs.pinned import pin
from dph.runs.samples import drop_samples
from dph.runs.tracking import Metrics
from dph.sampling.rollouts import encode_problems, settled_rows, usable_problems
from dph.tasks import Task, style_of
from dph.training import checkpoints
from dph.training.advantages import AdvantageEstimator
from dph.training.banking import Banking
from dph.training.callbacks.certifier import Certifier
from dph.training.callbacks.guards import StepGuard, ledger_after
from dph.training.callbacks.monitor import Monitor, monitored_sets
from dph.training.checkpoints import BestCheckpoint, TrainState
from dph.training.loop import Learner, Training
from dph.training.optim import Optimizer
from dph.training.rollouts import RolloutCollector
from dph.training.run_loop import Opened, RunLoop, Saver, finish, open_run, say_if_idle
from dph.training.update import Updater, recomputes_old
from dph.types import Problem
from dph.verifiers import Verifiers, judging_versions
from dph.verifiers.function import RewardFunction


def train(config: TrainConfig, *, resume: bool = False, reward: RewardFunction | None = None) -> Path:
    """Run the stage. Returns its run directory, whose folder `model` holds the trained policy. When a run that has
    begun has to stop, its state is saved first.

    Args:
        config: the settings of the stage.
        resume: whether to continue the run in `config.out`.
        reward: a function that judges every response, in this process, in place of the verifiers: `(prompt, completion,
            **columns)` → a number, or None for a response that cannot be judged. Unlike `config.reward`, the function
            is not recorded with the run.
    Raises:
        UserError: settings contradict each other or do not fit the presampled data, or the run must stop.
        Interrupted: SIGINT, SIGTERM or SIGHUP came.
    """
    config.check_ready()
    method = Method.of(config)  # a mistake in the settings of plug-ins shows before the run begins
    if unused := method.objective.unused:
        say(f"policy loss {config.loss.policy!r} does not use: {', '.join(unused)}")
    opened = open_run(config, "train", resume=resume, versions=judging_versions())
    world, run, config = opened.world, opened.run, opened.config
    if run.complete:
        return run.path
    metrics = world.together(lambda: Metrics(run, config.tracker, world.leads))
    with make_verifiers(config.verifier, config.reward, reward) as verifiers, metrics:
        policy, training = world.together(lambda: load(opened, method, verifiers, metrics))
        metrics.begin(training.saver.state.step)
        certifier, label = training.certifier, f"training {config.method}"
        ended = (lambda: certifier.ended) if certifier else (lambda: False)
        say_if_idle(config.steps, config.optim.lr, world)
        skipped = min(config.optim.max_skipped, config.steps * config.optim.minibatches)
        how = (config.steps, config.checkpoint_every, skipped)
        loop = RunLoop(*how, world, training.saver, metrics.log, label, "reward", ended)
        try:
            loop.repeat(training.step, training.measure)
            if training.banking is not None:
                training.banking.finish(training.saver.state.step)
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


@dataclass(frozen=True, slots=True)
class Method:
    """The advantage and the objective by which the policy learns from rollouts and stored responses."""

    advantage: Advantage
    objective: Objective

    @classmethod
    def of(cls, config: TrainConfig) -> "Method":
        """The advantage and the objective that the settings name. Without stored responses the rehearsal term is off,
        whatever its weight. Raises UserError for settings that the advantage or the objective does not take."""
        loss = config.loss if config.rehearsal.rows else replace(config.loss, eta=0.0)
        return cls(Advantage(config.advantage.name, config.advantage_options), Objective(loss))


def load(
    opened: Opened[TrainConfig], method: Method, verifiers: Verifiers, metrics: Metrics
) -> tuple[Policy, Training]:
    """The policy, and the parts that train it, from the settings or from a checkpoint. Raises UserError as `train`
    does."""
    world, run, config, saved = opened.world, opened.run, opened.config, opened.checkpoint
    fresh = saved is None
    data = data_of(config, run, verifiers, world, fresh=fresh)

    policy = Policy.to_train(config.model, config.seed, saved)
    noted_rendering(run, policy, world)
    budget = settled_tokens(config.optim.tokens_per_microbatch, policy, run, world)
    optimizer = Optimizer(policy.trainable(), config.optim, config.steps * config.optim.minibatches)
    state = TrainState() if saved is None else checkpoints.restore(saved, policy, optimizer)
    done = -1 if fresh else state.step
    logged = done - (state.pending is not None)  # metrics of a pending step are not in the run yet
    if world.leads:
        run.rewind(logged)
        drop_samples(run.path, done)
        drop_visits(run.path, done)
        BankFiles(run.path).drop(saved if config.bank.key else None)
    if data.rehearsed is not None:  # the model that training began with must have made the stored responses
        count, how = config.rehearsal.check_rows, {"fresh": fresh, "leads": world.leads}
        check_rehearsal(data.rehearsed, count, config.rollout, policy, run, budget, **how)

    learner = learner_of(config, method, data.task, data.problems, verifiers, policy, optimizer, world, budget, run)
    learner.updater.reduced_budget = state.token_budget
    monitor, certifier = measuring(config, learner.collector, run, data.task, data.held, logged, fresh=fresh)
    initial = policy if fresh or config.model.lora_rank else learner.updater.own_reference
    weights = initial.weight_hash() if initial else ""
    pinned = pin(run.path, data.problems, monitor.problems, weights, fresh=fresh, note=world.leads)
    ledger = ledger_after(run.path, state.step, data.reference)
    by_function = verifiers.only == "function"
    banking = banking_of(config, data, learner, run, saved, by_function=by_function)
    best = BestCheckpoint.so_far(run.path, config.keep_best, config.keep_best_within, config.model.path)
    rehearsal = banking.bank if banking else RehearsalSet(data.rehearsed.stored if data.rehearsed else [], config.seed)
    return policy, Training(
        world=world,
        learner=learner,
        rehearsal=rehearsal,
        stored_rows=config.stored_rows,
        minibatches=config.optim.minibatches,
        guard=StepGuard(run.path, world, pinned, ledger, max_unjudged=config.max_unjudged, by_function=by_function),
        monitor=monitor,
        saver=Saver(
            *(run, policy, optimizer, state, world),
            keep=config.keep_checkpoints,
            best=best,
            further=banking.save if banking else None,
        ),
        metrics=metrics,
        shown=config.show_samples,
        certifier=certifier,
        banking=banking,
    )


def banking_of(
    config: TrainConfig,
    data: "Data",
    learner: Learner,
    run: RunDir,
    saved: Path | None,
    *,
    by_function: bool,
) -> Banking | None:
    """The bank of a run with its files, if the settings ask for one; by_function: a reward function judges."""
    if data.key is None:
        return None
    world, drawn = learner.collector.world, [problem.id for problem in data.problems]
    stored = data.rehearsed.stored if data.rehearsed else []
    banking = Banking.started(config.bank, data.key, config.seed, drawn, stored, run.path, world, saved)
    return replace(
        banking,
        logprobs=learner.updater.logprobs if learner.recompute_old else None,
        chosen_by_default=by_function and config.reward.correct_from == RewardConfig().correct_from,
    )


def learner_of(
    config: TrainConfig,
    method: Method,
    task: Task,
    problems: Sequence[Problem],
    verifiers: Verifiers,
    policy: Policy,
    optimizer: Optimizer,
    world: World,
    token_budget: int,
    run: RunDir | None = None,
) -> Learner:
    """The parts of a step that draw rollouts and learn from them.

    problems: the problems to draw prompts from. token_budget: the number of tokens per micro-batch of an update. run:
    the run directory that keeps the number of rows that are sampled together; None keeps nothing.
    """
    rollout, model = config.rollout, config.model
    needs_reference = method.objective.needs_reference or method.advantage.needs_reference
    reference = Policy.load(model) if needs_reference and not model.lora_rank else None  # adapters can be switched off
    items = encode_problems(policy, problems, rollout, rollout.max_prompt_tokens)
    settings = config.sampler
    if run is not None:
        step = -(-rollout.prompts // world.size) * rollout.n
        settings = settled_rows(settings, policy, items, rollout, run, world, step)
    sampler = make_sampler(settings, policy, model, rollout.longest, training=True)
    updater = Updater(
        policy,
        method.objective,
        optimizer,
        temperature=rollout.temperature,
        token_budget=token_budget,
        importance_cap=rollout.importance_cap,
        own_reference=reference,
        world=world,
    )
    limits = (config.overlong, rollout.max_tokens, rollout.mask_truncated)
    return Learner(
        sampler,
        RolloutCollector(policy, sampler, verifiers, items, rollout, config.dynamic_sampling, config.seed, world),
        AdvantageEstimator(method.advantage, *limits, partial(style_of, task), updater.reference_logprobs),
        updater,
        # log π_old is recomputed if the trainer would compute other numbers than the sampler (bf16, another engine)
        recomputes_old(rollout.old_logprobs, config.sampler.engine, model.precision),
    )


@dataclass(frozen=True, slots=True)
class Data:
    """The data that a training run learns from."""

    task: Task
    problems: Sequence[Problem]
    """The problems to draw prompts from."""
    rehearsed: Presampled | None
    """The presample run whose stored responses are rehearsed; None without rehearsal."""
    reference: Mapping[str, tuple[int, int]]
    """The numbers of correct and of all responses of the reference policy to each problem of the presample run; {}
    without a presample run."""
    held: CertificationSet | None
    """The problems that certify how much training keeps; None without a certification set."""
    key: BankKey | None = None
    """What counts as one way of solving a problem; None without a bank."""


def data_of(config: TrainConfig, run: RunDir, verifiers: Verifiers, world: World, *, fresh: bool) -> Data:
    """The data of a run, after all checks that need no model. Raises UserError if a check fails."""
    task, problems = load_problems(config.task)
    path, rows, prompt_set = config.rehearsal.path, config.rehearsal.rows, config.prompt_set
    every = problems
    presampled = Presampled.open(Path(path)) if path else None
    rehearsed = presampled if config.begins_with_stored else None
    if rehearsed is not None:
        judging, how = (config.verifier, config.reward), {"fresh": fresh, "leads": world.leads}
        check_settings(rehearsed, config.rollout, *judging, run, **how)
    held = CertificationSet.open(config.certify) if config.certify.set else None
    if presampled is not None:
        problems = presampled.training_problems(config.task, prompt_set, problems, fresh=fresh)
    if held is not None:
        held.check_judging(config.verifier, config.reward)
        held.check_apart("rehearsed", (row.problem_id for row in (rehearsed.stored if rehearsed else ())))
        problems = [problem for problem in problems if problem.id not in held.base]
    problems = usable_problems(verifiers, problems)
    if world.leads and config.rollout.prompts > len(problems):
        of = counted(len(problems), "problem")
        say(f"rollout.prompts is {config.rollout.prompts}, of {of}: steps draw some repeatedly")
    if world.leads and path and not rows and prompt_set == "all":
        say(f"method {config.method!r} does not rehearse: of {path} only the pass rates are read")
    key = bank_key(config, task, every, rehearsed) if config.bank.key else None
    return Data(task, problems, rehearsed, presampled.reference_counts if presampled else {}, held, key)


def bank_key(
    config: TrainConfig, task: Task, problems: Sequence[Problem], rehearsed: Presampled | None = None
) -> BankKey:
    """What counts as one way of solving the problems of a task. Raises UserError for a key that the task lacks, and for
    stored responses to problems that the task does not have."""
    forms = Forms({problem.id: problem for problem in problems}, partial(style_of, task), answer_of)
    key = BankKey(config.bank.key, forms)
    stored = rehearsed.stored if rehearsed else ()
    unknown = [row.problem_id for row in stored if row.problem_id not in forms.problems]
    if unknown and rehearsed:
        raise DataError(
            f"the bank would begin with responses to problems that the task does not have (first {unknown[0]!r}, of "
            f"{rehearsed.run.path}); name the splits of that run in task.split, or set bank.begun to false"
        )
    return key


def measuring(
    config: TrainConfig,
    collector: RolloutCollector,
    run: RunDir,
    task: Task,
    held: CertificationSet | None,
    logged: int,
    *,
    fresh: bool,
) -> tuple[Monitor, Certifier | None]:
    """The monitor that measures the policy on held-out problems, and the certifier if the settings name a certification
    set. collector: draws with the policy. logged: the last step whose metrics the run has."""
    policy, sampler, verifiers, world = collector.policy, collector.sampler, collector.verifiers, collector.world
    rollout, certify = config.rollout, config.certify
    params = rollout.params(config.monitor.n)
    evaluator = Evaluator(policy, sampler, verifiers, params, rollout.max_prompt_tokens, config.seed)
    sets = monitored_sets(config.monitor, task, shuffle=config.task.shuffle) if config.monitor.every else []
    monitor = Monitor(config.monitor, evaluator, sets, world, run.path, logged)
    if held is None:
        return monitor, None
    held.check_apart("monitored", (problem.id for problem in monitor.problems))
    held.check(policy, base=fresh)
    save, sampled = partial(save_with_card, run, policy.save), held.evaluator(policy, sampler, verifiers)
    due = {"every": certify.every, "stop": certify.stop}
    return monitor, Certifier(run.path, held, sampled, world, save, logged, **due)
