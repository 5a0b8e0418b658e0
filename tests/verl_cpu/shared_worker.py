# pyright: reportMissingImports=false
"""Test support: verl's own worker, engine and loss against the engine with shared prompts, without Ray.

    RANK=0 WORLD_SIZE=1 python shared_worker.py FOLDER CASE

prints as JSON the relative errors of log-probabilities, entropies, loss and gradient, and the share of verl's tokens
that the model sees. Nothing of the objective of this package takes part.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contract_worker import batch_of, make_worker, noted_gradient, save_model
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import ppo_loss

from contract.fixture import read
from dph.errors import UserError
from dph.integrations.verl.engine import IS_REHEARSAL, SharedPrefixEngine
from dph.training.rows import Row

LORA = ("actor_rollout_ref.model.lora_rank=4", "actor_rollout_ref.model.target_modules=all-linear")
CHECKPOINTING = ("actor_rollout_ref.model.enable_gradient_checkpointing=true",)
BF16 = ("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16",)
CASES = {
    "bf16": BF16,
    "plain": (),
    "checkpointing": CHECKPOINTING,
    "lora": (*LORA, *CHECKPOINTING),
    "sum_pi_squared": (),
    "tools": (*LORA, *CHECKPOINTING),
}


def rows_of_rank(rank: int, ranks: int) -> list[Row]:
    """Ragged rows: groups of six, a prompt of one token, equal responses; on a second rank smaller groups."""
    generator = torch.Generator().manual_seed(rank)

    def tokens(low: int, high: int) -> list[int]:
        length = int(torch.randint(low, high, (), generator=generator))
        return torch.randint(3, 23, (length,), generator=generator).tolist()

    rows = []
    for prompt in ([5 + rank], tokens(4, 9), tokens(4, 9)):
        group = [tokens(1, 7) for _ in range(4)]
        group += [group[0], [*group[1], 7, 8]]  # one twice, and one that another begins with
        for response in group if rank == 0 else group[: 6 - 2 * (ranks - 1)]:
            old = (-2.5 - torch.rand(len(response), generator=generator)).tolist()
            rows.append(Row(prompt, response, old, advantage=float(torch.randn((), generator=generator))))
    while len(rows) < 18:  # as many on each rank
        response = tokens(1, 7)
        rows.append(Row(tokens(2, 9), response, [-3.0] * len(response), advantage=1.0))
    return rows


def as_batch(rows: list[Row], tools: bool) -> TensorDict:
    """tools: every third token of the responses is the result of a tool, which is not trained on."""
    data = batch_of(rows, with_reference=False).exclude(IS_REHEARSAL)
    for name in ("response_mask", "loss_mask") if tools else ():
        data[name].values()[1::3] = 0
    return data


def measure(worker: Any, actor: Any, rows: list[Row], ranks: int, tools: bool, **more: Any) -> dict[str, Any]:
    """Log-probabilities and entropies of the responses, loss and gradient of one update, and the model's tokens."""
    gradient = noted_gradient(worker)
    facts = {"temperature": 0.8, "calculate_entropy": True, "global_batch_size": ranks * len(rows), **more}

    def infer() -> Any:
        data = as_batch(rows, tools)
        tu.assign_non_tensor(data, compute_loss=False, **facts)
        return worker.infer_batch(data)

    infer()  # with the engine's check, whose tokens are not counted
    tokens = [0]
    worker.engine.module.register_forward_pre_hook(
        lambda _, __, inputs: tokens.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    inferred = infer()
    found = {}
    for name in ("log_probs", "entropy"):
        sequences = inferred[name].unbind()
        found[name] = torch.cat([x[len(row.prompt_ids) - 1 : -1] for x, row in zip(sequences, rows, strict=True)])

    data = as_batch(rows, tools)
    tu.assign_non_tensor(
        data, epochs=1, mini_batch_size=ranks * len(rows), dataloader_kwargs={"shuffle": False}, **facts
    )
    metrics = tu.get(worker.train_mini_batch(data), "metrics")
    loss = metrics["loss"]
    found["loss"] = torch.tensor(loss if isinstance(loss, list) else [loss])
    found["tokens"] = torch.tensor(float(sum(tokens)))
    found["gradient"] = torch.cat([gradient[name].flatten() for name in sorted(gradient)])
    return found


def main(folder: Path, case: str) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    save_model(read(), folder / f"model{rank}")
    rows = rows_of_rank(rank, ranks)
    more = (*CASES[case], "actor_rollout_ref.actor.entropy_coeff=0.01")
    found = {}
    for vendor in ("cpu", "dph"):
        os.environ["VERL_ENGINE_VENDOR"] = vendor
        torch.manual_seed(0)  # of the adapters
        worker, actor = make_worker(folder / f"model{rank}", TrainingWorker, *more)
        assert isinstance(worker.engine, SharedPrefixEngine) == (vendor == "dph")
        if case in ("lora", "tools"):  # whose second factor is 0, so that the first has no gradient
            with torch.no_grad():
                for name, parameter in worker.engine.module.named_parameters():
                    if "lora_B" in name:
                        parameter.fill_(0.1)
        squares = case == "sum_pi_squared"
        found[vendor] = measure(worker, actor, rows, ranks, case == "tools", calculate_sum_pi_squared=squares)
    ours, theirs = found["dph"], found["cpu"]
    errors = {"tokens": float(ours.pop("tokens") / theirs.pop("tokens"))}
    errors |= {name: float((ours[name] - theirs[name]).norm() / theirs[name].norm()) for name in ours}
    print(f"ERRORS{rank}", json.dumps(errors))
    data = batch_of(rows, with_reference=False)
    tu.assign_non_tensor(data, compute_loss=False, temperature=torch.ones(len(rows)))
    try:
        worker.infer_batch(data)
    except UserError as error:
        print("REFUSED", error)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
