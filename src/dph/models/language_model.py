"""A causal language model with its tokenizer: from texts to token ids and back, hashes, and files.

Chat templates are programs that come with a model: transformers runs them in a sandbox, which forbids access to this
process and its machine; here any error is one sentence, and so is a template that does not end.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from dph.errors import ModelError, reason_of
from dph.models.traits import context_of
from dph.process.user_code import TimeLimitReached, time_limit
from dph.types import Message, as_messages, as_text

LONGEST_SECONDS = 10.0
"""Time of a chat template for one prompt; real templates take less than a thousandth of it."""
MOST_ADDED = 1_000_000
"""Characters that a template may add to one prompt: splitting hundreds of megabytes into tokens takes minutes."""
_LOADING = ("is_local", "local_files_only")
"""What transformers notes in a tokenizer about how it was loaded, and would write with it: whether from a directory,
and whether the hub was forbidden. A resumed run loads from its checkpoint, and must write the same files."""


class LanguageModel:
    """A causal language model and its tokenizer on one device."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """
        Args:
            model: a transformers causal language model, possibly wrapped by peft.
            tokenizer: its tokenizer; it must have an EOS token.

        Raises UserError if the tokenizer has no EOS token or the model's end tokens are not token ids.
        """
        if tokenizer.eos_token_id is None:
            raise ModelError("the tokenizer has no EOS token, so no response could ever end; set one in its config")
        self.model, self.tokenizer = model, tokenizer
        eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        ids = [i for i in (eos if isinstance(eos, (list, tuple)) else [eos]) if i is not None]
        if not all(isinstance(i, int) for i in ids):
            raise ModelError(f"eos_token_id of the model's generation_config.json is {eos!r}, which is not a token id")
        self.eos_ids = frozenset([*ids, int(tokenizer.eos_token_id)])

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def config(self) -> Any:
        """The model's text config."""
        return self.model.config.get_text_config()

    @property
    def context_length(self) -> int:
        """Longest sequence that the model accepts, in tokens."""
        return context_of(self.config)

    @property
    def causal_lm(self) -> Any:
        """The model as transformers' class, with adapters in its layers."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Names and parameters that the optimizer updates, in a fixed order."""
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    # Texts -----------------------------------------------------------------------------------------------------

    def encode_prompt(self, prompt: str | Sequence[Message]) -> list[int]:
        """Token ids of a prompt; the tokenizer's chat template is applied if it has one. Without a template, special
        tokens that the tokenizer puts before a text stay (BOS), and those that it appends are left out (EOS).

        Raises UserError if the template fails or does not end (see `render_prompt`), or a token id is outside the
        model's vocabulary.
        """
        if getattr(self.tokenizer, "chat_template", None):
            text = render_prompt(self.tokenizer, prompt)
            return self._checked(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        ids, own = (self.tokenizer(as_text(prompt), add_special_tokens=add)["input_ids"] for add in (True, False))
        ends = (end for end in range(len(ids), len(own) - 1, -1) if ids[end - len(own) : end] == own)
        return self._checked(ids[: next(ends, len(ids))])

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response, ending with EOS. Raises UserError for ids outside the model's vocabulary."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._checked([*ids, int(self.tokenizer.eos_token_id)])

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a response without special tokens."""
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _checked(self, ids: list[int]) -> list[int]:
        """Return the ids if each has an embedding. On a GPU, a larger id would kill the process without a reason."""
        size = int(self.config.vocab_size)
        if ids and max(ids) >= size:
            raise ModelError(
                f"the tokenizer produced token id {max(ids)}, but the model has only {size} tokens: they do not belong "
                "together"
            )
        return ids

    # Files -----------------------------------------------------------------------------------------------------

    def save(self, path: Path, state: Mapping[str, Tensor] | None = None) -> None:
        """Write the model, adapters merged, and the tokenizer. AutoModelForCausalLM and vLLM can load them.

        state: what to write instead of `merged_state`, under the same names.
        """
        transformers_logging.disable_progress_bar()
        _save_model(self.causal_lm, merged_state(self.causal_lm) if state is None else state, path)
        save_tokenizer(self.tokenizer, path)

    def weight_hash(self) -> str:
        """Hash of the names and values of all weights, without adapters; not of the type in which they are kept."""
        digest = hashlib.blake2b(digest_size=16)
        for name, parameter in sorted(self.causal_lm.named_parameters()):
            if "lora_" in name:
                continue
            digest.update(name.replace(".base_layer", "").encode())
            digest.update(parameter.detach().to("cpu").float().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def tokenizer_hash(self) -> str:
        """Hash of everything that determines how text is tokenised."""
        return tokenizer_hash(self.tokenizer)


def render_prompt(tokenizer: Any, prompt: str | Sequence[Message]) -> str:
    """The text of a prompt by a tokenizer's chat template, up to where the response begins.

    Raises UserError if the template fails, does not end, or adds over `MOST_ADDED` characters.
    """
    messages = [dict(message) for message in as_messages(prompt)]
    try:
        with time_limit(LONGEST_SECONDS):
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TimeLimitReached as error:
        raise ModelError(
            f"the tokenizer's chat template did not end within {LONGEST_SECONDS:g} s for one prompt; use another "
            "template"
        ) from error
    except Exception as error:  # whatever the template's code raises
        raise ModelError(f"the tokenizer's chat template rejects the prompt: {reason_of(error)}") from error
    if len(text) > len(str(messages)) + MOST_ADDED:
        raise ModelError(
            f"the tokenizer's chat template makes one prompt {len(text)} characters long; use another template"
        )
    return text


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer: the same files for the same tokenizer, wherever it was loaded from."""
    for key in _LOADING:
        tokenizer.init_kwargs.pop(key, None)
    tokenizer.save_pretrained(folder)


def tokenizer_hash(tokenizer: Any) -> str:
    """Hash of everything in a tokenizer that determines how text is tokenised, the chat template included."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    template = getattr(tokenizer, "chat_template", None)
    return hashlib.blake2b(f"{state}\x1f{template}".encode(), digest_size=16).hexdigest()


def merged_state(model: Any) -> dict[str, Tensor]:
    """State dict of a model with its adapters added to the weights.

    The live weights stay untouched: adding the adapters and subtracting them again would not restore them exactly.
    """
    state = {name: value for name, value in model.state_dict().items() if "lora_" not in name}
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer"):
            key = f"{name}.base_layer.weight"
            state[key] = state[key] + module.get_delta_weight("default").to(state[key].dtype)
    return {name.replace(".base_layer", ""): value for name, value in state.items()}


def _save_model(model: Any, state: Mapping[str, Tensor], path: Path) -> None:
    """Write a model with these weights.

    Its config says that the embeddings are not tied if they differ, as after adapters of one of them were merged. Other
    programs believe the config, and would read one for both.
    """
    configs = [model.config, model.config.get_text_config()]
    wrong = [x for x in configs if getattr(x, "tie_word_embeddings", False) and not _ties(model, state)]
    for config in wrong:
        config.tie_word_embeddings = False
    try:
        model.save_pretrained(path, state_dict=dict(state))
    finally:
        for config in wrong:
            config.tie_word_embeddings = True


def _ties(model: Any, state: Mapping[str, Tensor]) -> bool:
    """Whether input and output embedding are one tensor in a state dict, or the model has not both."""
    names = {module: name for name, module in model.named_modules()}
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    weights = [state.get(f"{names.get(end)}.weight") for end in ends]
    return any(x is None for x in weights) or len({x.data_ptr() for x in weights if x is not None}) == 1
