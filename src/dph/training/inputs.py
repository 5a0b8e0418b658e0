"""What training starts from: the objective, the policy, and its stored responses."""

from dataclasses import replace
from pathlib import Path

from dph.config import LossConfig, ModelConfig, RehearsalConfig, RolloutConfig, TrainConfig
from dph.errors import UserError
from dph.models.loading import refuse_adapters
from dph.models.memory import fitting_tokens
from dph.models.policy import Policy
from dph.objective.objective import Objective
from dph.process.distributed import World
from dph.process.progress import say
from dph.rehearsal.check import CheckedSet, check_facts, check_fit, check_start, open_set, sampling_facts
from dph.rehearsal.partition import reference_counts
from dph.rehearsal.store import RehearsalSet
from dph.runs import coverage
from dph.runs.coverage import Ledger
from dph.runs.directory import RunDir
from dph.runs.samples import drop_samples


def make_objective(loss: LossConfig, rows: int) -> Objective:
    """The objective; without stored responses (`rows` = 0) its rehearsal term is off."""
    return Objective(loss if rows else replace(loss, eta=0.0))


def load_policy(model: ModelConfig, seed: int, saved: Path | None) -> Policy:
    """The policy at the start, or from a checkpoint (adapters are restored into the given model later)."""
    if saved is None or model.lora_rank:
        policy = Policy.load(model, seed)
        refuse_adapters(model.path, policy.model)
    else:
        policy = Policy.load(replace(model, path=str(saved / "model")))
    policy.keep_less()
    return policy


def microbatch_tokens(asked: int, policy: Policy, run: RunDir, world: World) -> int:
    """Tokens of a micro-batch: those asked for or, for 0, as many as fit. A resumed run keeps what it began with."""
    if asked:
        return asked

    def choose() -> int:
        if "tokens_per_microbatch" not in run.manifest:
            run.update(tokens_per_microbatch=fitting_tokens(policy))
            say(f"{run.manifest['tokens_per_microbatch']} tokens pass through the model at once")
        return int(run.manifest["tokens_per_microbatch"])

    return world.decided(choose)


def open_rehearsal(config: RehearsalConfig, rollout: RolloutConfig, run: RunDir, *, fresh: bool) -> CheckedSet | None:
    """The stored responses, with every check that needs no model; None for training without them.

    Args:
        rollout: how training samples.
        run: the training run; on resume it must have started with the same set.
    """
    if config.rows == 0:
        return None
    path = Path(config.path)
    checked = open_set(path)
    if not checked.stored:
        raise UserError(
            f"the presample run {path} found no near-perfect prompt, so there is nothing to rehearse; "
            "lower its threshold, use a stronger model, or train with a method without rehearsal"
        )
    check_facts(checked.run.manifest, sampling_facts(rollout), path)
    begun = run.manifest.get("rehearsal", {}).get("hash", checked.hash)
    if not fresh and begun != checked.hash:
        raise UserError(f"the rehearsal set of {path} is not the one that {run.path} was started with")
    return checked


def begin_rehearsal(
    config: TrainConfig, checked: CheckedSet | None, run: Path, step: int
) -> tuple[RehearsalSet, Ledger]:
    """The stored responses in the order of training (none without rehearsal), and what training knows of its problems.

    Args:
        step: of the checkpoint from which the run goes on; 0 at its start.
    """
    ledger = Ledger(reference_counts(config.rehearsal.path))
    for at, visits in coverage.read_visits(run).items():
        if 0 < at <= step:
            ledger.note(visits)
    return RehearsalSet(checked.stored if checked is not None else [], config.seed), ledger


def forget(run: RunDir, step: int, *, pending: bool) -> None:
    """Drop what a run recorded after `step` (-1: everything); pending: the metrics of that step are not logged yet."""
    run.rewind(step - pending)
    drop_samples(run.path, step)
    coverage.drop_visits(run.path, step)


def check_rehearsal(
    checked: CheckedSet,
    config: RehearsalConfig,
    rollout: RolloutConfig,
    policy: Policy,
    run: RunDir,
    token_budget: int,
    *,
    fresh: bool,
    leads: bool,
) -> None:
    """Check stored responses against the policy that training starts from; on resume, against its tokenizer only. The
    leading process records the set's hash and the deviation in the run's manifest.

    Args:
        token_budget: tokens per micro-batch of the check.
    """
    check_fit(checked.run.manifest, policy, rollout, same_weights=fresh, where=checked.run.path)
    if not fresh:
        return
    facts: dict[str, str | int | float] = {"hash": checked.hash}
    if count := min(config.check_rows, len(checked.stored)):
        deviation = check_start(checked, policy, rollout, count, token_budget)
        facts |= {"checked_rows": count, "deviation": deviation}
    if leads:
        run.update(rehearsal=facts)
