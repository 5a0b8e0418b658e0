"""Rows that share prompts, the architectures that can share them, and the comparison of two ways to compute them."""

from dataclasses import replace

import numpy as np
import torch

from dph.training.rows import Row, collate
from helpers import difference, gradient

EXACT = 2e-5
"""Tolerance in fp32: log-probabilities in nats, and gradients relative to their norm. Log-probabilities of −10 come
from logits of some tens, whose last place is 2e-6 to 4e-6; processors add their terms in different orders."""

SHARING = {
    "llama": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0}
              | {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}, "attention_bias": True},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"num_key_value_heads": 1},
    "mistral": {"sliding_window": None},
    "gemma": {"num_key_value_heads": 4},
    "gemma3_text": {"sliding_window": 64, "query_pre_attn_scalar": 8},
    "phi3": {},
    "olmo2": {},
    "granite": {"logits_scaling": 4.0, "attention_multiplier": 0.3},
    "cohere": {"logit_scale": 0.25},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}  # fmt: skip


def grouped_rows(seed=0):
    """Groups of 6, 3, 1, 1 and 2 rows of different lengths, some with a common response prefix.

    The group of six has two equal responses, the group of three an empty one. The smaller groups are rehearsal rows.
    """
    generator = torch.Generator().manual_seed(seed)

    def ids(low, high):
        length = int(torch.randint(low, high, (), generator=generator))
        return torch.randint(0, 18, (length,), generator=generator).tolist()

    rows = []
    for count in (6, 3, 1, 1, 2):
        prompt, common = ids(2, 20), ids(0, 3)
        for _ in range(count):
            response = common + ids(1, 14)
            noise = torch.randn(len(response), generator=generator).tolist()
            rows.append(Row(prompt, response, noise, noise, float(noise[0]), is_rehearsal=count < 3))
    rows[2] = replace(rows[4], advantage=0.5)
    rows[7] = replace(rows[7], response_ids=[], old_logprobs=[], ref_logprobs=[])
    return rows


def evaluated(policy, rows, shared, entropy="none"):
    """Log-probabilities, entropies, and the gradient of a weighted sum of them."""
    batch = collate(rows, shared=shared)
    logprobs, entropies = policy.logprobs(batch, 0.8, entropy=entropy)
    policy.model.zero_grad(set_to_none=True)
    loss = (logprobs * torch.linspace(-1, 1, logprobs.numel()).view_as(logprobs)).sum()
    if entropies is not None:
        loss = loss + 0.3 * (entropies * torch.linspace(1, -1, logprobs.numel()).view_as(logprobs)).sum()
    loss.backward()
    return logprobs.detach(), entropies, gradient(policy)


def error(found, expected):
    """The larger of two errors of a result of `evaluated`: log-probabilities in nats, gradient relative to its norm."""
    gradients = float((found[2] - expected[2]).norm() / expected[2].norm())
    return float(np.max([difference(found[0], expected[0]), gradients]))  # NaN, where either is


def ungrouped_rows():
    """Rows with prompts of their own."""
    return [Row([prompt, *range(2, 9)], [*range(3, 4 + prompt)], old_logprobs=()) for prompt in range(4)]
