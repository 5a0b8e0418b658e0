# pyright: reportMissingImports=false
"""Evaluation while training, checkpoints, and a resumed run, with this package's sampler."""

import sys

from acceptance import TEXTS, Reward, train
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from dph.integrations.trl import PassAtKMixin, SharedPrefixMixin


class Trainer(SharedPrefixMixin, PassAtKMixin, GRPOTrainer):
    pass


def odd(completion_ids, **_):
    return [float(ids[0] % 2) for ids in completion_ids]


def make(steps):
    return Trainer(
        model=sys.argv[1],
        reward_funcs=[Reward(), odd],
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
        eval_dataset={"all": Dataset.from_dict({"prompt": TEXTS}), "few": Dataset.from_dict({"prompt": TEXTS[:1]})},
        shared_generation=True,
    )


train(make(1))
found = train(made := make(2), resume_from_checkpoint=True)
report = made.shared_prefix_report()
assert made.state.global_step == 2 and found.packed and not report.reasons and report.saved > 0.4, report
for name in ("all", "few"):
    logged = [line for line in made.state.log_history if f"eval_{name}_loss" in line]
    passes = [key for key in logged[-1] if "/pass@2" in key or key.endswith("/lost")]
    assert passes and all(key.startswith(f"eval_{name}/rewards/odd/") for key in passes), (name, passes)
print("accepted")
