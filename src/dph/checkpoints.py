"""Checkpoints of training: written atomically, loaded without pickle, enough to go on with the same trajectory.

checkpoints/step-00000040/
    model/                the policy, as AutoModelForCausalLM and vLLM load it
    trainer.safetensors   optimizer moments, and adapter weights where there are any
    state.json            step and cursors
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors
from safetensors.torch import load_file, save_file

from dph.errors import UserError
from dph.models.policy import Policy
from dph.optim import Optimizer
from dph.runs import directory_written_atomically


@dataclass(frozen=True, slots=True)
class TrainState:
    """Where a training run stands, besides weights and optimizer. All randomness is a function of these."""

    step: int = 0
    """Steps finished."""
    explore_cursor: int = 0
    """Position in the endless order of exploration prompts."""
    rehearsal_cursor: int = 0
    """Position in the endless order of stored responses."""
    optimizer_steps: int = 0


def _folder(run: Path) -> Path:
    return run / "checkpoints"


def save(run: Path, policy: Policy, optimizer: Optimizer, state: TrainState, keep: int) -> None:
    """Write a checkpoint and remove all but the newest `keep`."""
    folder = _folder(run)
    tensors = {f"optimizer/{name}": value for name, value in optimizer.state().items()}
    if hasattr(policy.model, "get_base_model"):
        tensors.update({f"weight/{name}": p.detach().clone().contiguous() for name, p in policy.trainable()})
    with directory_written_atomically(folder / f"step-{state.step:08d}") as path:
        policy.save(path / "model")
        save_file({name: value.cpu() for name, value in tensors.items()}, path / "trainer.safetensors")
        (path / "state.json").write_text(json.dumps(asdict(state)) + "\n", encoding="utf-8")
    for old in steps_saved(run)[:-keep] if keep > 0 else []:
        shutil.rmtree(folder / f"step-{old:08d}")


def steps_saved(run: Path) -> list[int]:
    """Steps of the checkpoints that are there, oldest first."""
    return sorted(int(path.name[5:]) for path in _folder(run).glob("step-*") if path.name[5:].isdigit())


def newest(run: Path) -> Path | None:
    """Directory of the newest checkpoint, or None."""
    steps = steps_saved(run)
    return _folder(run) / f"step-{steps[-1]:08d}" if steps else None


def read_state(checkpoint: Path) -> TrainState:
    """The cursors of a checkpoint. Raises UserError when it is damaged."""
    try:
        return TrainState(**json.loads((checkpoint / "state.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"the checkpoint {checkpoint} is damaged ({error}); delete it to go on from the one before"
        ) from error


def restore(checkpoint: Path, policy: Policy, optimizer: Optimizer) -> TrainState:
    """Load optimizer and adapter weights into place (whole models are loaded from the checkpoint's folder `model`)."""
    state = read_state(checkpoint)
    try:
        tensors = load_file(checkpoint / "trainer.safetensors")
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(
            f"the checkpoint {checkpoint} is damaged ({error}); delete it to go on from the one before"
        ) from error
    own = {name: parameter for name, parameter in policy.trainable()}
    for name, value in tensors.items():
        if name.startswith("weight/"):
            own[name.removeprefix("weight/")].data.copy_(value)
    moments = {k.removeprefix("optimizer/"): v for k, v in tensors.items() if k.startswith("optimizer/")}
    optimizer.load_state(moments, state.optimizer_steps)
    return state
