"""The layout of a model on a cluster: how much memory each GPU needs, and what follows from it.

All of it is arithmetic; nothing was measured. Full training holds 16 bytes per parameter over all GPUs (fp32 weights,
gradient and two moments of AdamW); verl gathers one layer at a time in bf16. Added to that are, for the tokens of one
micro-batch on one GPU, each layer's input, the activations within one layer, and the logits. For sampling, vLLM keeps a
copy of the weights in bf16 and its cache.
"""

from dataclasses import dataclass
from typing import Any, Literal

from dph.config import ModelConfig, VerlConfig
from dph.engine import read_config, refuse_other_kinds
from dph.errors import UserError, reason_of

VLLM_SHARE = 0.6
"""Share of a GPU's memory that vLLM takes while it samples."""
Offload = Literal["none", "between", "cpu"]
STATE_BYTES = 16
"""Bytes per trained parameter: weight, gradient and two moments, 4 bytes each."""
_GATHERED_LAYERS = 2
"""Layers gathered at one time: the current one and the next."""
_LAYER_BYTES = 68
"""Bytes per token and unit of width within one layer: about 17 activations in bf16 and their gradients."""
_LOGIT_BYTES = 10
"""Bytes per token and vocabulary entry: bf16 logits, and in fp32 their log-softmax and gradient."""
_USABLE = 0.9
"""Share of a GPU's memory that a plan may use."""
_CACHE_GROUPS = 2
"""Groups of responses at full length, with one copy of the prompt each, that vLLM's cache must hold."""


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """How a model is laid out on a cluster."""

    tensor_parallel: int
    """GPUs that one copy of vLLM spans."""
    sequence_parallel: int
    """GPUs that share each sequence in training (Ulysses)."""
    offload: Offload
    """Which states are in host memory. none: none; between: weights and moments during sampling; cpu: all, always."""
    tokens_per_gpu: int
    training_gb: float
    """Estimated peak memory of one GPU in training, in GB."""
    host_gb: float
    """Estimated host memory of one node for offloaded states, in GB."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes that a decoder's memory depends on."""

    parameters: int
    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    head_size: int

    @property
    def cache_bytes(self) -> int:
        """Key/value cache of one token in bf16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_size


def read_shape(path: str, *, trust_remote_code: bool = False) -> ModelShape:
    """Shape of a model from its configuration, without its weights. Raises UserError if that cannot be read."""
    import torch
    from transformers import AutoModelForCausalLM

    config = read_config(ModelConfig(path, trust_remote_code=trust_remote_code))
    refuse_other_kinds(path, config)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except Exception as error:  # damaged files make transformers raise many types
        raise UserError(f"cannot read the configuration of the model {path!r}: {reason_of(error)}") from error
    text: Any = config.get_text_config()
    heads = int(text.num_attention_heads)
    return ModelShape(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        hidden=int(text.hidden_size),
        layers=int(text.num_hidden_layers),
        vocab=int(text.vocab_size),
        heads=heads,
        kv_heads=int(getattr(text, "num_key_value_heads", None) or heads),
        head_size=int(getattr(text, "head_dim", None) or text.hidden_size // heads),
    )


def training_bytes(shape: ModelShape, config: VerlConfig, tokens: int, offload: Offload) -> float:
    """Peak memory of one GPU in training, in bytes, with `tokens` tokens on it at once. With adapters the other weights
    have neither gradient nor moments."""
    state = (4 if config.model.lora_rank else STATE_BYTES) * shape.parameters / config.cluster.gpus
    layer = 2 * shape.parameters / shape.layers
    activations = tokens * shape.hidden * (2 * shape.layers + _LAYER_BYTES)
    logits = tokens * shape.vocab * _LOGIT_BYTES
    return (0.0 if offload == "cpu" else state) + _GATHERED_LAYERS * layer + activations + logits


def plan(shape: ModelShape, config: VerlConfig) -> ClusterLayout:
    """The simplest layout that fits by estimate: states on the GPUs rather than in host memory, whole sequences rather
    than shared ones, and the values that the settings fix. Raises UserError if none fits."""
    cluster, adapters = config.cluster, config.model.lora_rank > 0
    microbatch, rollout = config.optim.tokens_per_microbatch, config.rollout
    if not microbatch:
        raise UserError("verl does not choose the size of a micro-batch; set optim.tokens_per_microbatch")
    memory = cluster.memory * 1e9
    per_node = min(cluster.gpus, cluster.per_node)
    powers = [1 << i for i in range(per_node.bit_length()) if per_node % (1 << i) == 0 and shape.heads % (1 << i) == 0]
    tensor = cluster.tensor_parallel or _tensor_parallel(shape, config, powers)
    resident = (4 if adapters else 12) * shape.parameters / cluster.gpus  # weights and moments, during sampling
    fits_beside = resident + VLLM_SHARE * memory <= _USABLE * memory
    choices: tuple[Offload, ...] = ("none" if fits_beside else "between", "cpu")
    if cluster.offload != "auto":
        choices = (cluster.offload,)
    least = float("inf")
    for offload in choices:
        for sequence in [cluster.sequence_parallel] if cluster.sequence_parallel else powers:
            tokens = -(-max(microbatch, rollout.max_prompt_tokens + rollout.max_tokens) // sequence)
            needed = training_bytes(shape, config, tokens, offload)
            least = min(least, needed)
            if needed <= _USABLE * memory:
                bytes_each = {"none": 0, "between": 12, "cpu": STATE_BYTES}[offload]
                host = min(bytes_each, 4 if adapters else STATE_BYTES) * shape.parameters / cluster.nodes
                return ClusterLayout(tensor, sequence, offload, tokens, needed / 1e9, host / 1e9)
    raise UserError(
        f"by estimate a model of {shape.parameters / 1e9:.1f} billion parameters needs {least / 1e9:.0f} GB per GPU on "
        f"{cluster.gpus} GPUs of {cluster.memory:.0f} GB; use more of them, shorter sequences or --model.lora-rank"
    )


def _tensor_parallel(shape: ModelShape, config: VerlConfig, possible: list[int]) -> int:
    """Number of GPUs, one of the possible ones, that hold the weights in bf16 and the cache of a few whole groups."""
    prompt, response = config.rollout.max_prompt_tokens, config.rollout.max_tokens
    weights, room = 2 * shape.parameters, VLLM_SHARE * config.cluster.memory * 1e9
    wanted = weights + _CACHE_GROUPS * (prompt + config.rollout.n * response) * shape.cache_bytes
    count = next((count for count in possible if wanted <= count * room), possible[-1])
    if weights + (prompt + response) * shape.cache_bytes > count * room:
        raise UserError(
            f"vLLM needs {weights / 1e9:.0f} GB for the weights of {shape.parameters / 1e9:.1f} billion parameters and "
            f"has {count * room / 1e9:.0f} GB on {count} GPUs of a node; use more GPUs per node"
        )
    return count
