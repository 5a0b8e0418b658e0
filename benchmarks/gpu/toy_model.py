"""A random language model of a few thousand weights as a GGUF file, for tries on a CPU."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import pre_tokenizers

WIDTH, HEADS, FEED, CONTEXT = 32, 2, 64, 2048


def write_toy(
    path: Path,
    letters: Sequence[str] = sorted(pre_tokenizers.ByteLevel.alphabet()),
    merges: Sequence[str] = ("t h",),
    context: int = CONTEXT,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """A Llama of one layer whose tokens are letters and some pairs of them; returns its tensors by GGUF name."""
    import gguf  # of the extra llm

    rng = np.random.default_rng(seed)
    words = ["<s>", "</s>", *letters, *(pair.replace(" ", "") for pair in merges)]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_merges(list(merges))
    writer.add_token_types([3, 3] + [1] * (len(words) - 2))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    shapes = {
        "token_embd": (len(words), WIDTH),
        **{name: (WIDTH,) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")},
        **{f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}": (FEED, WIDTH) for name in ("gate", "up")},
        "blk.0.ffn_down": (WIDTH, FEED),
    }
    tensors = {f"{name}.weight": rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors
