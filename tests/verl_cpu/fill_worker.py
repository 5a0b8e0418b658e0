# pyright: reportMissingImports=false
"""Test support: stored responses that are computed before their update, in verl's FSDP2 engine, without Ray.

    RANK=0 WORLD_SIZE=1 python fill_worker.py FOLDER

Every case of the contract is one update on the same rows, of whose stored responses none, three or all are computed
before. It prints the relative error of each update's gradient, and that of the sums of the divergence, as JSON.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from contract_worker import batch_of, make_worker, noted_gradient, save_model
from verl.utils import tensordict_utils as tu

from contract.fixture import case_name, read, relative_error
from dph.integrations.verl.loss import DPHLoss
from dph.integrations.verl.worker import FILL, FILLED, MINIBATCHES
from dph.training.rows import Row


def share(rows: list[Row], rank: int, ranks: int) -> list[Row]:
    """A rank's rows; copies that do not count make them as many on each rank."""
    own = rows[rank::ranks]
    return own + [replace(rows[0], weight=0.0)] * (-(-len(rows) // ranks) - len(own))


def main(folder: Path) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    contract = read()
    save_model(contract, folder / f"model{rank}")
    worker, _ = make_worker(folder / f"model{rank}")
    gradient = noted_gradient(worker)
    rollouts = [row for row in contract.rows if not row.is_rehearsal]
    stored = [row for row in contract.rows if row.is_rehearsal]

    def update(rows: list[Row], definition: bool, **more: Any) -> dict[str, Any]:
        data = batch_of(share(rows, rank, ranks), with_reference=definition)
        facts = {"epochs": 1, "temperature": contract.temperature, "calculate_entropy": False, MINIBATCHES: 1}
        tu.assign_non_tensor(data, mini_batch_size=1, dataloader_kwargs={"shuffle": False}, **facts, **more)
        return tu.get(worker.train_mini_batch(data), "metrics")

    def number(value: Any) -> float:
        return float(value[0] if isinstance(value, list) else value)

    errors = {}
    for case in contract.cases:
        worker.set_loss_fn(DPHLoss(case.config))
        definition, divergences = case.config.estimator == "definition", []
        for pieces in ([], [stored[:1], stored[1:3]], [stored]):
            before = [row for piece in pieces for row in piece]
            sums = [number(update(piece, definition, **{FILL: True})["pef/divergence"]) for piece in pieces]
            filled = sum(len(row.response_ids) for row in before), len(before)
            found = update([*rollouts, *stored[len(before) :]], definition, **({FILLED: filled} if before else {}))
            tokens = number(found["pef/tokens"]) + filled[0]
            divergences.append(number(found["pef/divergence"]) + sum(sums) / tokens)
            name = f"{case_name(case.config)}, {len(before)} before"
            errors[name] = relative_error(gradient, case.gradient)
            errors[f"{name}: divergence"] = abs(divergences[-1] / divergences[0] - 1)
    if rank == 0:
        print("ERRORS", json.dumps(errors))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
