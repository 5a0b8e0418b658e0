"""A world whose answers only a database knows: presampling, training and evaluation call the tool, and say so; a run
that is killed ends like one that is not."""

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dph
from dph.cli.main import main
from dph.models.policy import Policy
from dph.rehearsal.store import read_rehearsal
from dph.runs.directory import read_metrics
from dph.runs.samples import read_kept_samples
from helpers import folder
from tool_world import RESULT, asks, reading

SOURCE, TESTS = Path(dph.__file__).parents[1], Path(__file__).parents[1]
PLUGIN = str(TESTS / "tool_world.py")
TURNS = ["--rollout.turns", "2", "--rollout.tool-tokens", "48"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def words(stage: str, out: Path, *more: str, turns: bool = True) -> list[str]:
    """The words of a command, on a CPU."""
    given = [stage, "--plugin", PLUGIN, "--task.name", "lookup", "--out", str(out), *more]
    if stage == "sft":
        return given
    given += ["--task.options", "folder", str(world() / "databases"), "--model.device", "cpu"]
    given += ["--rollout.max-tokens", "32", "--rollout.max-prompt-tokens", "16", "--verifier.workers", "1"]
    return given + (TURNS if turns else [])


@cache
def world() -> Path:
    """A folder with a model that asks the database of an easy problem, and often guesses the answer of a hard one."""
    here = folder()
    sizes = {"hidden": 64, "layers": 2, "heads": 4, "intermediate": 128, "context": 128}
    new = [word for name, size in sizes.items() for word in (f"--new.{name}", str(size))]
    steps = ["--steps", "300", "--batch", "32", "--demonstrations", "4000", "--optim.tokens-per-microbatch", "4096"]
    main(words("sft", here / "sft", "--new.tokenizer", "word", *new, *steps))
    return here


@cache
def presampled() -> Path:
    out = world() / "presample"
    main(words("presample", out, "--rollout.n", "8", "--threshold", "7", "--model.path", str(world() / "sft/model")))
    return out


def training(out: Path, *more: str) -> list[str]:
    data = ["--model.path", str(world() / "sft/model"), "--rehearsal.path", str(presampled()), "--rehearsal.rows", "4"]
    size = ["--rollout.n", "8", "--rollout.prompts", "4", "--steps", "6", "--optim.minibatches", "2"]
    kept = ["--checkpoint-every", "2", "--monitor.every", "3", "--monitor.split", "test", "--monitor.n", "4"]
    rates = ["--optim.lr", "3e-4", "--optim.warmup-steps", "0"]
    return words("train", out, "--preset", "dph_js", *data, *size, *kept, *rates, *more)


@cache
def trained() -> Path:
    out = world() / "train"
    main(training(out))
    return out


def evaluated(name: str, model: Path, *, turns: bool = True) -> tuple[dict, list[dict]]:
    out = world() / name
    more = ["--task.split", "test", "--rollout.n", "8", "--model.path", str(model)]
    main(words("eval", out, *more, turns=turns))
    metrics = json.loads((out / "scores.json").read_text())["splits"]["test"]["metrics"]
    return {key: value["mean"] for key, value in metrics.items()}, pq.read_table(
        out / "completions.parquet"
    ).to_pylist()


def test_presampling_asks_and_stores_which_tokens_the_policy_wrote():
    run = presampled()
    stored = read_rehearsal(run / "rehearsal.parquet")
    assert len(stored) >= 6 and all(row.problem_id.split("/")[0] == "train" for row in stored)
    columns = pq.read_table(run / "rehearsal.parquet").column_names
    assert columns[-1] == "written"
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["turns"], manifest["tool_tokens"]) == (2, 48)
    tokenizer = of_world().tokenizer
    asked = 0
    for row in stored:
        whole = tokenizer.decode(row.response_ids)
        if row.written is None:
            assert "tool_response" not in whole
            continue
        asked += 1
        parts = {
            mark: [t for t, own in zip(row.response_ids, row.written, strict=True) if own is mark]
            for mark in (True, False)
        }
        read = tokenizer.decode(parts[False])
        assert read == reading(int(row.text)) and whole == f"{asks(key_of(whole))}{read}{row.text}<eos>"
        assert tokenizer.decode(parts[True]) == f"{asks(key_of(whole))}{row.text}<eos>"
        zero = [value == 0.0 for value in row.ref_logprobs]
        assert [not own for own in row.written] == [z and not own for z, own in zip(zero, row.written, strict=True)]
        assert sum(row.ref_logprobs) < 0
    assert asked >= 6


def key_of(transcript: str) -> str:
    return transcript.split("k = '")[1][0]


@cache
def of_world() -> Policy:
    from dph.config import ModelConfig

    return Policy.load(ModelConfig(path=str(world() / "sft/model"), device="cpu"))


def test_training_calls_the_tool_and_counts_what_the_policy_wrote():
    run = trained()
    lines = read_metrics(run)[1:]
    assert [line["step"] for line in lines if "reward" in line] == [1, 2, 3, 4, 5, 6]
    steps = [line for line in lines if "reward" in line]
    assert all(0 < line["tool_calls"] <= 1 and 0.2 < line["tool_share"] < 0.8 for line in steps)
    assert all(0 <= line["tool_errors"] < 1 for line in steps)
    for line in steps:
        drawn = 4 * 8 * line["response_length"]
        assert line["exp/tokens"] == pytest.approx(drawn)  # only what the policy wrote
        assert line["pef/tokens"] < 4 * 24  # four stored responses of about 17 tokens that the policy wrote
    kept = read_kept_samples(run, "rollouts")
    assert any("<tool_response>" in sample.response for sample in kept)
    assert all(sample.tokens <= 32 for sample in kept)


def test_evaluation_needs_the_tool():
    scores, rows = evaluated("eval", world() / "sft/model")
    assert scores["tool_calls"] > 0.5 and 0 < scores["tool_errors"] < 0.5 and 0.3 < scores["tool_share"] < 0.7
    called = [row for row in rows if row["tool_calls"]]
    assert len(called) > len(rows) / 2
    for row in called:
        assert row["transcript"].endswith(row["text"]) and "<tool_response>" in row["transcript"]
        assert "<" not in row["text"]
    assert sum(len(row["text"]) == 1 for row in called) > 0.9 * len(called)
    assert {row["transcript"] == row["text"] for row in rows if not row["tool_calls"]} == {True}
    assert all(RESULT.partition("{")[0] in row["transcript"] for row in called)
    without, plain = evaluated("eval_without", world() / "sft/model", turns=False)
    assert scores["greedy"] >= 0.9 and without["greedy"] <= 0.2
    assert "tool_calls" not in without and "transcript" not in plain[0]


KILLED = """
import os, signal, sys
from dph.cli.main import main
from dph.runs.chunks import Chunks
from dph.sampling.turns import Conversations
from dph.training.update import Updater

place, after = sys.argv[1], int(sys.argv[2])
places = {"update": (Updater, "update"), "call": (Conversations, "_answer"), "turn": (Conversations, "_parts")}
owner, name = places[place]
real, calls = getattr(owner, name), []
def killed(*args, **more):
    calls.append(1)
    if len(calls) == after:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)
setattr(owner, name, killed)
main(sys.argv[3:])
"""


def killed_at(place: str, after: int, command: list[str]) -> None:
    paths = os.pathsep.join([str(SOURCE), str(TESTS), *sys.path])
    given = [sys.executable, "-c", KILLED, place, str(after), *command]
    ended = subprocess.run(given, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def files(run: Path) -> dict[str, bytes]:
    """What a run is: its numbers, weights, responses. Its own path stands in the settings and the card."""
    left_out = ("config.toml", "manifest.json", "timings.jsonl", "README.md")
    found = [file for file in run.rglob("*") if file.is_file() and "tensorboard" not in file.parts]
    return {str(file.relative_to(run)): file.read_bytes() for file in found if file.name not in left_out}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_training_ends_with_the_same_bytes(tmp_path):
    """Killed while a query runs, before a later turn, and in an update."""
    whole = trained()
    command = training(tmp_path / "parts")
    killed_at("update", 3, command)
    killed_at("turn", 2, [*command, "--resume"])
    killed_at("call", 9, [*command, "--resume"])
    main([*command, "--resume"])
    found, expected = files(tmp_path / "parts"), files(whole)
    assert found.keys() == expected.keys() and len(expected) > 10
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_presampling_ends_with_the_same_bytes(tmp_path):
    whole, model = presampled(), str(world() / "sft/model")
    more = ["--rollout.n", "8", "--threshold", "7", "--model.path", model]
    command = words("presample", tmp_path / "parts", *more)
    killed_at("call", 5, command)
    killed_at("turn", 2, [*command, "--resume"])
    main([*command, "--resume"])
    found, expected = files(tmp_path / "parts"), files(whole)
    assert found == expected and {"partition.parquet", "rehearsal.parquet"} <= expected.keys()


def test_what_does_not_fit_is_refused(tmp_path, capsys):
    data = ["--rehearsal.path", str(presampled()), "--rehearsal.rows", "4", "--model.path", str(world() / "sft/model")]
    presampled()
    capsys.readouterr()
    cases = {
        "does not fit this run (turns 2 there, 1 here": words(
            "train", tmp_path / "a", "--preset", "dph_js", *data, turns=False
        ),
        "tool_tokens 48 there, 64 here": [
            *words("train", tmp_path / "b", "--preset", "dph_js", *data),
            "--rollout.tool-tokens",
            "64",
        ],
        "the built-in sampler only": words("train", tmp_path / "c", *data[4:], "--sampler.engine", "vllm"),
        "the bank keeps no responses that called a tool": words("train", tmp_path / "d", "--preset", "bank", *data),
        "leaves no room for a prompt": [*words("presample", tmp_path / "e", *data[4:]), "--rollout.turns", "9"],
        "the marks around a result take": [
            *words("presample", tmp_path / "f", *data[4:]),
            "--rollout.tool-tokens",
            "8",
        ],
    }
    for sentence, command in cases.items():
        with pytest.raises(SystemExit) as end:
            main(command)
        said = capsys.readouterr().err
        assert end.value.code == 2 and sentence in " ".join(said.split()), said
