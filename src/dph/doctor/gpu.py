"""What a GPU can do: its memory and types, how attention is computed on it, and its measured rate in bf16."""

from typing import TYPE_CHECKING

from dph.doctor.finding import Finding, note, ok

if TYPE_CHECKING:
    import torch

_HEADS = (8, 2, 64)
"""Query heads, key heads and head width of the trial: a small model whose query heads share key heads."""
_WIDTH = 4096
"""Width of the matrix product that is measured."""


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
    from dph.models.precision import matrix_rate

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
