"""Supervised training on prompt/response rows: makes the base policy of small worlds, or warms up a given model."""

import hashlib
import signal
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dph.build import make_task
from dph.config import SftConfig
from dph.errors import Interrupted, UserError
from dph.models.batch import Tokens, microbatches
from dph.models.card import write_card
from dph.models.loading import choose_device, refuse_adapters, weight_type
from dph.models.memory import freed_memory
from dph.models.policy import Policy
from dph.models.precision import computed_in, settled
from dph.process.distributed import World
from dph.process.interrupts import Interrupts
from dph.process.memory import peak_memory
from dph.process.progress import progress, say
from dph.runs.directory import RunDir
from dph.runs.files import directory_written_atomically
from dph.sampling.seeding import EpochOrder
from dph.tasks import Demonstrates
from dph.tasks.records import read_prompt
from dph.tasks.tables import read_rows
from dph.training import checkpoints
from dph.training.checkpoints import TrainState
from dph.training.guards import check_extension, check_updates
from dph.training.inputs import microbatch_tokens
from dph.training.optim import Optimizer


def sft(config: SftConfig, *, resume: bool = False) -> Path:
    """Run the stage; returns its run directory, whose folder `model` holds the trained policy.

    Raises UserError when the data cannot be read, no row fits into the model's context, or loss or gradient is not
    finite for too long; Interrupted on SIGINT, SIGTERM and SIGHUP. The last two save the state first.
    """
    world = World.join()
    run = world.decided(lambda: RunDir.start(config.out, "sft", config, resume=resume, extend=check_extension))
    if run.complete:
        say(f"{run.path} is complete already")
        return run.path
    config = replace(config, model=settled(config.model, run, world))
    newest = world.decided(lambda: checkpoints.newest_intact(run.path))
    saved = None if newest is None else checkpoints.path_of(run.path, newest)

    def load() -> tuple[Policy, list[Tokens]]:
        texts = _texts(config)
        policy = _policy(config, texts, saved)
        return policy, _rows(policy, texts)

    policy, rows = world.together(load)
    policy.keep_less()
    world.decided(lambda: _pin(run, rows, fresh=saved is None))
    optimizer = Optimizer(policy.trainable(), config.optim, config.steps)
    state = checkpoints.restore(saved, policy, optimizer) if saved else TrainState()
    if world.leads:
        run.rewind(state.step - (state.pending is not None))
        if state.pending is not None:  # its line could not be written
            run.log(state.step, state.pending)
    state = replace(state, pending=None)

    def save() -> None:
        if world.leads:
            run.sync()
            checkpoints.save(run.path, policy, optimizer, state, keep=2)

    check_updates(state, config.optim.max_skipped, config.steps)  # a run that stopped here does not go on
    budget = microbatch_tokens(config.optim.tokens_per_microbatch, policy, run, world)
    freed = freed_memory(policy, budget)
    order = EpochOrder(len(rows), config.seed, "sft")
    quiet = not world.leads
    with Interrupts() as interrupts, progress("supervised training", config.steps, state.step, quiet=quiet) as shown:
        while state.step < config.steps:
            started = time.perf_counter()
            chosen = [rows[i] for i in order.take(state.explore_cursor, config.batch)]
            loss, norm = _step(policy, optimizer, chosen, budget, world)
            freed.after_step()
            taken, skipped = optimizer.steps_taken, optimizer.skipped_in_a_row
            metrics = {"loss": loss, "grad_norm": norm, "lr": optimizer.lr}
            state = TrainState(state.step + 1, state.explore_cursor + config.batch, 0, taken, skipped, pending=metrics)
            if world.leads:
                try:
                    run.log(state.step, metrics, {"seconds": time.perf_counter() - started} | peak_memory())
                except OSError:
                    save()
                    say(f"the state after step {state.step} is saved in {checkpoints.path_of(run.path, state.step)}")
                    raise
            state = replace(state, pending=None)
            stop = world.sum_values({"signal": float(interrupts.signal)})["signal"] > 0
            if stop or state.step % config.checkpoint_every == 0 or state.step == config.steps:
                world.together(save)
            try:
                check_updates(state, config.optim.max_skipped, config.steps)
            except UserError:
                world.together(save)
                raise
            shown.advance(1, f"loss {loss:.3f}")
            if stop:
                where = f"stopped after step {state.step} of {config.steps}, which is saved"
                raise Interrupted(
                    interrupts.signal or signal.SIGTERM, f"{where}; the same command with --resume continues"
                )
    if world.leads:
        with directory_written_atomically(run.path / "model") as path:
            policy.save(path)
            write_card(path, run)
        run.finish(weight_hash=policy.weight_hash(), tokenizer_hash=policy.tokenizer_hash(), rows=len(rows))
    world.wait()
    return run.path


def _texts(config: SftConfig) -> list[tuple[Any, str]]:
    """(prompt, response) pairs from the data file, or the task's own demonstrations."""
    if config.data:
        rows = read_rows(Path(config.data), required=("prompt",), texts=("response",))
        return [
            (read_prompt(row, f"{config.data}, row {number}"), row["response"]) for number, row in enumerate(rows, 1)
        ]
    task = make_task(config.task)
    if not isinstance(task, Demonstrates):
        raise UserError(f"the task {config.task.name!r} has no demonstrations of its own; add --data FILE")
    return [(row["prompt"], row["response"]) for row in task.demonstrations(config.demonstrations, config.seed)]


def _policy(config: SftConfig, texts: Sequence[tuple[Any, str]], saved: Path | None) -> Policy:
    if saved is not None and not config.model.lora_rank:
        return Policy.load(replace(config.model, path=str(saved / "model")))
    if config.model.path:
        policy = Policy.load(config.model, config.seed)
        refuse_adapters(config.model.path, policy.model)
        return policy
    if config.model.lora_rank:
        raise UserError("adapters need a given model; add --model.path, or leave out --model.lora-rank")
    from dph.models.scratch import new_policy

    joined = [text for pair in texts for text in pair]
    if not all(isinstance(text, str) for text in joined):
        raise UserError("a model made from scratch has no chat template; give prompts as plain text")
    policy = new_policy(config.new, joined, config.seed)
    policy.model.to(choose_device(config.model.device))
    for parameter in policy.model.parameters():
        parameter.data = parameter.data.to(weight_type(config.model.precision))
    return Policy(policy.model, policy.tokenizer, precision=computed_in(config.model.precision))


def _rows(policy: Policy, texts: Sequence[tuple[Any, str]]) -> list[Tokens]:
    rows = []
    for prompt, response in texts:
        # arrays take a ninth of the memory of lists, which matters with many demonstrations
        ids = (array("i", part) for part in (policy.encode_prompt(prompt), policy.encode_response(response)))
        rows.append(Tokens(*ids))
    fitting = [row for row in rows if row.prompt_ids and row.length <= policy.context_length]
    if len(fitting) < len(rows):
        gone = len(rows) - len(fitting)
        say(f"{gone} of {len(rows)} rows are left out: empty, or over {policy.context_length} tokens")
    if not fitting:
        raise UserError(f"no row fits into the model's context of {policy.context_length} tokens")
    return fitting


def _pin(run: RunDir, rows: Sequence[Tokens], *, fresh: bool) -> None:
    """Record a hash of the rows of a new run. Raises UserError if those of a resumed run are others."""
    digest = hashlib.sha256()
    for row in rows:
        for part in (row.prompt_ids, row.response_ids):
            digest.update(array("q", [len(part), *part]).tobytes())
    if fresh:
        run.update(rows_hash=digest.hexdigest())
    elif run.manifest.get("rows_hash", digest.hexdigest()) != digest.hexdigest():
        raise UserError(
            f"the rows are not those that {run.path} was started with; restore the old data, then continue with "
            "--resume, or start a new run with a different --out"
        )


def _step(
    policy: Policy, optimizer: Optimizer, rows: Sequence[Tokens], token_budget: int, world: World
) -> tuple[float, float]:
    """One optimizer step on the mean negative log-likelihood per response token; returns loss and gradient norm."""
    tokens = sum(len(row.response_ids) for row in rows)
    total = 0.0
    own = [rows[i] for i in world.share(len(rows))]
    with policy.casting_once():
        for part in microbatches(own, token_budget):
            logprobs, _ = policy.logprobs(policy.collate(part))
            loss = -logprobs.sum() / tokens
            loss.backward()
            total += float(loss.detach())
    world.sum_gradients(optimizer.parameters)
    with torch.no_grad():
        norm = optimizer.step()
    return world.sum_values({"loss": total})["loss"], norm
