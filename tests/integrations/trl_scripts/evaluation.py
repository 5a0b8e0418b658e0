# pyright: reportMissingImports=false
"""Evaluation while training, checkpoints, and a resumed run, with this package's sampler."""

import sys

from acceptance import TEXTS, Reward, train
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from dph.integrations.trl import PassAtKMixin, SharedPrefixMixin


class Trainer(SharedPrefixMixin, PassAtKMixin, GRPOTrainer):
    pass


def make(steps):
    return Trainer(
        model=sys.argv[1],
        reward_funcs=Reward(),
        args=GRPOConfig(
            "out",
            beta=0.04,
            max_completion_length=16,
            max_steps=steps,
            save_steps=1,
            eval_strategy="steps",
            eval_steps=1,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": TEXTS * 8}),
        eval_dataset=Dataset.from_dict({"prompt": TEXTS}),
        shared_generation=True,
    )


train(make(1))
found = train(made := make(2), resume_from_checkpoint=True)
report = made.shared_prefix_report()
assert made.state.global_step == 2 and found.packed and not report.reasons and report.saved > 0.4, report
assert any("eval_loss" in line for line in made.state.log_history)
print("accepted")
