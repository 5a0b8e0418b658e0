# pyright: reportMissingImports=false
"""Several turns with the SQL tool in TRL, with shared prompts: the tokens that are trained on, and the verdict.

It runs in an environment with the extra `trl`: scripts/test-trl
"""

import sqlite3
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from trl import GRPOConfig, GRPOTrainer

    from dph.integrations.trl import DPHConfig, DPHTrainer, SharedPrefixMixin, SqlEnvironment, VerifierReward

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dph.config import VerifierConfig
from dph.errors import UserError
from dph.models.batch import Tokens
from dph.models.policy import Policy
from dph.models.scratch import bpe_tokenizer
from dph.rewards import text_of
from dph.types import Problem, problem_json

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]
TEMPLATES = {"qwen2_5": "<|im_end|>", "qwen3_instruct_2507": "<|im_end|>", "llama3_1": "<|eot_id|>"}
"""Published chat templates, as TRL has them, and the token that ends a turn."""
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|pad|>"]
QUESTIONS = ["How many items are there?", "What does the cheapest item cost?"]
GOLDS = ["SELECT count(*) FROM item", "SELECT min(price) FROM item"]


def tokenizer_of(name: str) -> Any:
    """A tokenizer over bytes with a published chat template."""
    made = PreTrainedTokenizerFast(
        tokenizer_object=bpe_tokenizer([*QUESTIONS, *GOLDS], 300),
        eos_token=TEMPLATES[name],
        pad_token="<|pad|>",
        additional_special_tokens=SPECIAL,
    )
    made.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()
    return made


def random_model(tokenizer: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    more = {"max_position_embeddings": 8192, "eos_token_id": tokenizer.eos_token_id, "initializer_range": 0.2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **more))


def call(sql: str) -> dict[str, Any]:
    function = {"name": "query", "arguments": {"sql": sql}}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def transcript(question: int, row: int, environment: SqlEnvironment, more: str = "") -> list[dict[str, Any]]:
    """Two calls of the tool, one of which fails in every other response, and an answer; that of row 3 is wrong."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"{QUESTIONS[question]} {more}".strip()}]
    for sql in (
        f"SELECT name FROM item LIMIT {row + 1}",
        "SELECT price FROM item" if row % 2 else "SELECT x FROM item",
    ):
        messages += [call(sql), {"role": "tool", "name": "query", "content": environment.query(sql)}]
    answer = "SELECT 7" if row == 3 else GOLDS[question]
    return [*messages, {"role": "assistant", "content": f"```sql\n{answer}\n```"}]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item (name TEXT, price REAL)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", [("pen", 1.5), ("ink", 0.5), ("cup", 3.0)])
    connection.close()
    problems = [Problem(str(i), QUESTIONS[i], GOLDS[i], "sql", {"db": str(path)}) for i in range(2)]
    prompts = [[{"role": "user", "content": text}] for text in QUESTIONS]
    return Dataset.from_dict({"prompt": prompts, "problem": list(map(problem_json, problems))})


class Scripted(GRPOTrainer):
    """TRL's trainer whose model says what the transcripts say; it keeps the rollouts as they are trained on."""

    transcripts: list[list[dict[str, Any]]]

    def texts(self, messages: list[dict[str, Any]], **options: Any) -> str:
        return self.processing_class.apply_chat_template(messages, tools=self.tools, tokenize=False, **options)

    def said(self, messages: list[dict[str, Any]], last: int) -> tuple[int, str]:
        """Where a message of the model begins in the text of a transcript, and its text."""
        before = self.texts(messages[:last], add_generation_prompt=True)
        whole = self.texts(messages[: last + 1])
        assert whole.startswith(before)
        end = whole.index(self.processing_class.eos_token, len(before)) + len(self.processing_class.eos_token)
        return len(before), whole[len(before) : end]

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        self.turn = getattr(self, "turn", -1) + 1
        texts = [self.said(one, 1 + 2 * (self.turn % 3))[1] for one in self.transcripts]
        return [self.processing_class(text, add_special_tokens=False)["input_ids"] for text in texts], None

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.rollouts = super()._generate_and_score_completions(inputs)
        return self.rollouts


class Shared(SharedPrefixMixin, Scripted):
    pass


class Rehearsing(DPHTrainer, Scripted):
    pass


def train(kind: Any, name: str, data: Dataset, folder: Path, **options: Any) -> Any:
    tokenizer, reward = tokenizer_of(name), VerifierReward()
    settings = {"rehearsal_rows": 0} if kind is Rehearsing else {}
    made = kind(
        model=random_model(tokenizer),
        processing_class=tokenizer,
        reward_funcs=reward,
        environment_factory=SqlEnvironment,
        train_dataset=data,
        args=(DPHConfig if kind is Rehearsing else GRPOConfig)(
            str(folder),
            use_cpu=True,
            bf16=False,
            num_generations=4,
            per_device_train_batch_size=8,
            max_completion_length=2000,
            max_steps=1,
            logging_steps=1,
            shuffle_dataset=False,
            report_to="none",
            save_strategy="no",
            **settings,
        ),
        **options,
    )
    environment = SqlEnvironment()
    environment.reset(data[0]["problem"])
    made.transcripts = [transcript(question, row, environment) for question in (0, 1) for row in range(4)]
    made.train()
    reward.close()
    return made


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_trained_tokens_are_those_of_the_transcript_tokenised_once(name, data, tmp_path):
    made = train(Shared, name, data, tmp_path)
    rows = made.rollouts
    for index, messages in enumerate(made.transcripts):
        seen = rows["completion_mask"][index].bool()
        ids = [*rows["prompt_ids"][index][rows["prompt_mask"][index].bool()], *rows["completion_ids"][index][seen]]
        text = made.texts(messages)
        once = made.processing_class(text, add_special_tokens=False, return_offsets_mapping=True)
        assert list(map(int, ids)) == once["input_ids"][: len(ids)]
        spans = [made.said(messages, turn) for turn in (1, 3, 5)]
        model = [any(start <= a < start + len(said) for start, said in spans) for a, _ in once["offset_mapping"]]
        begin = int(rows["prompt_mask"][index].sum())
        assert rows["tool_mask"][index][seen].tolist() == [int(one) for one in model[begin : len(ids)]]
        assert not any(model[:begin]) and not any(model[len(ids) :]) and 0 < sum(model[begin:]) < len(ids) - begin
    report, logged = made.shared_prefix_report(), made.state.log_history[0]
    assert report.saved > 0.4 and not report.reasons
    assert logged["rewards/verifier/mean"] == 0.75 and logged["tools/call_frequency"] == 2.0


def test_the_update_is_trls_and_dph_trainer_takes_tools(data, tmp_path):
    logs = [
        train(kind, "qwen2_5", data, tmp_path, **options).state.log_history[0]
        for kind, options in ((Scripted, {}), (Shared, {}), (Rehearsing, {"advantage": "w_reinforce"}))
    ]
    assert logs[1]["entropy"] == pytest.approx(logs[0]["entropy"], rel=1e-4)
    assert logs[0]["grad_norm"] > 0.01 and logs[1]["grad_norm"] == pytest.approx(logs[0]["grad_norm"], rel=1e-4)
    assert logs[2]["rewards/verifier/pass@2"] == 1.0 and logs[2]["grad_norm"] > 0


def test_a_transcript_is_judged_by_the_models_last_message():
    tool = {"role": "tool", "name": "query", "content": "1"}
    assert text_of([call("SELECT 1"), tool, {"role": "assistant", "content": "yes"}]) == "yes"
    assert text_of([call("SELECT 1"), tool]) == "" == text_of([{"role": "assistant", "tool_calls": []}])


def test_the_papers_reward_pays_for_a_call_in_an_earlier_turn(data):
    """0.2 for the call, as in the authors' code, besides 1 for the result, or the partial credit of a wrong one."""
    tool, right = (
        {"role": "tool", "name": "query", "content": "3"},
        {"role": "assistant", "content": f"```sql\n{GOLDS[0]}\n```"},
    )
    silent = {"role": "assistant", "content": "I do not know"}
    other = {
        "role": "assistant",
        "tool_calls": [{"type": "function", "function": {"name": "query", "arguments": {"x": 1}}}],
    }
    completions = [[right], [call("SELECT 1"), tool, right], [other, tool, right], [call("SELECT 1"), tool, silent]]
    problems = [data[0]["problem"]] * 4
    for scheme, expected in (("paper", [1.0, 1.2, 1.0, 0.2]), ("binary", [1.0, 1.0, 1.0, 0.0])):
        reward = VerifierReward(VerifierConfig(reward=scheme))
        assert reward(completions, problems) == pytest.approx(expected)
        reward.close()


# The whole combination, in examples/trl_tools.py --------------------------------------------------------------------


sys.path.append(str(Path(__file__).parents[2] / "examples"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("synchronised", [True, False])
def test_a_sampler_without_the_adapters_is_refused(synchronised, data, tmp_path, capsys, monkeypatch):
    """LoRA, three turns, long prompts, bf16 and checkpointing; the sampler returns log-probabilities."""
    import trl_tools

    monkeypatch.setattr(trl_tools, "ROWS", 2)
    long = " ".join(f"column {number}" for number in range(20))
    prompts = [[{"role": "user", "content": f"{row['prompt'][0]['content']} {long}"}] for row in data]
    data = Dataset.from_dict({"prompt": prompts, "problem": data["problem"]})

    class Sampler(Scripted):
        def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **more: Any) -> Any:
            ids, _ = super()._generate_single_turn(prompt_ids, *args, **more)
            model = self.accelerator.unwrap_model(self.model)
            rows = [Tokens(*pair) for pair in zip(prompt_ids, ids, strict=True)]
            with nullcontext() if synchronised else model.disable_adapter():
                policy = Policy(model, self.processing_class, precision="bf16")
                return ids, policy.response_logprobs(rows, self.temperature, 1 << 15)

    class Made(trl_tools.Trainer, Sampler):
        pass

    settings = {"use_cpu": True, "num_generations": 4, "max_steps": 1, "report_to": "none", "save_strategy": "no"}
    tokenizer = tokenizer_of("qwen2_5")
    made = trl_tools.make(
        random_model(tokenizer), data, str(tmp_path), tokenizer, Made, shuffle_dataset=False, **settings
    )
    with torch.no_grad():
        for name, weight in made.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05)
    environment = SqlEnvironment()
    environment.reset(data[0]["problem"])
    made.transcripts = [transcript(question, row, environment, long) for question in (0, 1) for row in range(4)]
    if synchronised:
        made.train()
        report = made.shared_prefix_report()
        assert report.saved > 0.5 and not report.reasons
        assert "nats from the trainer" in capsys.readouterr().out
    else:
        with pytest.raises(UserError, match="given the trained adapters"):
            made.train()
        assert made.state.global_step == 0
