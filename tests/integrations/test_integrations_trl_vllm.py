# pyright: reportMissingImports=false
"""The whole combination in TRL: vLLM generates in the trainer's process, three turns with the SQL tool, adapters and
shared prompts. A model of 200,000 parameters learns the calls by heart, so that vLLM's own samples call the tool.

It runs in the environment of scripts/test-vllm, which has TRL too.
"""

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("trl") is None or importlib.util.find_spec("vllm") is None:
    pytest.skip("needs TRL and vLLM in one environment", allow_module_level=True)

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from test_integrations_trl_tools import QUESTIONS, data, tokenizer_of, transcript

    from dph.integrations.trl import SqlEnvironment

from dph.errors import UserError

sys.path.append(str(Path(__file__).parents[2] / "examples"))
pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]
LONG = " ".join(f"column {number}" for number in range(30))
__all__ = ["data"]  # a fixture


@pytest.fixture
def model(data: Dataset, tmp_path: Path) -> Path:
    """A model that calls the tool twice and answers, with its tokenizer."""
    tokenizer, folder = tokenizer_of("qwen2_5"), tmp_path / "model"
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8192}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        **sizes | heads,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    made: Any = LlamaForCausalLM(config)
    environment, rows = SqlEnvironment(), []
    environment.reset(data[0]["problem"])
    tools = [environment.query]

    def ids(messages: list[dict[str, Any]], **options: Any) -> torch.Tensor:
        text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **options)
        return tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]

    for question in range(len(QUESTIONS)):
        messages = transcript(question, 1, environment, LONG)
        start, whole = ids(messages[:1], add_generation_prompt=True).shape[1], ids(messages)
        rows.append((whole, torch.where(torch.arange(whole.shape[1]) < start, -100, whole)))
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3)
    for step in range(160):
        tokens, labels = rows[step % len(rows)]
        made(input_ids=tokens, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def replaceable_weights(monkeypatch: pytest.MonkeyPatch):
    """vLLM's build for processors packs weights, on newer processors, in a form that no update of a trainer reaches:
    TRL's synchronization then fails. It is kept from that here."""
    monkeypatch.setattr("vllm._custom_ops._supports_onednn", False)
    monkeypatch.setattr("vllm.model_executor.layers.utils.check_cpu_sgl_kernel", lambda *_: False)


def trainer_of(model: Path, data: Dataset, out: Path) -> Any:
    import trl_tools

    rows: list[Any] = list(data)
    prompts = [[{"role": "user", "content": f"{row['prompt'][0]['content']} {LONG}"}] for row in rows]
    settings = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.2}
    sizes = {"vllm_max_model_length": 8192, "num_generations": 4, "max_steps": 2, "shuffle_dataset": False}
    made = trl_tools.make(
        *(str(model), Dataset.from_dict({"prompt": prompts, "problem": data["problem"]}), str(out)),
        tokenizer_of("qwen2_5"),
        **{"use_cpu": True, "report_to": "none", "save_strategy": "no"} | settings | sizes,
    )
    change_adapters(made.model, 0.03)  # so that they matter from the first step on
    return made


def change_adapters(model: Any, std: float) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=std)


def test_vllm_with_tools_adapters_and_shared_prompts_agrees_with_the_trainer(
    model: Path, data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    made = trainer_of(model, data, tmp_path / "run")
    made.train()
    report = made.shared_prefix_report()
    assert report.saved > 0.4 and not report.reasons and report.passes > 0, report
    assert capsys.readouterr().out.count("nats from the trainer") == 2  # the gate of both steps
    assert all(line["tools/call_frequency"] > 0 for line in made.state.log_history[:2])
    # Then adapters that do not reach vLLM, the fault that the gate is for, in the engine that exists
    made.vllm_generation.sync_weights = lambda: None
    change_adapters(made.model, 0.1)
    made.args.max_steps = 3
    with pytest.raises(UserError, match="given the trained adapters"):
        made.train()
