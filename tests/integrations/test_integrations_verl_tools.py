# pyright: reportMissingImports=false
"""The SQL tool in verl: its loading and calling, the tokens of verl's agent loop, and examples/verl_tools.sh."""

import asyncio
import re
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers import needs

pytestmark = [*needs("verl"), pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "verl_cpu"))
TOOLS = "tools: [{class_name: dph.integrations.verl.tools.QueryTool, config: {type: native}}]"


def test_verl_loads_the_tool_and_calls_it_on_the_rows_database(tmp_path: Path) -> None:
    from verl.tools.tool_registry import initialize_tools_from_config

    from dph.integrations.verl.data import verl_row
    from dph.types import Problem

    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item AS SELECT 'pen' AS name, 1.5 AS price")
    connection.close()
    config = tmp_path / "tools.yaml"
    config.write_text("tools: [{class_name: dph.integrations.verl.tools.QueryTool, config: {type: native, rows: 5}}]")
    (tool,) = initialize_tools_from_config(str(config))
    row = verl_row(Problem("1", "How much is a pen?", "SELECT price FROM item", "sql", {"db": str(path)}), 0, "s", "t")

    async def call(sql: object) -> str:
        """As verl's agent loop does."""
        create = row["extra_info"]["tools_kwargs"][tool.name]["create_kwargs"]
        name, _ = await tool.create(create_kwargs=create)
        response, reward, _ = await tool.execute(name, {"sql": sql}, agent_data=None)
        await tool.release(name)
        assert reward == 0
        return response.text

    assert asyncio.run(call("SELECT * FROM item")) == "name | price\npen | 1.5\n(1 rows)"
    assert asyncio.run(call("DROP TABLE item")) == "Error: DatabaseError: not authorized"
    assert asyncio.run(call(7)).startswith("Error: ")


def test_the_trained_tokens_are_those_of_the_transcript_tokenised_once(tmp_path: Path) -> None:
    """verl's agent loop with a server that says what the transcript says: three turns, of which one call fails."""
    import transcripts
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
    from verl.tools.tool_registry import initialize_tools_from_config
    from verl.workers.rollout.replica import TokenOutput

    from dph.integrations.verl.data import verl_row

    (tmp_path / "tools.yaml").write_text(TOOLS)
    (tool,) = initialize_tools_from_config(str(tmp_path / "tools.yaml"))
    tokenizer, problems = transcripts.make_tokenizer(), transcripts.make_problems(tmp_path)
    with initialize_config_module("dph.integrations.verl", version_base=None):
        words = ["prompt_length=2000", "response_length=2000", "multi_turn.max_tool_response_length=4000"]
        config = compose("dph_trainer", overrides=[f"actor_rollout_ref.rollout.{word}" for word in words])

    class Server:
        async def generate(self, prompt_ids: list[int], **_: Any) -> TokenOutput:
            ids = tokenizer.encode(transcripts.next_turn(tokenizer.decode(prompt_ids), row), add_special_tokens=False)
            return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids))

    async def run(problem: Any) -> Any:
        loop = ToolAgentLoop(
            DictConfigWrap(config), Server(), tokenizer, None, SimpleNamespace, DictConfigWrap(OmegaConf.create({})),
            hf_model_type="qwen2", tools=ToolListWrap([tool]),
        )  # fmt: skip
        made = verl_row(problem, 0, "shop", "train")
        return await loop.run({}, raw_prompt=made["prompt"], tools_kwargs=made["extra_info"]["tools_kwargs"])

    for row, problem in ((0, problems[0]), (1, problems[1])):
        output = asyncio.run(run(problem))
        text = tokenizer.decode([*output.prompt_ids, *output.response_ids])
        answers = re.findall(r"<\|im_start\|>tool\n(.*?)<\|im_end\|>", text, re.DOTALL)
        assert [answer.startswith("Error: ") for answer in answers] == [False, row == 0]
        messages: list[dict[str, Any]] = [{"role": "user", "content": problem.prompt}]
        schema, spans = [tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True)], []
        for answer in [*answers, None]:
            before = tokenizer.apply_chat_template(messages, tools=schema, tokenize=False, add_generation_prompt=True)
            spans.append((len(before), len(before) + len(transcripts.next_turn(before, row))))
            said = transcripts.said(before, row)
            calls = {} if isinstance(said, str) else {"tool_calls": [{"type": "function", "function": said}]}
            messages += [{"role": "assistant", "content": said if isinstance(said, str) else "", **calls}]
            messages += [{"role": "tool", "content": answer}] * (answer is not None)
        whole = tokenizer.apply_chat_template(messages, tools=schema, tokenize=False)
        once = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        begin, ids = len(output.prompt_ids), [*output.prompt_ids, *output.response_ids]
        assert ids == once["input_ids"][: len(ids)] and whole[spans[-1][1] :] == "\n"
        trained = [int(any(start <= a < end for start, end in spans)) for a, _ in once["offset_mapping"]][: len(ids)]
        assert output.response_mask == trained[begin:] and not any(trained[:begin])
        assert output.response_logprobs == [-1.0 * one for one in output.response_mask]


@pytest.mark.parametrize("weights", ["new", "stale"])
def test_the_example_trains_until_a_sampler_lacks_the_adapters(weights: str, tmp_path: Path) -> None:
    """Three turns, LoRA, shared prompts and our reward in verl's trainer, on a CPU; the adapters begin at zero, so a
    sampler that does not get them is as good as any for one step."""
    import harness
    import transcripts

    model, data = transcripts.make_files(tmp_path)
    policy = "actor_rollout_ref"
    settings = harness.on_cpu() | {
        f"{policy}.model.lora.merge": "true",  # the CPU's server holds whole weights
        f"{policy}.model.lora_rank": 4,
        f"{policy}.actor.optim.lr": 1e-2,
        f"{policy}.actor.ppo_mini_batch_size": 2,
        f"{policy}.rollout.n": 4,
        "data.train_batch_size": 2,
        "data.max_prompt_length": 2000,
        "data.max_response_length": 2000,
        "trainer.total_training_steps": 2,
        "trainer.total_epochs": 2,
        "trainer.val_before_train": "false",
        "trainer.test_freq": -1,
        "trainer.logger": "[console,file]",
    }
    command = ["nice", str(ROOT / "examples" / "verl_tools.sh"), str(model), str(data), str(tmp_path / "out")]
    done = harness.run(command, settings, tmp_path, VERL_CPU_TRANSCRIPTS=weights)
    metrics = harness.metrics_of(tmp_path)
    assert metrics[1]["critic/score/mean"] == 0.75 and metrics[1]["num_turns/mean"] == 6  # 3 of the model, 2 of tools
    assert metrics[1]["shared_prefix/computed_per_prompt"] == 1 and "% saved" in done.stdout
    gaps = [float(gap) for gap in re.findall(r"the sampler is (\S+) nats from the trainer", done.stdout)]
    assert gaps[0] < 0.02  # verl keeps the weights below adapters in bf16
    if weights == "new":
        assert done.returncode == 0 and sorted(metrics) == [1, 2] and max(gaps) < 0.02, done.stdout[-4000:]
    else:
        assert done.returncode == 2 and sorted(metrics) == [1], done.stdout[-4000:]
        assert max(gaps) > 0.05
        assert "dph: the sampler is" in done.stdout and "check that it is given the trained adapters" in done.stdout
