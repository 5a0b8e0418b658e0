"""The stages with a reward function instead of verifiers: `--reward FILE.py:NAME`, or a callable from Python."""

import json
from dataclasses import replace
from functools import partial

import pyarrow.parquet as pq
import pytest

from dph.cli.main import main, parse
from dph.config import EvalConfig, ModelConfig, RewardConfig, TaskConfig, VerifierConfig
from dph.errors import RunError, SharedUserError
from dph.runs.directory import read_metrics
from dph.stages.evaluate import evaluate
from dph.stages.presample import presample
from dph.stages.train import train
from helpers import base_run, presample_config, presampled, rollout, train_config

SAME = "def score(prompt, completion, answer, **_):\n    return 1.0 if completion.strip() == answer else 0.0\n"
"""What the verifier "exact" says of the toy task, whose responses are one word."""
WORKERS = VerifierConfig(timeout=60)


@pytest.fixture
def reward(tmp_path):
    (tmp_path / "mine.py").write_text(SAME)
    return RewardConfig(f"{tmp_path / 'mine.py'}:score")


def partition(run):
    return pq.read_table(run / "partition.parquet").to_pylist()


def eval_config(out):
    return EvalConfig(
        str(out),
        model=ModelConfig(path=str(base_run() / "model"), device="cpu"),
        task=TaskConfig("toy", split="test"),
        rollout=rollout(n=4),
    )


def test_all_stages_give_what_the_verifier_gives_that_says_the_same(tmp_path, reward):
    common = {"reward": reward, "verifier": WORKERS}
    split = presample(presample_config(tmp_path / "set", **common))
    assert partition(split) == partition(presampled())

    ours = train_config(tmp_path / "ours", "dph_js", {"rehearsal": {"path": str(split)}}, **common)
    theirs = train_config(tmp_path / "theirs", "dph_js")
    assert read_metrics(train(ours)) == read_metrics(train(theirs))

    scores = [
        json.loads((evaluate(replace(eval_config(tmp_path / name), **changes)) / "scores.json").read_text())
        for name, changes in {"one": common, "two": {}}.items()
    ]
    assert scores[0]["splits"] == scores[1]["splits"]


def test_correct_from_decides_the_partition_and_pass_at_k(tmp_path, reward):
    (tmp_path / "mine.py").write_text(SAME.replace("1.0", "0.7"))
    strict = presample(presample_config(tmp_path / "strict", reward=reward, verifier=WORKERS))
    assert all(row["correct"] == 0 for row in partition(strict))  # 0.7 is below 1
    lenient = replace(reward, correct_from=0.7)
    found = presample(presample_config(tmp_path / "lenient", reward=lenient, verifier=WORKERS))
    assert partition(found) == partition(presampled())


def test_rewards_are_numbers_of_ones_own(tmp_path, reward):
    """Two thirds for a right word: the mean reward is two thirds of the share of right responses."""
    (tmp_path / "mine.py").write_text(SAME.replace("1.0", "2 / 3"))
    config = train_config(tmp_path / "run", reward=replace(reward, correct_from=0.5), verifier=WORKERS)
    first = read_metrics(train(config))[0]
    assert 0 < first["pass_rate"] < 1
    assert first["reward"] == pytest.approx(first["pass_rate"] * 2 / 3)


def test_rows_need_no_verifier(tmp_path, capsys):
    rows = [{"prompt": f"hard {i}", "wanted": "yes"} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = "def score(prompt, completion, wanted, answer, **_):\n    return wanted in completion and answer is None\n"
    (tmp_path / "mine.py").write_text(code)
    words = ["eval", "--task", "records", "--data", str(tmp_path / "rows.jsonl"), "--model.device", "cpu"]
    words += ["--model.path", str(base_run() / "model"), "--rollout.n", "2", "--rollout.max-tokens", "4"]
    main([*words, "--reward", f"{tmp_path / 'mine.py'}:score", "--timeout", "60", "--out", str(tmp_path / "eval")])
    scores = json.loads((tmp_path / "eval" / "scores.json").read_text())
    assert 0 < scores["splits"]["test"]["metrics"]["mean@2"]["mean"] < 1
    with pytest.raises(SystemExit):
        main([*words, "--out", str(tmp_path / "without")])
    assert "problem 'rows-1' names no verifier; add a column 'verifier'" in " ".join(capsys.readouterr().err.split())


def test_a_function_that_fails_stops_the_run_before_its_zeros_count(tmp_path, reward):
    (tmp_path / "mine.py").write_text("def score(prompt, completion, **_):\n    return 1 / 0\n")
    config = train_config(tmp_path / "run", reward=reward, verifier=WORKERS)
    with pytest.raises(SharedUserError, match=r"could not be judged .*ZeroDivisionError"):
        train(config)


def test_a_changed_function_does_not_go_on_with_an_old_run(tmp_path, reward, monkeypatch):
    config = partial(train_config, tmp_path / "run", reward=reward, verifier=WORKERS)
    train(config())
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"running"'))  # as if it had been interrupted
    (tmp_path / "mine.py").write_text(SAME + "# another\n")
    with pytest.raises(RunError, match=r"mine\.py has changed since .*run was"):
        train(config(), resume=True)
    (tmp_path / "mine.py").unlink()
    with pytest.raises(RunError, match=r"mine\.py is missing since"):
        train(config(), resume=True)
    (tmp_path / "mine.py").write_text(SAME)
    train(config(), resume=True)


def short(prompt: str, completion: str, **columns: object) -> float:
    """Rewards brevity: 1 for at most one word, else 0; the toy task's own verdicts differ."""
    return float(len(completion.split()) <= 1)


def test_training_and_evaluation_take_a_callable(tmp_path):
    config = train_config(tmp_path / "run", "grpo", {"steps": 2})
    own = read_metrics(train(config, reward=short))
    tasks = read_metrics(train(replace(config, out=str(tmp_path / "other"))))
    assert [line["reward"] for line in own] != [line["reward"] for line in tasks]
    run = evaluate(eval_config(tmp_path / "eval"), reward=short)
    rows = pq.read_table(run / "completions.parquet").to_pylist()
    assert len(rows) == 12 * (4 + 1)  # samples and the greedy response
    for row in rows:
        assert (row["outcome"] == "correct") == (row["reward"] == 1.0) == (len(row["text"].split()) <= 1)


@pytest.mark.parametrize("stage", ["presample", "train", "eval"])
def test_the_flags(stage):
    settings, _ = parse(stage, ["--reward", "a.py:f", "--reward.correct-from", "0.5", "--reward.in-process"])
    assert settings.reward == RewardConfig("a.py:f", 0.5, in_process=True)
