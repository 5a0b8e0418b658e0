"""One mixed batch for every engine: weights, rows, loss and gradient, written by the native engine.

    python tests/contract/fixture.py

writes `mixed_batch.safetensors` beside this file. Each engine's test reads it in the engine's own environment, computes
loss and gradient of every case with its own batches and forward pass, and compares.

The batch holds both sets, ragged prompts and responses, a prompt with several responses, ratios within and beyond the
clips, and tokens that the policy has half forgotten. Gradients are those of the loss as it is, neither clipped nor
divided by ranks.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from dph.config import LossConfig
from dph.models.logprobs import token_logprobs
from dph.objective import LossCounts, Objective
from dph.training.rows import Row, collate

FILE = Path(__file__).with_name("mixed_batch.safetensors")
TOLERANCE = 1e-5
"""Relative: of the loss, and of the gradient's norm. fp32 sums in another order differ by some 1e-7."""

_MODEL = {
    "vocab_size": 23,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
TEMPERATURE = 0.8
_DIVERGENCES = (
    {"divergence": "forward_kl"},
    {"divergence": "forward_kl", "official": True},
    {"divergence": "forward_kl_raw"},
    {"divergence": "reverse_kl"},
    {"divergence": "js"},
    {"divergence": "alpha", "alpha": 0.3},
    {"divergence": "js", "estimator": "definition"},
)
CASES = [
    LossConfig(**divergence, reduction=reduction, eta=0.7)  # type: ignore[arg-type]
    for divergence in _DIVERGENCES
    for reduction in ("pooled", "per_set")
]
CASES += [
    LossConfig(policy="gspo", aggregation="sequence", reduction="per_set", eta=0.7),
    LossConfig(policy="cispo", reduction="per_set", eta=0.7),
]
_LISTS = ("prompt_ids", "response_ids", "old_logprobs", "ref_logprobs")


def case_name(config: LossConfig) -> str:
    """Such as "js pooled"."""
    policy = "" if config.policy == "ppo_clip" else f"{config.policy} "
    kind = "official " * config.official + "definition " * (config.estimator == "definition")
    return f"{policy}{config.divergence} {kind}{config.reduction}"


@dataclass(frozen=True, slots=True)
class Case:
    """What one setting of the loss must give."""

    config: LossConfig
    loss: float
    gradient: dict[str, Tensor]
    """By parameter name."""


@dataclass(frozen=True, slots=True)
class Contract:
    """The file's content."""

    model: dict[str, Any]
    """Keyword arguments of LlamaConfig."""
    weights: dict[str, Tensor]
    temperature: float
    rows: list[Row]
    cases: list[Case]

    def make_model(self) -> LlamaForCausalLM:
        """The model with the weights."""
        model = LlamaForCausalLM(LlamaConfig(**self.model)).float()
        missing, unexpected = model.load_state_dict(self.weights, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}  # tied
        return model.eval()


def read() -> Contract:
    """The contract that all engines keep."""
    with safe_open(FILE, "pt") as file:
        facts = json.loads(file.metadata()["facts"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict

    def under(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}

    columns = {name: _ragged(tensors[f"rows/{name}"], tensors[f"rows/{name}/lengths"]) for name in _LISTS}
    rows = [
        Row(**dict(zip(_LISTS, values, strict=True)), advantage=float(advantage), is_rehearsal=bool(stored))
        for *values, advantage, stored in zip(
            *columns.values(), tensors["rows/advantage"], tensors["rows/is_rehearsal"], strict=True
        )
    ]
    cases = [
        Case(LossConfig(**config), loss, under(f"gradient/{index}/"))
        for index, (config, loss) in enumerate(zip(facts["cases"], facts["losses"], strict=True))
    ]
    return Contract(facts["model"], under("weights/"), facts["temperature"], rows, cases)


def _ragged(values: Tensor, lengths: Tensor) -> Iterator[list[Any]]:
    return (part.tolist() for part in values.split(lengths.tolist()))


def relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Norm of the difference of two gradients by the norm of the expected one."""
    assert found.keys() == expected.keys()
    differences = torch.cat([(found[name].double() - x.double()).flatten() for name, x in expected.items()])
    return float(differences.norm() / torch.cat([x.double().flatten() for x in expected.values()]).norm())


def native(model: LlamaForCausalLM, rows: list[Row], config: LossConfig, temperature: float) -> Case:
    """Loss and gradient by the native engine's mathematics, on one padded batch in the model's own precision."""
    batch = collate(rows)
    model.zero_grad()
    logits = model(input_ids=batch.input_ids, use_cache=False).logits.flatten(0, 1)[batch.sources]
    flat, _ = token_logprobs(logits, batch.states, batch.response_ids[batch.present], temperature, "none")
    logprobs = flat.new_zeros(batch.present.shape).index_put(tuple(batch.present.nonzero().T), flat)
    loss, _ = Objective(config)(logprobs, batch, LossCounts.of(batch))
    loss.backward()
    return Case(config, loss.item(), {name: x.grad.clone() for name, x in model.named_parameters()})


def _rows(model: LlamaForCausalLM, generator: torch.Generator) -> list[Row]:
    """Rollouts of three prompts and five stored responses, with log-probabilities around the model's own."""

    def tokens(low: int, high: int) -> list[int]:
        length = int(torch.randint(low, high, (), generator=generator))
        return torch.randint(3, _MODEL["vocab_size"], (length,), generator=generator).tolist()

    prompts = [tokens(2, 9) for _ in range(3)]
    rows = [
        Row(prompts[index % 3], tokens(1, 9), [], advantage=(-1.0) ** index * (0.5 + index / 8)) for index in range(9)
    ]
    rows += [Row(tokens(2, 9), tokens(1, 9), [], is_rehearsal=True) for _ in range(5)]
    finished = []
    for row in rows:
        with torch.no_grad():
            logits = model(torch.tensor([[*row.prompt_ids, *row.response_ids]])).logits[0, len(row.prompt_ids) - 1 : -1]
        own = (logits / TEMPERATURE).log_softmax(-1)[range(len(row.response_ids)), list(row.response_ids)]
        old = own + 0.3 * torch.randn(own.shape, generator=generator)
        ref = (own + 1.5 * torch.randn(own.shape, generator=generator)).clamp(max=-0.01)
        finished.append(
            replace(row, old_logprobs=(ref if row.is_rehearsal else old).tolist(), ref_logprobs=ref.tolist())
        )
    return finished


def write() -> None:
    """Make the file anew."""
    generator = torch.Generator().manual_seed(17)
    model = LlamaForCausalLM(LlamaConfig(**_MODEL)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.3, generator=generator)
    rows = _rows(model, generator)
    cases = [native(model, rows, config, TEMPERATURE) for config in CASES]
    tensors = {f"weights/{name}": x.detach().clone() for name, x in model.named_parameters()}
    for name in _LISTS:
        lists = [list(getattr(row, name)) for row in rows]
        tensors[f"rows/{name}"] = torch.tensor(list(itertools.chain(*lists)))
        tensors[f"rows/{name}/lengths"] = torch.tensor([len(values) for values in lists])
    tensors["rows/advantage"] = torch.tensor([row.advantage for row in rows])
    tensors["rows/is_rehearsal"] = torch.tensor([row.is_rehearsal for row in rows])
    for index, case in enumerate(cases):
        tensors |= {f"gradient/{index}/{name}": x for name, x in case.gradient.items()}
    facts = {
        "model": _MODEL,
        "temperature": TEMPERATURE,
        "cases": [asdict(case.config) for case in cases],
        "losses": [case.loss for case in cases],
    }
    save_file(tensors, FILE, metadata={"facts": json.dumps(facts)})


if __name__ == "__main__":
    write()
