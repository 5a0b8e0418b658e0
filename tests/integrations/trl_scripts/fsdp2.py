# pyright: reportMissingImports=false
"""torchrun --nproc-per-node 2: weights sharded by FSDP2 over gloo, with its mixed precision.

accelerate shards on accelerators only; here the script does what accelerate does there."""

import sys

import torch
from acceptance import TEXTS, Reward, accept
from datasets import Dataset
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from trl import GRPOConfig, GRPOTrainer

from dph.integrations.trl import SharedPrefixMixin


class Trainer(SharedPrefixMixin, GRPOTrainer):
    pass


def make(cls):
    made = cls(
        model=sys.argv[1],
        reward_funcs=Reward(),
        args=GRPOConfig(
            "out",
            generation_kwargs={"min_new_tokens": 16},  # ranks make as many forward passes
            max_completion_length=16,
            max_steps=2,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": TEXTS * 8}),
    )
    mesh = init_device_mesh("cpu", (2,))
    for layer in made.model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    fully_shard(made.model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32))
    made.model._is_accelerate_prepared = True  # or it would add DistributedDataParallel
    return made


accept(make, Trainer, GRPOTrainer, least=0.3)
