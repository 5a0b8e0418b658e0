"""Which numbers a setting may take, whatever the stage; what depends on several settings is checked by the stages."""

from typing import Any

from dph.config.load import flatten, to_dict
from dph.errors import UserError

_LARGEST = 1.7e308
_SMALLEST = 5e-324

_FROM_ONE = (
    *("rollout.n", "rollout.prompts", "rollout.max_tokens", "rollout.max_prompt_tokens", "sampler.rows"),
    *("optim.minibatches", "optim.tokens_per_microbatch", "checkpoint_every", "dynamic_sampling.max_attempts"),
    *("monitor.n", "monitor.limit", "verifier.workers", "batch", "demonstrations", "stored", "jobs"),
    *("model.lora_alpha",),
    *("new.vocab_size", "new.hidden", "new.layers", "new.heads", "new.intermediate", "new.context"),
)
_FROM_ZERO = (
    *("steps", "task.limit", "rehearsal.rows", "rehearsal.check_rows", "monitor.every"),
    "keep_checkpoints",
    *("rollout.temperature", "optim.lr", "optim.warmup_steps", "optim.weight_decay", "optim.grad_clip"),
    *("optim.max_skipped", "overlong.buffer", "overlong.penalty", "model.lora_rank", "new.kv_heads"),
    *("loss.clip_low", "loss.clip_high", "loss.dual_clip", "loss.eta", "loss.js_scale", "loss.kl_coef"),
    "rollout.importance_cap",
)
_RANGES: dict[str, tuple[float, float, str]] = {
    **dict.fromkeys(_FROM_ONE, (1, _LARGEST, "be at least 1")),
    **dict.fromkeys(_FROM_ZERO, (0, _LARGEST, "be 0 or more, and finite")),
    "max_unjudged": (0, 1, "lie between 0 and 1"),
    "loss.entropy_coef": (-_LARGEST, _LARGEST, "be finite"),
    "sampler.memory": (_SMALLEST, 1, "be above 0 and at most 1"),
    "rollout.top_p": (_SMALLEST, 1, "be above 0 and at most 1"),
    "verifier.timeout": (_SMALLEST, _LARGEST, "be above 0, and finite"),
    "optim.beta1": (0, 1 - 1e-12, "be 0 or more and below 1"),
    "optim.beta2": (0, 1 - 1e-12, "be 0 or more and below 1"),
}
"""Smallest and largest value of settings by dotted name, and the same in words."""


def check_ranges(config: Any) -> None:
    """Raises UserError for the first number of a stage's settings that lies out of its range."""
    for key, value in flatten(to_dict(config)).items():
        if key in _RANGES:
            low, high, words = _RANGES[key]
            if not low <= value <= high:
                raise UserError(f"{key} is {value}; it must {words}")
