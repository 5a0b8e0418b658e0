"""The command line: every mistake is one sentence and exit status 2, help is quick, and flags reach the stages. What a
command loads before it does its work.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError

import dph
from complaints import complaint, run
from dph.cli.arguments import read_words
from dph.cli.main import COMMANDS, main
from dph.config import STAGES
from dph.errors import RunError, UserError, refused
from dph.models.card import save_with_card
from helpers import base_run, presampled, tiny_policy

TOY = ["--task.name", "toy", "--rollout.max-tokens", "4", "--rollout.n", "2", "--rollout.prompts", "2"]


@pytest.fixture
def base():
    return base_run() / "model"


# Mistakes before a stage begins -------------------------------------------------------------------------------------

WORDS = {
    "unknown command": (
        ["trian"],
        "no command is named 'trian'; perhaps you meant train; known are: demo, init, check",
    ),
    "unknown preset": (["train", "--preset", "grop"], "no preset is named 'grop'; perhaps you meant grpo; known are"),
    "preset in capitals": (["train", "--preset", "GRPO"], "no preset is named 'GRPO'; perhaps you meant grpo; known"),
    "a word for help": (["help"], "no command is named 'help'; perhaps you meant --help; known are"),
    "seed of 80 bits": (["sft", "--seed", "9" * 24], "it must be a whole number of 64 bits"),
    "preset without a value": (["train", "--preset"], "argument --preset: expected one argument"),
    "short flag before a flag": (["train", "--data", "--resume", "x"], "argument --data: expected one argument"),
    "preset before a flag": (["train", "--preset", "--resume"], "argument --preset: expected one argument"),
    "unknown plug-in": (
        ["train", "--plugin", "no_such_module"],
        "cannot import the plug-in 'no_such_module': ModuleNotFoundError: No module",
    ),
    "missing plug-in": (["train", "--plugin=nothing.py"], "cannot import the plug-in 'nothing.py'"),
    "missing settings": (
        ["train", "--config", "nothing.toml"],
        "cannot read the settings file nothing.toml: No such file or directory; correct the path",
    ),
    "settings that are a folder": (
        ["train", "--config", "/"],
        "cannot read the settings file /: Is a directory; correct",
    ),
    "number out of range": (["eval", "--rollout.top-p", "0"], "rollout.top_p is 0.0; it must be above 0 and at most 1"),
    "no directory": (["train", "--loss.eta", "0"], "no run directory was named; add --out DIRECTORY"),
    "no directory, sft": (["sft"], "no run directory was named"),
    "no directory, presample": (["presample", "--rollout.n", "8"], "no run directory was named"),
    "no directory, eval": (["eval"], "no run directory was named"),
    "no runs": (["report"], "dph report needs runs and a directory to write"),
    "unknown method": (
        ["demo", "--methods", "grop"],
        "no method preset is named 'grop'; perhaps you meant grpo; known are: alpha, ",
    ),
    "rows without eta": (
        ["train", "--out", "x", "--loss.eta", "0", "--rehearsal.rows", "4"],
        "rehearsal.rows is 4 but loss.eta is 0, so stored responses would have no effect; set loss.eta above 0",
    ),
    "no partition": (["train", "--preset", "exp_only", "--out", "x"], "method 'exp_only' needs a presampled partition"),
    "impossible threshold": (
        ["presample", "--out", "x", "--threshold", "9", "--rollout.n", "8"],
        "threshold 9 must lie between 1 and rollout.n = 8",
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_mistake_is_one_sentence(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    words, expected = WORDS[name]
    assert expected in complaint(capsys, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--steps", "many"], "argument --steps: invalid int value"),
        (["--steps"], "argument --steps: expected one argument"),
        (["--prompt-set", "some"], "argument --prompt-set: invalid choice"),
        (["--stepps", "3"], "unrecognized arguments: --stepps 3"),
        (["--loss.aggregation", "mean"], "argument --loss.aggregation: invalid choice"),
        (["--task.options", "a"], "argument --task.options: expected pairs"),
        (["word"], "unrecognized arguments: word"),
        (["--task.shuffle=true"], "argument --task.shuffle"),
    ],
)
def test_flags_of_the_settings_are_checked(capsys, words, expected):
    message = complaint(capsys, "train", *words)
    assert message.startswith(expected) and message.endswith("; `dph train --help` lists all flags")


MEANT = {
    "--model": "--model.path",
    "--rehearsal": "--rehearsal.path",
    "--lr": "--optim.lr",
    "--top-p": "--rollout.top-p",
}
MEANT |= {"--n": "--rollout.n or --monitor.n", "--max_tokens=9": "--rollout.max-tokens"}


@pytest.mark.parametrize(
    ("word", "meant"),
    [("--stepps", "--steps"), ("--task.shuffel=1", "--task.shuffle"), ("--presets", "--preset"), *MEANT.items()],
)
def test_a_similar_flag_is_suggested(capsys, word, meant):
    assert f"; perhaps you meant {meant};" in complaint(capsys, "train", word)


def test_a_mistake_in_a_settings_file_is_named(tmp_path, capsys):
    file = tmp_path / "a.toml"
    file.write_text("[rollout]\nsamples = 3\n")
    assert "'rollout' has an unknown key 'samples'" in complaint(capsys, "train", "--config", file)
    file.write_text("[train.rollout]\nsamples = 3\n")
    assert f"{file} under 'rollout' have an unknown key 'samples'" in complaint(capsys, "train", "--config", file)
    file.write_text("steps = 'many'\n")
    assert f"the settings in {file}: 'steps' must be of type int" in complaint(capsys, "train", "--config", file)


# Mistakes that a stage finds ----------------------------------------------------------------------------------------


def train_words(out, *more, model=None):
    return ["train", "--preset", "grpo", *TOY, "--model.path", model or base_run() / "model", "--out", out, *more]


def test_models_that_are_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "no model was named; add --model.path" in complaint(capsys, "eval", *TOY[:6], "--out", tmp_path / "a")
    message = complaint(capsys, *train_words(tmp_path / "b", model="nobody/no-such-model"))
    assert "cannot load the model 'nobody/no-such-model': there is no such directory, and downloading it" in message
    message = complaint(capsys, *train_words(tmp_path / "c", model=tmp_path))
    assert f"cannot load a model from {tmp_path}" in message


@pytest.mark.parametrize(
    ("files", "named", "meant"),
    [
        (["model"], "run", "model"),
        (
            ["checkpoints/step-00000002/model", "checkpoints/step-00000010/model"],
            "run",
            "checkpoints/step-00000010/model",
        ),
        (["checkpoints/step-00000002/model"], "run/checkpoints", "checkpoints/step-00000002/model"),
        (["checkpoints/step-00000002/model"], "run/checkpoints/step-00000002", "checkpoints/step-00000002/model"),
    ],
)
def test_a_runs_folder_in_the_place_of_its_model(tmp_path, monkeypatch, capsys, files, named, meant):
    monkeypatch.chdir(tmp_path)
    for file in files:
        (tmp_path / "run" / file).mkdir(parents=True)
        (tmp_path / "run" / file / "config.json").write_text("{}")
    begin, end = f"cannot load a model from {named}: it holds no config.json", f"did you mean --model.path run/{meant}?"
    for stage in ("eval", "sft", "verl"):
        assert complaint(capsys, stage, "--out", "out", "--model.path", named) == f"{begin}; {end}"
    (tmp_path / "run" / "manifest.json").write_text('{"stage": "train", "status": "running"}')
    finish = "the run is unfinished: `dph train --resume --out run` continues it"
    if named == "run" and meant != "model":
        assert complaint(capsys, "eval", "--out", "out", "--model.path", "run") == f"{begin}; {finish}; {end}"
        message = complaint(capsys, "eval", "--out", "out", "--model.path", "run/model")
        assert message == f"there is no model directory {tmp_path / 'run' / 'model'}; {finish}; {end}"
        (tmp_path / "run" / "manifest.json").write_text('{"stage": "rm -r", "status": "running"}')
        assert complaint(capsys, "eval", "--out", "out", "--model.path", "run") == f"{begin}; {end}"


@pytest.mark.parametrize("path", ["./m", "~/m", "/m", "a/b/c", "here/m", "there/", "../m"])
def test_a_path_that_can_only_be_local_never_asks_a_hub(tmp_path, monkeypatch, capsys, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert complaint(capsys, "eval", "--out", "out", "--model.path", path).startswith(
        f"there is no model directory {Path(path).expanduser().absolute()}; correct --model.path"
    )


def test_a_model_beside_its_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "config.json is a file; give the directory of a model" in complaint(
        capsys, "eval", "--out", "out", "--model.path", "config.json"
    )
    shutil.copytree(base_run() / "model", tmp_path / "home" / "model")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run(capsys, *train_words("out", "--steps", "0", model="~/model"))[0] == 0


def test_a_tracker_without_a_login_is_reported_before_anything_is_loaded_or_written(tmp_path):
    (tmp_path / "wandb.py").write_text("def login(): raise RuntimeError('No API key configured.')")
    (tmp_path / "torch.py").write_text("raise ImportError('torch is loaded')")
    words = ["-m", "dph", "train", "--preset", "grpo", "--tracker", "wandb", "--out", str(tmp_path / "run")]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert (done.returncode, (tmp_path / "run").exists()) == (2, False)
    assert done.stderr.splitlines()[-1].startswith("dph: tracker 'wandb' does not work: No API key")


def test_a_model_without_an_end_token(tmp_path, capsys):
    policy = tiny_policy()
    policy.tokenizer.eos_token = None
    policy.save(tmp_path / "model")
    message = complaint(capsys, *train_words(tmp_path / "run", model=tmp_path / "model"))
    assert "the tokenizer has no EOS token" in message


TASKS = {
    "unknown task": (["--task.name", "toys"], "no task is named 'toys'; perhaps you meant toy; known are: "),
    "task of a plug-in": (["--task.name", "arena"], "name the plug-in's file or module in the setting plugins"),
    "unknown option": (["--task.options", "size", "3"], "task 'toy' does not take these options"),
    "no problems": (["--task.options", "problems", "0"], "the split 'train' holds no problem"),
    "unknown split": (["--task.name", "countdown", "--task.split", "trian"], "countdown has no split 'trian'"),
    "engine": (["--sampler.engine", "vlm"], "no sampler engine is named 'vlm'"),
    "prompts too long": (
        ["--task.split", "long"],
        "no problem has a prompt of at most 8 tokens; raise rollout.max_prompt_tokens",
    ),
    "no room": (
        ["--rollout.max-tokens", "64"],
        "rollout.max_tokens 64 leaves no room for a prompt in the model's context of 64",
    ),
    "device": (["--model.device", "abacus"], "device 'abacus' cannot be used here"),
    "attention": (["--model.attention", "slow"], "cannot load a model from"),
}


@pytest.mark.parametrize("name", TASKS)
def test_what_a_stage_cannot_use_is_named(tmp_path, capsys, name):
    words, expected = TASKS[name]
    words = [*train_words(tmp_path / "run", "--rollout.max-prompt-tokens", "8"), *words]
    assert expected in complaint(capsys, *words)


def test_prompts_that_are_too_long_are_counted(tmp_path, capsys, base):
    (tmp_path / "plugin.py").write_text(
        "from dph.tasks import register_task\nfrom dph.types import Problem\n"
        "class Mixed:\n"
        "    def problems(self, split):\n"
        "        return [Problem(str(i), 'easy ' + '1' * i, 'yes', 'exact') for i in range(1, 6)]\n"
        "    def style(self, problem, response):\n        return None\n"
        "register_task('mixed')(Mixed)\n"
    )
    words = ["--plugin", tmp_path / "plugin.py", *TOY[2:6], "--task.name", "mixed", "--model.path", base]
    status, said = run(capsys, "eval", *words, "--rollout.max-prompt-tokens", "5", "--out", tmp_path / "run")
    assert status == 0, said
    # "easy", then a digit a token: prompts of 3 (with the space) and more tokens
    lengths = [len(tiny_policy().encode_prompt("easy " + "1" * i)) for i in range(1, 6)]
    left_out = sum(length > 5 for length in lengths)
    assert 0 < left_out < 5 and f"left out: {left_out} of 5 problems, whose prompt is empty or over 5 tokens" in said
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert next(iter(scores["splits"].values()))["problems"] == 5 - left_out


def test_a_mistyped_path_can_be_mended_in_the_same_directory(tmp_path, capsys):
    out = tmp_path / "run"
    assert "there is no model directory" in complaint(
        capsys, *train_words(out, "--steps", "0", model=tmp_path / "modle")
    )
    assert "no task is named" in complaint(capsys, *train_words(out, "--steps", "0", "--task.name", "toys"))
    assert run(capsys, *train_words(out, "--steps", "0"))[0] == 0


def test_run_directories(tmp_path, capsys):
    out = tmp_path / "run"
    words = [*train_words(out), "--steps", "0"]
    assert run(capsys, *words)[0] == 0
    assert f"{out} already holds a run; add --resume to continue it" in complaint(capsys, *words)
    status, said = run(capsys, *words, "--resume")
    assert status == 0 and "is complete already" in said
    message = complaint(capsys, *words, "--resume", "--optim.lr", "0.5", "--seed", "9")
    assert "started with other settings (optim.lr: 1e-06 → 0.5; seed: 0 → 9); use a different --out" in message
    (out / "manifest.json").write_text('{"stage": "tr')
    assert "manifest.json is damaged" in complaint(capsys, *words, "--resume")
    message = complaint(capsys, *train_words(base_run()), "--resume")
    assert message.endswith("holds a run of `dph sft`, not of `dph train`; name another directory")
    assert complaint(capsys, *train_words(base_run())) == message
    (tmp_path / "file").write_text("")
    for path, reason in (("file", "File exists"), ("file/run", "Not a directory")):
        message = complaint(capsys, *train_words(tmp_path / path))
        assert message.startswith(
            f"cannot write to the run directory {tmp_path / path}: {reason}; a file is in the place"
        )


def test_an_unfinished_run_is_named_with_the_command_that_continues_it(tmp_path, capsys):
    out = tmp_path / "a run"
    assert run(capsys, *train_words(out), "--steps", "0")[0] == 0
    manifest = out / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"running"'))
    shutil.rmtree(out / "model")
    (out / "checkpoints").mkdir()  # so that it has begun
    finish = f"; the run is unfinished: `dph train --resume --out '{out}'` continues it; "
    settings = complaint(capsys, *train_words(out), "--steps", "0", "--seed", "9", "--resume")
    assert settings.endswith(f"started with other settings (seed: 0 → 9){finish}use a different --out for a new run")
    other = complaint(capsys, "eval", "--resume", "--out", out)
    assert other == f"{out} holds a run of `dph train`, not of `dph eval`{finish}name another directory"
    (out / "metrics.jsonl").unlink(missing_ok=True)
    assert f"or `dph train`{finish}name the other runs only" in complaint(
        capsys, "report", out, "--out", tmp_path / "b"
    )
    assert f"holds no judged samples{finish}sample its model with" in complaint(capsys, "passk", out)
    assert f"has no model{finish}name a finished run" in complaint(capsys, "interpolate", out, "--out", tmp_path / "c")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_directory_that_cannot_be_written(tmp_path, capsys):
    tmp_path.chmod(0o500)
    try:
        assert "cannot write to the run directory" in complaint(capsys, *train_words(tmp_path / "run"))
    finally:
        tmp_path.chmod(0o700)


def test_damaged_settings_of_a_run(tmp_path, capsys):
    words = [*train_words(tmp_path / "run"), "--steps", "0"]
    assert run(capsys, *words)[0] == 0
    (tmp_path / "run" / "config.toml").write_text("steps = [")
    assert "config.toml is not a valid TOML file" in complaint(capsys, *words, "--resume")


def dph_words(out, path, *more, model=None):
    words = ["train", "--preset", "dph_js", *TOY, "--rehearsal.rows", "2", "--rehearsal.path", path]
    return [*words, "--model.path", model or base_run() / "model", "--out", out, *more]


def test_rehearsal_sets_that_do_not_fit(tmp_path, capsys):
    message = complaint(capsys, *dph_words(tmp_path / "a", tmp_path / "nothing"))
    assert "nothing is not a run directory of `dph presample`" in message
    tiny_policy().save(tmp_path / "model")
    message = complaint(capsys, *dph_words(tmp_path / "b", presampled(), model=tmp_path / "model"))
    assert "does not fit this run (" in message and "run `dph presample`" in message
    assert re.search(rf"weight_hash '\w+' of {base_run() / 'model'} there, '\w+' of {tmp_path / 'model'} here", message)
    message = complaint(capsys, *dph_words(tmp_path / "c", presampled(), "--task.limit", "3"))
    assert "was made for another task (limit: 0 → 3); name the same for both" in message
    shutil.copytree(presampled(), tmp_path / "cut")
    (tmp_path / "cut" / "rehearsal.parquet").write_bytes(b"PAR1")
    message = complaint(capsys, *dph_words(tmp_path / "d", tmp_path / "cut"))
    assert "rehearsal.parquet is not the file that the run wrote" in message
    (tmp_path / "cut" / "manifest.json").write_text("{")
    assert "manifest.json is damaged" in complaint(capsys, *dph_words(tmp_path / "e", tmp_path / "cut"))
    words = ["presample", *TOY[:4], "--model.path", base_run() / "model", "--task.limit", "1", "--threshold", "8"]
    assert run(capsys, *words, "--rollout.n", "8", "--out", tmp_path / "none")[0] == 0
    message = complaint(capsys, *dph_words(tmp_path / "f", tmp_path / "none", "--task.limit", "1"))
    assert "found no near-perfect prompt, so there is nothing to rehearse; lower its threshold" in message
    assert "if the model solves nothing, begin with `dph sft`: docs/guides/your-data.md" in message


def test_supervised_data(tmp_path, capsys):
    words = ["sft", "--out", tmp_path / "run", "--task.name", "toy"]
    assert "the task 'toy' has no demonstrations of its own; add --data FILE" in complaint(capsys, *words)
    words = ["sft", "--out", tmp_path / "run2", "--data"]
    assert "there is no file" in complaint(capsys, *words, tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text('{"prompt": "x"}\n')
    message = complaint(capsys, "sft", "--out", tmp_path / "run3", "--data", tmp_path / "a.jsonl")
    assert "row 1: no 'response'; it has: prompt" in message
    (tmp_path / "b.jsonl").write_text('{"prompt": "x", "response": "y"}\n')
    more = ["--data", tmp_path / "b.jsonl", "--new.tokenizer", "word"]
    message = complaint(capsys, "sft", "--out", tmp_path / "run4", *more, "--new.heads", "7")
    assert "new.hidden 160 divided by new.heads 7 must be an even whole number" in message
    message = complaint(capsys, "sft", "--out", tmp_path / "run5", *more, "--new.context", "2")
    assert "no row fits into the model's context of 2 tokens" in message
    message = complaint(capsys, "sft", "--out", tmp_path / "run6", *more, "--model.lora-rank", "4")
    assert "adapters need a given model; add --model.path" in message


# What is no mistake of the settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "fragment"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate"), "out of memory; lower --sampler.rows, or lower --veri"),
        (MemoryError(), "out of memory; lower --sampler.rows"),
        (OSError(28, "No space left on device", "x/model"), "cannot write x/model: No space left on device; free disk"),
        (PermissionError(13, "Permission denied", "x"), "cannot write x: Permission denied; change its permissions"),
        (UserError("plain"), "plain"),
    ],
)
def test_troubles_on_the_way(monkeypatch, capsys, error, fragment):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("dph.stages.evaluate.evaluate", fail)
    assert fragment in complaint(capsys, "eval", "--out", "x", "--model.path", "m")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(2, "No such file or directory", "x"), "x: No such file or directory; run it again"),
        (PermissionError(13, "Permission denied", "x"), "x: Permission denied; change its permissions, or use another"),
        (OSError("no number"), "x: no number; run it again"),
    ],
)
def test_what_is_missing_has_another_remedy_than_what_may_not_be_read(error, expected):
    assert refused("x", error, "run it again").startswith(expected)
    assert not refused("x", ValueError("its content is wrong")).endswith("; ")


def test_the_file_that_was_meant_is_named_for_its_temporary_one(monkeypatch, capsys):
    def fail(*_, **__):
        raise OSError(28, "No space left on device", "a/.model.new.7.0.tmp/config.json")

    monkeypatch.setattr("dph.stages.evaluate.evaluate", fail)
    message = complaint(capsys, "eval", "--out", "x", "--model.path", "m")
    assert message.startswith("cannot write a/model/config.json: No space")


def test_a_model_that_does_not_fit_on_the_disk_is_one_sentence(tmp_path):
    def full(_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with pytest.raises(RunError, match=r"cannot write the model .*/m: I/O error: No space .*; free disk space$"):
        save_with_card(None, full, tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_page_in_a_new_folder_is_written(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": "p{i}", "correct": true}}\n' for i in range(4)))
    assert run(capsys, "passk", tmp_path / "a.jsonl", "--html", tmp_path / "new" / "page.html")[0] == 0
    assert (tmp_path / "new" / "page.html").is_file()


def test_a_bug_keeps_its_traceback_and_an_interruption_its_status(monkeypatch, capsys):
    def fail(*_, **__):
        raise RuntimeError("a bug")

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dph.stages.evaluate.evaluate", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["eval", "--out", "x", "--model.path", "m"])
    monkeypatch.setattr("dph.stages.evaluate.evaluate", stop)
    monkeypatch.setattr(sys, "argv", ["dph", "eval"])
    status, said = run(capsys, "eval", "--out", "x", "--model.path", "m")
    assert status == 130 and said.endswith("dph: interrupted; the same command with --resume continues\n")


# What works ---------------------------------------------------------------------------------------------------------


def test_flags_stand_in_any_order():
    words = ["--steps", "3", "--preset", "a", "--resume", "--config=b.toml", "--seed=1", "--plugin", "c"]
    words += ["--preset=d", "--out", "e", "--checkpoint_every", "7", "--out", "f"]
    line = read_words("sft", words)
    assert (line.presets, line.files, line.plugins, line.resume) == (["a", "d"], [Path("b.toml")], ["c"], True)
    assert line.settings == {"steps": 3, "seed": 1, "out": "f", "checkpoint_every": 7}


def test_flags_of_every_kind():
    words = ["--no-greedy", "--task.shuffle", "--model.no-trust-remote-code", "--seed", "-3", "--rollout.top-p", "3."]
    words += ["--task.options", "a b", "x=y", "--task.split=", "--plugins", "a", "b", "--model.precision", "bf16"]
    assert read_words("eval", words).settings == {
        **{"greedy": False, "seed": -3, "rollout": {"top_p": 3.0}, "plugins": ["a", "b"]},
        "task": {"shuffle": True, "options": {"a b": "x=y"}, "split": ""},
        "model": {"trust_remote_code": False, "precision": "bf16"},
    }


def test_the_overview_and_the_version(capsys):
    for words, expected in ((["--help"], 0), (["-h"], 0), ([], 2)):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == expected
        said = capsys.readouterr().out
        assert all(f"  {name}" in said for name in COMMANDS) and COMMANDS.keys() == STAGES.keys()
    main(["--version"])
    assert capsys.readouterr().out == f"{dph.__version__}\n"


def test_help_of_every_stage_is_quick_and_complete():
    """Nothing heavy is loaded, and every setting is listed with its explanation."""
    code = (
        "import io, sys, contextlib\nfrom dph.cli.main import main\n"
        f"for stage in {list(COMMANDS)!r}:\n"
        "    said = io.StringIO()\n"
        "    try:\n"
        "        with contextlib.redirect_stdout(said):\n            main([stage, '--help'])\n"
        "    except SystemExit as end:\n        assert end.code == 0, end.code\n"
        "    assert 'settings:' in said.getvalue(), said.getvalue()\n"
        "    assert ('--preset NAME' in said.getvalue()) == (stage != 'init')\n"
        "    without = ('init', 'interpolate', 'passk', 'judge', 'report', 'doctor')\n"
        "    assert ('Presets: ' in said.getvalue()) == (stage not in without)\n"
        "    if stage == 'train':\n        assert 'weight of the rehearsal term' in ' '.join(said.getvalue().split())\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    environment = os.environ | {"COLUMNS": "400"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", ["--help", "--version", "train --help", "doctor --help"])
@pytest.mark.parametrize("reader", ["| head -1", "| true", ">&-"])
def test_a_reader_may_leave_before_the_output_ends(words, reader):
    command = f"set -o pipefail; {sys.executable} -m dph {words} {reader}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", reader == "| head -1")


def test_a_mistake_has_its_status_when_nobody_can_read_it():
    command = f"{sys.executable} -m dph report nowhere"
    for closed in ("2>&-", "2>/dev/full", "<&- >&- 2>&-"):
        assert subprocess.run(["bash", "-c", f"{command} {closed}"]).returncode == 2


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize("words", ["--help", "train --help"])
def test_output_that_cannot_be_written_is_one_sentence(words):
    command = f"{sys.executable} -m dph {words} > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    said = "dph: cannot write standard output: No space left on device; free disk space, or use another disk\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_mistake_in_a_process_of_its_own_has_no_traceback(tmp_path):
    words = [sys.executable, "-m", "dph", "train", "--preset", "nothing"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("dph: no preset is named 'nothing'") and done.stderr.count("\n") == 1


def test_the_stages_join_by_the_command_line(tmp_path, capsys, base):
    model = ["--model.path", base, "--task.name", "toy", "--rollout.max-tokens", "4"]
    out = {name: tmp_path / name for name in ("presample", "train", "eval", "report")}
    assert run(capsys, "presample", *model, "--rollout.n", "8", "--threshold", "7", "--out", out["presample"])[0] == 0
    words = ["--preset", "dph_js", "--rehearsal.path", out["presample"], "--rehearsal.rows", "4", "--steps", "1"]
    assert run(capsys, "train", *words, *model, *TOY[4:], "--out", out["train"])[0] == 0
    model[1] = out["train"] / "model"
    assert run(capsys, "eval", *model, "--rollout.n", "4", "--out", out["eval"])[0] == 0
    assert json.loads((out["eval"] / "scores.json").read_text())["label"] == "train"
    config = (out["train"] / "config.toml").read_text()
    assert 'method = "dph_js"' in config and "rows = 4" in config


HEAVY = {
    *("torch", "transformers", "pandas", "pyarrow", "numpy", "sqlglot", "sympy", "math_verify", "rich"),
    *("importlib.metadata", "asyncio", "multiprocessing", "matplotlib", "datasets", "huggingface_hub"),
}
SCRIPT = """
import sys
from dph.cli.main import main
main(sys.argv[1:])
print("loaded:", *sorted(sys.modules))
"""


@pytest.fixture
def clubs(tmp_path: Path) -> Path:
    """One question in the layouts of Spider, BIRD and a mathematical set, with its predictions."""
    for folder in ("database", "dev_databases"):
        path = tmp_path / folder / "clubs/clubs.sqlite"
        path.parent.mkdir(parents=True)
        connection = sqlite3.connect(path)
        connection.executescript("CREATE TABLE club (id INT); INSERT INTO club VALUES (1), (2);")
        connection.close()
    row = {"db_id": "clubs", "question": "?", "query": "SELECT id FROM club ORDER BY id LIMIT 1"}
    (tmp_path / "dev.jsonl").write_text(json.dumps(row))
    (tmp_path / "dev.json").write_text(json.dumps([row | {"SQL": row["query"], "question_id": 1}]))
    (tmp_path / "math500").mkdir()
    (tmp_path / "math500/test.jsonl").write_text(json.dumps({"problem": "?", "answer": r"\\frac{x}{2}", "level": 1}))
    (tmp_path / "p.sql").write_text("SELECT min(id) FROM club\n")
    (tmp_path / "p.txt").write_text("0.5x\n")
    return tmp_path


def test_a_terminal_without_a_character_ends_no_command(clubs: Path):
    words = ["verify", "--task", "spider", "--data", str(clubs), "--subset", "--predictions", str(clubs / "p.sql")]
    ascii = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "dph", *words], capture_output=True, text=True, timeout=100, env=ascii)
    assert done.returncode == 0, done.stderr
    assert "correct 1 (100.0 %" in done.stdout and "?" in done.stdout


@pytest.mark.parametrize(
    ("task", "file", "rule"),
    [("spider", "p.sql", []), ("bird", "p.sql", ["--rule", "strict"]), ("math500", "p.txt", []),
     ("math500", "p.txt", ["--policy", "math_verify"])],
)  # fmt: skip
def test_judging_loads_nothing_that_is_slow_to_load(clubs: Path, task: str, file: str, rule: list[str]):
    words = ["verify", "--task", task, "--data", str(clubs), "--subset", "--predictions", str(clubs / file), *rule]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "correct 1 (100.0 %)" in done.stdout and said[-1].startswith("loaded: ")
    rated = {"sqlglot", "importlib.metadata"} if task == "spider" else set()  # its parser gives the hardness of a gold
    assert HEAVY & set(said[-1].split()) == {"numpy", *rated}, "numpy for intervals"
