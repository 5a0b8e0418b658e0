# pyright: reportMissingImports=false
"""verl's engine with shared prompts against verl's own, in processes of their own on a CPU (gloo, FSDP2)."""

import json
import math
import re
import subprocess
import sys
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers import needs

pytestmark = [*needs("verl"), pytest.mark.timeout(3600)]

SAVED = re.compile(r"shared prompts: (\d+) tokens computed (\d+) in verl")
PAGE = Path(__file__).resolve().parents[2] / "docs/guides/verl.md"
SUPPORT = Path(__file__).resolve().parents[1] / "verl_cpu"
TOLERANCE = 1e-5
"""Relative; fp32 sums in another order differ by some 1e-6."""


@pytest.mark.parametrize(
    ("case", "ranks"),
    [("plain", 1), ("checkpointing", 2), ("lora", 1), ("tools", 1), ("sum_pi_squared", 1), ("bf16", 1)],
)
def test_an_update_is_verls(case: str, ranks: int, tmp_path: Path) -> None:
    """Stock worker, stock loss with an entropy bonus: ragged groups, equal responses, prompts of one token."""
    sys.path.insert(0, str(SUPPORT))
    from harness import run_ranks

    outputs = run_ranks("shared_worker.py", ranks, str(tmp_path), case)
    for rank, output in enumerate(outputs):
        (line,) = [line for line in output.splitlines() if line.startswith(f"ERRORS{rank} ")]
        errors = json.loads(line.removeprefix(f"ERRORS{rank} "))
        tokens = errors.pop("tokens")
        assert set(errors) == {"log_probs", "entropy", "loss", "gradient"}
        # Both round to 8 bits under bf16, in other orders: log-probabilities were 0.005 apart, gradients 0.024
        assert max(errors.values()) < (0.05 if case == "bf16" else TOLERANCE)
        assert tokens == 1 if case == "sum_pi_squared" else tokens < 0.5  # which needs the logits of every token
        assert ("once for each response, as in verl" in output) == (case == "sum_pi_squared")
        assert "REFUSED prompts cannot be shared: each row has a temperature of its own" in output


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"strategy": "fsdp"}, "use fsdp2"),
        ({"ulysses_sequence_parallel_size": 2}, "Ulysses"),
        ({"use_dynamic_bsz": False}, "use_dynamic_bsz=True"),
        ({"pad_to_length": True}, "pad_to_length"),
        ({"use_fused_kernels": True}, "fused kernels"),
        ({"enable_activation_offload": True}, "enable_activation_offload"),
    ],
)
def test_settings_that_would_not_be_exact_are_refused(changed: dict[str, Any], reason: str) -> None:
    """verl's own defaults are not."""
    from verl.workers.config import FSDPEngineConfig, HFModelConfig

    from dph.integrations.shared_prefix import first_of
    from dph.integrations.verl.engine import not_exact

    def settings(kind: Any, **more: Any) -> SimpleNamespace:
        values = {one.name: one.default for one in fields(kind)} | more
        return SimpleNamespace(**values | {name: changed[name] for name in changed.keys() & values.keys()})

    engine, model = settings(FSDPEngineConfig, strategy="fsdp2"), settings(HFModelConfig)
    assert reason in (first_of(not_exact(model, engine)) or "")
    changed.clear()
    assert not any(not_exact(settings(HFModelConfig), settings(FSDPEngineConfig, strategy="fsdp2")).values())


def test_training_without_this_packages_objective_is_verls(tmp_path: Path) -> None:
    """`python -m verl.trainer.main_ppo` on two ranks: the mode that keeps groups together gives the step of `sync`."""
    sys.path.insert(0, str(SUPPORT))
    import harness

    model, _, data = harness.make_launch(tmp_path / "launch")
    steps = {}
    for run, mode, vendor in (
        ("stock", "sync", "cpu"),
        ("shared", "shared_prefix_sync", "dph"),
        ("default", "shared_prefix_sync", "dph"),
    ):
        folder = tmp_path / run
        folder.mkdir()
        settings = harness.stock_overrides(model, data, mode)
        if run == "default":  # verl's own precision, bf16
            settings = {name: value for name, value in settings.items() if "mixed_precision" not in name}
        settings["+ray_kwargs.ray_init.runtime_env.env_vars.VERL_ENGINE_VENDOR"] = vendor
        if run != "stock":  # the lines that the page names
            lines = re.search(r"main_ppo … (.*?)```", PAGE.read_text(), re.DOTALL)
            assert lines
            words = [word for word in lines[1].split() if word != "\\"]
            assert len(words) == 5
            settings |= dict(word.split("=", 1) for word in words)
        done = harness.run([sys.executable, "-m", "verl.trainer.main_ppo"], settings, folder)
        assert done.returncode == 0, done.stdout[-4000:]
        assert "once for each response, as in verl" not in done.stdout
        saved = [(int(a), int(b)) for a, b in SAVED.findall(done.stdout.replace(",", ""))]
        assert len(saved) == (0 if run == "stock" else 2)  # each rank says it once
        assert all(computed < 0.8 * whole for computed, whole in saved)
        steps[run] = harness.metrics_of(folder)[1]
    stock, shared, rounded = steps.values()
    assert rounded["actor/entropy"] == pytest.approx(stock["actor/entropy"], rel=0.01)
    assert rounded["actor/grad_norm"] == pytest.approx(stock["actor/grad_norm"], rel=0.1)
    assert stock["critic/score/mean"] == shared["critic/score/mean"]  # the same responses
    for name in ("actor/grad_norm", "actor/pg_loss", "actor/entropy", "actor/loss"):
        assert shared[name] == pytest.approx(stock[name], rel=TOLERANCE, abs=1e-7)
    assert shared["shared_prefix/computed_per_prompt"] == 1 and "shared_prefix/computed_per_prompt" not in stock
    assert shared["shared_prefix/rank_imbalance"] < 1.2


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not in verl's environment")
def test_vllm_samples_in_verl_and_gets_the_trained_weights(tmp_path: Path) -> None:
    """verl's own vLLM server with vLLM's build for processors, and shared prompts in the update. The learning rate is
    so large that a sampler with the weights of the first step would be far away in the second."""
    sys.path.insert(0, str(SUPPORT))
    import harness

    sizes = replace(harness.SIZES, hidden=128, intermediate=256, context=256)  # heads of a width that vLLM has
    model, _, data = harness.make_launch(tmp_path / "launch", sizes)
    settings = harness.stock_overrides(model, data, "shared_prefix_sync") | harness.with_vllm()
    settings |= {"trainer.n_gpus_per_node": 1, "trainer.total_training_steps": 2}
    settings["+ray_kwargs.ray_init.runtime_env.env_vars.VERL_ENGINE_VENDOR"] = "dph"
    command = [sys.executable, "-m", "verl.trainer.main_ppo"]
    done = harness.run(command, settings, tmp_path, VLLM_CPU_KVCACHE_SPACE="1")  # GB
    assert done.returncode == 0, done.stdout[-4000:]
    metrics = harness.metrics_of(tmp_path)
    gaps = [float(gap) for gap in re.findall(r"the sampler is (\S+) nats from the trainer", done.stdout)]
    assert sorted(metrics) == [1, 2] and len(gaps) == 2 and max(gaps) < 1e-3, gaps
    assert all(step["shared_prefix/computed_per_prompt"] == 1 for step in metrics.values())


def test_validation_has_pass_at_k_over_the_scored_responses_of_each_source() -> None:
    from dph.integrations.verl.mixins import validation_passes

    sources = ["toy"] * 9 + ["other"] * 2
    problems = ["a"] * 4 + ["b"] * 4 + ["c"] + ["d"] * 2
    acc = [1, 0, 0, 0, 1, 1, None, 0, None, None, None]
    values = {"reward": [0.5] * 9 + [1.0, 0.0], "acc": acc}
    found = validation_passes(sources, problems, values, {})
    # a: 1 of 4 correct; b: 2 of 3; c: nothing scored; d has no acc: its reward, 1 of 2
    expected = {
        "val-core/toy/acc/pass@2": (2 / 4 + 1) / 2,  # a: 1 − C(3,2)/C(4,2); b: a pair holds a correct one
        "val-core/toy/acc/pass@4": 1.0,  # only a has four
        "val-core/other/reward/pass@2": 1.0,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["val-core/toy/acc/cover@0.5"] == 0.5
    assert not any(name.endswith("lost") for name in found)  # the reward function tells no ids


def test_validation_has_the_interval_of_pass_at_k() -> None:
    from dph.integrations.verl.mixins import validation_passes

    problems = [str(row // 2) for row in range(16)]
    found = validation_passes(["toy"] * 16, problems, {"acc": [1, 0] * 6 + [0, 0] * 2}, {})
    # 6 of 8 problems are solved in both draws; with an imaginary problem at 0 and one at 1, the mean is 7/10 and its
    # variance 7/10·3/10/9; Student's t of 8 − 1 degrees of freedom at 97.5 % is 2.3646
    ends = {"pass@2": 6 / 8, "pass@2/low": 0.7 - 2.3646 * math.sqrt(0.7 * 0.3 / 9), "pass@2/high": 1.0}
    measured = {name: found[f"val-core/toy/acc/{name}"] for name in ends}
    assert measured == pytest.approx(ends, abs=1e-5)


def test_validation_counts_problems_that_an_earlier_one_solved() -> None:
    from dph.integrations.verl.mixins import validation_passes

    ledgers: dict = {}

    def lost(*acc: int) -> float:
        values = {"acc": acc, "problem": ["p", "p", "q", "q"]}  # verl's ids of groups are new in each validation
        groups = [f"{group}{len(found)}" for group in "aabb"]
        return validation_passes(["toy"] * 4, groups, values, ledgers)["val-core/toy/acc/lost"]

    found: list[float] = []
    for acc in ((1, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 0)):
        found.append(lost(*acc))
    assert found == [0, 1, 1]


def test_rewards_between_0_and_1_have_no_pass_at_k() -> None:
    from dph.integrations.verl.mixins import validation_passes

    assert validation_passes(["toy"] * 2, ["a"] * 2, {"reward": [0.5, 1.0]}, {}) == {}


def test_verls_validation_logs_unbiased_pass_at_k() -> None:
    """Through verl's own summary of a validation, beside its best@k, which draws with replacement."""
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from dph.integrations.verl.mixins import PassAtKMixin

    class Trainer(PassAtKMixin, PPOTrainerSync):
        pass

    trainer = object.__new__(Trainer)
    problems = [f"p{index // 4}" for index in range(400)]
    acc = [float(index % 4 == 0) for index in range(400)]  # one of four is correct
    found = trainer._val_metrics_update(["toy"] * 400, problems, {"reward": acc, "acc": acc}, [1] * 400)
    assert found["val-core/toy/acc/pass@2"] == pytest.approx(1 / 2)  # 1 − C(3,2)/C(4,2)
    assert found["val-core/toy/acc/pass@4"] == 1
    # With replacement 1 − (3/4)² and 1 − (3/4)⁴, from 1000 draws, the same for all problems: to three standard errors
    assert found["val-aux/toy/acc/best@2/mean"] == pytest.approx(7 / 16, abs=0.05)
    assert found["val-core/toy/acc/best@4/mean"] == pytest.approx(175 / 256, abs=0.05)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_verl_benchmark_runs(ranks: int, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    options = ["--sizes", "16+4", "--responses", "4", "--pairs", "1", "--clock", "cpu", "--ranks", str(ranks)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engines.verl_prefix", *options, "--out", str(out)],
        cwd=SUPPORT.parents[1],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = json.loads(out.read_text())
    (step,) = found["steps"]
    assert 0 < found["difference"] < TOLERANCE and f"4 responses, {ranks} ranks" in done.stdout
    for one in step.values():
        assert all(one[name] > 0 for name in ("update", "log-probs", "memory"))
