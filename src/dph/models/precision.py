"""In which floating-point types a model is kept and computed; "auto" is decided by a short measurement."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from dph.config import ModelConfig, NewModelConfig
from dph.models.attention import chosen, try_attention
from dph.models.loading import choose_device, read_config
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.directory import RunDir

_WORTH = 1.2
"""bf16 is chosen if its matrix products are at least this many times as fast; casts and rounding cost something."""
_ROWS = {"cpu": 512}
_ROWS_ON_A_GPU = 8192
_SECONDS, _FEWEST = 0.2, 5
"""A rate is the median of at least so many products, and of those that fit into this time."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Sizes of a model that the speed of a type depends on."""

    hidden: int
    heads: int
    kv_heads: int
    head: int

    @classmethod
    def of(cls, config: Any) -> "Widths":
        """Those of a model's text config."""
        heads = int(config.num_attention_heads)
        hidden = int(config.hidden_size)
        return cls(
            hidden,
            heads,
            int(getattr(config, "num_key_value_heads", None) or heads),
            int(getattr(config, "head_dim", None) or hidden // heads),
        )


def computed_in(precision: str) -> str:
    """The precision of a policy, "fp32" or "bf16", for a setting `model.precision` other than "auto"."""
    return "fp32" if precision == "fp32" else "bf16"


M = TypeVar("M", bound=ModelConfig)


def settled(model: M, run: RunDir, world: World | None = None, new: NewModelConfig | None = None) -> M:
    """A model's settings without "auto": with the precision in the run's manifest, or one measured and written there.

    Args:
        model: the settings of the run.
        run: its directory; a resumed run measures nothing.
        world: the processes that train together, of which the leading one measures.
        new: sizes of a model that is made from scratch, if no path is given.
    """
    if model.precision != "auto":
        return model

    def choose() -> str:
        if "precision" not in run.manifest:
            run.update(precision=choose_precision(model, new))
        return str(run.manifest["precision"])

    return replace(model, precision=(world or World()).decided(choose))


def choose_precision(model: ModelConfig, new: NewModelConfig | None = None) -> str:
    """The faster of "fp32" and "bf16" for a model on its device, if attention in bf16 works there; says why."""
    device = choose_device(model.device)
    widths = _widths(model, new)
    shape = (widths.heads, widths.kv_heads, widths.head)
    way = chosen(device, torch.bfloat16, *shape)
    failure = try_attention(way, device, torch.bfloat16, *shape)
    rates = {dtype: matrix_rate(device, dtype, widths.hidden) for dtype in (torch.bfloat16, torch.float32)}
    gain = rates[torch.bfloat16] / rates[torch.float32]
    precision = "bf16" if failure is None and gain >= _WORTH else "fp32"
    attention = f"passes its trial ({way})" if failure is None else f"fails its trial: {failure}"
    say(
        f"model.precision auto is {precision} on {device}: matrix products of width {widths.hidden} are {gain:.1f} "
        f"times as fast in bf16 as in fp32, and attention in bf16 {attention}"
    )
    return precision


def _widths(model: ModelConfig, new: NewModelConfig | None) -> Widths:
    if new is not None and not model.path:
        return Widths(new.hidden, new.heads, new.kv_heads or new.heads, new.hidden // new.heads)
    return Widths.of(read_config(model).get_text_config())


def matrix_rate(device: torch.device, dtype: torch.dtype, width: int) -> float:
    """Measured rate of a matrix product of a feed-forward layer, [rows, width] · [width, 4 · width], in FLOP/s."""
    rows = _ROWS.get(device.type, _ROWS_ON_A_GPU)
    left = torch.ones(rows, width, device=device, dtype=dtype)
    right = torch.ones(width, 4 * width, device=device, dtype=dtype)
    seconds = _median_seconds(lambda: left @ right, device)
    return 2.0 * rows * width * 4 * width / seconds


def _median_seconds(action: Callable[[], Any], device: torch.device) -> float:
    """Median time of an action, after one call that is not counted."""

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
