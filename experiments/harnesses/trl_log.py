# pyright: reportMissingImports=false
"""Log completions by TRL: python trl_log.py PROBLEMS MODEL N FOLDER. One step of a GRPOTrainer with a rate of zero."""

import json
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset
from judge import right
from trl import GRPOConfig, GRPOTrainer


def correct(completions: list[str], numbers: list[list[int]], answer: list[str], **_: Any) -> list[float]:
    """The reward, under the name that TRL gives its column."""
    return [float(right(*row)) for row in zip(completions, numbers, map(int, answer), strict=True)]


if __name__ == "__main__":
    problems, model, n, folder = sys.argv[1:]
    rows = [json.loads(line) for line in Path(problems).read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["prompt"] = row.pop("question")
    args = GRPOConfig(
        folder,
        per_device_train_batch_size=len(rows) * int(n),
        num_generations=int(n),
        max_completion_length=24,
        learning_rate=0.0,
        max_steps=1,
        logging_steps=1,
        log_completions=True,
        num_completions_to_print=0,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    trainer = GRPOTrainer(model=model, reward_funcs=correct, args=args, train_dataset=Dataset.from_list(rows))
    trainer.train()
    print(trainer.state.log_history[0]["rewards/correct/mean"])
