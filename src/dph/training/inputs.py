"""What training starts from: consistent settings, the policy, and its stored responses."""

from dataclasses import replace
from pathlib import Path

from dph.config import TrainConfig, TrainedModelConfig
from dph.errors import UserError
from dph.models.policy import Policy
from dph.objective.advantages import Advantage
from dph.objective.objective import Objective
from dph.process.distributed import launched_processes
from dph.rehearsal.check import check_fit, check_start, open_set
from dph.rehearsal.store import Rehearsal
from dph.runs.directory import RunDir


def check_settings(config: TrainConfig) -> None:
    """Raises UserError for settings that contradict each other, before anything is loaded."""
    make_objective(config)
    Advantage(config.advantage.name, config.advantage.options)
    uses_rehearsal = config.rehearsal.rows > 0
    if uses_rehearsal and config.loss.eta == 0:
        raise UserError(
            f"rehearsal.rows is {config.rehearsal.rows} but loss.eta is 0, so stored responses would have no effect; "
            "set loss.eta above 0, or rehearsal.rows to 0"
        )
    if (uses_rehearsal or config.prompt_set == "explore") and not config.rehearsal.path:
        raise UserError(
            f"method {config.method!r} needs a presampled partition; run `dph presample` and add --rehearsal.path RUN"
        )
    if config.rollout.n < 2:
        raise UserError(f"rollout.n is {config.rollout.n}; advantages are relative to a group of at least 2 responses")
    if config.rollout.temperature <= 0:
        raise UserError("rollout.temperature must be above 0: greedy responses of a group would all be the same")
    if config.sampler.engine == "vllm":
        _check_vllm(config)
    if config.overlong.buffer > config.rollout.max_tokens:
        raise UserError(
            f"overlong.buffer {config.overlong.buffer} is longer than a response may be (rollout.max_tokens "
            f"{config.rollout.max_tokens}), so even an empty response would be penalised; lower it"
        )
    if config.rollout.prompts < config.optim.minibatches:
        raise UserError(
            f"rollout.prompts {config.rollout.prompts} cannot be split into {config.optim.minibatches} mini-batches"
        )


def _check_vllm(config: TrainConfig) -> None:
    if config.rollout.top_p < 1:
        raise UserError(
            "vLLM does not report log-probabilities of samples with rollout.top_p below 1, and training needs them; "
            "set it to 1, or sample with --sampler.engine hf"
        )
    if config.rollout.old_logprobs == "sampler":
        raise UserError(
            "vLLM's log-probabilities are not exactly the trainer's; leave rollout.old_logprobs at auto, which "
            "recomputes them"
        )
    if config.model.lora_rank:
        raise UserError(
            "beside `dph train` vLLM takes whole models, not adapters; train without model.lora_rank, or sample with "
            "--sampler.engine hf"
        )
    if launched_processes() > 1:
        raise UserError(
            "beside `dph train` vLLM runs in one process on one GPU; for more use `dph verl`, or sample with "
            "--sampler.engine hf"
        )


def make_objective(config: TrainConfig) -> Objective:
    """The objective; without stored responses its rehearsal term is off."""
    return Objective(config.loss if config.rehearsal.rows else replace(config.loss, eta=0.0))


def load_policy(model: TrainedModelConfig, seed: int, saved: Path | None) -> Policy:
    """The policy at the start, or from a checkpoint (adapters are restored into the given model later)."""
    if saved is None or model.lora_rank:
        return Policy.load(model, seed)
    return Policy.load(replace(model, path=str(saved / "model")))


def load_rehearsal(config: TrainConfig, policy: Policy, run: RunDir, *, fresh: bool, leads: bool) -> list[Rehearsal]:
    """Stored responses, checked against the policy that training starts from or, on resume, against the set that the
    run started with. The leading process records the set's hash and the deviation in the run's manifest."""
    if config.rehearsal.rows == 0:
        return []
    path = Path(config.rehearsal.path)
    checked = open_set(path)
    if not checked.stored:
        raise UserError(
            f"the presample run {path} found no near-perfect prompt, so method {config.method!r} has nothing to "
            "rehearse; lower its threshold, use a stronger model, or train with a method without rehearsal"
        )
    check_fit(checked.run.manifest, policy, config.rollout, same_weights=fresh, where=path)
    if not fresh:
        begun = run.manifest.get("rehearsal", {}).get("hash", checked.hash)
        if begun != checked.hash:
            raise UserError(f"the rehearsal set of {path} is not the one that {run.path} was started with")
        return list(checked.stored)
    facts: dict[str, str | int | float] = {"hash": checked.hash}
    if count := min(config.rehearsal.check_rows, len(checked.stored)):
        budget = config.optim.tokens_per_microbatch
        facts |= {"checked_rows": count, "deviation": check_start(checked, policy, config.rollout, count, budget)}
    if leads:
        run.update(rehearsal=facts)
    return list(checked.stored)
