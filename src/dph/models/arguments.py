"""Which arguments a model's forward pass takes, read from its signature before it is called.

Models differ in them, and transformers renames them: `past_key_values` became `cache` in 5.24. A call with a name that
the signature does not have could be ignored (models take further keyword arguments), warn, or fail.
"""

import inspect
from dataclasses import dataclass
from typing import Any

_CACHES = ("cache", "past_key_values", "cache_params")
"""Names of the argument that holds keys, values and states of earlier tokens, the newest first. A model returns the
cache under the same name."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Names of the arguments of a model's forward pass."""

    named: frozenset[str]
    cache: str | None
    """The argument for the cache; None if there is none."""

    @classmethod
    def of(cls, model: Any) -> "Arguments":
        """The arguments of a transformers model, or of the model that peft wraps."""
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        # A subclass may hand its arguments on, as forward(self, *args, **kwargs)
        forwards = [base.forward, *(kind.__dict__["forward"] for kind in type(base).__mro__ if "forward" in vars(kind))]
        for forward in forwards:
            named = frozenset(inspect.signature(forward).parameters)
            if "input_ids" in named:
                return cls(named, next((name for name in _CACHES if name in named), None))
        return cls(frozenset(), None)

    def taken(self, **given: Any) -> dict[str, Any]:
        """Those of the given arguments that the forward pass names. `cache` stands for the cache, whatever its name."""
        if "cache" in given and self.cache is not None:
            given[self.cache] = given.pop("cache")
        return {name: value for name, value in given.items() if name in self.named}
