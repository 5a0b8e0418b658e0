# pyright: reportMissingImports=false
"""Test support: the contract of all engines in verl's own FSDP2 engine and training worker, without Ray.

    RANK=0 WORLD_SIZE=1 python contract_worker.py FOLDER

prints for every case the relative errors of loss and gradient as JSON. Rows are dealt to the ranks in turn, and cut
into micro-batches of a few dozen tokens.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import verl_cpu_rollout  # noqa: F401  (registers FSDP2's engine for the CPU)
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker

from contract.fixture import Contract, case_name, read, relative_error
from dph.config import NewModelConfig
from dph.integrations.verl.engine import IS_REHEARSAL, MINIBATCHES, ROW_WEIGHT, DPHLoss, DPHTrainingWorker
from dph.models.scratch import new_policy
from dph.training.rows import Row

BUDGET = 40
"""Tokens of a micro-batch; a row has up to 16."""


def save_model(contract: Contract, folder: Path) -> None:
    contract.make_model().save_pretrained(folder)
    sizes = NewModelConfig(tokenizer="word", hidden=8, layers=1, heads=2, intermediate=8, context=8)
    new_policy(sizes, ["a b c"], 0).tokenizer.save_pretrained(folder)  # verl loads one with every model


def make_worker(folder: Path, kind: type[TrainingWorker] = DPHTrainingWorker, *more: str) -> tuple[Any, Any]:
    """A training worker of verl with the model of a folder, and the actor's configuration.

    more: overrides of verl's configuration.
    """
    with initialize_config_module("dph.integrations.verl", version_base=None):
        config = compose(
            "dph_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={folder}",
                "actor_rollout_ref.model.use_remove_padding=false",
                "actor_rollout_ref.model.enable_gradient_checkpointing=false",
                "+actor_rollout_ref.model.override_config.attn_implementation=eager",
                "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
                "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
                "+actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=fp32",
                "actor_rollout_ref.rollout.name=hf_cpu",
                "actor_rollout_ref.actor.optim.lr=0.0",
                "actor_rollout_ref.actor.optim.total_training_steps=10",
                *more,
            ],
        ).actor_rollout_ref
    actor = omega_conf_to_dataclass(config.actor)
    actor.model_config = omega_conf_to_dataclass(config.model)
    settings = TrainingWorkerConfig(
        model_type="language_model",
        model_config=actor.model_config,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    settings.engine_config.use_dynamic_bsz = True
    settings.engine_config.max_token_len_per_gpu = settings.engine_config.infer_max_token_len_per_gpu = BUDGET
    worker = kind(settings)
    worker.reset()
    return worker, actor


def batch_of(rows: list[Row], *, with_reference: bool) -> TensorDict:
    """Rows as verl's trainer hands them to a worker: nested columns."""

    def nested(lists: list[list[Any]]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(values) for values in lists], layout=torch.jagged)

    prompts, responses = [list(row.prompt_ids) for row in rows], [list(row.response_ids) for row in rows]
    columns = {
        "prompts": nested(prompts),
        "responses": nested(responses),
        "input_ids": nested([a + b for a, b in zip(prompts, responses, strict=True)]),
        "position_ids": nested([list(range(row.length)) for row in rows]),
        "response_mask": nested([[int(row.weight > 0)] * len(row.response_ids) for row in rows]),
        "loss_mask": nested([[int(row.weight > 0)] * len(row.response_ids) for row in rows]),
        "old_log_probs": nested([list(row.old_logprobs) for row in rows]),
        "advantages": nested([[row.advantage] * len(x) for row, x in zip(rows, responses, strict=True)]),
        IS_REHEARSAL: nested([[int(row.is_rehearsal)] for row in rows]),
    }
    if with_reference:
        columns["ref_log_prob"] = nested([list(row.ref_logprobs or ()) for row in rows])
    return TensorDict(columns, batch_size=len(rows))


def noted_gradient(worker: TrainingWorker) -> dict[str, torch.Tensor]:
    """By parameter name, the gradient with which the worker takes its next optimizer step."""
    gradient: dict[str, torch.Tensor] = {}
    step = worker.engine.optimizer_step

    def note() -> Any:
        for name, parameter in worker.engine.module.named_parameters():
            if parameter.grad is not None:
                gradient[name] = parameter.grad.full_tensor().clone()
        return step()

    worker.engine.optimizer_step = note
    return gradient


def weighted_error(worker: TrainingWorker, contract: Contract, rank: int, ranks: int) -> list[float]:
    """How far, in loss and gradient, stored rows of weight 2 are from two such rows each, beside others of weight 1."""
    case = next(one for one in contract.cases if one.config.divergence == "forward_kl")
    rows, found = contract.rows[rank::ranks], list[tuple[float, dict[str, torch.Tensor]]]()
    heavy = [row for row in rows if row.is_rehearsal and row.weight > 0][::2]
    gradient = noted_gradient(worker)
    for weighted in (True, False):
        given = rows if weighted else [*rows, *heavy]
        data = batch_of(given, with_reference=False)
        if weighted:
            weights = [[2.0 if row in heavy else 1.0] for row in rows]
            data[ROW_WEIGHT] = torch.nested.as_nested_tensor(list(map(torch.tensor, weights)), layout=torch.jagged)
        worker.set_loss_fn(DPHLoss(case.config))
        found.append((step(worker, data, contract), dict(gradient)))
    (loss, one), (other, two) = found
    return [abs(loss - other) / abs(other), relative_error(one, two), float(len(heavy))]


def step(worker: TrainingWorker, data: TensorDict, contract: Contract) -> float:
    """Take a step on one mini-batch; returns its loss."""
    facts = {"epochs": 1, "temperature": contract.temperature, "calculate_entropy": False, MINIBATCHES: 1}
    tu.assign_non_tensor(data, mini_batch_size=1, dataloader_kwargs={"shuffle": False}, **facts)
    loss = tu.get(worker.train_mini_batch(data), "metrics")["loss"]
    return float(loss[0] if isinstance(loss, list) else loss)


def main(folder: Path) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    contract = read()
    save_model(contract, folder / f"model{rank}")
    worker, _ = make_worker(folder / f"model{rank}")
    gradient = noted_gradient(worker)
    errors = {}
    for case in contract.cases:
        worker.set_loss_fn(DPHLoss(case.config))
        definition = case.config.estimator == "definition"
        data = batch_of(contract.rows[rank::ranks], with_reference=definition)
        error = abs(step(worker, data, contract) - case.loss) / abs(case.loss)
        errors[case_name(case.config)] = [error, relative_error(gradient, case.gradient)]
    weighted = weighted_error(worker, contract, rank, ranks)
    if rank == 0:
        print("ERRORS", json.dumps(errors))
        print("WEIGHTED", json.dumps(weighted))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
