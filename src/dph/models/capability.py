"""Capability checks: before an optimisation is used, it is compared with the plain forward pass of the model.

The result of a check can depend on the kind of a layer, on the length of a row and on the place of a token in a batch,
because models have layers of several kinds, attention windows, and scales that begin at some position. So a check is
made with rows as long as the rows that are computed, and is repeated when rows get longer. It is made with the first
layers of the model only, up to the first layer of the last kind, so that a large model takes little time and memory.
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
"""In 16 bits, an optimisation may have this many times the error of the plain computation. Both errors are taken
against fp32."""


class Unsupported(ValueError):
    """A model needs a feature that an optimisation does not have. The message is the reason."""


def says_of_model(error: Exception) -> bool:
    """Whether an error says that a model cannot do what a check asks of it.

    The code of such a model fails, for example because it reads a mask or a cache that it was not given. Memory that
    ran out says nothing about the model. Nor do other TypeErrors, which are wrong calls in dph.
    """
    reads_nothing = isinstance(error, TypeError) and "NoneType" in str(error)
    return (isinstance(error, _EXPECTED) or reads_nothing) and not is_out_of_memory(error)


def attempt(check: Callable[[], str], *, of_kernels: bool = False) -> str:
    """Run a check. Returns the reason why the model cannot do what is asked, or "" if it can.

    An error in the check is such a reason too, unless it says nothing about the model (`says_of_model`). A check of
    kernels may raise errors of any type, and each is a reason, unless memory ran out (`of_kernels`). Other errors are
    raised.
    """
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
    """Context in which attributes of objects have other values. changes: (object, name of the attribute, value)."""
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
    """Context for a check of kernels, in which the inference mode and the autocast of the caller are switched off."""
    with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
        yield


def relative_error(value: Tensor, exact: Tensor) -> float:
    """The largest difference between values and exact values, relative to the largest exact value; NaN if a value is
    not a number."""
    return float((value.to(exact.dtype) - exact).abs().max() / exact.abs().max())


def differing(outputs: Tensor, expected: Tensor, tolerance: float) -> Tensor:
    """The indices of the tokens whose outputs [T, …] differ by more than rounding. If they are at most a hundredth of
    all tokens, none is returned, because rounding may let a router choose another expert for a single token.

    The difference is relative to the size of the outputs of a token, or to the largest output of all if a token has
    only one. Expected outputs that are not finite are not compared.
    """
    error, size = (outputs - expected).abs(), expected.abs().max()
    if expected.dim() > 1:
        error, size = (outputs - expected).norm(dim=-1), expected.norm(dim=-1)
    wrong = (~(error <= tolerance * size) & expected.isfinite().view(len(expected), -1).all(-1)).nonzero().squeeze(1)
    return wrong if len(wrong) > len(expected) // 100 else wrong[:0]


def random_ids(vocabulary: int, seed: int = 0) -> Callable[[int], list[int]]:
    """A function that draws a number of token ids. It draws the same ids in every run."""
    generator = torch.Generator().manual_seed(seed)
    return lambda count: torch.randint(vocabulary, (count,), generator=generator).tolist()


def with_first_layers(model: Any, check: Callable[[], T]) -> T:
    """The result of a check with the first layers of a model (`first_layers`), or with all layers if the model cannot
    run with fewer."""
    with first_layers(model) as fewer:
        try:
            return check()
        except Exception as error:
            if not fewer or not says_of_model(error):
                raise
    return check()


def scale(tokens: int, most: int) -> int:
    """The number of tokens of a check that vouches for rows of `tokens` tokens: a power of two that is at least a
    quarter larger, but at most `most`.

    A change of the computation that begins at the last tokens of a row hardly changes the outputs. A change that begins
    well within the row does, which is why the check is longer. A run has at most some ten checks, because each power of
    two has one check.
    """
    return min(most, max(_SHORTEST, 1 << (tokens + tokens // 4).bit_length()))


class GrowingCheck:
    """A check that is made again when sizes grow. Each size is `scale` of a number of tokens. After a failure the check
    is not made again."""

    def __init__(self, check: Callable[..., str], failure: str = "") -> None:
        """
        Args:
            check: takes the sizes, and returns the reason why something fails, or "" if it works.
            failure: the reason, if it is known without a check.
        """
        self._check, self.failure = check, failure
        self.sizes: tuple[int, ...] = ()

    def failure_at(self, *sizes: int) -> str:
        """The reason why something fails at these sizes; "" if it works."""
        larger = tuple(map(max, sizes, self.sizes or sizes))
        if not self.failure and larger != self.sizes:
            self.failure, self.sizes = self._check(*larger), larger
        return self.failure


@contextmanager
def first_layers(model: Any) -> Iterator[bool]:
    """Context in which a causal language model has only its first layers, with at least one layer of every kind. Yields
    whether any layer is left out.

    Two layers are of one kind if their modules have the same types, shapes and settings, and lists in the config of the
    model have the same entries for both. A setting that counts the layers may differ.
    """
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
    """For each layer, a description. Layers of one kind have equal descriptions."""
    described = [_settings(layer) for layer in layers]
    for name in set().union(*described):
        numbered = {i: value for i, settings in enumerate(described) if type(value := settings.get(name)) is int}
        if len({value - index for index, value in numbered.items()}) == 1:  # this setting counts the layers
            for index in numbered:
                described[index][name] = "number"
    lists = [value for value in vars(config).values() if isinstance(value, list | tuple) and len(value) == len(layers)]
    lists = [value for value in lists if list(value) != list(range(len(layers)))]  # such a list names all layers
    return [(settings, [str(values[index]) for values in lists]) for index, settings in enumerate(described)]


def _settings(layer: torch.nn.Module) -> dict[str, Any]:
    """The types, shapes and plain attributes of the modules of a layer, by name."""
    settings: dict[str, Any] = {}
    for name, module in layer.named_modules():
        settings[name] = type(module)
        settings |= {f"{name}.{key}": value for key, value in vars(module).items() if type(value) in _PLAIN}
        settings |= {f"{name}.{key}": weight.shape for key, weight in module.named_parameters(recurse=False)}
    return settings


_PLAIN = (bool, int, float, str, type(None))
