"""Training with the bank: admitted and rehearsed, resumed byte by byte after kills, and what is refused."""

import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from complaints import complaint
from dph.config import to_toml
from dph.errors import RunError, SettingsError, SharedUserError
from dph.rehearsal import bank_files
from dph.rehearsal.bank_files import BankFiles
from dph.runs.directory import read_metrics
from dph.stages.presample import presample
from dph.stages.train import train
from dph.tasks import register_task
from dph.training import banking, loop
from dph.types import Problem
from helpers import base_run, folder, interrupted_at, presample_config, presampled, train_config

ONLINE = {"rollout": {"temperature": 3.0}, "bank": {"key": "text", "capacity": 2}, "rehearsal": {"path": ""}}
"""At this temperature the toy's model answers in many ways."""


TOKENS = 60


def short(prompt, completion, **columns):
    """Any response of at most two words is right."""
    return float(len(completion.split()) <= 2)


def bank_config(out, settings=None, *, method="bank_online", **changes):
    return train_config(out, method, {**ONLINE, "steps": 5, **(settings or {})}, **changes)


def outcome(run):
    """What must not depend on interruptions: metrics, weights, and the bank with its last checkpoint, as bytes."""
    names = ("metrics.jsonl", "coverage.jsonl", "model/model.safetensors")
    last = sorted((run / "checkpoints").glob("step-*"))[-1]
    of_last = [last / name for name in ("bank.parquet", "bank_new.parquet", "bank_files.json")]
    files = [*(run / name for name in names), *(run / "bank").iterdir(), *of_last]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def admitted(run):
    """What each step of a finished run admitted."""
    found = defaultdict(list)
    for file in sorted((run / "bank").iterdir()):
        for row in pq.read_table(file).to_pylist():
            assert row["found"] <= int(file.stem[5:])
            found[row["found"]].append(row)
    return found


@pytest.fixture(autouse=True, scope="module")
def small_files():
    """A file of the bank every two or three steps of these runs, so that checkpoints have new entries beside files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bank_files, "TOKENS_OF_A_FILE", TOKENS)
        yield


@pytest.fixture(scope="module")
def whole():
    """An undisturbed run."""
    return train(bank_config(folder() / "whole"), reward=short)


def test_rollouts_are_admitted_and_rehearsed(whole, monkeypatch, tmp_path):
    """Each step rehearses what earlier steps admitted, and nothing else; the log-probabilities are the drawing
    policy's."""
    lines, found = read_metrics(whole), admitted(whole)
    assert [line["bank/new"] for line in lines] == [len(found.get(step, ())) for step in range(1, 6)]
    assert lines[0]["pef/tokens"] == 0 < min(line["pef/tokens"] for line in lines[1:])
    assert all(len(row["response_ids"]) == len(row["ref_logprobs"]) for rows in found.values() for row in rows)
    every = [row for rows in found.values() for row in rows]
    assert all(short("", row["text"]) and row["mode"] == " ".join(row["text"].split()) for row in every)
    problems = {row["problem_id"] for row in every}
    assert lines[-1]["bank/problems"] == len(problems) and lines[-1]["bank/modes"] <= 2 * len(problems)
    assert len(every) > lines[-1]["bank/modes"]  # some gave way
    files = sorted(int(file.stem[5:]) for file in (whole / "bank").iterdir())
    assert files[-1] == 5 and 1 < len(files) < len(found)  # fewer than steps that admitted any
    seen = []
    mix = loop.mix
    monkeypatch.setattr(loop, "mix", lambda *given, **how: seen.append((given[3], how)) or mix(*given, **how))
    again = train(bank_config(tmp_path / "again"), reward=short)
    assert outcome(again) == outcome(whole)
    for step, (stored, how) in enumerate(seen, 1):
        before = [(row["problem_id"], row["text"]) for earlier in range(step) for row in found.get(earlier, ())]
        assert how == {"even": True} and {(row.problem_id, row.text) for row in stored} <= {*before}
        assert len(stored) == len({(row.problem_id, row.text) for row in stored}) == (6 if step > 1 else 0)


def test_the_stored_logprobs_are_those_of_the_policy_that_drew_them(tmp_path):
    """At the first step that is the initial policy: u = 1 when it is rehearsed before any update."""
    settings = {"steps": 2, "optim": {"lr": 0.0, "minibatches": 1}, "loss": {"divergence": "forward_kl"}}
    for name, rollout in (("sampler", {}), ("recomputed", {"old_logprobs": "recompute"})):
        run = train(bank_config(tmp_path / name, settings | {"rollout": {"temperature": 3.0, **rollout}}), reward=short)
        line = read_metrics(run)[1]
        assert line["pef/tokens"] > 0 and abs(line["pef/log_ratio"]) < 1e-5 and line["pef/divergence"] < 1e-5


def test_a_bank_begins_with_the_stored_responses(tmp_path, capsys):
    run = train(train_config(tmp_path, "bank", {"bank": {"key": "tokens"}, "steps": 3}))
    stored = pq.read_table(presampled() / "rehearsal.parquet").to_pylist()
    begun = admitted(run)[0]
    assert [{name: row[name] for name in stored[0]} for row in begun] == stored and len(stored) == 6
    first = read_metrics(run)[0]
    assert first["pef/tokens"] == 12.0 and first["bank/modes"] == 6 + first["bank/new"]
    assert "the bank begins with 6 ways to solve 6 problems" in capsys.readouterr().err


@pytest.mark.parametrize("divergence", ["js", "forward_kl", "alpha"])
def test_any_divergence_of_the_registry_rehearses_the_bank(tmp_path, divergence):
    settings = {"loss": {"divergence": divergence}, "steps": 3}
    lines = read_metrics(train(bank_config(tmp_path, settings), reward=short))
    assert lines[-1]["pef/tokens"] > 0 and lines[-1]["pef/divergence"] > 0


def test_dropped_groups_are_admitted_too(tmp_path):
    """Dynamic sampling drops groups that are all correct; what they solve is found all the same."""
    settings = {"dynamic_sampling": {"enabled": True, "max_attempts": 2}, "steps": 2}
    run = train(bank_config(tmp_path, settings), reward=lambda prompt, completion, **_: 1.0)
    lines = read_metrics(run)
    assert lines[0]["groups"] == 0 and lines[0]["bank/problems"] > 4  # nothing was kept of two rounds


INTERRUPTED = [
    *((place, call) for place in [(loop.Updater, "update"), (banking.Banking, "commit")] for call in (2, 3, 4)),
    *((place, call) for place in [(BankFiles, "write"), (loop, "mix")] for call in (3, 4)),
    *(((BankFiles, name), 1) for name in ("_write_file", "finish")),
]


@pytest.mark.parametrize(("where", "call"), INTERRUPTED, ids=[f"{name}-{call}" for (_, name), call in INTERRUPTED])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(whole, tmp_path, monkeypatch, where, call):
    config = bank_config(tmp_path / "parts")
    with monkeypatch.context() as patch:
        patch.setattr(*where, interrupted_at(getattr(*where), call))
        with pytest.raises(KeyboardInterrupt):
            train(config, reward=short)
    assert outcome(train(config, resume=True, reward=short)) == outcome(whole)


def test_a_begun_bank_resumes_and_a_longer_run_is_one_run(tmp_path, monkeypatch):
    settings = {"bank": {"key": "every", "capacity": 3}, "steps": 4}
    whole = train(train_config(tmp_path / "whole", "bank", settings))
    short_one = train(train_config(tmp_path / "parts", "bank", {**settings, "steps": 2}))
    config = train_config(tmp_path / "parts", "bank", settings)
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 2))
    with pytest.raises(KeyboardInterrupt):
        train(config, resume=True)
    monkeypatch.undo()
    assert train(config, resume=True) == short_one and outcome(short_one) == outcome(whole)


KILLED = """
import os, random, shutil, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)  # a forked process has no other threads
import helpers, pyarrow.parquet as pq
from dph.config import TrainConfig, from_dict, read_settings
from dph.rehearsal import bank_files
from dph.rehearsal.bank_files import BankFiles
from dph.runs.directory import RunDir
from dph.stages.train import train
from dph.training import checkpoints
from dph.training.banking import Banking
from dph.training.update import Updater
from test_train_bank import TOKENS, short

bank_files.TOKENS_OF_A_FILE = TOKENS
PLACES = [(BankFiles, "write"), (BankFiles, "_write_file"), (BankFiles, "finish"), (BankFiles, "save"),
          (pq, "write_table"), (os, "replace"), (Updater, "update"), (Banking, "commit"), (RunDir, "log"),
          (checkpoints, "save")]

def kill_at(owner, name, call, after):
    real, calls = getattr(owner, name), []
    def outer(*args, **more):
        calls.append(1)
        if len(calls) == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **more)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, outer)

config, draw, kills = from_dict(TrainConfig, read_settings(Path(sys.argv[1]))), random.Random(int(sys.argv[2])), []
for attempt in range(40):
    place, call, after = draw.choice(PLACES), draw.randint(1, 3), draw.random() < 0.5
    child = os.fork()
    if child == 0:
        if attempt < 10:
            kill_at(*place, call, after)
        train(config, resume=Path(config.out).exists(), reward=short)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        kills.append(f"{place[1]} {call} {'after' if after else 'before'}")
    else:
        assert os.WEXITSTATUS(status) == 0
        if len(kills) >= 3:
            break
        kills.clear()  # it got through because a place is reached less often
        shutil.rmtree(config.out)
print(len(kills), kills)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_killed_at_random_points_ends_like_an_undisturbed_one(whole, tmp_path, seed):
    """Before and after admission, the writing of a file, its renaming, the update, the metrics' line, a checkpoint."""
    config = bank_config(tmp_path / "killed")
    (tmp_path / "settings.toml").write_text(to_toml(config), encoding="utf-8")
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent), *sys.path])
    words = [sys.executable, "-c", KILLED, str(tmp_path / "settings.toml"), str(seed)]
    ended = subprocess.run(words, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout.split()[0]) >= 3, ended.stdout
    assert outcome(tmp_path / "killed") == outcome(whole)


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_damaged_file_of_the_bank_stops_a_resume_by_its_name(tmp_path, monkeypatch):
    config = bank_config(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 4))
        with pytest.raises(KeyboardInterrupt):
            train(config, reward=short)
    file = sorted((tmp_path / "run" / "bank").iterdir())[0]
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=rf"{file.name} is not the file that the run wrote"):
        train(config, resume=True, reward=short)


def test_graded_rewards_need_a_threshold(tmp_path):
    def graded(prompt, completion, **columns):
        return 0.4 if len(completion.split()) > 1 else 1.0

    with pytest.raises(SharedUserError, match=r"pays graded rewards \(0\.4\), and nobody said .* reward\.correct_from"):
        train(bank_config(tmp_path / "default"), reward=graded)
    chosen = bank_config(tmp_path / "chosen", {"reward": {"correct_from": 0.3}, "steps": 1})
    assert read_metrics(train(chosen, reward=graded))[0]["bank/modes"] > 4


def test_what_contradicts_a_bank_is_refused():
    with pytest.raises(SettingsError, match=r"bank\.key is 'text' but rehearsal\.rows is 0"):
        bank_config("x", {"rehearsal": {"rows": 0}})
    with pytest.raises(SettingsError, match=r"estimator 'definition' compares with one reference policy"):
        bank_config("x", {"loss": {"estimator": "definition", "divergence": "js"}})
    with pytest.raises(SettingsError, match=r"needs a presampled partition"):
        train(train_config(Path("x"), "bank", {"rehearsal": {"path": ""}}))
    bank_config("x").check_ready()  # an empty bank needs none


@register_task("test_plain")
class PlainTask:
    """The toy's prompts, without styles."""

    def problems(self, split):
        return [Problem(f"{split}/{i}", f"easy {i}", "yes", "exact") for i in range(8)]

    def style(self, problem, response):
        return None


def test_a_key_that_the_task_lacks_another_model_or_task_and_no_such_key_are_one_sentence(tmp_path, capsys):
    words = ["train", "--preset", "bank_online", "--model.path", base_run() / "model", "--model.device", "cpu"]
    words += ["--rollout.max-tokens", 4, "--rollout.max-prompt-tokens", 8, "--out", tmp_path / "run"]
    plain = [*words, "--task.name", "test_plain"]
    said = complaint(capsys, *plain)
    assert said.startswith("bank.key is 'style', but the task has no canonical form of solutions") and "'exact'" in said
    assert "no bank key is named 'route'" in complaint(capsys, *plain, "--bank.key", "route")
    assert "bank.capacity is 0; it must be at least 1" in complaint(capsys, *plain, "--bank.capacity", 0)
    begun = [*words, "--task.name", "toy", "--preset", "bank", "--rehearsal.path", presampled()]
    assert "does not fit this run (temperature" in complaint(capsys, *begun, "--rollout.temperature", 0.5)
    assert "was made for another task" in complaint(
        capsys, *plain, "--preset", "bank", "--bank.key", "text", "--rehearsal.path", presampled()
    )
    other = presample(presample_config(tmp_path / "other"))
    (other / "rehearsal.parquet").write_bytes(b"PAR1")
    assert "is not the file that the run wrote" in complaint(capsys, *begun[:-1], other)
    assert not (tmp_path / "run").exists()


def test_a_bank_of_another_model_is_refused(tmp_path):
    from helpers import tiny_policy

    tiny_policy().save(tmp_path / "other")
    config = train_config(tmp_path / "run", "bank")
    with pytest.raises(RunError, match=r"does not fit this run.*weight_hash"):
        train(replace(config, model=replace(config.model, path=str(tmp_path / "other"))))
