"""In which floating-point types a model is kept and computed; "auto" is decided by the device.

device                                                     auto
GPU with products in bf16 (CUDA, capability 8.0 or more)   bf16
CPU with AMX-BF16 or AVX512-BF16                           bf16
any other                                                  fp32
"""

from dataclasses import replace
from typing import TypeVar

import torch

from dph.config import ModelConfig
from dph.models.loading import choose_device
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.directory import RunDir

CPU_CAPABILITIES = ("amx_bf16", "avx512_bf16")
"""Instructions with which a CPU multiplies matrices in bf16 faster than in fp32, as torch names them."""

M = TypeVar("M", bound=ModelConfig)


def computed_in(precision: str) -> str:
    """The precision of a policy, "fp32" or "bf16", for a setting `model.precision` other than "auto"."""
    return "fp32" if precision == "fp32" else "bf16"


def settled(model: M, run: RunDir, world: World | None = None) -> M:
    """A model's settings without "auto": with the precision in the run's manifest, or one chosen and written there.

    Args:
        model: the settings of the run.
        run: its directory; a resumed run keeps the choice, on any device.
        world: the processes that train together, of which the leading one chooses.
    """
    if model.precision != "auto":
        return model

    def choose() -> str:
        if "precision" not in run.manifest:
            run.update(precision=choose_precision(model))
        return str(run.manifest["precision"])

    return replace(model, precision=(world or World()).decided(choose))


def choose_precision(model: ModelConfig) -> str:
    """ "fp32" or "bf16" for a model on its device, by the table above; says which."""
    device = choose_device(model.device)
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = device.type == "cpu" and any(torch.cpu.get_capabilities().get(name) for name in CPU_CAPABILITIES)
    precision = "bf16" if fast else "fp32"
    say(f"model.precision auto is {precision} on {device}")
    return precision
