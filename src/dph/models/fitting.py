"""How much fits into memory: the tokens of a micro-batch in training, and the responses that are decoded together.

A micro-batch has as many tokens as memory allows. Two forward passes measure how many bytes the backward pass keeps for
each token.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dph.models.batch import padded_length
from dph.models.packing import Tokens
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.interrupts import launched_processes
from dph.process.memory import free_memory
from dph.process.progress import say
from dph.runs.directory import RunDir

KEPT_ON_CPU = 5 << 26
"""The bytes of activations that a micro-batch may keep on a CPU. Larger micro-batches are not faster there: with 135
million parameters in bf16, 585, 694 and 925 tokens give the same tokens per second, within the differences between
runs."""
_SHARE = 0.5
"""The share that activations or responses may take of the memory that is free besides gradients and moments."""
MOST_ROWS = {"cpu": 512}
MOST_ROWS_OTHERWISE = 1024
"""The largest number of responses that are decoded together on other devices than a CPU, unless a step of training has
more. More responses at once are hardly faster, because the time of a decoding step then grows in proportion to its
rows."""
_PROBED = (64, 192)  # tokens of the two checks
_FEWEST, _MOST = 256, 16384


def settled_tokens(asked: int, policy: Policy, run: RunDir, world: World) -> int:
    """The number of tokens of a micro-batch of training.

    asked: the number in the settings; 0 stands for as many tokens as fit into memory (`fitting_tokens`). A number that
    was chosen is kept in the manifest of the run, so that a resumed run has the same number.
    """
    if asked:
        return asked

    def choose() -> int:
        tokens = fitting_tokens(policy)
        say(f"{tokens} tokens pass through the model at once")
        return tokens

    return world.decided(lambda: run.kept("tokens_per_microbatch", choose))


def fitting_tokens(policy: Policy) -> int:
    """The number of tokens of a micro-batch, 256 to 16384, whose activations fit into memory together with the
    gradients and the moments of AdamW. On a CPU the activations take at most 320 MiB. Unless memory is short, the
    number depends on the model and the type of the device alone."""
    room = int(_SHARE * (_free(policy.device) - _state(policy)))
    if policy.device.type == "cpu":
        room = min(room, KEPT_ON_CPU)
    return max(_FEWEST, min(_MOST, room // kept_per_token(policy)))


def fitting_rows(policy: Policy, prompt: int, response: int, *, step: int = 0) -> int:
    """The number of responses that can be decoded together: as many as fit into memory, if each has a prompt of its own
    and is as long as allowed. At least 1, and at most `MOST_ROWS` (on a GPU, `MOST_ROWS_OTHERWISE`) or, if that is
    more, all responses of a step.

    A response takes memory for keys and values, in buffers of up to twice the length of the response, and for logits,
    of which drawing a token makes copies.

    Args:
        policy: the model that decodes.
        prompt, response: the largest numbers of tokens of a prompt and of a response.
        step: the number of responses in a step of training, which also needs memory for gradients and moments; 0
            without training.
    """
    config, narrow = policy.config, policy.precision == "bf16"
    heads, width = (getattr(config, name, None) for name in ("num_key_value_heads", "head_dim"))
    numbers = 2 * config.num_hidden_layers * (heads * width if heads and width else config.hidden_size)
    bytes_per_row = numbers * (2 if narrow else 4) * (prompt + 2 * response) + 16 * config.vocab_size
    taken = sum(2 * p.numel() for p in policy.model.parameters() if narrow and p.dtype.itemsize >= 4)  # casts to bf16
    taken += _state(policy) if step else 0
    most = max(step, MOST_ROWS.get(policy.device.type, MOST_ROWS_OTHERWISE))
    return max(1, min(most, int(_SHARE * (_free(policy.device) - taken)) // bytes_per_row))


def _state(policy: Policy) -> int:
    """The bytes of fp32 gradients and of the two moments of AdamW. For weights of 16 bits, the optimizer also keeps
    copies in fp32."""
    return sum(p.numel() * (12 if p.dtype.itemsize >= 4 else 16) for _, p in policy.trainable())


def kept_per_token(policy: Policy) -> int:
    """The bytes that the backward pass keeps for each input token, measured by two forward passes over a few tokens. A
    model that recomputes its layers keeps the inputs of the layers, which are counted at four bytes a number."""
    config, context = policy.model.config.get_text_config(), policy.context_length
    inputs = 4 * config.hidden_size * config.num_hidden_layers
    few, many = _PROBED if _PROBED[1] <= context else (max(1, context // 4), context)
    few, many = padded_length(few, context), padded_length(many, context)
    return max(inputs, (_kept(policy, many) - _kept(policy, few)) // max(1, many - few))


def _kept(policy: Policy, tokens: int) -> int:
    """The bytes that the forward pass over one row keeps for the backward pass, without the weights."""
    vocabulary = policy.model.config.get_text_config().vocab_size
    # Logits are kept in chunks of a constant size, unless the model transforms them.
    predicted = 1 if policy.head is not None else tokens - 1
    ids = [(3 + 5 * step) % vocabulary for step in range(tokens)]
    return kept_bytes(policy, [Tokens(ids[: tokens - predicted], ids[tokens - predicted :])])


def kept_bytes(policy: Policy, rows: Sequence[Tokens]) -> int:
    """The bytes that the forward pass over some rows keeps for the backward pass, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, Tensor] = {}  # by address; holding them keeps addresses from being used twice

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = alone = tensor.detach()
        return alone  # a tensor that an operation returned would, with its history, keep itself alive

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        policy.logprobs(policy.collate(rows))
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in weights)


def _free(device: torch.device) -> int:
    """The bytes that this process may still take on a device; a very large number if the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = free_memory() if device.type == "cpu" else None
    return 1 << 62 if free is None else free // launched_processes()
