"""vLLM as a sampler: compared with the policy, and used in presample, eval and train (scripts/test-vllm)."""

import importlib
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from dph.build import make_sampler
from dph.config import (
    EvalConfig,
    LossConfig,
    ModelConfig,
    NewModelConfig,
    OptimConfig,
    PresampleConfig,
    RolloutConfig,
    SamplerConfig,
    SftConfig,
    TaskConfig,
    TrainConfig,
    from_dict,
)
from dph.config.sampling import SamplingParams
from dph.errors import ModelError, SettingsError, SharedUserError
from dph.models.policy import Policy
from dph.models.scratch import new_policy
from dph.rehearsal.store import read_rehearsal
from dph.sampling import vllm as module
from dph.sampling.generate import HFSampler
from dph.sampling.vllm import VLLMSampler, start_engine
from dph.training.rollouts import RolloutCollector
from dph.training.rows import Row
from helpers import TEXTS, interrupted_at, randomise, tiny_policy

HERE = importlib.util.find_spec("vllm") is not None
real = [
    pytest.mark.engines,
    pytest.mark.skipif(not HERE, reason="vLLM is not installed in this environment"),
    pytest.mark.filterwarnings("ignore"),  # warnings from vLLM
    pytest.mark.timeout(900),
]
VLLM = SamplerConfig(engine="vllm", rows=64)
SIZES = NewModelConfig(
    tokenizer="word", hidden=64, layers=2, heads=2, kv_heads=1, intermediate=96, context=64
)  # vLLM's CPU attention needs heads of at least 32
PLAIN = SamplingParams(n=4, max_tokens=6)
KEYS = [2**63 + 12345, 77 << 50, 2**64 - 5]


# Without vLLM -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rollout": {"top_p": 0.9}}, r"not report .* rollout\.top_p 0\.9; set it to 1\.0"),
        ({"rollout": {"min_p": 0.1}}, r"not report .* rollout\.min_p 0\.1; set it to 0\.0"),
        ({"rollout": {"old_logprobs": "sampler"}}, "are not exactly the trainer's"),
        ({"model": {"lora_rank": 4}}, "takes whole models"),
    ],
)
def test_what_vllm_cannot_do_in_training_is_refused(settings: dict[str, dict[str, Any]], said: str) -> None:
    settings = {**settings, "loss": {"eta": 0.0}, "sampler": {"engine": "vllm"} | settings.get("sampler", {})}
    with pytest.raises(SettingsError, match=said):
        from_dict(TrainConfig, settings)


def test_vllm_is_refused_in_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SharedUserError, match="vLLM runs in one process"):
        TrainConfig(sampler=VLLM, loss=LossConfig(eta=0)).check_ready()


@pytest.mark.skipif(HERE, reason="vLLM is installed in this environment")
def test_an_environment_without_vllm_says_what_to_install() -> None:
    sampler = make_sampler(VLLM, tiny_policy(), ModelConfig(path="model"), 64)
    with pytest.raises(ModelError, match=r"pip install '.\[vllm\]'"):
        sampler.sample([[1, 2]], PLAIN, [1])


class Recorded:
    """A fake of vLLM's `LLM` with the methods that the sampler calls; it records their arguments."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.llm_engine = self
        self.engine_core = SimpleNamespace(shutdown=lambda: self.told.append("shutdown"))

    def sleep(self, level: int = 1) -> None:
        self.told.append(f"sleep {level}")

    def wake_up(self, tags: list[str]) -> None:
        self.told += [f"wake {tag}" for tag in tags]

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        self.told.append(f"{method} {len(list(kwargs['weights_iterator']))}")

    def reset_prefix_cache(self) -> None:
        self.told.append("reset")

    def has_unfinished_requests(self) -> bool:
        return False


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_on_a_gpu_vllm_sleeps_while_the_policy_is_updated(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    llm = Recorded()
    monkeypatch.setattr(module, "start_engine", lambda *_, **options: started.append(options) or llm)
    monkeypatch.setattr(module, "policy_weights", lambda _: {"a": 1, "b": 2})
    policy: Any = SimpleNamespace(device=torch.device(device), context_length=64)
    sampler = VLLMSampler(policy, VLLM, ModelConfig(path="model"), 40, training=True)
    sampler.rest()  # before anything was sampled
    sampler.sample([], PLAIN, [])
    sampler.weights_changed()
    sampler.sample([], PLAIN, [])
    for changed in (True, False):
        llm.told.append("update")
        sampler.rest()
        sampler.rest()
        if changed:
            sampler.weights_changed()
        sampler.sample([], PLAIN, [])
        sampler.sample([], PLAIN, [])
    sampler.close()
    copied = ["reload_weights 2", "reset"]
    asleep = ["sleep 2", "wake weights", "reload_weights 2", "wake kv_cache", "reset"]
    first, second = (asleep, asleep) if device == "cuda" else (copied, [])
    assert llm.told == [*copied, *copied, "update", *first, "update", *second, "shutdown"]
    assert started == [{"here": True, "sleeps": device == "cuda", "texts": False}]
    sampler.sample([], replace(PLAIN, stop=("x",)), [])
    sampler.sample([], PLAIN, [])
    assert [one["texts"] for one in started] == [False, True], "stop strings need an engine with a tokenizer"


# With vLLM ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers "easy" prompts with yes, and "hard" ones with yes or no, equally often."""
    from dph.stages.sft import sft

    folder = tmp_path_factory.mktemp("base")
    rows = [{"prompt": f"easy {i}", "response": " yes"} for i in range(10) for _ in range(2)]
    rows += [{"prompt": f"hard {i}", "response": f" {answer}"} for i in range(10) for answer in ("yes", "no")]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    optim = OptimConfig(lr=1e-2, schedule="cosine", warmup_steps=5)
    data = str(folder / "data.jsonl")
    return sft(SftConfig(out=str(folder / "sft"), data=data, steps=60, batch=40, new=SIZES, optim=optim)) / "model"


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """A model whose next-token distributions are neither nearly uniform nor nearly certain."""
    policy = new_policy(SIZES, TEXTS, 0)
    randomise(policy.model, 0)
    path = tmp_path_factory.mktemp("random")
    policy.save(path)
    return ModelConfig(path=str(path))


@pytest.fixture(scope="module")
def policy(random_model: ModelConfig) -> Policy:
    return Policy.load(random_model)


@pytest.fixture(scope="module")
def sampler(random_model: ModelConfig, policy: Policy) -> Iterator[VLLMSampler]:
    made = VLLMSampler(policy, VLLM, random_model, 40)
    yield made
    made.close()


@pytest.fixture(scope="module")
def prompts(policy: Policy) -> list[list[int]]:
    return [policy.encode_prompt(text) for text in ("easy 1", "hard 2 3", "hard 4 5 6")]


def test_advice_of_vllm_names_our_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Refusing:
        def __init__(self, **_: Any) -> None:
            raise ValueError("Engine failed\nToo little memory; decrease `--gpu-memory-utilization`.")

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=Refusing))
    with pytest.raises(ModelError, match=r"memory; decrease `--sampler\.memory`\."):
        start_engine(ModelConfig(path=str(tmp_path)), VLLM, 32)


class TestReal:
    pytestmark = real

    @pytest.mark.parametrize("temperature", [1.0, 0.6])
    def test_logprobs_are_those_of_the_policy(
        self, sampler: VLLMSampler, policy: Policy, prompts: list[list[int]], temperature: float
    ) -> None:
        groups = sampler.sample(prompts, replace(PLAIN, temperature=temperature), KEYS)
        rows = [Row(p, c.token_ids, c.logprobs) for p, group in zip(prompts, groups, strict=True) for c in group]
        expected = policy.response_logprobs(rows, temperature, 4096)
        for row, values in zip(rows, expected, strict=True):
            assert list(row.old_logprobs) == pytest.approx(values, abs=1e-4)  # both fp32, different kernels

    def test_responses_end_with_eos_or_at_the_limit(
        self, sampler: VLLMSampler, policy: Policy, prompts: list[list[int]]
    ) -> None:
        found = set()
        for group in sampler.sample(prompts, replace(PLAIN, n=16, temperature=2.0), KEYS):
            for completion in group:
                ended = completion.token_ids[-1] in policy.eos_ids
                assert not policy.eos_ids & set(completion.token_ids[:-1])
                assert completion.finish_reason == ("stop" if ended else "length")
                assert ended or len(completion.token_ids) == PLAIN.max_tokens
                found.add(completion.finish_reason)
        assert found == {"stop", "length"}

    def test_responses_depend_on_the_key(self, sampler: VLLMSampler, prompts: list[list[int]]) -> None:
        hot = replace(PLAIN, n=8, temperature=2.0)

        def draw(keys: list[int]) -> list[list[tuple[int, ...]]]:
            return [[tuple(c.token_ids) for c in group] for group in sampler.sample(prompts, hot, keys)]

        first = draw(KEYS)
        assert draw(KEYS) == first
        assert all(a != b for a, b in zip(draw([key ^ (1 << 60) for key in KEYS]), first, strict=True))
        assert all(len(set(group)) > 4 for group in first)  # the responses of a group are drawn independently

    def test_greedy_responses_equal_the_built_in_samplers(
        self, sampler: VLLMSampler, policy: Policy, prompts: list[list[int]]
    ) -> None:
        greedy = SamplingParams(n=1, temperature=0.0, max_tokens=6)
        ours, theirs = (s.sample(prompts, greedy, KEYS) for s in (HFSampler(policy), sampler))
        assert [list(g[0].token_ids) for g in theirs] == [list(g[0].token_ids) for g in ours]
        for a, b in zip(ours, theirs, strict=True):
            assert list(b[0].logprobs) == pytest.approx(list(a[0].logprobs), abs=1e-4)

    def test_token_frequencies_follow_the_policys_probabilities(
        self, sampler: VLLMSampler, policy: Policy, prompts: list[list[int]]
    ) -> None:
        """First tokens of 600 responses: χ² against softmax(logits / T); with top-p, no token outside the nucleus."""
        count, temperature = 600, 2.0
        with torch.no_grad():
            logits = policy.model(torch.tensor([prompts[1]])).logits[0, -1]
        expected = (logits.double() / temperature).softmax(-1)
        params = SamplingParams(n=count, temperature=temperature, max_tokens=1)
        seen = Counter(c.token_ids[0] for c in sampler.sample([prompts[1]], params, KEYS[:1])[0])
        large = [token for token, p in enumerate(expected.tolist()) if p * count >= 5]
        chi = sum((seen[t] - count * float(expected[t])) ** 2 / (count * float(expected[t])) for t in large)
        assert len(large) > 2 and chi < 3 * len(large)  # its mean is about len(large); the key is fixed
        ordered = expected.sort(descending=True)
        nucleus = set(ordered.indices[: int((ordered.values.cumsum(0) < 0.8).sum()) + 1].tolist())
        cut = sampler.sample([prompts[1]], replace(params, top_p=0.8), KEYS[:1])[0]
        assert {c.token_ids[0] for c in cut} <= nucleus < set(range(len(expected)))
        assert all(not c.logprobs for c in cut)  # vLLM knows only those of the truncated distribution

    def test_min_p_leaves_unlikely_tokens_out(
        self, sampler: VLLMSampler, policy: Policy, prompts: list[list[int]]
    ) -> None:
        """χ² of first tokens against the truncated distribution: softmax(logits / T) at least 0.3 of the largest."""
        with torch.no_grad():
            probs = (policy.model(torch.tensor([prompts[1]])).logits[0, -1].double() / 2).softmax(-1)
        kept = {token: p for token, p in enumerate(probs.tolist()) if p >= 0.3 * float(probs.max())}
        params = SamplingParams(n=600, temperature=2.0, max_tokens=1, min_p=0.3)
        drawn = sampler.sample([prompts[1]], params, KEYS[:1])[0]
        seen = Counter(c.token_ids[0] for c in drawn)
        means = {token: 600 * p / sum(kept.values()) for token, p in kept.items()}
        assert seen.keys() <= kept.keys() and 2 < len(kept) < len(probs)
        assert sum((seen[token] - mean) ** 2 / mean for token, mean in means.items()) < 3 * len(kept)
        assert all(not c.logprobs for c in drawn)  # vLLM knows only those of the truncated distribution

    def test_a_stop_string_ends_responses_as_in_the_built_in_sampler(
        self, random_model: ModelConfig, policy: Policy, prompts: list[list[int]]
    ) -> None:
        """With the same keys, the responses of an engine without stop strings, cut at the first token whose text
        contains one."""
        params = replace(PLAIN, n=8, temperature=2.0, max_tokens=12)
        made = VLLMSampler(policy, VLLM, random_model, 40)
        try:
            whole = [c for group in made.sample(prompts, params, KEYS) for c in group]
            cut = [c for group in made.sample(prompts, replace(params, stop=("es", "d 1")), KEYS) for c in group]
        finally:
            made.close()
        ended = 0
        for plain, stopped in zip(whole, cut, strict=True):
            texts = [policy.decode(plain.token_ids[:count]) for count in range(1, len(plain.token_ids) + 1)]
            end = next((place for place, text in enumerate(texts, 1) if "es" in text or "d 1" in text), None)
            ended += end is not None
            assert list(stopped.token_ids) == list(plain.token_ids)[:end]
            assert stopped.finish_reason == (plain.finish_reason if end is None else "stop")
        assert 0 < ended < len(whole)

    @pytest.mark.parametrize("memory", [{}, {"block_size": 32, "num_gpu_blocks_override": 40}], ids=["much", "little"])
    def test_prompts_that_exceed_a_pass_or_the_cache_get_the_same_responses(
        self,
        memory: dict[str, int],
        sampler: VLLMSampler,
        random_model: ModelConfig,
        policy: Policy,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """160 prompts of 31 tokens are more than a pass of 4096. 39 fill a cache of 40 blocks, one of them vLLM's
        own; when responses need a second block, vLLM takes that of others, which it computes again later."""
        sampler.close()  # its cache takes 1 GB
        prompts = [[1 + (7 * row + place * (row + 1)) % 25 for place in range(31)] for row in range(20)]
        keys, wanted = [(7919 * row + 1) << 40 for row in range(20)], SamplingParams(n=8, max_tokens=4)
        engine = importlib.import_module("vllm")
        monkeypatch.setattr(engine, "LLM", partial(engine.LLM, **memory))
        many = VLLMSampler(policy, replace(VLLM, rows=256), random_model, 40)
        try:
            together = many.sample(prompts, wanted, keys)
            pairs = [many.sample(prompts[i : i + 2], wanted, keys[i : i + 2]) for i in range(0, len(prompts), 2)]
        finally:
            many.close()
        both = zip(chain(*together), chain(*chain(*pairs)), strict=True)
        equal = [list(one.token_ids) == list(other.token_ids) for one, other in both]
        assert equal.count(False) <= 2  # a draw at the edge of a token's interval, by rounding

    def test_sampling_after_closing_starts_a_new_engine(
        self, sampler: VLLMSampler, policy: Policy, prompts: list[list[int]]
    ) -> None:
        before = sampler.sample(prompts, PLAIN, KEYS)
        sampler.close()
        sampler.close()
        after = sampler.sample(prompts, PLAIN, KEYS)
        assert [[list(c.token_ids) for c in g] for g in after] == [[list(c.token_ids) for c in g] for g in before]

    def test_a_model_that_vllm_cannot_load_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="vLLM could not start with"):
            start_engine(ModelConfig(path=str(tmp_path)), VLLM, 32)

    def test_a_temperature_that_vllm_rejects_is_refused(self, sampler: VLLMSampler, prompts: list[list[int]]) -> None:
        with pytest.raises(SettingsError, match=r"vLLM rejects .* temperature"):
            sampler.sample(prompts, replace(PLAIN, temperature=3.0), KEYS)
        assert len(sampler.sample(prompts, PLAIN, KEYS)) == 3  # the engine still works

    def test_presample_and_eval(self, base: Path, sampler: VLLMSampler, tmp_path: Path) -> None:
        """Easy prompts are near-perfect, stored log-probabilities are the policy's, eval's scores are as expected."""
        from dph.stages.evaluate import evaluate
        from dph.stages.presample import presample

        sampler.close()  # its cache takes 1 GB
        drawn = RolloutConfig(n=8, max_tokens=4, max_prompt_tokens=8)
        common: dict[str, Any] = {
            "model": ModelConfig(path=str(base)),
            "task": TaskConfig(name="toy"),
            "sampler": SamplerConfig(engine="vllm", rows=64),
        }
        run = presample(PresampleConfig(out=str(tmp_path / "presample"), rollout=drawn, threshold=7, **common))
        sets = {row["problem_id"]: row["set"] for row in pq.read_table(run / "partition.parquet").to_pylist()}
        easy = {name for name in sets if int(name.split("/")[1]) % 2}
        assert {name for name, where in sets.items() if where == "perfect"} >= easy
        stored = read_rehearsal(run / "rehearsal.parquet")
        assert {row.problem_id for row in stored} >= easy
        rows = [Row(row.prompt_ids, row.response_ids, ()) for row in stored]
        policy = Policy.load(common["model"])
        for row, values in zip(stored, policy.response_logprobs(rows, 1.0, 4096), strict=True):
            assert list(row.ref_logprobs) == pytest.approx(values, abs=1e-5)
        common["task"] = TaskConfig("toy", split="dev")
        out = evaluate(EvalConfig(out=str(tmp_path / "eval"), rollout=drawn, **common))
        metrics = json.loads((out / "scores.json").read_text())["splits"]["dev"]["metrics"]
        # 6 easy prompts are always right, 6 hard ones half of the time: 8 samples nearly always include a right one
        assert 0.65 < metrics["mean@8"]["mean"] < 0.85 and metrics["pass@8"]["mean"] > 0.9

    def test_in_training_it_follows_the_policys_weights(
        self, random_model: ModelConfig, prompts: list[list[int]], sampler: VLLMSampler
    ) -> None:
        sampler.close()
        policy = Policy.load(random_model)

        def gap(against: Policy) -> float:
            groups = following.sample(prompts, PLAIN, KEYS)
            rows = [Row(p, c.token_ids, c.logprobs) for p, group in zip(prompts, groups, strict=True) for c in group]
            expected = against.response_logprobs(rows, 1.0, 4096)
            pairs = [zip(row.old_logprobs, values, strict=True) for row, values in zip(rows, expected, strict=True)]
            return max(abs(a - b) for pair in pairs for a, b in pair)

        following = VLLMSampler(policy, VLLM, random_model, 40, training=True)
        try:
            assert gap(policy) < 1e-4
            assert policy.model.device == Policy.load(random_model).model.device  # it stays where it is
            for seed in (1, 2):
                randomise(policy.model, seed)
                assert gap(policy) > 0.1  # not notified yet
                following.weights_changed()
                assert gap(policy) < 1e-4
            following.close()
            assert gap(policy) < 1e-4  # a new engine loads the model's first weights
        finally:
            following.close()

    def test_train(self, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each step samples with the weights of the step before; a resumed run continues with its own weights."""
        from dph.stages.train import train

        config = TrainConfig(
            out=str(tmp_path / "train"),
            steps=4,
            checkpoint_every=2,
            model=ModelConfig(path=str(base)),
            task=TaskConfig(name="toy"),
            sampler=VLLM,
            loss=LossConfig(eta=0),
            rollout=RolloutConfig(prompts=4, n=8, max_tokens=4, max_prompt_tokens=8),
            optim=OptimConfig(lr=5e-3, minibatches=2, warmup_steps=0),
        )
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(RolloutCollector, "draw", interrupted_at(RolloutCollector.draw, 4))
            train(config)
        train(config, resume=True)
        rows = [json.loads(line) for line in (tmp_path / "train" / "metrics.jsonl").read_text().splitlines()]
        steps = [row for row in rows if row.get("step")]
        assert [row["step"] for row in steps] == [1, 2, 3, 4]
        for row in steps:
            assert row["exp/sampler_gap"] < 1e-4 and row["exp/sampler_kl"] < 1e-6
            assert row["exp/importance"] == pytest.approx(1, abs=1e-4)
        assert steps[-1]["reward"] > steps[0]["reward"]
