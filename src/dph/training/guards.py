"""When a training run must stop, because going on would waste it: its judge fails, its numbers do, or its data changed.

Each raises UserError in every process alike, at a place where the state can still be saved.
"""

from dph.errors import UserError
from dph.process.distributed import World
from dph.runs.pinned import Pinned
from dph.training.alarms import Judged
from dph.training.checkpoints import TrainState
from dph.training.explore import Drawn
from dph.types import Outcome


def check_judging(drawn: Drawn, world: World, limit: float) -> None:
    """Raises UserError when the judging of more than a share `limit` of a step's responses failed."""
    sums = world.sum_values({"sampled": drawn.sampled, "lost": drawn.lost})
    if sums["lost"] > limit * sums["sampled"]:
        reasons = {
            rollout.verdict.detail for group in drawn.groups for rollout in group.rollouts if not rollout.verdict.scored
        }
        raise UserError(
            f"{sums['lost']:.0f} of {sums['sampled']:.0f} responses could not be judged "
            f"({'; '.join(sorted(reasons)[:2]) or 'see the messages above'}); see to the verifier's processes, then "
            "--resume goes on, or raise --max-unjudged"
        )


def judged(drawn: Drawn, world: World) -> Judged:
    """How a step's responses were judged over all processes, for the alarms; those of dropped groups count too."""
    sums = world.sum_values({kind: drawn.outcomes.get(kind, 0) for kind in Outcome} | {"rewarded": drawn.rewarded})
    return Judged({kind: int(sums[kind]) for kind in Outcome}, int(sums["rewarded"]))


def check_databases(pinned: Pinned, drawn: Drawn, world: World) -> None:
    """Raises UserError when a database of a step's problems is not the one that the run started with."""
    world.together(lambda: pinned.check(group.problem for group in drawn.groups))


def check_updates(state: TrainState, limit: int) -> None:
    """Raises UserError when loss or gradient has not been finite for `limit` updates in a row; 0 never does."""
    if 0 < limit <= state.skipped_in_a_row:
        raise UserError(
            f"loss or gradient was not finite in {state.skipped_in_a_row} updates in a row, up to step {state.step}; "
            "start over from an earlier checkpoint with a lower --optim.lr, or raise --optim.max-skipped"
        )
