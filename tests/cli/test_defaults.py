"""Defaults say what they chose: nothing is trained, sampled or ignored in silence."""

import json
import shutil
from pathlib import Path

import pytest

from complaints import complaint, run
from dph.config import TrainConfig, load_settings, preset_names, unusual
from helpers import base_run, presampled

SMALL = ["--rollout.max-prompt-tokens", "8", "--rollout.max-tokens", "4", "--rollout.n", "2", "--rollout.prompts", "2"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"prompt": f"easy {i}", "answer": "yes", "verifier": "exact"} for i in range(4)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "data.jsonl"


def words(data: Path, *more: object) -> list[object]:
    return ["train", "--task", "records", "--data", data, "--model.path", base_run() / "model", *SMALL, *more]


def test_a_task_and_a_method_that_were_not_named_are_said(tmp_path, capsys):
    _, said = run(capsys, "train", "--model.path", tmp_path / "none", "--out", tmp_path / "run")
    assert f"no --task was named: the problems come from the embedded world {TrainConfig().task.name}\n" in said
    assert "no method was named: GRPO without rehearsal" in said
    _, said = run(
        capsys, "train", "--preset", "countdown", "--preset", "grpo", "--model.path", tmp_path / "none", "--out", "x"
    )
    assert "was named" not in said


def test_a_preset_in_the_place_of_a_task(tmp_path, capsys):
    message = complaint(capsys, "train", "--task", "dph_js", "--model.path", "m", "--out", tmp_path / "run")
    assert message == "dph_js is a preset, not a task; write --preset dph_js"


@pytest.mark.parametrize("command", ["presample", "train", "eval", "audit", "verify"])
def test_data_without_a_task_are_not_those_of_the_world(tmp_path, capsys, command):
    more = ["--predictions", "p.jsonl"] if command == "verify" else ["--model.path", "m"]
    message = complaint(capsys, command, "--data", tmp_path, *more, "--out", tmp_path / "run")
    assert message == "no task was named; --data needs one: --task records reads your own problems"


def test_what_a_method_ignores_and_what_it_repeats_is_said(tmp_path, data, capsys):
    line = ["train", "--preset", "grpo", "--task", "toy", "--model.path", base_run() / "model", *SMALL, "--steps", "0"]
    status, said = run(capsys, *line, "--rehearsal.path", presampled(), "--out", tmp_path / "run")
    assert status == 0 and "method 'grpo' does not rehearse" in said
    line = words(data, "--preset", "grpo", "--steps", "0", "--rollout.prompts", "99", "--out", tmp_path / "b")
    status, said = run(capsys, *line)
    assert status == 0 and "rollout.prompts is 99, of 4 problems: steps draw some repeatedly" in said


@pytest.mark.parametrize(("flag", "reason"), [("--steps", "steps is 0"), ("--optim.lr", "optim.lr is 0")])
def test_a_run_that_trains_nothing_says_so(tmp_path, data, capsys, flag, reason):
    line = words(data, "--preset", "grpo", "--steps", "1", flag, "0", "--out", tmp_path / "run")
    status, said = run(capsys, *line)
    assert status == 0 and f"{reason}: nothing is trained" in said


def test_resume_with_the_directory_alone_continues_the_recorded_run(tmp_path, data, capsys):
    out = tmp_path / "run"
    assert run(capsys, *words(data, "--preset", "grpo", "--optim.lr", "3e-4", "--steps", "1", "--out", out))[0] == 0
    assert run(capsys, "train", "--resume", "--out", out, "--steps", "2")[0] == 0
    assert [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()] == [1, 2]
    assert "lr = 0.0003" in (out / "config.toml").read_text()
    assert f"{out} holds a run of `dph train`, not of `dph eval`" in complaint(capsys, "eval", "--resume", "--out", out)
    assert "loss.eta: 0.0 → 0.5" in complaint(capsys, "train", "--resume", "--out", out, "--loss.eta", "0.5")


def test_a_run_beside_other_files_says_so(tmp_path, data, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    _, said = run(capsys, *words(data, "--preset", "grpo", "--steps", "0", "--out", tmp_path / "run"))
    assert "holds other files (notes.txt)" in said and (tmp_path / "run" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("preset", "judge"),
    [("qwen_math", "math"), ("llama_math", "math"), ("llama_sql", "sql"), ("countdown", "countdown")],
)
@pytest.mark.parametrize("command", ["presample", "train"])
def test_a_preset_for_one_kind_of_problems_refuses_another(tmp_path, data, capsys, command, preset, judge):
    line = ["--preset", preset, "--task", "records", "--data", data, "--model.path", base_run() / "model"]
    message = complaint(capsys, command, *line, "--out", tmp_path / "run")
    assert f"for problems that the verifier {judge!r} judges, but 'data-1' names 'exact'" in message


ODD = {
    "optim.lr": (10.0, 1e-3),
    "loss.eta": (1e9, 0.5),
    "loss.clip_high": (50.0, 5.0),
    "rollout.temperature": (20.0, 0.6),
    "rollout.n": (5000, 64),
    "steps": (10**7, 500),
    "verifier.timeout": (1e6, 30.0),
    "loss.kl_coef": (1e3, 0.01),
    "optim.beta2": (0.01, 0.99),
    "optim.weight_decay": (5.0, 0.1),
}


@pytest.mark.parametrize("name", ODD)
def test_numbers_out_of_all_reason_are_named(name):
    for value, expected in zip(ODD[name], (1, 0), strict=True):
        table, dot, key = name.rpartition(".")
        given = {table: {key: value}} if dot else {key: value}
        if name == "loss.kl_coef":
            given["loss"]["kl"] = "k3"  # without an estimator there is no penalty to weigh
        settings = load_settings("train", overrides=given)
        said = unusual(settings)
        assert len(said) == expected and all(line.startswith(f"{name} is {value:g}, usually ") for line in said)


def test_no_preset_is_unusual():
    stages = ("sft", "presample", "train", "eval")
    assert [said for name in preset_names() for stage in stages for said in unusual(load_settings(stage, [name]))] == []


@pytest.mark.parametrize(("prompts", "n"), [(8, 16), (1, 2), (3, 5), (128, 16)])
def test_rehearsal_takes_one_stored_response_for_eight_rollouts(prompts, n):
    one = {"minibatches": 1}
    for method in ("dph_js", "dph_f", "dph_js_def", "alpha"):
        config = load_settings("train", [method], overrides={"rollout": {"prompts": prompts, "n": n}, "optim": one})
        assert 8 * (config.stored_rows - 1) < prompts * n <= 8 * config.stored_rows
        assert config.loss.reduction == "per_set"
    off = load_settings("train", ["dph_js"], overrides={"rehearsal": {"rows": 0}})
    assert off.stored_rows == 0


@pytest.mark.parametrize("command", ["presample", "eval"])
@pytest.mark.parametrize(
    "body", ["return 1 / 0", "return None", "return float('nan')", "return 'good'", "return answer.nothing"]
)
def test_a_broken_reward_ends_what_samples(tmp_path, data, capsys, command, body):
    (tmp_path / "mine.py").write_text(f"def score(prompt, completion, answer, **_):\n    {body}\n")
    task = ["--task", "records", "--data", data, "--model.path", base_run() / "model", *SMALL[:6], "--threshold", "2"]
    reward = ["--reward", f"{tmp_path / 'mine.py'}:score"]
    message = complaint(
        capsys, command, *(task if command == "presample" else task[:-2]), *reward, "--out", tmp_path / "run"
    )
    assert "8 of 8 responses could not be judged (" in message and "--max-unjudged" in message


def test_a_model_without_a_tokenizer(tmp_path, data, capsys):
    shutil.copytree(base_run() / "model", tmp_path / "model", ignore=shutil.ignore_patterns("tokenizer*"))
    line = ["eval", "--task", "records", "--data", data, "--model.path", tmp_path / "model", "--out", tmp_path / "run"]
    assert "it holds no tokenizer; save its base model's tokenizer into it" in complaint(capsys, *line)


def test_resuming_a_run_that_does_not_exist_says_so(tmp_path, capsys):
    said = complaint(capsys, "train", "--resume", "--out", tmp_path / "typo")
    assert f"there is no run in {tmp_path / 'typo'} to resume" in said
