# pyright: reportMissingImports=false
"""Adapters, a reference model (the same without them), two iterations over each rollout, accumulation."""

import sys

from acceptance import TEXTS, Reward, accept
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from dph.integrations.trl import SharedPrefixMixin


class Trainer(SharedPrefixMixin, GRPOTrainer):
    pass


def make(cls):
    return cls(
        model=sys.argv[1],
        reward_funcs=Reward(),
        args=GRPOConfig(
            "out",
            beta=0.04,
            num_iterations=2,
            gradient_accumulation_steps=2,
            max_completion_length=16,
            max_steps=4,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": TEXTS * 8}),
        peft_config=LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear"),
    )


accept(make, Trainer, GRPOTrainer, iterations=2)
