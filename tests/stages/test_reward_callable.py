"""A reward function from Python judges presampling, training and evaluation."""

from dataclasses import replace

import pyarrow.parquet as pq

from dph.config import EvalConfig, ModelConfig, SamplingConfig, TaskConfig
from dph.runs.directory import read_metrics
from dph.stages.evaluate import evaluate
from dph.stages.train import train
from helpers import base_run, train_config


def short(prompt: str, completion: str, **columns: object) -> float:
    """Rewards brevity: 1 for at most one word, else 0; the toy task's own verdicts differ."""
    return float(len(completion.split()) <= 1)


def test_training_and_evaluation_take_a_callable(tmp_path):
    config = train_config(tmp_path / "run", "grpo", {"steps": 2})
    own = read_metrics(train(config, reward=short))
    tasks = read_metrics(train(replace(config, out=str(tmp_path / "other"))))
    assert [line["reward"] for line in own] != [line["reward"] for line in tasks]
    settings = EvalConfig(
        out=str(tmp_path / "eval"),
        model=ModelConfig(path=str(base_run() / "model")),
        task=TaskConfig(name="toy", split="test"),
        rollout=SamplingConfig(n=4, max_tokens=4, max_prompt_tokens=16),
    )
    run = evaluate(settings, reward=short)
    for row in pq.read_table(run / "completions.parquet").to_pylist():
        assert (row["outcome"] == "correct") == (row["reward"] == 1.0) == (len(row["text"].split()) <= 1)
