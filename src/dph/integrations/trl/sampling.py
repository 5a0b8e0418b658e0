# pyright: reportMissingImports=false
"""What a TRL trainer samples from, compared with what stored responses were sampled from: the model's distribution with
the sampling parameters of this package. TRL and its engines have many more settings that change the distribution."""

from collections.abc import Mapping
from typing import Any

from dph.config.sampling import DEFAULTS, SamplingParams, named_params, vllm_names
from dph.integrations.trl.shared_prefix import another_order, generation_params, unknown_setting

_OF_TRANSFORMERS = frozenset(
    {
        *("cache_implementation", "cache_config", "compile_config", "prefill_chunk_size", "low_memory"),
        *("return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores", "output_logits"),
        *("num_return_sequences", "renormalize_logits", "remove_invalid_values", "max_time"),
        *("max_cache_len", "continuous_batching_config", "decoder_start_token_id", "is_assistant"),
        *("length_penalty", "early_stopping"),  # of beams, whose number is a setting of its own
    }
)
"""Settings of transformers' generation, besides those of `unknown_setting`, after which tokens are drawn as before."""
_OF_VLLM = frozenset(
    {
        *("n", "seed", "stop_token_ids", "include_stop_str_in_output", "max_tokens", "max_new_tokens"),
        *("logprobs", "prompt_logprobs", "detokenize", "skip_special_tokens", "spaces_between_special_tokens"),
        *("truncate_prompt_tokens", "output_kind", "extra_args"),
    }
)
"""The same of vLLM's SamplingParams, besides the sampling parameters of this package."""
_NEUTRAL_OF_VLLM: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,),
    "top_k": (0, -1),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_tokens"), (0,)),
}
"""Values with which a setting changes nothing; of every setting None, False and an empty list change nothing."""


def reshaped(trainer: Any) -> str | None:
    """A setting of a TRL trainer, with its value, by which it samples otherwise than from the model's distribution with
    the parameters that `drawn_by` tells, or at another temperature or top-p than the trainer computes with; None if
    there is none."""
    if trainer.use_vllm:
        regex = getattr(trainer.args, "vllm_structured_outputs_regex", None)
        settings = {name: getattr(trainer, name, None) for name in ("top_k", "repetition_penalty")}
        settings |= dict(trainer.args.generation_kwargs or {}) | {"vllm_structured_outputs_regex": regex}
        found = _changed_of_vllm(settings, trainer)
    else:
        model, chosen = _configs(trainer)
        found = unknown_setting(model, chosen, _OF_TRANSFORMERS) or another_order(generation_params(model, chosen))
        found = found or _overridden(chosen.to_dict(), trainer)
    return found


def drawn_by(trainer: Any) -> SamplingParams:
    """The sampling parameters of a TRL trainer."""
    if not trainer.use_vllm:
        return generation_params(*_configs(trainer))
    own = {name: value for name in DEFAULTS if (value := getattr(trainer, name, None)) is not None}
    asked = {name: value for name, value in (trainer.args.generation_kwargs or {}).items() if value is not None}
    return named_params(own | asked, vllm_names())


def _configs(trainer: Any) -> tuple[Any, Any]:
    """The model, whose generation config holds for all that the trainer's leaves open, and the trainer's."""
    return trainer.accelerator.unwrap_model(trainer.model), trainer.generation_config


def _changed_of_vllm(settings: Mapping[str, Any], trainer: Any) -> str | None:
    for name, value in settings.items():
        changes_nothing = value is None or value is False or value in ([], {}, *_NEUTRAL_OF_VLLM.get(name, ()))
        if not changes_nothing and name not in _OF_VLLM and name not in vllm_names().values():
            return f"{name}={value!r}"
    return _overridden(settings, trainer)


def _overridden(settings: Mapping[str, Any], trainer: Any) -> str | None:
    """The temperature or top-p if `generation_kwargs` sets another than the trainer computes with."""
    for name in ("temperature", "top_p"):
        if name in settings and settings[name] not in (None, getattr(trainer, name)):
            return f"generation_kwargs {name}={settings[name]!r}"
    return None
