"""The device of a model, and the types in which its weights are kept and it computes there."""

from dataclasses import replace
from typing import TypeVar

import torch

from dph.config import EvaluatedModelConfig
from dph.errors import SettingsError, reason_of
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.directory import RunDir

CPU_CAPABILITIES = ("amx_bf16", "avx512_bf16")
"""Instructions with which a CPU multiplies matrices in bf16 faster than in fp32, as torch names them."""

M = TypeVar("M", bound=EvaluatedModelConfig)


def weight_type(precision: str) -> torch.dtype:
    """The type in which a model's weights are kept, for a setting `model.precision`."""
    return torch.bfloat16 if precision == "bf16_master" else torch.float32


def choose_device(name: str) -> torch.device:
    """The device with this name; "auto" is CUDA if available, else the CPU. Raises UserError if it cannot be used
    here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # devices without storage, such as meta, fail here
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(
            f"device {name!r} cannot be used here ({reason_of(error)}); try model.device cpu"
        ) from error
    return device


def computed_in(precision: str) -> str:
    """The precision of a policy, "fp32" or "bf16", for a setting `model.precision` other than "auto"."""
    return "fp32" if precision == "fp32" else "bf16"


def settled(model: M, run: RunDir, world: World | None = None) -> M:
    """A run's model settings without "auto": with the precision in its manifest, so that a resumed run keeps it on any
    device, or one that the leading process chooses and writes there."""
    if model.precision != "auto":
        return model
    chosen = (world or World()).decided(lambda: run.kept("precision", lambda: choose_precision(model)))
    return replace(model, precision=chosen)


def choose_precision(model: EvaluatedModelConfig) -> str:
    """ "fp32" or "bf16" for a model on its device; says which. It is bf16 on a GPU with products of this type (CUDA,
    capability 8.0 or more) and on a CPU with AMX-BF16 or AVX512-BF16, and fp32 on any other."""
    device = choose_device(model.device)
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = device.type == "cpu" and any(torch.cpu.get_capabilities().get(name) for name in CPU_CAPABILITIES)
    precision = "bf16" if fast else "fp32"
    say(f"model.precision auto is {precision} on {device}")
    return precision
