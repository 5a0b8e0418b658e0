"""Tiny random models of every architecture that the package is tested with."""

from helpers import random_policy

ARCHITECTURES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 4},
    "gemma2": {"sliding_window": 4, "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 8},
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.25},
    "falcon_h1": {"lm_head_multiplier": 0.25, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8},
    "phi3": {},
    "gpt_neox": {},
}


def architecture(name, vocab_size):
    return random_policy(name, vocab_size=vocab_size, **ARCHITECTURES[name])
