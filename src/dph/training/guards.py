"""When a training run must stop: its verifier fails, its numbers are not finite, or its data have changed.

Each check raises UserError in every process, at a point where the state can still be saved.
"""

from dph.errors import UserError
from dph.process.distributed import World
from dph.runs.pinned import Pinned
from dph.training.alarms import StepVerdicts
from dph.training.checkpoints import TrainState
from dph.training.explore import Drawn
from dph.types import Outcome


def check_judging(drawn: Drawn, world: World, limit: float) -> None:
    """Raises UserError when judging failed for more than the share `limit` of a step's responses."""
    sums = world.sum_values({"sampled": drawn.sampled, "lost": drawn.lost})
    if sums["lost"] > limit * sums["sampled"]:
        reasons = {
            rollout.verdict.detail for group in drawn.groups for rollout in group.rollouts if not rollout.verdict.scored
        }
        raise UserError(
            f"{sums['lost']:.0f} of {sums['sampled']:.0f} responses could not be judged "
            f"({'; '.join(sorted(reasons)[:2]) or 'see the messages above'}); check the verifier's processes, then "
            "continue with --resume, or raise --max-unjudged"
        )


def step_verdicts(drawn: Drawn, world: World) -> StepVerdicts:
    """How a step's responses were judged, over all processes and including dropped groups, for the alarms."""
    sums = world.sum_values({kind: drawn.outcomes.get(kind, 0) for kind in Outcome} | {"rewarded": drawn.rewarded})
    return StepVerdicts({kind: int(sums[kind]) for kind in Outcome}, int(sums["rewarded"]))


def check_databases(pinned: Pinned, drawn: Drawn, world: World) -> None:
    """Raises UserError when a database of a step's problems has changed since the run started."""
    world.together(lambda: pinned.check(group.problem for group in drawn.groups))


def check_updates(state: TrainState, limit: int) -> None:
    """Raises UserError when loss or gradient has not been finite for `limit` updates in a row; 0 never does."""
    if 0 < limit <= state.skipped_in_a_row:
        raise UserError(
            f"loss or gradient was not finite in {state.skipped_in_a_row} updates in a row, up to step {state.step}; "
            "restart from an earlier checkpoint with a lower --optim.lr, or raise --optim.max-skipped"
        )
