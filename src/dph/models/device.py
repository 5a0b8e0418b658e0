"""The device of a model, the type in which its weights are kept there, and the precision in which it computes."""

from dataclasses import replace
from typing import TypeVar

import torch

from dph.config import EvaluatedModelConfig
from dph.errors import SettingsError, reason_of
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.directory import RunDir

CPU_CAPABILITIES = ("amx_bf16", "avx512_bf16")
"""The instructions with which a CPU multiplies matrices in bf16 faster than in fp32, by the names that torch has for
them."""

M = TypeVar("M", bound=EvaluatedModelConfig)


def weight_type(precision: str) -> torch.dtype:
    """The type in which the weights of a model are kept, for a setting `model.precision`.

    >>> weight_type("bf16"), weight_type("bf16_master")
    (torch.float32, torch.bfloat16)
    """
    return torch.bfloat16 if precision == "bf16_master" else torch.float32


def choose_device(name: str) -> torch.device:
    """The device with this name. "auto" is CUDA if it is available, and the CPU otherwise. Raises UserError if the
    device cannot be used here."""
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
    """The model settings of a run with a precision in place of "auto".

    The precision is that in the manifest of the run, so that a resumed run keeps it on any device. If the manifest has
    none, the leading process chooses a precision and writes it there.
    """
    if model.precision != "auto":
        return model
    chosen = (world or World()).decided(lambda: run.kept("precision", lambda: choose_precision(model)))
    return replace(model, precision=chosen)


def choose_precision(model: EvaluatedModelConfig) -> str:
    """The precision "fp32" or "bf16" for a model on its device, which is also said in one line.

    It is bf16 on a GPU that multiplies in this type (CUDA, capability 8.0 or more) and on a CPU with AMX-BF16 or
    AVX512-BF16, and fp32 on any other device.
    """
    device = choose_device(model.device)
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = device.type == "cpu" and any(torch.cpu.get_capabilities().get(name) for name in CPU_CAPABILITIES)
    precision = "bf16" if fast else "fp32"
    say(f"model.precision auto is {precision} on {device}")
    return precision
