"""Small models from scratch: a Llama model with random weights and a tokenizer fitted to texts."""

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from dph.config import NewModelConfig
from dph.errors import SettingsError
from dph.models.policy import Policy

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
_SPECIAL = [PAD, EOS, UNKNOWN]

WORD_PIECES = r" ?[A-Za-z_]+| ?\d|[^\S ]| ?[^\sA-Za-z_\d]+|\s"
"""Matches a word, a single digit or a run of punctuation, each with the space before it, or one white-space character.
Joining the pieces of a text gives the text unchanged."""


def word_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """A word-level tokenizer whose vocabulary is the sorted set of all pieces of the texts (`WORD_PIECES`) after the
    special tokens. Decoding the tokens of one of the texts gives the text unchanged."""
    splitter = pre_tokenizers.Split(Regex(WORD_PIECES), behavior="isolated")
    pieces = {piece for text in texts for piece, _ in splitter.pre_tokenize_str(text)}
    vocabulary = {piece: index for index, piece in enumerate([*_SPECIAL, *sorted(pieces - set(_SPECIAL))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = splitter  # type: ignore[assignment]
    tokenizer.decoder = decoders.Fuse()  # type: ignore[assignment]
    return tokenizer


def bpe_tokenizer(texts: Sequence[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer of up to `vocab_size` tokens, trained on the texts. Numbers are split into digits."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def new_policy(config: NewModelConfig, texts: Sequence[str], seed: int) -> Policy:
    """A policy with a Llama model of random weights, and a tokenizer fitted to the texts. seed: of the weights.

    Raises UserError if the sizes in `config` contradict each other.
    """
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if config.hidden % config.heads or (config.hidden // config.heads) % 2:
        raise SettingsError(
            f"new.hidden {config.hidden} divided by new.heads {config.heads} must be an even whole number; change one"
        )
    if config.kv_heads and config.heads % config.kv_heads:
        raise SettingsError(f"new.heads {config.heads} must be a multiple of new.kv_heads {config.kv_heads}")
    raw = word_tokenizer(texts) if config.tokenizer == "word" else bpe_tokenizer(texts, config.vocab_size)
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, model_max_length=config.context
    )
    eos, pad = int(tokenizer.eos_token_id), int(tokenizer.pad_token_id)
    sizes = LlamaConfig(
        vocab_size=raw.get_vocab_size(),
        hidden_size=config.hidden,
        intermediate_size=config.intermediate,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads or config.heads,
        max_position_embeddings=config.context,
        # As in the linear layers of torch. The usual 0.02 suits widths in the thousands. A model of width 160 would be
        # so close to linear that it learns to copy from the prompt much later.
        initializer_range=(3 * config.hidden) ** -0.5,
        tie_word_embeddings=True,
        bos_token_id=eos,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(sizes)
    return Policy(model, tokenizer)
