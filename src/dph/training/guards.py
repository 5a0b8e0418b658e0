"""When a training run must stop: its verifier fails, its numbers are not finite, or its data have changed; and when it
may be extended.

The checks of a step raise SharedUserError, at a point where the state can still be saved.
"""

from collections import Counter

from dph.config import SftConfig, TrainConfig
from dph.errors import SharedUserError, UserError
from dph.process.distributed import World
from dph.runs.directory import RunDir
from dph.runs.pinned import Pinned
from dph.training.alarms import StepVerdicts
from dph.training.checkpoints import TrainState, steps_saved
from dph.training.explore import Drawn
from dph.types import Outcome, Verdict


def check_judging(drawn: Drawn, world: World, limit: float) -> None:
    """Raises SharedUserError when judging failed for more than the share `limit` of a step's responses."""
    verdicts = _verdicts(drawn)
    lost = sum(verdict.outcome is Outcome.INFRA_ERROR for verdict in verdicts)
    sums = world.sum_values({"sampled": len(verdicts), "lost": lost})
    if sums["lost"] > limit * sums["sampled"]:
        details = world.gather([verdict.detail for verdict in verdicts if not verdict.scored])
        reasons = {detail for part in details for detail in part}
        raise SharedUserError(
            f"{sums['lost']:.0f} of {sums['sampled']:.0f} responses could not be judged "
            f"({'; '.join(sorted(reasons)[:2]) or 'see the messages above'}); check the verifier's processes, then "
            "continue with --resume, or raise --max-unjudged"
        )


def step_verdicts(drawn: Drawn, world: World) -> StepVerdicts:
    """How a step's responses were judged, over all processes and including dropped groups, for the alarms."""
    verdicts = _verdicts(drawn)
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    rewarded = sum(verdict.reward != 0 for verdict in verdicts)
    sums = world.sum_values({kind: outcomes[kind] for kind in Outcome} | {"rewarded": rewarded})
    return StepVerdicts({kind: int(sums[kind]) for kind in Outcome}, int(sums["rewarded"]))


def _verdicts(drawn: Drawn) -> list[Verdict]:
    return [rollout.verdict for group in drawn.sampled for rollout in group.rollouts]


def check_databases(pinned: Pinned, drawn: Drawn, world: World) -> None:
    """Raises SharedUserError, or UserError in a single process, when a database of a step's problems has changed since
    the run started."""
    world.together(lambda: pinned.check(group.problem for group in drawn.sampled))


def check_updates(state: TrainState, limit: int, total: int) -> None:
    """Raises SharedUserError when loss or gradient has not been finite for `limit` updates in a row, or for all `total`
    updates of a shorter run; a limit of 0 never does."""
    if 0 < min(limit, total) <= state.skipped_in_a_row:
        raise SharedUserError(
            f"loss or gradient was not finite in {state.skipped_in_a_row} updates in a row, up to step {state.step}; "
            "restart from an earlier checkpoint with a lower --optim.lr, or raise --optim.max-skipped"
        )


def check_extension(run: RunDir, before: TrainConfig | SftConfig) -> None:
    """Raises UserError unless a run can go on for more steps exactly as if it had been started with them."""
    if before.optim.schedule != "constant":
        raise UserError(
            f"{run.path} was started with {before.steps} steps, and its learning rate depends on their number "
            f"(optim.schedule {before.optim.schedule}), so it cannot be extended; use a different --out"
        )
    if run.complete and before.steps and before.steps not in steps_saved(run.path):
        raise UserError(
            f"{run.path} has no checkpoint after its last step {before.steps}, so it cannot be extended; use a "
            "different --out"
        )
