"""Weights that lie between those of two models of the same kind (WiSE-FT, arXiv 2109.01903; for reasoning models, arXiv
2504.10478)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from dph.config import EvaluatedModelConfig
from dph.errors import ModelError
from dph.models.adapters import merged_state, refuse_adapters
from dph.models.loading import load_model
from dph.models.policy import Policy


def interpolated(initial: EvaluatedModelConfig, trained: str, weight: float) -> Policy:
    """The policy with the weights θ = (1 − weight)·θ_initial + weight·θ_trained.

    Each parameter is computed in fp32. The policy is on the device and in the precision of `initial`. Embeddings that
    are tied in only one of the two models are not tied in the policy.

    Args:
        initial: the settings of the model at weight 0.
        trained: the folder or the name of the model at weight 1, with adapters merged into its weights.
        weight: the share of the trained model.
    Raises:
        UserError: one of the two is a folder of adapters, or the two models differ in their tokenizers, or in the names
            or shapes of their parameters.
    """
    config = _plain(initial)
    first, last = Policy.load(config), Policy.load(replace(config, path=trained))
    refuse_adapters(initial.path, first.model)
    refuse_adapters(trained, last.model)
    if first.tokenizer_hash() != last.tokenizer_hash():
        raise ModelError(f"{initial.path} and {trained} have different tokenizers; weights between them mean nothing")
    weights = _between(merged_state(first.model), merged_state(last.model), weight, f"{initial.path} and {trained}")
    result = max(last, first, key=lambda policy: len(list(policy.model.parameters())))  # which ties fewer weights
    result.model.load_state_dict(weights)
    return result


def save_share(policy: Policy, initial: EvaluatedModelConfig, weight: float, path: Path) -> None:
    """Write a trained policy into a folder, with adapters merged into the weights. With weight < 1, write the
    interpolation between the model that the training began with and the trained policy instead.

    policy: the trained policy. initial: the settings of the model that the training began with, which is loaded on the
    CPU. Raises UserError if the two differ in the names or shapes of their parameters.
    """
    if weight == 1:
        return policy.save(path)
    begun, _ = load_model(replace(_plain(initial), device="cpu"))
    what = f"{initial.path} and the model that was trained from it"
    policy.save(path, _between(merged_state(begun), merged_state(policy.causal_lm), weight, what))


def _plain(config: EvaluatedModelConfig) -> EvaluatedModelConfig:
    """The same model without the settings of its training."""
    return EvaluatedModelConfig(
        config.path, config.precision, config.device, config.attention, config.trust_remote_code
    )


def _between(start: Mapping[str, Tensor], end: Mapping[str, Tensor], weight: float, what: str) -> dict[str, Tensor]:
    """The interpolation of two state dicts, in the types of the second one. Names that share one tensor in both share
    one tensor in the result."""
    for name in sorted(start.keys() | end.keys()):
        if name not in start or name not in end or start[name].shape != end[name].shape:
            raise ModelError(f"{what} are models of different shapes: they differ in {name}")
    mixes: dict[tuple[int, int, torch.Size], Tensor] = {}
    places = {name: (start[name].data_ptr(), end[name].data_ptr(), end[name].shape) for name in end}
    for name, place in places.items():
        first, last = start[name], end[name].detach().cpu()
        if place not in mixes:
            mixed = torch.lerp(first.detach().cpu().float(), last.float(), weight)
            mixes[place] = mixed.to(last.dtype) if last.is_floating_point() else last
    return {name: mixes[place] for name, place in places.items()}
