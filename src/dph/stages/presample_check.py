"""`dph presample --check RUN`: judge every stored response again, and recompute its log-probabilities on request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dph.build import load_problems, make_verifiers
from dph.config import PresampleConfig
from dph.errors import DataError
from dph.models.batch import fitting_tokens
from dph.models.loading import settled
from dph.models.policy import Policy
from dph.process.progress import progress, say
from dph.rehearsal.check import CheckedSet, check_fit, largest_deviation, open_set, other_versions, recheck
from dph.rehearsal.partition import check_problems, partition_of
from dph.rehearsal.store import Rehearsal
from dph.types import Outcome, Problem

_AT_ONCE = 256
_NAMED = 5  # responses that a message names


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check of a presample run found."""

    responses: int
    """Stored responses, all of them judged correct again."""
    deviation: float | None
    """Largest deviation of a stored log-probability from the recomputed one, in nats; None where not asked for."""


def check_presample(config: PresampleConfig) -> Findings:
    """Check the presample run `config.check`, whose own settings `config` otherwise holds, and say what was found.

    Raises UserError when a response is no longer judged correct, could not be judged, belongs to no near-perfect
    problem of the task, or (with `check_logprobs`) is not the model's own.
    """
    path = Path(config.check)
    checked = open_set(path)
    _, problems = load_problems(config.task)
    by_id = {problem.id: problem for problem in problems}
    _check_places(checked, by_id)
    check_problems(checked.run, problems, config.task.split)
    failed = _judge(config, checked.stored, by_id)
    deviation = _check_logprobs(config, checked, by_id) if config.check_logprobs and checked.stored else None
    if failed:
        named = ", ".join(f"{name}: {outcome}" for name, outcome in failed[:_NAMED])
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        raise DataError(
            f"{len(failed)} of {len(checked.stored)} stored responses of {path} are no longer judged correct "
            f"({named}{more}); if databases, answers or the verifier's settings changed, run `dph presample` again"
        )
    agreement = "" if deviation is None else f"; log-probabilities agree to {deviation:.1e} nats"
    say(f"all {len(checked.stored)} stored responses of {path} are judged correct again{agreement}")
    if changed := other_versions(checked.run.manifest):
        say(f"versions have changed since: {', '.join(changed)}")
    return Findings(len(checked.stored), deviation)


def _check_places(checked: CheckedSet, problems: Mapping[str, Problem]) -> None:
    """Every stored response must belong to a problem that the task still has, and to the set of its file."""
    partition, perfect = partition_of(checked.run), len(checked.stored)
    for number, row in enumerate(checked.stored):
        if row.problem_id not in problems:
            raise DataError(
                f"the task no longer has the problem {row.problem_id!r} of {checked.run.path}; restore the task's "
                "data, or run `dph presample` again"
            )
        wanted, words = ("perfect", "call near-perfect") if number < perfect else ("explore", "explore")
        if partition.get(row.problem_id) != wanted:
            raise DataError(
                f"{checked.run.path} stores a response to {row.problem_id!r}, which its partition does not {words}; "
                "run `dph presample` again"
            )


def _judge(
    config: PresampleConfig, rows: Sequence[Rehearsal], problems: Mapping[str, Problem]
) -> list[tuple[str, Outcome]]:
    """Problem id and outcome of the stored responses that are not judged correct."""
    failed: list[tuple[str, Outcome]] = []
    with (
        make_verifiers(config.verifier, config.reward) as verifiers,
        progress("judging stored responses", len(rows)) as shown,
    ):
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            verdicts = verifiers.verify([(problems[row.problem_id], row.text) for row in some])
            for row, verdict in zip(some, verdicts, strict=True):
                if not verdict.correct:
                    failed.append((row.problem_id, verdict.outcome))
            shown.advance(len(some))
    return failed


def _check_logprobs(config: PresampleConfig, checked: CheckedSet, problems: Mapping[str, Problem]) -> float:
    """Load the model and compare hashes, prompts, texts and every log-probability. Returns the largest deviation."""
    policy = Policy.load(settled(config.model, checked.run))
    path = checked.run.path
    check_fit(checked.run.manifest, policy, config.rollout, same_weights=True, where=path)
    for row in checked.stored:
        same_prompt = list(policy.encode_prompt(problems[row.problem_id].prompt)) == list(row.prompt_ids)
        if not same_prompt or policy.decode(row.response_ids) != row.text:
            what = "text of the response" if same_prompt else "prompt"
            raise DataError(
                f"{path}: the {what} to {row.problem_id!r} does not match its stored tokens; restore the task's "
                "data, or run `dph presample` again"
            )
    budget = config.tokens_per_microbatch or fitting_tokens(policy)
    deviation = recheck(policy, checked.stored, config.rollout.temperature, budget)
    if deviation > largest_deviation(checked.run.manifest, policy):
        raise DataError(
            f"stored log-probabilities of {path} differ from the model's by {deviation:.1f} nats; run `dph presample` "
            "again"
        )
    return deviation
