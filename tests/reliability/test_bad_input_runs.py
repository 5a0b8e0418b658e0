"""The table of bad input, part 3: models, presampled sets, interrupted runs, evaluations, files of predictions.

Each case is a whole run directory with one thing damaged; it ends with exit status 2 and one sentence about it.
"""

import functools
import hashlib
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from complaints import complaint, run
from dph.cli.main import main
from dph.rehearsal.presampled import file_hashes
from helpers import base_run, folder, presampled

TOY = ["--task.name", "toy", "--rollout.max-tokens", "4", "--rollout.n", "2"]
DEEP = "[" * 100_000


def train_words(out, *more, preset="grpo", model=None):
    words = ["train", "--preset", preset, *TOY, "--rollout.prompts", "2", "--steps", "2", "--checkpoint-every", "1"]
    return [*words, "--model.path", model or base_run() / "model", "--out", out, *more]


@functools.cache
def trained():
    """A complete training run with two checkpoints."""
    out = folder() / "train"
    main([str(word) for word in train_words(out)])
    return out


@functools.cache
def evaluated():
    """A complete evaluation."""
    out = folder() / "eval"
    main([str(word) for word in ["eval", *TOY, "--model.path", base_run() / "model", "--label", "base", "--out", out]])
    return out


def text(name, content):
    """Damage that replaces a file; None removes it."""

    def damage(path):
        if content is None:
            (path / name).unlink()
        else:
            (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return damage


def entries(name, **values):
    """Damage that changes entries of a JSON file."""

    def damage(path):
        (path / name).write_text(json.dumps(json.loads((path / name).read_text()) | values))

    return damage


def column(name, key, value):
    """Damage that changes a column of a Parquet file."""

    def damage(path):
        rows = pq.read_table(path / name).to_pylist()
        changed = [{**row, key: value(row[key]) if callable(value) else value} for row in rows]
        pq.write_table(pa.Table.from_pylist(changed), path / name)

    return damage


def damaged(source, damage, path):
    shutil.copytree(source, path)
    damage(path)
    return path


# Models ------------------------------------------------------------------------------------------------------------

MODELS = {
    "no settings": (text("config.json", None), "cannot load a model from"),
    "settings that are no JSON": (text("config.json", "{"), "config.json is damaged (Expecting property name"),
    "a list of settings": (text("config.json", "[]"), "cannot load a model from"),
    "a kind that is not known": (entries("config.json", model_type="nope"), "has model type `nope`"),
    "an encoder and a decoder": (
        entries("config.json", model_type="t5", architectures=["T5ForConditionalGeneration"]),
        "its type is t5 (T5ForConditionalGeneration), but only causal language models",
    ),
    "a decoder with an encoder": (
        entries("config.json", model_type="bart", architectures=["BartModel"], is_encoder_decoder=True),
        "its type is bart (BartModel), but only causal language models",
    ),
    "an encoder, which would load": (
        entries("config.json", model_type="bert", architectures=["BertForMaskedLM"]),
        "its type is bert (BertForMaskedLM), but only causal language models",
    ),
    "another width": (entries("config.json", hidden_size=16), "cannot load a model from"),
    "one layer more": (entries("config.json", num_hidden_layers=3), "lack 9 of the weights that its config.json"),
    "another vocabulary": (entries("config.json", vocab_size=5), "cannot load a model from"),
    "no weights": (text("model.safetensors", None), "no file named model.safetensors"),
    "empty weights": (text("model.safetensors", ""), "header too small"),
    "noise for weights": (text("model.safetensors", "noise" * 99), "header too large"),
    "no tokenizer": (text("tokenizer.json", None), "it holds no tokenizer; save its base model's"),
    "a tokenizer that is no JSON": (text("tokenizer.json", "{"), "cannot load a model from"),
    "an empty tokenizer": (text("tokenizer.json", "{}"), "cannot load a model from"),
    "settings nested too deeply": (text("config.json", DEEP), "cannot load a model from"),
    "a tokenizer nested too deeply": (text("tokenizer.json", DEEP), "cannot load a model from"),
    "a tokenizer's settings nested too deeply": (text("tokenizer_config.json", DEEP), "cannot load a model from"),
    "generation settings nested too deeply": (text("generation_config.json", DEEP), "cannot load a model from"),
    "a template that refuses": (
        entries("tokenizer_config.json", chat_template="{{ raise_exception('no') }}"),
        "the tokenizer's chat template rejects the prompt: no",
    ),
    "code of its own": (
        entries("config.json", model_type="own", auto_map={"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}),
        "contains custom code which must be executed",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(tmp_path, capsys, name):
    damage, expected = MODELS[name]
    model = damaged(base_run() / "model", damage, tmp_path / "model")
    assert expected in complaint(capsys, *train_words(tmp_path / "run", model=model))


# Presampled sets ---------------------------------------------------------------------------------------------------


def signed(damage):
    """Damage after which the manifest says that the files are as they were written."""

    def both(path):
        damage(path)
        entries("manifest.json", files=file_hashes(path))(path)

    return both


def no_partition(path):
    pq.write_table(pa.table({"x": [1]}), path / "partition.parquet")


R = "rehearsal.parquet"
SETS = {
    "a list for a manifest": (text("manifest.json", "[]"), "manifest.json names no stage; run `dph presample` again"),
    "half a manifest": (text("manifest.json", '{"stage"'), "manifest.json is damaged"),
    "a manifest nested too deeply": (text("manifest.json", DEEP), "manifest.json is damaged (it is nested too"),
    "no manifest": (text("manifest.json", None), "is not a run directory of `dph presample`"),
    "a run that is not complete": (
        entries("manifest.json", status="running"),
        "is not complete; run `dph presample",
    ),
    "no hashes": (entries("manifest.json", files=3), "does not say what its files hold"),
    "a file that was exchanged": (text(R, b"PAR1"), "is not the file that the run wrote"),
    "no file": (
        text("partition.parquet", None),
        "partition.parquet cannot be read: No such file or directory; run `dph presample` again",
    ),
    "another temperature": (entries("manifest.json", temperature=0.5), "(temperature 0.5 there, 1.0 here)"),
    "another top-p": (entries("manifest.json", top_p=0.9), "(top_p 0.9 there, 1.0 here)"),
    "another model": (entries("manifest.json", weight_hash="x"), "(weight_hash 'x' of "),
    "another tokenizer": (entries("manifest.json", tokenizer_hash="x"), "(tokenizer_hash 'x' of "),
    "another task": (entries("manifest.json", task={"name": "x", "split": "train"}), "was made for another task"),
    "no table": (signed(text(R, b"PAR1")), "cannot be read"),
    "no number": (signed(column(R, "ref_logprobs", lambda old: [float("nan")] * len(old))), "is damaged in row 1"),
    "a token too many": (signed(column(R, "response_ids", lambda old: [*old, 1])), "is damaged in row 1"),
    "tokens beyond the model": (signed(column(R, "response_ids", lambda old: [99] * len(old))), "tokens beyond the"),
    "other numbers": (
        signed(column(R, "ref_logprobs", lambda old: [value - 3 for value in old])),
        "differ from this model's by 3.0 nats, so they are not its own",
    ),
    "numbers as texts": (signed(column(R, "response_ids", ["1"])), "is damaged in row 1"),
    "other columns": (signed(no_partition), "run `dph presample` again"),
    "no set": (signed(column("partition.parquet", "set", "none")), "left no prompt to explore"),
}


@pytest.mark.parametrize("name", SETS)
def test_presampled_sets(tmp_path, capsys, name):
    damage, expected = SETS[name]
    path = damaged(presampled(), damage, tmp_path / "set")
    words = train_words(tmp_path / "run", "--rehearsal.rows", "2", "--rehearsal.path", path, preset="dph_js")
    assert expected in complaint(capsys, *words)


def test_versions_that_are_no_versions_do_not_matter(tmp_path, capsys):
    path = damaged(presampled(), entries("manifest.json", versions=3), tmp_path / "set")
    words = train_words(tmp_path / "run", "--rehearsal.rows", "2", "--rehearsal.path", path, preset="dph_js")
    assert run(capsys, *words, "--steps", "0")[0] == 0


# Interrupted runs --------------------------------------------------------------------------------------------------


def checkpoints(damage, *, sign=True):
    """Damage to every checkpoint; sign: the checksums say that it was written so."""

    def each(path):
        for step in (path / "checkpoints").glob("step-*"):
            damage(step)
            if sign:
                files = [file for file in step.rglob("*") if file.is_file() and file.name != "checksums.json"]
                sums = {f.relative_to(step).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
                (step / "checksums.json").write_text(json.dumps(sums))

    return each


def unpickled(step):
    torch.save({}, step / "model" / "pytorch_model.bin")
    (step / "model" / "model.safetensors").unlink()


def lose_a_weight(step):
    save_file({"x": torch.ones(1)}, step / "model" / "model.safetensors", {"format": "pt"})


STATES = {
    "damaged": (
        checkpoints(text("state.json", "{"), sign=False),
        "(state.json is not as it was written), and no",
    ),
    "no checksums": (checkpoints(text("checksums.json", "[]"), sign=False), "checksums.json cannot be used"),
    "a state of other names": (checkpoints(text("state.json", '{"zzz": 1}')), "unexpected keyword argument 'zzz'"),
    "a state of other types": (checkpoints(text("state.json", '{"step": "x"}')), "step is 'x'"),
    "a step before the first": (checkpoints(text("state.json", '{"step": -4}')), "step is -4"),
    "a state nested too deeply": (checkpoints(text("state.json", DEEP)), "state.json is damaged (it is nested"),
    "checksums nested too deeply": (checkpoints(text("checksums.json", DEEP), sign=False), "checksums.json is damaged"),
    "a note of its inputs nested too deeply": (text("inputs.json", DEEP), "inputs.json is damaged (it is nested"),
    "no state": (checkpoints(text("state.json", "[1]")), "state.json of"),
    "pickled weights": (checkpoints(unpickled), "are pickled (pytorch_model.bin)"),
    "lost weights": (checkpoints(lose_a_weight), "of the weights that its config.json describes"),
    "noise for moments": (checkpoints(text("trainer.safetensors", "noise" * 9)), "does not fit this run"),
    "settings that are gone": (text("config.toml", None), "config.toml is missing; restore it, or start a new run"),
    "settings of another version": (text("config.toml", "zzz = 1"), "have an unknown key 'zzz'"),
    "a manifest in another encoding": (text("manifest.json", b"\xff"), "manifest.json is damaged"),
    "no note of its inputs": (
        text("inputs.json", None),
        "inputs.json cannot be read: No such file or directory; start a new run",
    ),
    "a list for its inputs": (text("inputs.json", "[]"), "inputs.json cannot be used"),
}


def reopened(damage):
    def both(path):
        entries("manifest.json", status="running")(path)
        damage(path)

    return both


@pytest.mark.parametrize("name", STATES)
def test_interrupted_runs(tmp_path, capsys, name):
    damage, expected = STATES[name]
    path = damaged(trained(), reopened(damage), tmp_path / "run")
    assert expected in complaint(capsys, *train_words(path, "--resume"))


@pytest.mark.parametrize(
    "content", [b"noise\n", DEEP.encode(), b"[]\n", b"{}\n", b"\xff\xfe", b'{"step": 1, "reward": "much"}\n']
)
def test_a_damaged_log_does_not_stop_a_run(tmp_path, capsys, content):
    path = damaged(trained(), reopened(text("metrics.jsonl", content)), tmp_path / "run")
    text("coverage.jsonl", content)(path)
    assert run(capsys, *train_words(path, "--resume"))[0] == 0
    assert (path / "metrics.jsonl").read_text() == ""  # what is not a run's line is dropped


# Reports -----------------------------------------------------------------------------------------------------------

SPLIT = {"problems": 1, "samples": 2, "metrics": {}, "pass_curve": {}, "style_shares": {}}


def split(**values):
    return entries("scores.json", splits={"test": SPLIT | values})


def value(mean):
    return {"mean": mean, "low": 0.25, "high": 0.75}


P, C = "problems.parquet", "completions.parquet"
EVALUATIONS = {
    "half a file of scores": (text("scores.json", "{"), "scores.json is damaged"),
    "no scores": (text("scores.json", "null"), "scores.json is damaged"),
    "scores nested too deeply": (text("scores.json", DEEP), "scores.json is damaged (it is nested too deeply)"),
    "no split": (entries("scores.json", splits={}), "scores.json holds no split"),
    "a word for a number": (split(problems="x"), "scores.json is damaged (ValueError"),
    "a word for a metric": (split(metrics={"greedy": value("x")}), "scores.json is damaged (ValueError"),
    "an infinite metric": (split(pass_curve={"1": value(1e999)}), "scores.json is damaged (ValueError: inf is neither"),
    "a share that is no number": (split(style_shares={"a": float("nan")}), "scores.json is damaged (ValueError"),
    "no samples": (split(pass_curve={"0": value(0.5)}), "scores.json is damaged (ValueError: there is no pass@0)"),
    "a word for k": (split(pass_curve={"x": value(1)}), "scores.json is damaged (ValueError"),
    "no problems": (text(P, None), "problems.parquet is missing; delete the run's directory and run `dph eval` again"),
    "noise for problems": (text(P, "noise"), "problems.parquet is damaged"),
    "no count": (column(P, "samples", None), "problems.parquet is damaged (row 1: samples is None)"),
    "a word for a count": (column(P, "correct", "x"), "problems.parquet is damaged (row 1: correct is 'x')"),
    "no id": (column(P, "id", None), "problems.parquet is damaged (row 1: id is None)"),
    "no completions": (text(C, None), "completions.parquet is missing"),
    "a number for a text": (column(C, "text", 3), "text is 3"),
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_evaluations(tmp_path, capsys, name):
    damage, expected = EVALUATIONS[name]
    path = damaged(evaluated(), damage, tmp_path / "eval")
    assert expected in complaint(capsys, "report", "--runs", path, "--out", tmp_path / "report")


CURVES = {
    "no lines": (text("metrics.jsonl", "noise"), "has no lines yet"),
    "lines of another kind": (text("metrics.jsonl", '{"reward": 1}\n'), "has no lines yet"),
    "no settings": (text("config.toml", None), "cannot read the settings file"),
    "no manifest": (text("manifest.json", None), "is not a run directory of `dph train`"),
}


@pytest.mark.parametrize("name", CURVES)
def test_training_runs_in_a_report(tmp_path, capsys, name):
    damage, expected = CURVES[name]
    path = damaged(trained(), damage, tmp_path / "train")
    assert expected in complaint(capsys, "report", "--runs", evaluated(), path, "--out", tmp_path / "report")


def test_what_is_no_run_in_a_report(tmp_path, capsys):
    for path, expected in (
        (tmp_path / "nothing", "there is no run directory"),
        (tmp_path, "is not a finished run of `dph eval`, `dph verify` or `dph train`"),
        (trained(), "a report needs at least one run directory of `dph eval`"),
    ):
        assert expected in complaint(capsys, "report", "--runs", path, "--out", tmp_path / "report")
    (tmp_path / "runs").mkdir()
    for name in ("b c", "a"):
        shutil.copytree(evaluated(), tmp_path / "runs" / name)
    message = complaint(capsys, "report", tmp_path / "runs", "--out", tmp_path / "report")
    assert message.endswith(f"; name the runs in it: {tmp_path}/runs/a '{tmp_path}/runs/b c'")
    (tmp_path / "file").write_text("")
    message = complaint(capsys, "report", "--runs", evaluated(), "--out", tmp_path / "file")
    assert message.endswith("file: Not a directory; a file is in the place of a folder: use another path")
