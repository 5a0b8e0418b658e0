"""Settings of older run directories: which were renamed, and which were removed because the stage never read them."""

from collections.abc import Mapping
from typing import Any

_SAMPLING = ("rollout.importance_cap", "rollout.mask_truncated", "rollout.old_logprobs", "rollout.prompts")
_TRAINED = ("model.gradient_checkpointing", "model.lora_alpha", "model.lora_rank", "model.lora_targets")

RENAMED: dict[str, dict[str, str]] = {"train": {"prompts": "prompt_set"}, "verl": {"prompts": "prompt_set"}}
"""By stage: old dotted name → new one."""
REMOVED: dict[str, tuple[str, ...]] = {
    "sft": ("model.shared_prefix", "optim.minibatches", "task.limit", "task.split"),
    "presample": (*_TRAINED, *_SAMPLING),
    "train": ("sampler.tensor_parallel",),
    "verl": ("sampler.tensor_parallel", *(name.replace("rollout", "validation") for name in _SAMPLING)),
    "eval": ("model.shared_prefix", *_TRAINED, *_SAMPLING),
}
"""By stage: dotted names of settings that had no effect there and are gone."""
FORMER: dict[str, dict[str, tuple[Any, ...]]] = {
    "presample": {"candidates": (0, 2)},
    "train": {"rehearsal.choice": ("fixed",), "rehearsal.falling": (0.2,), "rehearsal.by_class": (False,)},
}
"""By stage: dotted names of settings that are gone, each with its values in runs that rehearsed as `dph train` does
now. Any other value stays, so that reading it ends with an unknown setting."""


def migrated(stage: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The complete settings of a stage as format 1 of run directories wrote them, in today's names."""
    tree = _copied(settings)
    for old, new in RENAMED.get(stage, {}).items():
        if old in tree:
            tree[new] = tree.pop(old)
    for name in REMOVED.get(stage, ()):
        table, _, key = name.partition(".")
        if isinstance(tree.get(table), dict):
            tree[table].pop(key, None)
    for name, values in FORMER.get(stage, {}).items():
        table, _, key = name.rpartition(".")
        found = tree.get(table) if table else tree
        if isinstance(found, dict) and found.get(key) in values:
            found.pop(key)
    return tree


def _copied(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in tree.items()}
