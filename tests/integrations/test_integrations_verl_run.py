"""The plug-in inside verl's real trainer and engine, on two CPU ranks (gloo, FSDP2): the contract of all engines, a run
with rehearsal, its interruption, and DAPO's filter. Minutes, not seconds: scripts/test-verl runs them.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from helpers import needs

pytestmark = [*needs("verl"), pytest.mark.timeout(3600)]

SUPPORT = Path(__file__).resolve().parents[1] / "verl_cpu"
ONE_MINIBATCH = {"trainer.save_freq": 1, "actor_rollout_ref.actor.ppo_mini_batch_size": 4}
TOLERANCE = 1e-5
"""Of the contract: relative; fp32 sums in another order differ by some 1e-6."""


@pytest.mark.parametrize(("ranks", "vendor"), [(1, "cpu"), (2, "cpu"), (2, "dph")])
def test_verls_engine_keeps_the_contract(ranks: int, vendor: str, tmp_path: Path) -> None:
    """Loss and gradient of one mixed batch, every divergence and both reductions, micro-batches of a few rows.

    vendor: "dph" is the engine with shared prompts.
    """
    sys.path.insert(0, str(SUPPORT))
    from harness import run_ranks

    outputs = run_ranks("contract_worker.py", ranks, str(tmp_path), VERL_ENGINE_VENDOR=vendor)
    (line,) = [line for line in outputs[0].splitlines() if line.startswith("ERRORS ")]
    errors = json.loads(line.removeprefix("ERRORS "))
    assert len(errors) == 16  # 7 divergences × 2 reductions, and 2 other policy losses
    assert max(max(pair) for pair in errors.values()) < TOLERANCE
    (line,) = [line for line in outputs[0].splitlines() if line.startswith("WEIGHTED ")]
    *apart, heavy = json.loads(line.removeprefix("WEIGHTED "))
    assert heavy > 0 and max(apart) < TOLERANCE, "a row of weight 2 is two rows"


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Model, presample run and verl's Parquet."""
    sys.path.insert(0, str(SUPPORT))
    import harness

    return harness.make_launch(tmp_path_factory.mktemp("launch"))


@pytest.fixture(scope="module")
def whole(launch: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps without interruption, saved after each.

    One mini-batch each: which of several a prompt goes to depends on when verl's rollouts end.
    """
    import harness

    folder = tmp_path_factory.mktemp("whole")
    settings = harness.overrides(*launch, folder / "checkpoints") | ONE_MINIBATCH
    done = harness.train(settings, folder)
    assert done.returncode == 0, done.stdout[-4000:]
    return folder


def test_a_run_with_rehearsal(whole: Path, launch: tuple[Path, Path, Path]) -> None:
    """What each step says of itself: counts, shares and the loss add up."""
    import harness

    metrics = harness.metrics_of(whole)
    assert sorted(metrics) == [1, 2]
    for step in metrics.values():
        # verl's lengths are those of the 16 rollouts, stored rows not among them, and so are the tokens of D_exp
        assert step["actor/exp/tokens"] == step["response_length/mean"] * 16 * (1 - step["dph/unscored"])
        # js, η 0.2, per set: the loss is that of the rollouts plus η times the mean divergence
        parts = step["actor/exp/policy_loss"] + 0.2 * step["actor/pef/divergence"]
        assert step["actor/loss"] == pytest.approx(parts, rel=1e-5)
        assert step["dph/rehearsal_rows"] == 6
        judged = 1 - step["dph/unscored"]
        assert step["critic/score/mean"] * judged == pytest.approx(step["dph/outcome/correct"])
    assert metrics[1]["dph/ref_deviation"] < 1e-5  # nats a token: the stored log-probabilities are this model's
    assert metrics[1]["actor/pef/tokens"] == harness.stored_tokens(launch[1], 0, 6)
    assert metrics[2]["actor/pef/tokens"] == harness.stored_tokens(launch[1], 6, 6)
    # Before the first optimizer step the policy is π_ref; f(1) = 0 up to the rounding of fp32, 6e-8
    assert abs(metrics[1]["actor/pef/divergence"]) < 6e-8 < 1e-3 < metrics[2]["actor/pef/divergence"]


def test_a_resumed_run_is_the_uninterrupted_one(whole: Path, launch: tuple[Path, Path, Path], tmp_path: Path) -> None:
    import harness

    shutil.copytree(whole / "checkpoints", tmp_path / "checkpoints")
    shutil.rmtree(tmp_path / "checkpoints" / "global_step_2")
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("1")
    settings = harness.overrides(*launch, tmp_path / "checkpoints") | ONE_MINIBATCH
    done = harness.train(settings, tmp_path)
    assert done.returncode == 0, done.stdout[-4000:]
    again, once = harness.metrics_of(tmp_path), harness.metrics_of(whole)
    assert sorted(again) == [2]
    for name in ("actor/exp/tokens", "actor/pef/tokens", "critic/score/mean", "dph/outcome/correct"):
        assert again[2][name] == once[2][name]
    for name in ("actor/loss", "actor/grad_norm", "actor/pef/divergence"):
        assert again[2][name] == pytest.approx(once[2][name], rel=1e-4)
    one, two = (harness.weights(folder / "checkpoints" / "global_step_2" / "actor") for folder in (whole, tmp_path))
    before = harness.weights(whole / "checkpoints" / "global_step_1" / "actor")
    change = sum(float((one[name] - before[name]).pow(2).sum()) for name in one) ** 0.5
    apart = sum(float((one[name] - two[name]).pow(2).sum()) for name in one) ** 0.5
    assert apart < 1e-3 * change  # Adam divides by moments of a few steps only


def test_a_launch_runs_as_written(launch: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """`dph verl` with DAPO's filter and two mini-batches a step: data.sh, train.sh and eval.sh as they are written."""
    import harness

    folder = harness.write_launch(launch[0], launch[1], tmp_path / "launch")
    done = subprocess.run([folder / "data.sh"], env={**harness.environment(), "PYTHON": sys.executable}, check=False)
    assert done.returncode == 0
    settings = harness.on_cpu() | {"trainer.rollout_data_dir": folder / "rollouts", "trainer.logger": "[console,file]"}
    done = harness.run(["nice", str(folder / "train.sh")], settings, folder)
    assert done.returncode == 0, done.stdout[-4000:]

    groups: dict[str, list[float]] = defaultdict(list)
    for line in (folder / "rollouts" / "1.jsonl").read_text().splitlines():
        row = json.loads(line)
        groups[row["input"]].append(row["score"])
    assert len(groups) == 4 and all(len(scores) == 4 for scores in groups.values())
    assert all(set(scores) == {0.0, 1.0} for scores in groups.values())  # no group all right or all wrong
    before, step = (harness.metrics_of(folder)[number] for number in (0, 1))
    for measured in (before, step):  # of four problems with four responses each
        passes = [measured[f"val-core/records/acc/{name}"] for name in ("mean@4", "pass@2", "pass@4")]
        assert 0 <= passes[0] <= passes[1] <= passes[2] <= 1 and passes[2] * 4 == round(passes[2] * 4)
    sampled = 16 + 4 * next(
        (value for name, value in step.items() if name.endswith("filter_groups/evicted_samples")), 0
    )
    shares = {name: value * sampled for name, value in step.items() if name.startswith("dph/outcome/")}
    assert sum(shares.values()) == pytest.approx(sampled)  # of the responses that the filter dropped, too
    assert all(count == pytest.approx(round(count), abs=1e-6) for count in shares.values())
    assert step["shared_prefix/computed_per_prompt"] == 1  # four prompts on two ranks with two mini-batches
    assert step["actor/pef/tokens"] * 2 == harness.stored_tokens(launch[1], 0, 6)
    assert step["actor/pef/divergence"] > 1e-6  # of the second mini-batch: the first is at π_ref

    own = ["--sampler.engine", "hf", "--model.device", "cpu"]
    done = subprocess.run(
        [folder / "eval.sh", "1", *own],
        env={**harness.environment(), "PYTHON": sys.executable},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    scores = json.loads((folder / "eval" / "step-1" / "scores.json").read_text())
    assert scores["label"] == "dph_js" and scores["splits"]["train"]["problems"] == 48
    merged, trained = (
        harness.saved(folder / "models" / "step-1"),
        harness.weights(folder / "checkpoints" / "global_step_1" / "actor"),
    )
    start = harness.saved(launch[0])
    for name, value in merged.items():
        assert value.equal(trained[name].to(value.dtype)) and not value.equal(start[name].to(value.dtype))


def test_a_setting_that_cannot_be_meant_ends_with_one_sentence(tmp_path: Path) -> None:
    """Before Ray is started."""
    words = ["dph.rows=6", "actor_rollout_ref.rollout.name=vllm"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "dph.integrations.verl", *words, f"hydra.run.dir={tmp_path}"],
        env={**os.environ, "VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "verl_cpu_platform",
             "PYTHONPATH": f"{SUPPORT}:{SUPPORT.parents[1] / 'src'}"},
        cwd=tmp_path, text=True, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2
    assert "dph: dph.rows is 6, but dph.rehearsal names no run of `dph presample`" in done.stderr


@pytest.mark.parametrize("files", ["{}/none.parquet", "[{}/none.parquet]"])
def test_files_that_are_not_there_are_refused_before_ray_is_started(files: str, tmp_path: Path) -> None:
    words = [f"data.train_files={files.format(tmp_path)}", f"hydra.run.dir={tmp_path}", "dph.rows=0"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "dph.integrations.verl", *words],
        text=True, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    sentence = f"dph: there is no file {tmp_path}/none.parquet; run data.sh of the launch, or correct data.train_files"
    assert done.returncode == 2 and done.stderr.strip().endswith(sentence), done.stderr[-2000:]


def test_messages_are_printed_once() -> None:
    """verl gives the root logger a handler, which is not to repeat what a command prints."""
    code = "from dph.process.progress import say, show_messages; show_messages(); "
    code += "from dph.integrations.verl.installed import check_registered; check_registered(); say('wrote the launch')"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0 and done.stderr.count("wrote the launch") == 1, done.stderr[-2000:]
    assert "is not available" not in done.stderr  # verl warns of engines that are not installed
