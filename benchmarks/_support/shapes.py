"""Models of the training benchmarks: sizes by name, random weights, and the device that they run on."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dph.models.device import weight_type

WIDTHS = {"0.8M": (128, 3), "3.4M": (256, 4), "13M": (448, 5)}
"""Small Llama-type models: hidden width and number of layers, by the number of parameters."""

_FIELDS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads"),
)
_SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "135M": ("llama", (49152, 576, 1536, 30, 9, 3)),
    "0.5B": ("qwen2", (151936, 896, 4864, 24, 14, 2)),
    "1.5B": ("qwen2", (151936, 1536, 8960, 28, 12, 2)),
}
PUBLISHED = tuple(_SHAPES)
"""Models with the shapes of SmolLM2-135M, Qwen2.5-0.5B and Qwen2.5-1.5B."""
MODELS = (*WIDTHS, *PUBLISHED)


@dataclass(frozen=True, slots=True)
class Where:
    """Device and precision of a benchmark."""

    device: str = "cpu"
    precision: str = "fp32"
    """As the setting `model.precision`: "fp32", "bf16" for autocast, or "bf16_master" for weights in bf16."""

    @classmethod
    def chosen(cls, options: Namespace) -> "Where":
        """As `add_options` parsed them."""
        return cls(options.device, options.precision)

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def dtype(self) -> torch.dtype:
        """Type of the operands of matrix products."""
        return torch.float32 if self.precision == "fp32" else torch.bfloat16

    def clock(self, kind: str = "wall") -> Callable[[], float]:
        """Seconds: "wall", on a GPU after all work that was submitted to it has ended, or "cpu"."""
        if not self.on_gpu:
            return time.perf_counter if kind == "wall" else time.process_time

        def now() -> float:
            torch.cuda.synchronize()
            return time.perf_counter()

        return now

    def facts(self) -> dict[str, Any]:
        """What the numbers depend on."""
        name = torch.cuda.get_device_name(self.device) if self.on_gpu else "cpu"
        return {"device": name, "precision": self.precision, "torch": torch.__version__}


def add_options(parser: ArgumentParser) -> None:
    """Options of every training benchmark."""
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    parser.add_argument("--precision", choices=("fp32", "bf16", "bf16_master"), default="fp32", help="as in dph train")


def settings(name: str) -> Any:
    """The config of a model with grouped-query attention, SwiGLU and tied embeddings."""
    common = {"max_position_embeddings": 1 << 16, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 1}
    if name in PUBLISHED:
        kind, sizes = _SHAPES[name]
    else:
        hidden, layers = WIDTHS[name]
        kind, sizes = "llama", (1024, hidden, hidden * 8 // 3 // 16 * 16, layers, hidden // 32, hidden // 64)
    shape = dict(zip(_FIELDS, sizes, strict=True))
    return AutoConfig.for_model(kind, **shape, **common, pad_token_id=0)


def random_model(config: Any, where: Where) -> Any:
    """A model with weights of a fixed seed, made on its device, in the type that the precision keeps them in."""
    torch.manual_seed(0)
    with torch.device(where.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.to(where.device, weight_type(where.precision))
