"""Counts of the rollouts of a step, over all processes, and the metrics that are computed from them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from dph.measure.metrics import tool_rates
from dph.process.distributed import World
from dph.runs.coverage import Visit
from dph.training.rollouts import Drawn, is_informative
from dph.types import UNPARSED, Group, Outcome


@dataclass(frozen=True, slots=True)
class StepStats:
    """All counts of the rollouts of a step, over all processes. Stored responses of D_pef are not among the
    rollouts."""

    sampled: Mapping[str, float]
    """Sums over all groups, including those that dynamic sampling dropped."""
    kept: Mapping[str, float] | None
    """Sums over the groups that dynamic sampling kept; None if it is off."""
    outcomes: Mapping[Outcome, int]
    """Number of responses by outcome, over all groups."""
    visits: Sequence[Visit]
    """The numbers of correct and of judged responses of each group, with the id of its problem."""
    reasons: Sequence[str]
    """A few of the reasons why responses could not be judged."""
    attempted: int
    """The number of prompts drawn, including those of dropped groups."""

    @classmethod
    def of(cls, drawn: Drawn, world: World) -> "StepStats":
        """Count the rollouts of a step. Each process counts its own rollouts, and one collective operation joins the
        counts."""
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

    def metrics(self, *, turns: int = 1) -> dict[str, float]:
        """Means over rollouts, over the rollouts that could be judged, and over groups (docs/reference/metrics.md).
        turns: most turns of a response; with several, also how responses used the tool."""
        used = _tool_use(self.sampled) if turns > 1 else {}
        kept = {} if self.kept is None else {f"kept/{name}": value for name, value in _means(self.kept).items()}
        groups = (self.sampled if self.kept is None else self.kept)["groups"]
        return _means(self.sampled) | used | {"groups": groups, "prompts_drawn": self.attempted} | kept


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
        "tokens": sum(rollout.completion.length for rollout in rollouts),
        "read": sum(len(rollout.completion.token_ids) - rollout.completion.length for rollout in rollouts),
        "calls": sum(rollout.completion.calls for rollout in rollouts),
        "failed_calls": sum(rollout.completion.failed_calls for rollout in rollouts),
        "truncated": sum(rollout.completion.finish_reason == "length" for rollout in rollouts),
        "unparsed": sum(rollout.verdict.detail == UNPARSED for rollout in rollouts),
    }


def _added(parts: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Sums over processes. The order of the processes does not change them."""
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


def _tool_use(sums: Mapping[str, float]) -> dict[str, float]:
    """How responses used the tool. A step without calls has a share of failed ones too, so that every line has it."""
    rates = tool_rates(
        responses=sums["rollouts"],
        calls=sums["calls"],
        failed=sums["failed_calls"],
        written=sums["tokens"],
        read=sums["read"],
    )
    return {"tool_calls": 0.0, "tool_errors": 0.0} | rates
