"""The optimizer, its learning rate as a function of the step count, and its state as plain tensors."""

import math

import torch
from torch import Tensor

from dph.config import AdamWConfig

_STATE_NAMES = ("exp_avg", "exp_avg_sq", "step")
_MASTER = "master"


def learning_rate(config: AdamWConfig, step: int, total: int) -> float:
    """The learning rate of one optimizer step: a linear warm-up, then the schedule of the settings.

    step: the number of the step, from 0. total: the number of optimizer steps of the whole training.

    >>> from dph.config import OptimConfig
    >>> config = OptimConfig(lr=1.0, warmup_steps=4, schedule="linear")
    >>> [learning_rate(config, step, 12) for step in (0, 1, 3, 4, 8, 12)]
    [0.25, 0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    done = (step - config.warmup_steps) / max(1, total - config.warmup_steps)
    if config.schedule == "linear":
        return config.lr * (1 - done)
    return config.lr * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


class Optimizer:
    """AdamW with gradient clipping over named parameters.

    For parameters of fewer than 32 bits, the optimizer keeps fp32 copies, the master weights. The gradients of all
    micro-batches are summed in fp32 on these copies. A step changes the copies, and rounds them to the parameters.
    """

    def __init__(self, parameters: list[tuple[str, torch.nn.Parameter]], config: AdamWConfig, total_steps: int) -> None:
        self._config, self._total = config, total_steps
        self._names = [name for name, _ in parameters]
        self.parameters = [_stepped(parameter) for _, parameter in parameters]
        """The tensors that are stepped: a parameter itself, or its fp32 copy. Their `grad` holds the gradients."""
        triples = zip(self._names, (parameter for _, parameter in parameters), self.parameters, strict=True)
        self._rounded = {name: (parameter, stepped) for name, parameter, stepped in triples if stepped is not parameter}
        self.steps_taken = 0
        self.skipped_in_a_row = 0
        """Consecutive steps, up to the last one, that were skipped because the gradient was not finite."""
        # One pass over the weights instead of one for each operation: on a CPU five times as fast, nothing temporary
        self._fused = {parameter.device.type for parameter in self.parameters} in ({"cpu"}, {"cuda"})
        self._adamw = torch.optim.AdamW(
            self.parameters,
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=True if self._fused else None,
        )

    @property
    def lr(self) -> float:
        """The learning rate of the last step or, before any step, of the first."""
        return learning_rate(self._config, max(0, self.steps_taken - 1), self._total)

    def step(self) -> float:
        """Clip the gradients, step, and clear the gradients. Returns the norm of the gradient before clipping. If the
        norm is not finite, the weights do not change."""
        limit = self._config.grad_clip or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, limit))
        self.skipped_in_a_row = 0 if math.isfinite(norm) else self.skipped_in_a_row + 1
        if math.isfinite(norm):
            for group in self._adamw.param_groups:
                group["lr"] = learning_rate(self._config, self.steps_taken, self._total)
            self._adamw.step()
            self._round()
        self.clear()
        self.steps_taken += 1
        return norm

    def clear(self) -> None:
        """Clear the gradients."""
        self._adamw.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _round(self) -> None:
        for parameter, copy in self._rounded.values():
            parameter.copy_(copy)

    def state(self) -> dict[str, Tensor]:
        """The tensors that the next step changes (moments, counters and fp32 copies), by "parameter name/state
        name"."""
        moments = {
            f"{name}/{key}": self._adamw.state[parameter][key].detach().contiguous()
            for name, parameter in zip(self._names, self.parameters, strict=True)
            if parameter in self._adamw.state
            for key in _STATE_NAMES
        }
        copies = {f"{name}/{_MASTER}": copy.detach().contiguous() for name, (_, copy) in self._rounded.items()}
        return moments | copies

    def load_state(self, state: dict[str, Tensor], steps_taken: int, skipped_in_a_row: int = 0) -> None:
        """Restore what `state` returned."""
        self.steps_taken, self.skipped_in_a_row = steps_taken, skipped_in_a_row
        for name, parameter in zip(self._names, self.parameters, strict=True):
            if f"{name}/step" in state:
                moments = {key: state[f"{name}/{key}"].to(parameter.device) for key in _STATE_NAMES}
                if not self._fused:
                    moments["step"] = moments["step"].cpu()
                self._adamw.state[parameter] = moments
        with torch.no_grad():
            for name, (_, copy) in self._rounded.items():
                copy.copy_(state[f"{name}/{_MASTER}"])
        self._round()


def _stepped(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """The tensor that is stepped for a parameter: the parameter itself, or an fp32 copy that takes over the gradient of
    each backward pass."""
    if parameter.dtype.itemsize >= 4:
        return parameter
    stepped = torch.nn.Parameter(parameter.detach().float())

    def take_over(source: Tensor) -> None:
        assert source.grad is not None
        stepped.grad = source.grad.float() if stepped.grad is None else stepped.grad.add_(source.grad)
        source.grad = None

    parameter.register_post_accumulate_grad_hook(take_over)
    return stepped
