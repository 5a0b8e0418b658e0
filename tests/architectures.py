"""Tiny random models of every causal architecture in transformers."""

import contextlib
import io
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import (
    CONFIG_MAPPING_NAMES,  # pyright: ignore[reportPrivateImportUsage]
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from dph.models.batch import Tokens, collate_tokens
from dph.models.policy import Policy
from helpers import gradient, random_policy, randomise, tiny_policy

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
"""Those that most tests run on."""


def architecture(name, vocab_size):
    return random_policy(name, vocab_size=vocab_size, **ARCHITECTURES[name])


# Every architecture -------------------------------------------------------------------------------------------------

NAMES = tuple(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
VOCABULARY = 32
"""Tokens of each of these models."""

_SIZES: dict[str, int] = {
    name: size
    for size, names in {
        64: "max_position_embeddings n_positions n_ctx max_seq_len context_length max_sequence_length seq_length "
        "d_inner mamba_d_ssm",
        32: "vocab_size unpadded_vocab_size pronunciation_vocab_size shape_vocab_size vocab_size_per_layer_input "
        "hidden_size n_embd d_model dim embedding_size embedding_dim emb_dim word_embed_proj_dim lru_width image_size "
        "projection_dim out_hidden_size hidden_dim",
        48: "intermediate_size ffn_dim n_inner dff dim_ff ffn_hidden_size encoder_ffn_dim decoder_ffn_dim "
        "feed_forward_size",
        16: "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size "
        "expert_ffn_hidden_size shared_intermediate_size q_lora_rank kv_lora_rank qk_head_dim "
        "attention_window_size patch_size",
        8: "head_dim d_kv dim_head d_head qk_rope_head_dim qk_nope_head_dim v_head_dim index_head_dim "
        "mamba_n_heads mamba_d_head mamba_d_state mamba_num_heads mamba_head_dim ssm_state_size state_size "
        "linear_key_head_dim linear_value_head_dim hidden_size_per_layer_input pronunciation_embed_dim "
        "shape_embed_dim chunk_size mamba_chunk_size",
        4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
        "num_encoder_attention_heads num_decoder_attention_heads num_experts n_routed_experts "
        "num_local_experts moe_num_experts linear_num_value_heads rotary_dim",
        2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers "
        "num_decoder_layers num_blocks num_key_value_heads num_experts_per_tok moe_k num_experts_per_token "
        "moe_topk zero_expert_num top_k_experts index_n_heads mamba_expand linear_num_key_heads "
        "image_token_id image_token_index",
        1: "n_shared_experts num_shared_experts n_group topk_group first_k_dense_replace mamba_n_groups "
        "bos_token_id eos_token_id",
        3: "video_token_id audio_token_id",
        0: "pad_token_id",
    }.items()
    for name in names.split()
}  # fmt: skip
_OPTIONAL = (
    "num_key_value_heads",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)  # set even where the default is None

_HEADS = {"num_key_value_heads": 4}
_DECODER = {"is_decoder": True}


def _layers(*kinds: str) -> dict[str, Any]:
    return {"num_hidden_layers": len(kinds), "layer_types": list(kinds)}


_LINEAR, _CONV = _layers(*["linear_attention", "full_attention"] * 2), _layers(*["conv", "full_attention"] * 2)
_INDEXER = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 4} | {
    "indexer_compress_ratio": 2
}
_NOTE = {**_HEADS, **_layers("indexed_attention", "sliding_attention"), "mlp_layer_types": ["dense", "sparse"]} | {
    "per_layer_config": None,
    "head_dim": 16,
}
_SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("axk1", "axk2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa"), _HEADS),
    **dict.fromkeys(("longcat_flash", "minicpm3", "sarvam_mla", "youtu"), _HEADS),
    **dict.fromkeys(
        ("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie"), _DECODER
    ),
    **dict.fromkeys(("megatron-bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"), _DECODER),
    **dict.fromkeys(("xlm-roberta", "xlm-roberta-xl", "prophetnet", "xlm"), _DECODER),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _LINEAR),
    **{name: {"text_config": _LINEAR} for name in ("qwen3_5", "qwen3_5_moe")},
    "bailing_hybrid": {**_LINEAR, **_HEADS, "mlp_layer_types": ["dense", "sparse"] * 2, "num_expert_group": 1}
    | {"linear_head_dim": 8, "linear_num_heads": 4},
    "bamba": {"num_hidden_layers": 4, "attn_layer_indices": [1, 3]},
    "cohere": {"logit_scale": 0.25},
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("full_attention", "sliding_attention")
        }
    },
    "deepseek_v2": {**_HEADS, "num_experts_per_tok": 2, "topk_method": "greedy"},
    "diffllama": {"attention_dropout": 0.0},
    "dory": {"n_input_layers": 1, "n_output_layers": 1, "num_hidden_layers": 4, "sliding_window": 4},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "dots3_note_text": _NOTE,
    "falcon_h1": {"mamba_d_ssm": 32, "mamba_n_heads": 4, "lm_head_multiplier": 0.25},
    "gemma2": {"final_logit_softcapping": 3.0, "query_pre_attn_scalar": 8, "sliding_window": 4},
    "gemma3n_text": {**_layers(*["sliding_attention", "full_attention"] * 2), "num_kv_shared_layers": 2}
    | {"activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0], "laurel_rank": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "granite": {"logits_scaling": 4.0},
    "granitemoehybrid": {**_LINEAR, "logits_scaling": 4.0},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4}
    | {"use_mamba_kernels": False},
    "kimi_linear": {**_LINEAR, **_HEADS, "mlp_layer_types": ["dense", "sparse"] * 2}
    | {"linear_head_dim": 8, "linear_num_heads": 4},
    "lfm2": _CONV,
    "lfm2_moe": {**_CONV, "num_dense_layers": 1},
    "lfm3": _layers("conv", "full_attention", "conv", "sliding_attention"),
    "mamba2": {"num_heads": 8, "n_groups": 1},
    "ministral": {"head_dim": 8},
    "mistral": {"sliding_window": 4},
    "mpt": {"attn_config": {"attn_pdrop": 0}},
    "qwen4_exp_text": {**_layers(*["linear_attention", "indexed_attention"] * 2), **_INDEXER},
    "qwen4_exp": {"text_config": {**_layers(*["linear_attention", "indexed_attention"] * 2), **_INDEXER}},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {**_DECODER, "attn_layers": ["local", "lsh"], "attention_head_size": 8, "axial_pos_shape": [8, 8]}
    | {"axial_pos_embds_dim": [16, 16], "local_attn_chunk_length": 4, "lsh_attn_chunk_length": 4, "num_buckets": 2},
    "xlstm": {"num_heads": 2, "qk_dim_factor": 1.0},
    "xmod": {**_DECODER, "default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2, "n_mamba_heads": 2}
    | {"mamba_dt_rank": 4, "attention_head_dim": 16, "attention_hidden_size": 64, **_HEADS},
    "zamba2": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2, "mamba_headdim": 8}
    | {"attention_head_dim": 16, "attention_hidden_size": 64, **_HEADS, "mamba_ngroups": 1},
    "zaya": {"num_experts_per_tok": 1, **_layers("hybrid", "hybrid")},
}
"""Settings by which an architecture becomes small, or has all the kinds of layers that it can have."""


def _small(settings: dict[str, Any], noise: float) -> dict[str, Any]:
    """Small sizes for those of a config's settings, and of its parts', that are sizes; `noise` where they are noise."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in _SIZES and (number or (value is None and name in _OPTIONAL)):
            found[name] = _SIZES[name]
        elif number and ("drop" in name or "jitter" in name):
            found[name] = noise
        elif isinstance(value, dict) and name.endswith("_config"):
            found[name] = {key: value[key] for key in value.keys() & {"model_type"}} | _small(value, noise)
    return found


def _joined(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    parts = {
        name: _joined(settings[name], value)
        for name, value in changes.items()
        if name.endswith("_config") and isinstance(settings.get(name), dict) and isinstance(value, dict)
    }
    return {**settings, **changes, **parts}


def any_model(name: str, *, noise: float = 0.0, **changes: Any) -> Any:
    """A tiny random model of any causal architecture in transformers, over VOCABULARY tokens.

    noise: all of the config's settings of dropout and other noise in training. Raises anything if it cannot be built.
    """
    with contextlib.redirect_stderr(io.StringIO()):  # many architectures warn about small sizes
        small = _small(AutoConfig.for_model(name).to_dict(), noise)
        config = AutoConfig.for_model(name, **_joined(_joined(small, _SETTINGS.get(name, {})), changes))
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomise(model, seed=1)
    return model


def skip_unless_known(name: str) -> None:
    """Skip a test of an architecture that this version of transformers does not have yet."""
    import pytest  # which scripts/gpu does without

    if name not in CONFIG_MAPPING_NAMES:
        pytest.skip(f"this version of transformers has no {name}")


def any_policy(name: str, *, noise: float = 0.0, **changes: Any) -> Policy:
    return Policy(any_model(name, noise=noise, **changes), tiny_policy().tokenizer)


# What a model computes ----------------------------------------------------------------------------------------------


def random_ids(generator, low, high):
    count = int(torch.randint(low, high, (), generator=generator))
    return torch.randint(0, VOCABULARY, (count,), generator=generator).tolist()


def some_rows():
    """Three rows for each of three prompts; two of them begin alike. The prompts have 1, 4 and 9 tokens."""
    generator, rows = torch.Generator().manual_seed(0), []
    for length in (9, 4, 1):
        prompt, common = random_ids(generator, length, length + 1), random_ids(generator, 2, 3)
        rows += [Tokens(prompt, common + random_ids(generator, 1, 9)) for _ in range(2)]
        rows.append(Tokens(prompt, random_ids(generator, 2, 9)))
    return rows


def long_rows():
    """Two rows for each of two prompts, of which one fills the context with them."""
    generator = torch.Generator().manual_seed(1)
    prompts = [random_ids(generator, length, length + 1) for length in (46, 20)]
    return [Tokens(prompt, random_ids(generator, 12, 13)) for prompt in prompts for _ in range(2)]


def plain_logprobs(model, row):
    """log π of a row's response, from the logits of one forward pass over this row alone."""
    ids, start = torch.tensor([[*row.prompt_ids, *row.response_ids]]), len(row.prompt_ids) - 1
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, start:-1].double()
    return logits.log_softmax(-1)[range(len(row.response_ids)), list(row.response_ids)]


def gap(found, expected):
    return float((torch.as_tensor(found).double() - expected).abs().max())


def evaluated(policy, rows, shared=False):
    """Log-probabilities of each row, and the gradient of a weighted sum of them."""
    policy.model.zero_grad(set_to_none=True)
    logprobs, _ = policy.logprobs(collate_tokens(rows, policy.device, shared=shared))
    weights = torch.linspace(-1, 1, logprobs.numel(), device=policy.device)
    (logprobs * weights.view_as(logprobs)).sum().backward()
    return [values[: len(row.response_ids)].detach() for values, row in zip(logprobs, rows, strict=True)], gradient(
        policy
    )
