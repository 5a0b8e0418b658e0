"""Weights between two models of the same kind (WiSE-FT, arXiv 2109.01903; of reasoning models, arXiv 2504.10478)."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from dph.config import ModelConfig
from dph.errors import UserError
from dph.models.policy import Policy


def interpolated(initial: ModelConfig, trained: str, weight: float) -> Policy:
    """The policy with θ = (1 − weight)·θ_initial + weight·θ_trained, each parameter computed in fp32.

    Args:
        initial: the model that training began with; the result has its device and precision.
        trained: path or name of the trained model, adapters merged.
        weight: 0 gives the initial weights, 1 the trained ones.

    Raises UserError when the two differ in their tokenizers, or in the names or shapes of their parameters.
    """
    config = ModelConfig(initial.path, initial.precision, initial.device, initial.attention, initial.trust_remote_code)
    first, last = Policy.load(config), Policy.load(replace(config, path=trained))
    if first.tokenizer_hash() != last.tokenizer_hash():
        raise UserError(f"{initial.path} and {trained} have different tokenizers; weights between them mean nothing")
    start, end = dict(first.model.named_parameters()), dict(last.model.named_parameters())
    shapes = [{name: parameter.shape for name, parameter in found.items()} for found in (start, end)]
    if shapes[0] != shapes[1]:
        name = next(name for name in start.keys() | end.keys() if shapes[0].get(name) != shapes[1].get(name))
        raise UserError(f"{initial.path} and {trained} are models of different shapes: they differ in {name}")
    with torch.no_grad():
        for name, parameter in end.items():
            parameter.copy_(torch.lerp(start[name].float(), parameter.float(), weight))
    return last


def save_share(policy: Policy, initial: ModelConfig, weight: float, path: Path) -> None:
    """Write a trained policy, or with weight < 1 the interpolation between the model that it began with and it."""
    if weight == 1:
        return policy.save(path)
    path.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path) as trained:  # adapters are merged when they are saved; a killed run leaves `path`
        policy.save(Path(trained))
        interpolated(initial, trained, weight).save(path)
