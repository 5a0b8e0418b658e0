# pyright: reportMissingImports=false
"""Responses by this package's sampler, which computes and stores the prompt of a group once while it decodes."""

from collections.abc import Sequence
from typing import Any

import torch

from dph.models.batch import Tokens
from dph.models.packing import group_by_prompt
from dph.sampling.hf import HFSampler
from dph.types import SamplingParams

_KNOWN = {
    *("_from_model_config", "disable_compile", "transformers_version", "use_cache"),  # do not change what is drawn
    *("bos_token_id", "eos_token_id", "pad_token_id"),
    *("max_length", "max_new_tokens", "temperature", "top_p"),
}
"""Settings of transformers' generation that the sampler has too."""
_NEUTRAL = {"do_sample": True, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
"""Settings that it does not have, with the value that changes nothing; of all others None and False change nothing."""


def unknown_setting(model: Any, chosen: Any) -> str | None:
    """A setting of transformers' generation, with its value, that the sampler does not have; None if there is none.

    Args:
        model: whose own generation config holds for what `chosen` leaves open.
        chosen: the generation config of the call.
    """
    settings = model.generation_config.to_diff_dict() | chosen.to_diff_dict()
    changed = (pair for pair in settings.items() if pair[1] not in (None, _NEUTRAL.get(pair[0], False)))
    return min((f"{name}={value!r}" for name, value in changed if name not in _KNOWN), default=None)


def sample_groups(sampler: HFSampler, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[list[int]]:
    """A response to each prompt, in order; equal prompts form a group, whatever `params.n` is.

    The random keys come from torch's generator, whose state TRL saves with its checkpoints.
    """
    found: list[list[int]] = [[] for _ in prompts]
    groups = group_by_prompt([Tokens(prompt, []) for prompt in prompts])
    for count in sorted({len(group) for group in groups}):
        alike = [group for group in groups if len(group) == count]
        keys = torch.randint(1 << 62, (len(alike),)).tolist()
        asked = SamplingParams(count, params.temperature, params.top_p, params.max_tokens)
        sampled = sampler.sample([prompts[group[0]] for group in alike], asked, keys)
        for group, completions in zip(alike, sampled, strict=True):
            for row, completion in zip(group, completions, strict=True):
                found[row] = list(completion.token_ids)
    return found
