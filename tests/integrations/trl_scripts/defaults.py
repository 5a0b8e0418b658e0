# pyright: reportMissingImports=false
"""TRL's defaults: bf16, gradient checkpointing, loss_type dapo, eight responses to a prompt."""

import sys

from acceptance import TEXTS, Reward, accept
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from dph.integrations.trl import SharedPrefixMixin


class Trainer(SharedPrefixMixin, GRPOTrainer):
    pass


def make(cls):
    return cls(
        model=sys.argv[1],
        reward_funcs=Reward(),
        args=GRPOConfig("out", max_completion_length=16, max_steps=2, logging_steps=1, report_to="none", use_cpu=True),
        train_dataset=Dataset.from_dict({"prompt": TEXTS * 8}),
    )


accept(make, Trainer, GRPOTrainer)
