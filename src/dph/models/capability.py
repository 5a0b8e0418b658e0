"""Capability checks: before an optimisation is used, it is compared with the model's plain forward pass.

A check has to see what depends on the kind of a layer, on the length of a row and on the place of a token in a batch,
because models have layers of several kinds, attention windows, and scales that begin at some position. So it is made
with rows as long as those that are computed, and is repeated when they get longer. It is made with the model's first
layers only, up to the first one of the last kind, so that a large model takes little time and memory.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from dph.errors import is_out_of_memory, reason_of

T = TypeVar("T")

_EXPECTED = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, ValueError)
_SHORTEST = 64
MAX_ERROR_RATIO = 1.5
"""In 16 bits, an optimisation may have this many times the error of the plain computation, both against fp32."""


class Unsupported(ValueError):
    """A model needs something that an optimisation does not have; the message is the reason."""


def says_of_model(error: Exception) -> bool:
    """Whether an error says that a model cannot do what a check asks for: its code fails, also because it reads a mask
    or a cache that it is not given. Memory that ran out, and other TypeErrors, which are wrong calls of ours, do not.
    """
    reads_nothing = isinstance(error, TypeError) and "NoneType" in str(error)
    return (isinstance(error, _EXPECTED) or reads_nothing) and not is_out_of_memory(error)


def attempt(check: Callable[[], str], *, of_kernels: bool = False) -> str:
    """The result of a check: why the model cannot do something, or an empty text. An error is such a reason too, unless
    it says nothing about the model (`says_of_model`) or, in a check of kernels, which raise anything, memory ran
    out."""
    try:
        return check()
    except Unsupported as error:
        return reason_of(error)
    except Exception as error:
        if of_kernels and not is_out_of_memory(error):
            return reason_of(error)
        if not says_of_model(error):
            raise
        return f"its code does not run in this way ({type(error).__name__}: {reason_of(error)})"


@contextmanager
def replaced(changes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Context in which attributes of objects have other values: (object, name, value)."""
    changes = list(changes)
    before = [getattr(owner, name) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in zip(changes, before, strict=True):
            setattr(owner, name, value)


@contextmanager
def plainly(device: torch.device) -> Iterator[None]:
    """Context of a check of kernels, which the caller's inference mode and autocast do not change."""
    with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
        yield


def relative_error(value: Tensor, exact: Tensor) -> float:
    """Largest difference, relative to the largest exact value; NaN if a value is not a number."""
    return float((value.to(exact.dtype) - exact).abs().max() / exact.abs().max())


def differing(outputs: Tensor, expected: Tensor, tolerance: float) -> Tensor:
    """Indices of the tokens whose outputs [T, …] differ by more than rounding; none if they are at most a hundredth.

    A router may choose another expert for a single token because of rounding. The difference is relative to the size of
    a token's outputs, or to the largest output if a token has only one. Outputs that are not numbers in both agree.
    """
    error, size = (outputs - expected).abs(), expected.abs().max()
    if expected.dim() > 1:
        error, size = (outputs - expected).norm(dim=-1), expected.norm(dim=-1)
    wrong = (~(error <= tolerance * size) & expected.isfinite().view(len(expected), -1).all(-1)).nonzero().squeeze(1)
    return wrong if len(wrong) > len(expected) // 100 else wrong[:0]


def random_ids(vocabulary: int, seed: int = 0) -> Callable[[int], list[int]]:
    """A function that draws a number of token ids, the same ones in every run."""
    generator = torch.Generator().manual_seed(seed)
    return lambda count: torch.randint(vocabulary, (count,), generator=generator).tolist()


def with_first_layers(model: Any, check: Callable[[], T]) -> T:
    """The result of a check with the model's first layers (`first_layers`), or with all if fewer cannot run."""
    with first_layers(model) as fewer:
        try:
            return check()
        except Exception as error:
            if not fewer or not says_of_model(error):
                raise
    return check()


def scale(tokens: int, most: int) -> int:
    """Tokens of a check that vouches for `tokens` tokens: a power of two at least a quarter above, but at most `most`.
    What begins at the last tokens hardly changes outputs, but begins well within it; a run has at most some ten
    checks."""
    return min(most, max(_SHORTEST, 1 << (tokens + tokens // 4).bit_length()))


class GrowingCheck:
    """A check that is made again when sizes, each `scale` of a number of tokens, are larger; not after it failed
    once."""

    def __init__(self, check: Callable[..., str], failure: str = "") -> None:
        """check: takes the sizes and returns why something fails; an empty text if it works. failure: the reason, if it
        is known without a check."""
        self._check, self.failure = check, failure
        self.sizes: tuple[int, ...] = ()

    def failure_at(self, *sizes: int) -> str:
        """Why something fails at these sizes; an empty text if it works."""
        larger = tuple(map(max, sizes, self.sizes or sizes))
        if not self.failure and larger != self.sizes:
            self.failure, self.sizes = self._check(*larger), larger
        return self.failure


@contextmanager
def first_layers(model: Any) -> Iterator[bool]:
    """Context in which a causal language model has only its first layers, with at least one of every kind; yields
    whether any are left out. Two are of one kind if their modules have the same types, shapes and settings (but for one
    that counts the layers), and lists in the model's config have the same entries for both."""
    config = model.config.get_text_config()
    places = [
        (part, name, layers)
        for part in model.modules()
        for name, layers in part.named_children()
        if isinstance(layers, torch.nn.ModuleList) and len(layers) == getattr(config, "num_hidden_layers", 0)
    ]
    described = _descriptions(places[0][2], config) if len(places) == 1 else []
    enough = max((described.index(layer) for layer in described), default=0) + 1
    if enough >= len(described):
        yield False
        return
    owner, name, layers = places[0]
    with replaced([(owner, name, layers[:enough])]):
        yield True


def _descriptions(layers: torch.nn.ModuleList, config: Any) -> list[tuple[Any, ...]]:
    """For each layer, a description that is equal for layers of one kind."""
    described = [_settings(layer) for layer in layers]
    for name in set().union(*described):
        numbered = {i: value for i, settings in enumerate(described) if type(value := settings.get(name)) is int}
        if len({value - index for index, value in numbered.items()}) == 1:  # it counts the layers
            for index in numbered:
                described[index][name] = "number"
    lists = [value for value in vars(config).values() if isinstance(value, list | tuple) and len(value) == len(layers)]
    lists = [value for value in lists if list(value) != list(range(len(layers)))]  # which names all layers
    return [(settings, [str(values[index]) for values in lists]) for index, settings in enumerate(described)]


def _settings(layer: torch.nn.Module) -> dict[str, Any]:
    """Types, shapes and plain attributes of a layer's modules, by name."""
    settings: dict[str, Any] = {}
    for name, module in layer.named_modules():
        settings[name] = type(module)
        settings |= {f"{name}.{key}": value for key, value in vars(module).items() if type(value) in _PLAIN}
        settings |= {f"{name}.{key}": weight.shape for key, weight in module.named_parameters(recurse=False)}
    return settings


_PLAIN = (bool, int, float, str, type(None))
