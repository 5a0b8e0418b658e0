"""What a GPU can do: its memory and types, how attention is computed on it, and its measured rate in bf16."""

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dph.doctor.finding import Finding, note, ok

if TYPE_CHECKING:
    import torch

_HEADS = (8, 2, 64)
"""Query heads, key heads and head width of the trial: a small model whose query heads share key heads."""
_WIDTH = 4096
"""Width of the matrix product that is measured."""
_SECONDS, _FEWEST = 0.2, 5
"""A rate is the median of at least so many products, and of those that fit into this time."""


def check_gpus() -> list[Finding]:
    """What each GPU can do; nothing where there is none. Attention is tried once for each kind of GPU."""
    import torch

    found: list[Finding] = []
    kinds: set[str] = set()
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        name = torch.cuda.get_device_name(index)
        found.append(_types(index))
        if name not in kinds:
            kinds.add(name)
            found += abilities(torch.device("cuda", index))
    return found


def _types(index: int) -> Finding:
    import torch

    facts = torch.cuda.get_device_properties(index)
    text = f"{facts.name}, {facts.total_memory / (1 << 30):.0f} GiB, compute capability {facts.major}.{facts.minor}"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return ok(f"GPU {index}: types", f"{text}, bf16")
    return note(f"GPU {index}: types", f"{text}, no bf16", "use --model.precision fp32")


def abilities(device: "torch.device") -> list[Finding]:
    """How attention over shared prompts is computed on a device, and its measured rate in bf16."""
    import torch

    from dph.models.attention import choose

    found = []
    for dtype, kind in ((torch.bfloat16, "bf16"), (torch.float32, "fp32")):
        choice = choose(device, dtype, *_HEADS)
        name = f"{device}: attention over shared prompts in {kind}"
        if choice.name == "gather":
            advice = "it works, with a copy of the prompt's keys for each response; see the reasons"
            found.append(note(name, str(choice), advice))
        else:
            found.append(ok(name, str(choice)))
    rate = matrix_rate(device, torch.bfloat16, _WIDTH)
    return [*found, ok(f"{device}: matrix products in bf16", f"{rate / 1e12:.3g} TFLOP/s, measured at width {_WIDTH}")]


def matrix_rate(device: "torch.device", dtype: "torch.dtype", width: int) -> float:
    """Measured rate of a matrix product of a feed-forward layer, [rows, width] · [width, 4 · width], in FLOP/s."""
    import torch

    rows = 512 if device.type == "cpu" else 8192
    left = torch.ones(rows, width, device=device, dtype=dtype)
    right = torch.ones(width, 4 * width, device=device, dtype=dtype)
    seconds = _median_seconds(lambda: left @ right, device)
    return 2.0 * rows * width * 4 * width / seconds


def _median_seconds(action: Callable[[], Any], device: "torch.device") -> float:
    """Median time of an action, after one call that is not counted."""
    import torch

    def timed() -> float:
        begun = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begun

    timed()
    times = [timed()]
    while len(times) < _FEWEST or sum(times) < _SECONDS:
        times.append(timed())
    return statistics.median(times)
