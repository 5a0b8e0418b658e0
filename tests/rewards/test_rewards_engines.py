# pyright: reportMissingImports=false
"""The examples of docs/guides/rewards.md as they stand there: in the real trainers, or against their signatures.

TRL and verl have environments of their own: scripts/test-trl and scripts/test-verl run this file there. The test of
verifiers runs in an environment with that package (the option keeps tests/verifiers from standing in for it):
    python -m pytest --noconftest -o pythonpath= tests/rewards/test_rewards_engines.py
"""

import asyncio
import json
import re
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dph.rewards import RewardFunction, reward_function

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "rewards.md").read_text(encoding="utf-8")
RIGHT, WRONG, NO_GOLD = r"So \boxed{1+x}.", r"So \boxed{x+2}.", None
EXPAND, COPIED = "Expand $(x+1)(x+2)$.", r"So \boxed{(x+2)(x+1)}."  # the question, and as an answer


@pytest.fixture(scope="module")
def judge():
    made = reward_function("math", policy="typed", timeout=5.0, workers=2)
    yield made
    made.close()


def example(heading: str, judge: RewardFunction, **names: Any) -> dict[str, Any]:
    """The names that an engine's example defines."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", GUIDE, re.M | re.S)
    assert section, heading
    code = re.search(r"```python\n(.*?)```", section[1], re.S)
    assert code and len([line for line in code[1].splitlines() if line]) <= 11
    scope = {"judge": judge, **names}
    exec(code[1], scope)  # a page of this repository
    return scope


def test_the_first_example():
    scope: dict[str, Any] = {}
    [code] = re.findall(r"```python\n(from dph.rewards.*?)```", GUIDE, re.S)
    exec(code, scope)
    made = scope["judge"]
    assert made(completions=[r"\boxed{0.5}", r"\boxed{2}"], answer=[r"\frac{1}{2}", "3"]) == [1.0, 0.0]
    assert made.score(r"\boxed{0.5}", r"\frac{1}{2}") == 1.0


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore")
def test_trl(judge: RewardFunction, tmp_path: Path):
    pytest.importorskip("trl", reason="TRL is not installed")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from helpers import tiny_policy

    policy = tiny_policy()
    rows = {"prompt": ["easy 1", "hard 2"], "answer": ["x+1", None]}
    args = GRPOConfig(
        str(tmp_path), per_device_train_batch_size=4, num_generations=2, max_completion_length=4, max_steps=1,
        report_to="none", use_cpu=True, save_strategy="no", bf16=False,
    )  # fmt: skip
    names = {"GRPOTrainer": lambda **given: GRPOTrainer(**given, processing_class=policy.tokenizer)}
    dataset = Dataset.from_dict(rows)
    made = example("TRL", judge, model=policy.model, args=args, dataset=dataset, **names)["trainer"]
    inputs = [{"prompt": "p", "answer": answer} for answer in ("x+1", "x+1", NO_GOLD)]
    rewards = made._calculate_rewards(inputs, ["p"] * 3, [RIGHT, WRONG, RIGHT], [[1]] * 3)
    assert rewards[:2].flatten().tolist() == [1.0, 0.0] and rewards[2].isnan().all()
    made.train()
    assert any("rewards/math/mean" in line for line in made.state.log_history)


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore")
def test_verl(judge: RewardFunction):
    """In verl's reward manager, with the settings of the guide."""
    pytest.importorskip("verl", reason="verl is not installed")
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.trainer.ppo.reward import get_custom_reward_fn

    options = re.findall(r"^    \+?(reward\.\S+=\S+)", GUIDE, re.M)
    assert len(options) == 3
    config = OmegaConf.from_dotlist(options)

    class Tokenizer:
        def decode(self, ids: Any, **_: Any) -> str:
            return [RIGHT, WRONG][int(ids[0])]

    def row(token: int, gold: Any) -> Any:
        tensors = {"responses": torch.tensor([[token]]), "attention_mask": torch.ones(1, 2, dtype=torch.long)}
        facts = {"data_source": "toy", "reward_model": {"ground_truth": gold}, "extra_info": {}}
        arrays = {name: np.array([value], dtype=object) for name, value in facts.items()}
        return DataProto(batch=TensorDict(tensors, batch_size=[1]), non_tensor_batch=arrays)

    async def score() -> list[dict[str, Any]]:
        manager = NaiveRewardManager(config, Tokenizer(), get_custom_reward_fn(config))
        manager.loop = asyncio.get_running_loop()
        return await asyncio.gather(*(manager.run_single(row(*one)) for one in ((0, "x+1"), (1, "x+1"), (0, NO_GOLD))))

    found = asyncio.run(score())
    assert [one["reward_score"] for one in found] == [1.0, 0.0, 0.0]
    extra = [one["reward_extra_info"] for one in found]
    assert [one["scored"] for one in extra] == [1.0, 1.0, 0.0]
    assert len({tuple(one) for one in extra}) == 1  # verl reads the keys of the first response


def test_verifiers(judge: RewardFunction):
    vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
    from verifiers.v1.trace import TraceTask

    class MathData(vf.TaskData):
        answer: str | None = None

    async def score(response: str, answer: str | None) -> Any:
        task = example("verifiers, prime-rl", judge, vf=vf, MathData=MathData)["MathTask"](
            MathData(prompt="?", answer=answer), vf.TaskConfig()
        )
        trace = vf.Trace.model_construct(
            task=TraceTask(type="math", data=task.data), rewards={}, metrics={}, nodes=[], root_reply=response
        )
        await task.score(trace)
        return trace.reward

    assert asyncio.run(score(RIGHT, "x+1")) == 1.0
    assert asyncio.run(score(WRONG, "x+1")) == 0.0
    with pytest.raises(Exception, match="not judged"):
        asyncio.run(score(RIGHT, NO_GOLD))


# Documented signatures ------------------------------------------------------------------------------------------------


def test_nemo_rl(judge: RewardFunction):
    torch = pytest.importorskip("torch")

    returned = types.SimpleNamespace
    names = ("observations", "metadata", "next_stop_strings", "rewards", "terminateds", "answers")
    scope = example(
        "NeMo-RL", judge, EnvironmentInterface=object, torch=torch,
        EnvironmentReturn=lambda *values: returned(**dict(zip(names, values, strict=True))),
    )  # fmt: skip
    logs = [
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}] for text in (RIGHT, WRONG, RIGHT)
    ]
    found = scope["MathEnvironment"]().step(logs, [{"ground_truth": gold} for gold in ("x+1", "x+1", NO_GOLD)])
    assert found.rewards.tolist() == [1.0, 0.0, 0.0] and found.terminateds.tolist() == [1.0] * 3
    assert [one["judged"] for one in found.metadata] == [True, True, False]
    assert len(found.observations) == len(found.next_stop_strings) == 3
    assert scope["MathEnvironment"]().global_post_process_and_metrics("batch") == ("batch", {})


def test_nemo_gym(judge: RewardFunction):
    """A failed judgement is told apart from a wrong answer."""
    verify = example("NeMo-Gym", judge, BaseVerifyResponse=lambda **values: values)["verify"]

    @dataclass
    class Body:
        response: Any
        ground_truth: str | None
        responses_create_params: Any

        def model_dump(self) -> dict[str, Any]:
            return {"ground_truth": self.ground_truth}

    def ask(text: str, gold: str | None, asked: Any = "?") -> dict[str, Any]:
        given = types.SimpleNamespace(input=asked)
        return asyncio.run(verify(None, Body(types.SimpleNamespace(output_text=text), gold, given)))

    assert ask(RIGHT, "x+1") == {"ground_truth": "x+1", "reward": 1.0}
    assert ask(WRONG, "x+1") == {"ground_truth": "x+1", "reward": 0.0}
    parts = [{"type": "input_text", "text": EXPAND}]
    turns = [[("role", "user"), ("content", content)] for content in (EXPAND, parts)]  # as a model of pydantic iterates
    assert [ask(COPIED, "x^2+3x+2", asked)["reward"] for asked in ("?", EXPAND, turns[:1], turns[1:])] == [1, 0, 0, 0]
    failed = ask(RIGHT, NO_GOLD)
    assert failed["mask_sample"] is True and "answer" in failed["failure_reason"]


def test_open_instruct(judge: RewardFunction):
    class VerifierFunction:
        def __init__(self, name: str, weight: float = 1.0, verifier_config: Any = None) -> None:
            self.name, self.weight, self.config = name, weight, verifier_config

    names = {"VerifierFunction": VerifierFunction, "VerificationResult": types.SimpleNamespace}
    verifier = example("open-instruct", judge, **names)["MathVerifier"]()
    assert verifier.name == "dph_math"
    assert [verifier([1], text, "x+1").score for text in (RIGHT, WRONG)] == [1.0, 0.0]
    assert asyncio.run(verifier.async_call([1], RIGHT, "x+1", query="?", rollout_state={})).score == 1.0
    assert verifier([1], RIGHT, NO_GOLD).score == 0.0


def test_skyrl(judge: RewardFunction):
    class BaseTextEnv:
        def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
            return prompt, {}

    made = example("SkyRL", judge, BaseTextEnv=BaseTextEnv, BaseTextEnvStepOutput=dict)["MathEnv"]
    env = made({}, extras={"reward_spec": {"ground_truth": "x+1"}})
    assert env.init("?") == ("?", {})
    assert env.step(RIGHT) == {"observations": [], "reward": 1.0, "done": True, "metadata": {"judged": True}}
    assert env.step(WRONG)["reward"] == 0.0
    copying = made({}, extras={"reward_spec": {"ground_truth": "x^2+3x+2"}})
    prompt = [{"role": "user", "content": EXPAND}]
    assert copying.init(prompt) == (prompt, {}) and copying.step(COPIED)["reward"] == 0.0
    failing = made({}, extras={"reward_spec": {"ground_truth": NO_GOLD}})
    failing.init("?")
    failed = failing.step(RIGHT)
    assert failed["metadata"] == {"judged": False}


def test_slime(judge: RewardFunction):
    custom_rm = example("slime", judge)["custom_rm"]

    def ask(text: str, gold: str | None, prompt: Any = "?") -> tuple[float, bool]:
        sample = types.SimpleNamespace(prompt=prompt, response=text, label=gold, remove_sample=False)
        return asyncio.run(custom_rm(None, sample, evaluation=False)), sample.remove_sample

    assert [ask(RIGHT, "x+1"), ask(WRONG, "x+1"), ask(RIGHT, NO_GOLD)] == [(1.0, False), (0.0, False), (0.0, True)]
    assert json.dumps(ask(RIGHT, "x+1")[0]) == "1.0"
    turns = [{"role": "user", "content": EXPAND}]
    assert [ask(COPIED, "x^2+3x+2", prompt)[0] for prompt in ("?", EXPAND, turns)] == [1.0, 0.0, 0.0]
