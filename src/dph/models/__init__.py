"""Policies, that is, causal language models with their tokenizers, and the inputs they read.

`Policy` computes log-probabilities of rows of token ids; rows that share a prompt can be packed, so that the prompt is
computed once. `new_policy` makes a small model from scratch.
"""

from dph.models.batch import Inputs, Tokens, collate_tokens, microbatches
from dph.models.loading import choose_device, load_model
from dph.models.logprobs import chunked_logprobs, token_logprobs
from dph.models.packing import Packed, PrefixLayout, group_by_prompt, pack, packed_tokens
from dph.models.policy import Policy, tokenizer_hash
from dph.models.scratch import new_policy
from dph.models.sharing import shared_attention

__all__ = [
    "Inputs",
    "Packed",
    "Policy",
    "PrefixLayout",
    "Tokens",
    "choose_device",
    "chunked_logprobs",
    "collate_tokens",
    "group_by_prompt",
    "load_model",
    "microbatches",
    "new_policy",
    "pack",
    "packed_tokens",
    "shared_attention",
    "token_logprobs",
    "tokenizer_hash",
]
