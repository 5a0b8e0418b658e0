"""What is counted of a step's rollouts, and what looks at these counts before the step learns from them: the guards,
which stop a run, the alarms, which say that something seems wrong, and the coverage ledger.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from dph.errors import SharedUserError
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.coverage import Ledger, Visit, read_visits, write_visits
from dph.runs.pinned import Pinned
from dph.sampling.rollouts import unjudged_fault
from dph.training.rollouts import Drawn, is_informative
from dph.types import UNPARSED, Group, Outcome

FAILURES = frozenset({Outcome.ERROR, Outcome.TIMEOUT, Outcome.INFRA_ERROR, Outcome.GOLD_ERROR})
"""An error or a timeout, of the response or of the judging."""


@dataclass(frozen=True, slots=True)
class StepStats:
    """All that is counted of a step's rollouts, over all processes. Stored responses of D_pef are not among them."""

    sampled: Mapping[str, float]
    """Sums over all groups, those that dynamic sampling dropped included."""
    kept: Mapping[str, float] | None
    """Sums over the groups that dynamic sampling kept; None if it is off."""
    outcomes: Mapping[Outcome, int]
    """Number of responses by outcome, over all groups."""
    visits: Sequence[Visit]
    """Correct and judged responses of each group, by the id of its problem."""
    reasons: Sequence[str]
    """Why responses could not be judged: a few of the reasons."""
    attempted: int
    """Prompts drawn, also for dropped groups."""

    @classmethod
    def of(cls, drawn: Drawn, world: World) -> "StepStats":
        """Count a step's rollouts: each process its own, and all of them in one collective."""
        rollouts = [rollout for group in drawn.sampled for rollout in group.rollouts]
        outcomes = Counter(rollout.verdict.outcome for rollout in rollouts)
        visits = [(group.problem.id, *group.counts) for group in drawn.sampled]
        reasons = sorted({rollout.verdict.detail for rollout in rollouts if not rollout.verdict.scored})[:2]
        counted = (_sums(drawn.sampled), _sums(drawn.groups), outcomes, visits, reasons)
        sampled, kept, by_outcome, visits_of, reasons_of = zip(*world.gather(counted), strict=True)
        return cls(
            sampled=_added(sampled),
            kept=None if drawn.dropped is None else _added(kept),
            outcomes=sum(by_outcome, Counter()),
            visits=sorted(chain(*visits_of)),
            reasons=sorted(set(chain(*reasons_of)))[:2],
            attempted=drawn.attempted,
        )

    @property
    def responses(self) -> int:
        return sum(self.outcomes.values())

    def metrics(self) -> dict[str, float]:
        """Means over rollouts, over those that could be judged, and over groups (docs/reference/metrics.md)."""
        kept = {} if self.kept is None else {f"kept/{name}": value for name, value in _means(self.kept).items()}
        groups = (self.sampled if self.kept is None else self.kept)["groups"]
        return _means(self.sampled) | {"groups": groups, "prompts_drawn": self.attempted} | kept


def _sums(groups: Sequence[Group]) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    scored = [rollout for rollout in rollouts if rollout.verdict.scored]
    return {
        "groups": len(groups),
        "informative": sum(map(is_informative, groups)),
        "solved": sum(any(r.verdict.correct for r in group.rollouts) for group in groups),
        "rollouts": len(rollouts),
        "scored": len(scored),
        "rewarded": sum(rollout.reward != 0 for rollout in rollouts),
        "reward": sum(rollout.reward for rollout in scored),
        "correct": sum(rollout.verdict.correct for rollout in scored),
        "tokens": sum(len(rollout.completion.token_ids) for rollout in rollouts),
        "truncated": sum(rollout.completion.finish_reason == "length" for rollout in rollouts),
        "unparsed": sum(rollout.verdict.detail == UNPARSED for rollout in rollouts),
    }


def _added(parts: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Sums over processes, the same in whatever order they come."""
    return parts[0] if len(parts) == 1 else {name: math.fsum(part[name] for part in parts) for name in parts[0]}


def _means(sums: Mapping[str, float]) -> dict[str, float]:
    per_rollout, per_group, judged = (max(1, sums[name]) for name in ("rollouts", "groups", "scored"))
    return {
        "reward": sums["reward"] / judged,
        "pass_rate": sums["correct"] / judged,
        "solved": sums["solved"] / per_group,
        "informative": sums["informative"] / per_group,
        "response_length": sums["tokens"] / per_rollout,
        "truncated": sums["truncated"] / per_rollout,
        "unparsed": sums["unparsed"] / per_rollout,
        "unscored": (sums["rollouts"] - sums["scored"]) / per_rollout,
    }


class Watch:
    """Looks at the rollouts of each step before they are learned from."""

    def __init__(
        self, run: Path, world: World, pinned: Pinned, ledger: Ledger, *, max_unjudged: float, by_function: bool
    ) -> None:
        """run: run directory, whose coverage.jsonl gets a line for each step. ledger: what earlier steps showed of each
        problem. max_unjudged: share of a step's responses whose judging may fail. by_function: as `VerdictAlarm`."""
        self._run, self._world, self._pinned, self._ledger = run, world, pinned, ledger
        self._max_unjudged, self._alarm = max_unjudged, VerdictAlarm(by_function)

    def check(self, step: int, drawn: Drawn, stats: StepStats) -> dict[str, float]:
        """Note the rollouts of a step; returns the metrics coverage/…. Raises SharedUserError (UserError in a single
        process) if the run must stop: judging failed for too many responses, or a database of the step's problems has
        changed since the run started."""
        lost = stats.outcomes.get(Outcome.INFRA_ERROR, 0)
        if fault := unjudged_fault(lost, stats.responses, stats.reasons, self._max_unjudged):
            raise SharedUserError(fault)
        self._world.together(lambda: self._pinned.check(group.problem for group in drawn.sampled))
        if self._world.leads:
            if message := self._alarm.note(stats):
                say(f"step {step}: {message}")
            if step == 1 and self._ledger.reference:
                write_visits(self._run, 0, self._ledger.reference)
            write_visits(self._run, step, stats.visits)
        return self._ledger.note(stats.visits)


def ledger_after(run: Path, step: int, reference: Mapping[str, tuple[int, int]]) -> Ledger:
    """The ledger of a run after a step, from what it wrote; `reference` as in `Ledger`."""
    ledger = Ledger(reference)
    for earlier, visits in read_visits(run).items():
        if 0 < earlier <= step:
            ledger.note(visits)
    return ledger


@dataclass(slots=True)
class VerdictAlarm:
    """Watches the verdicts of consecutive steps for signs that not the policy is at fault but the verifier, the prompts
    or a limit. A condition that lasts is reported in its 1st, 2nd, 4th, 8th, … step."""

    by_function: bool = False
    """A reward function judges, not the verifiers."""
    failed: int = 0
    """Newest steps in a row in which every verdict is an error."""
    unrewarded: int = 0
    """Newest steps in a row in which every reward is 0."""

    def note(self, stats: StepStats) -> str | None:
        """Count a step; returns what is wrong, or None: if all verdicts are errors, that, not the missing reward."""
        failures = sum(stats.outcomes.get(outcome, 0) for outcome in FAILURES)
        self.failed = self.failed + 1 if 0 < failures == stats.responses else 0
        self.unrewarded = self.unrewarded + 1 if stats.responses and not stats.sampled["rewarded"] else 0
        lasted = self.failed or self.unrewarded
        if lasted.bit_count() != 1:  # a power of two
            return None
        message = "every verdict is an error" if self.failed else "every reward is 0"
        since = "this step" if lasted == 1 else f"{lasted} steps in a row"
        by_count = sorted(stats.outcomes.items(), key=lambda item: (-item[1], item[0]))
        counts = ", ".join(f"{n} {outcome}" for outcome, n in by_count)
        return f"{message} in {since} ({stats.responses} responses: {counts}); {self._advice(by_count[0][0])}"

    def _advice(self, commonest: Outcome) -> str:
        if self.by_function and commonest in FAILURES:
            return "check the reward function: it failed, as messages above say, or returned None"
        if self.by_function:
            return (
                "check that the reward function gives good responses more than 0 and reads the format that the prompt "
                "asks for, that rollout.max_tokens does not cut responses off, and whether the problems are too hard "
                "for this model"
            )
        if commonest is Outcome.NO_ANSWER:
            return (
                "check that the prompt asks for the answer format that the verifier reads, and that "
                "rollout.max_tokens does not cut responses off"
            )
        if commonest is Outcome.TIMEOUT:
            return "check whether verifier.timeout is too short for this machine"
        if commonest in FAILURES:
            return "check the verifier's databases and the format of the responses"
        return "check whether the gold answers are right, and whether the problems are too hard for this model"
