"""Faults during a run: a full disk, damaged checkpoints, a verifier that fails, numbers that are not finite, no memory.

Each ends with one sentence and a saved state. After --resume the run ends with the files of an undisturbed run."""

import errno
import os
import resource
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dph.cli.main import main
from dph.config import ModelConfig, SftConfig
from dph.errors import RunError, SharedUserError
from dph.models.policy import Policy
from dph.runs.directory import RunDir, read_metrics
from dph.stages import train as module
from dph.stages.sft import sft
from dph.stages.train import train
from dph.training import checkpoints, loop
from dph.types import Outcome, Verdict
from faults_support import SETTINGS, at_call, config_of, same
from helpers import base_run, train_config


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return train(config_of(tmp_path_factory.mktemp("whole")))


# The disk -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system limits no file sizes")
def test_a_full_disk_keeps_the_checkpoint_before(tmp_path, monkeypatch, capsys, undisturbed):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))

    monkeypatch.setattr(checkpoints, "save", at_call(3, fill, checkpoints.save))
    try:
        with pytest.raises(RunError, match="cannot write the checkpoint") as caught:
            train(config_of(tmp_path / "run"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "free disk space" in str(caught.value) and "then --resume continues after step 2" in str(caught.value)
    assert "ile too large" in str(caught.value) and "is saved" not in capsys.readouterr().err
    assert checkpoints.steps_saved(tmp_path / "run") == [1, 2]
    assert sorted(entry.name for entry in (tmp_path / "run" / "checkpoints").glob(".*")) == []
    monkeypatch.undo()
    assert same(train(config_of(tmp_path / "run"), resume=True), undisturbed)


# TensorBoard writes its file in a thread, which may meet the full disk first
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_disk_that_is_full_for_a_line_of_metrics_leaves_no_part_of_it(tmp_path, monkeypatch, undisturbed):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    run = tmp_path / "run"

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, ((run / "metrics.jsonl").stat().st_size + 9, hard))

    monkeypatch.setattr(RunDir, "log", at_call(3, fill, RunDir.log))
    try:
        with pytest.raises(OSError, match="File too large"):  # which the command line makes a sentence of
            train(config_of(run))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monkeypatch.undo()
    assert [line["step"] for line in read_metrics(run)] == [0, 1]
    assert same(train(config_of(run), resume=True), undisturbed)


def ended(monkeypatch, capsys, command, stage, config):
    """The status and what is said of a stage that the command line runs."""
    (settings := Path(f"{config.out}.toml")).touch()
    words = [command, "--out", config.out, "--model.path", config.model.path, "--config", settings]
    monkeypatch.setattr(f"dph.stages.{command}.{command}", lambda *_, **__: stage(config))
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("dph: ", "the state"))]
    return end.value.code, said


def broken_disk():
    raise OSError(errno.EIO, os.strerror(errno.EIO), "metrics.jsonl")


@pytest.mark.parametrize("call", [1, 3])
def test_a_broken_disk_under_the_metrics_saves_the_state(tmp_path, monkeypatch, capsys, undisturbed, call):
    config = replace(config_of(tmp_path / "run"), checkpoint_every=4, keep_best="")
    monkeypatch.setattr(RunDir, "log", at_call(call, broken_disk, RunDir.log))
    status, said = ended(monkeypatch, capsys, "train", train, config)
    assert (status, said[-1]) == (
        2,
        "dph: cannot write metrics.jsonl: Input/output error; check the disk, or use another",
    )
    assert len(said) == (2 if call > 1 else 1) and checkpoints.steps_saved(tmp_path / "run") == (
        [2] if call > 1 else []
    )
    monkeypatch.undo()
    run = train(config, resume=True)
    assert (run / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()
    assert (run / "model" / "model.safetensors").read_bytes() == (undisturbed / "model/model.safetensors").read_bytes()


def sft_config(out):
    rows = base_run().parent / "data.jsonl"
    model = ModelConfig(str(base_run() / "model"), device="cpu")
    return SftConfig(out=str(out), data=str(rows), model=model, steps=4, batch=4, checkpoint_every=4)


def test_a_broken_disk_saves_a_supervised_run_too(tmp_path, monkeypatch, capsys):
    whole = sft(sft_config(tmp_path / "whole"))
    monkeypatch.setattr(RunDir, "log", at_call(3, broken_disk, RunDir.log))
    status, said = ended(monkeypatch, capsys, "sft", sft, sft_config(tmp_path / "run"))
    assert (status, len(said)) == (2, 2) and "the state after step 3 is saved in" in said[0]
    monkeypatch.undo()
    run = sft(sft_config(tmp_path / "run"), resume=True)
    for file in ("metrics.jsonl", "model/model.safetensors"):
        assert (run / file).read_bytes() == (whole / file).read_bytes()


@pytest.mark.parametrize("place", ["sampling", "logging", "checkpoint"])
def test_a_run_directory_that_is_removed_is_one_sentence_and_the_state_is_saved(tmp_path, monkeypatch, capsys, place):
    run = tmp_path / "run"
    owner, name = {
        "sampling": (loop.RolloutCollector, "draw"),
        "logging": (RunDir, "log"),
        "checkpoint": (checkpoints, "save"),  # which makes the directory again
    }[place]
    monkeypatch.setattr(owner, name, at_call(3, lambda: shutil.rmtree(run), getattr(owner, name)))
    status, said = ended(monkeypatch, capsys, "train", train, config_of(run))
    assert (status, len(said)) == (2, 2) and f"the run directory {run} was removed" in said[-1]
    [step] = checkpoints.steps_saved(run)[-1:]
    assert f"the state after step {step} is saved in {checkpoints.path_of(run, step)}" in said[0]
    assert checkpoints.damage(checkpoints.path_of(run, step)) == ""


def test_a_supervised_run_that_is_removed_is_saved_too(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    monkeypatch.setattr(RunDir, "log", at_call(2, lambda: shutil.rmtree(run), RunDir.log))
    status, said = ended(monkeypatch, capsys, "sft", sft, sft_config(run))
    assert (status, len(said)) == (2, 2) and f"the run directory {run} was removed" in said[-1]
    assert checkpoints.damage(checkpoints.path_of(run, 2)) == ""


@pytest.mark.parametrize("name", ["model/model.safetensors", "trainer.safetensors", "state.json", "checksums.json"])
def test_a_damaged_newest_checkpoint_costs_its_steps_only(tmp_path, monkeypatch, capsys, undisturbed, name):
    def leave():
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.RolloutCollector, "draw", at_call(4, leave, loop.RolloutCollector.draw))
    with pytest.raises(KeyboardInterrupt):
        train(config_of(tmp_path / "run"))
    monkeypatch.undo()
    file = checkpoints.path_of(tmp_path / "run", 3) / name
    file.write_bytes(file.read_bytes()[:-7])
    run = train(config_of(tmp_path / "run"), resume=True)
    assert "the checkpoint after step 3 is damaged" in (said := capsys.readouterr().err)
    assert "continuing from the previous one, after step 2" in said
    (aside,) = (run / "checkpoints").glob("damaged-*")
    for entry in sorted(aside.rglob("*"), reverse=True):
        entry.rmdir() if entry.is_dir() else entry.unlink()
    aside.rmdir()
    assert same(run, undisturbed)


@pytest.fixture
def unprivileged():
    """A folder that belongs to somebody else, while this process is a user without rights."""
    if not hasattr(os, "geteuid"):
        pytest.skip("this system has no user ids")
    with tempfile.TemporaryDirectory(prefix="dph-tests-") as name:
        folder = Path(name)
        yield folder
        if os.getuid() == 0:
            os.seteuid(0)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)


def make_read_only(folder):
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.getuid() == 0:  # the superuser may write everywhere
        os.seteuid(65534)


def test_a_read_only_run_directory_is_named(unprivileged):
    config = config_of(unprivileged / "run")
    run = RunDir.start(config.out, "train", config)
    run.log(1, {"loss": 1.0})
    run.finish()
    run.update(status="running")
    make_read_only(unprivileged)
    for out, resume in ((unprivileged / "run", True), (unprivileged / "new", False)):
        with pytest.raises(RunError, match=f"{out}: Permission denied"):
            RunDir.start(str(out), "train", replace(config, out=str(out)), resume=resume)


# The judge ----------------------------------------------------------------------------------------------------------


def lose(share):
    """A judge that loses every so many verdicts, whatever the response."""
    from dph.verifiers import Verifiers

    verify, count = Verifiers.verify, [0]

    def losing(self, items):
        verdicts = verify(self, items)
        for index in range(len(verdicts)):
            count[0] += 1
            if count[0] % round(1 / share) == 0:
                verdicts[index] = Verdict(Outcome.INFRA_ERROR, 0.0, "the worker process was lost twice")
        return verdicts

    return losing


def test_an_outage_of_the_judge_stops_the_run_with_its_state_saved(tmp_path, monkeypatch, undisturbed):
    from dph.verifiers import Verifiers

    begin = loop.RolloutCollector.draw
    outage = at_call(3, lambda: monkeypatch.setattr(Verifiers, "verify", lose(1 / 4)), begin)
    monkeypatch.setattr(loop.RolloutCollector, "draw", outage)
    config = replace(config_of(tmp_path / "run"), checkpoint_every=4)
    with pytest.raises(SharedUserError, match=r"4 of 16 .*\(the worker process was lost"):
        train(config)
    monkeypatch.undo()
    assert checkpoints.newest_intact(tmp_path / "run") == 2
    run = train(config, resume=True)
    assert (run / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()


def test_few_lost_verdicts_leave_their_groups_and_the_run_goes_on(tmp_path, monkeypatch):
    from dph.verifiers import Verifiers

    monkeypatch.setattr(Verifiers, "verify", lose(1 / 16))
    seen = []
    rows = loop.AdvantageEstimator.rows
    monkeypatch.setattr(loop.AdvantageEstimator, "rows", lambda estimator, groups: watched(estimator, groups))

    def watched(estimator, groups):
        made = rows(estimator, groups)
        seen.extend(zip(groups, made, strict=True))
        return made

    lines = read_metrics(train(train_config(tmp_path / "run", "grpo", {"steps": 2}, max_unjudged=0.1)))
    assert [line["unscored"] for line in lines] == [1 / 16, 1 / 16]
    lost = [r for group, _ in seen for r in group.rollouts if r.verdict.outcome is Outcome.INFRA_ERROR]
    assert len(lost) == 2  # one of sixteen in each of two steps
    for group, made in seen:
        assert [row is None for row in made] == [not r.verdict.scored for r in group.rollouts]
        # advantages over those judged alone: (r − mean)/(std + 1e-6), which sum to zero
        assert sum(row.advantage for row in made if row is not None) == pytest.approx(0, abs=1e-5)


def test_a_judge_that_rewards_nothing_is_told_of(tmp_path, monkeypatch, capsys):
    """In the steps 1 and 2, and again in 4, after one that was as it should be."""
    from dph.verifiers import Verifiers

    draw, verify, steps = loop.RolloutCollector.draw, Verifiers.verify, []
    wrong = Verdict(Outcome.WRONG, 0.0, "")
    monkeypatch.setattr(Verifiers, "verify", lambda *of: verify(*of) if len(steps) == 3 else [wrong for _ in of[1]])
    monkeypatch.setattr(loop.RolloutCollector, "draw", lambda *of: steps.append(1) or draw(*of))
    train(train_config(tmp_path, "grpo", {"steps": 4}))
    said = [line for line in capsys.readouterr().err.splitlines() if "every reward is 0" in line]
    assert [line.partition(" (")[0] for line in said] == [
        "step 1: every reward is 0 in this step",
        "step 2: every reward is 0 in 2 steps in a row",
        "step 4: every reward is 0 in this step",
    ]


# Numbers and memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_stay_infinite_stop_the_run(tmp_path, monkeypatch, value):
    rows = loop.AdvantageEstimator.rows

    def poisoned(estimator, groups):
        return [[row and replace(row, advantage=value) for row in group] for group in rows(estimator, groups)]

    monkeypatch.setattr(loop.AdvantageEstimator, "rows", poisoned)
    settings = {"steps": 9, "checkpoint_every": 9, "optim": {"max_skipped": 5}}  # two updates a step
    with pytest.raises(SharedUserError, match="not finite in 6 updates in a row, up to"):
        train(train_config(tmp_path / "run", "grpo", settings))
    assert [line["skipped_updates"] for line in read_metrics(tmp_path / "run")] == [2, 2, 2]
    state = checkpoints.read_state(checkpoints.path_of(tmp_path / "run", 3))
    assert (state.step, state.skipped_in_a_row) == (3, 6)
    with pytest.raises(SharedUserError, match="not finite in 6 updates in a row, up to"):
        train(train_config(tmp_path / "run", "grpo", settings), resume=True)
    with pytest.raises(SharedUserError, match="not finite in 4 updates in a row, up to"):  # all there are
        train(train_config(tmp_path / "short", "grpo", {"steps": 2}))


def test_one_bad_step_is_left_out_and_counted(tmp_path, monkeypatch):
    rows, calls = loop.AdvantageEstimator.rows, []

    def poisoned(estimator, groups):
        calls.append(1)
        first, *others = rows(estimator, groups)
        spoilt = [row and replace(row, advantage=float("nan")) for row in first]
        return [spoilt if len(calls) == 1 else first, *others]

    monkeypatch.setattr(loop.AdvantageEstimator, "rows", poisoned)
    settings = {"steps": 2, "optim": {"max_skipped": 2}}
    assert [line["skipped_updates"] for line in read_metrics(train(train_config(tmp_path, "grpo", settings)))] == [1, 0]


class Memory:
    """Memory that holds micro-batches up to a number of tokens."""

    def __init__(self, monkeypatch, tokens):
        self.refused, forward = 0, Policy.logprobs

        def logprobs(policy, batch, *more, **options):
            if torch.is_grad_enabled() and batch.input_ids.numel() > tokens:
                self.refused += 1
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return forward(policy, batch, *more, **options)

        monkeypatch.setattr(Policy, "logprobs", logprobs)


def test_out_of_memory_halves_the_token_budget_once_and_goes_on(tmp_path, monkeypatch, capsys):
    settings = {**SETTINGS, "optim": {"tokens_per_microbatch": 18}}
    whole = train(train_config(tmp_path / "whole", "dph_js", settings))
    memory = Memory(monkeypatch, 9)
    run = train(train_config(tmp_path / "run", "dph_js", settings))
    assert memory.refused == 1 and "continuing with optim.tokens_per_microbatch 9" in capsys.readouterr().err
    assert checkpoints.read_state(checkpoints.path_of(run, 4)).token_budget == 9  # a resumed run begins with it
    for one, two in zip(read_metrics(whole), read_metrics(run), strict=True):
        # the same responses; sums in another order, and Adam's steps on gradients near zero
        assert two == {name: pytest.approx(value, rel=1e-3, abs=1e-4) for name, value in one.items()}


def test_out_of_memory_twice_names_the_setting(tmp_path, monkeypatch, capsys):
    Memory(monkeypatch, 3)
    config = train_config(tmp_path / "run", "dph_js", {**SETTINGS, "optim": {"tokens_per_microbatch": 18}})
    monkeypatch.setattr(module, "train", lambda *_, **__: train(config))
    with pytest.raises(SystemExit) as caught:
        main(["train", "--out", str(tmp_path / "run"), "--model.path", "m"])
    assert caught.value.code == 2
    assert "out of memory; lower --optim.tokens-per-microbatch" in " ".join(capsys.readouterr().err.split())
