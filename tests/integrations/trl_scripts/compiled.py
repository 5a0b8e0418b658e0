# pyright: reportMissingImports=false
"""torch.compile: packed rows run uncompiled, because each has another layout."""

import sys

from acceptance import TEXTS, Reward, train
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from dph.integrations.trl import SharedPrefixMixin


class Trainer(SharedPrefixMixin, GRPOTrainer):
    pass


made = Trainer(
    model=sys.argv[1],
    reward_funcs=Reward(),
    args=GRPOConfig(
        "out", torch_compile_backend="eager", max_completion_length=16, max_steps=1, report_to="none", use_cpu=True
    ),
    train_dataset=Dataset.from_dict({"prompt": TEXTS * 8}),
)
found = train(made)
report = made.shared_prefix_report()
assert found.packed and not report.reasons and report.saved > 0.4, report
print("accepted")
