"""Supervised training on rows of prompts and responses. It makes the base policy of small worlds, or warms up a given
model."""

import hashlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dph.build import make_task
from dph.columns import ignored, is_empty
from dph.config import SftConfig
from dph.errors import DataError, ModelError, RunError, SettingsError, counted
from dph.models.batch import Tokens, microbatches
from dph.models.chat import Rendering, noted_rendering
from dph.models.device import choose_device, computed_in, weight_type
from dph.models.fitting import settled_tokens
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.interrupts import Interrupts
from dph.process.progress import say
from dph.process.user_code import ask
from dph.runs.directory import RunDir
from dph.runs.pinned import ANEW
from dph.sampling.rollouts import say_unused_variables
from dph.sampling.seeding import EpochOrder
from dph.tasks import Demonstrates
from dph.tasks.prompts import read_prompt, row_variables
from dph.tasks.rows import refuse_media
from dph.tasks.tables import placed_rows
from dph.training import checkpoints
from dph.training.checkpoints import TrainState
from dph.training.optim import Optimizer
from dph.training.run_loop import (
    Clock,
    RunLoop,
    Saver,
    finish,
    open_run,
    say_if_idle,
)
from dph.types import TEMPLATE_COLUMN, Problem


def sft(config: SftConfig, *, resume: bool = False) -> Path:
    """Run the stage. Returns its run directory, whose folder `model` holds the trained policy.

    Raises UserError if the data cannot be read, no row fits into the context of the model, or loss or gradient is not
    finite for too long. Raises Interrupted on SIGINT, SIGTERM and SIGHUP. In the last two cases the state is saved
    first.
    """
    opened = open_run(config, "sft", resume=resume)
    world, run, config, saved = opened.world, opened.run, opened.config, opened.checkpoint
    if run.complete:
        return run.path

    def load() -> tuple[Policy, list[Tokens]]:
        problems = _demonstrations(config)
        policy = starting_policy(config, [(problem.prompt, problem.answer) for problem in problems], saved)
        return policy, _rows(policy, problems)

    policy, rows = world.together(load)
    noted_rendering(run, policy, world)
    world.decided(lambda: _pin(run, rows, fresh=saved is None))
    optimizer = Optimizer(policy.trainable(), config.optim, config.steps)
    state = TrainState() if saved is None else checkpoints.restore(saved, policy, optimizer)
    if world.leads:
        run.rewind(state.step - (state.pending is not None))
    budget = settled_tokens(config.optim.tokens_per_microbatch, policy, run, world)
    saver = Saver(run, policy, optimizer, state, world, keep=2)
    order = EpochOrder(len(rows), config.seed, "sft")

    def step(clock: Clock, _: Interrupts) -> None:
        """One optimizer step on the next rows of the endless order."""
        cursor = saver.state.explore_cursor
        with saver.changing():
            batch = [rows[i] for i in order.take(cursor, config.batch)]
            loss, norm = supervised_step(policy, optimizer, batch, budget, world)
            saver.state = TrainState(
                step=saver.state.step + 1,
                explore_cursor=cursor + config.batch,
                optimizer_steps=optimizer.steps_taken,
                skipped_in_a_row=optimizer.skipped_in_a_row,
                pending={"loss": loss, "grad_norm": norm, "lr": optimizer.lr},
            )
        clock.lap("update")

    say_if_idle(config.steps, config.optim.lr, world)
    skipped = min(config.optim.max_skipped, config.steps)
    work = ("supervised training", "loss")
    RunLoop(config.steps, config.checkpoint_every, skipped, world, saver, run.log, *work).repeat(step)

    def facts() -> dict[str, Any]:
        return {"weight_hash": policy.weight_hash(), "tokenizer_hash": policy.tokenizer_hash(), "rows": len(rows)}

    return finish(run, world, policy.save, facts)


def _demonstrations(config: SftConfig) -> list[Problem]:
    """The rows of the data file, or the demonstrations of the task, as problems. The answers of these problems are the
    responses, and their ids are the places of the rows, for messages."""
    if config.data:
        return _rows_of(Path(config.data))
    task = make_task(config.task)
    if not isinstance(task, Demonstrates):
        raise SettingsError(f"the task {config.task.name!r} has no demonstrations of its own; add --data FILE")
    rows = ask(
        f"demonstrations of task {type(task).__name__}",
        task,
        lambda: task.demonstrations(config.demonstrations, config.seed),
        lambda rows: all(
            isinstance(row["prompt"], str | list | tuple) and isinstance(row["response"], str) for row in rows
        ),
        "rows with the texts prompt and response",
    )
    return [Problem(f"demonstration {n}", row["prompt"], row["response"], "") for n, row in enumerate(rows, 1)]


def _rows_of(file: Path) -> list[Problem]:
    """The rows of a file of prompts and responses, as problems. Says which other columns the file has."""
    if file.is_dir():
        raise DataError(
            f"{file} is a folder; --data of dph sft takes a file of prompts and responses, or with --task records the "
            "folder of your problems, whose golds are then the responses"
        )
    read, columns, unread = [], ("prompt", "response"), dict[str, None]()
    for where, row in placed_rows(file, required=columns[:1], texts=columns[1:]):
        refuse_media(row, columns, where)
        variables = {TEMPLATE_COLUMN: row_variables(row, where)}
        prompt = read_prompt(row["prompt"], where, unread)
        read.append(Problem(where, prompt, row["response"], verifier="", meta=variables))
        known = (*columns, TEMPLATE_COLUMN)
        unread |= {name: None for name, value in row.items() if name not in known and not is_empty(value)}
    if line := ignored(unread):
        say(line)
    return read


def starting_policy(config: SftConfig, texts: Sequence[tuple[Any, str]], saved: Path | None) -> Policy:
    """The policy that training begins with: from a checkpoint, from the model that the settings name, or new, with a
    tokenizer fitted to the texts."""
    if config.model.path or saved is not None:
        return Policy.to_train(config.model, config.seed, saved)
    if config.model.lora_rank:
        raise SettingsError("adapters need a given model; add --model.path, or leave out --model.lora-rank")
    from dph.models.scratch import new_policy

    joined = [text for pair in texts for text in pair]
    if not all(isinstance(text, str) for text in joined):
        raise DataError("a model made from scratch has no chat template; give prompts as plain text")
    policy = new_policy(config.new, joined, config.seed)
    policy.model.to(choose_device(config.model.device))
    for parameter in policy.model.parameters():
        parameter.data = parameter.data.to(weight_type(config.model.precision))
    rendering, precision = Rendering.of(config.model), computed_in(config.model.precision)
    policy = Policy(policy.model, policy.tokenizer, precision=precision, rendering=rendering)
    policy.save_memory()
    return policy


def _rows(policy: Policy, problems: Sequence[Problem]) -> list[Tokens]:
    rows = []
    for problem in problems:
        # arrays take a ninth of the memory of lists, which matters with many demonstrations
        ids = (array("i", tokens) for tokens in (policy.encode_problem(problem), _response(policy, problem)))
        rows.append(Tokens(*ids))
    say_unused_variables(policy.tokenizer, problems)
    fitting = [row for row in rows if row.prompt_ids and row.length <= policy.context_length]
    if len(fitting) < len(rows):
        gone = len(rows) - len(fitting)
        say(f"left out: {gone} of {counted(len(rows), 'row')}, empty or over {policy.context_length} tokens")
    if not fitting:
        raise DataError(f"no row fits into the model's context of {policy.context_length} tokens; shorten the rows")
    return fitting


def _response(policy: Policy, problem: Problem) -> list[int]:
    try:
        return policy.encode_response(problem.answer)
    except ModelError as error:
        raise ModelError(f"{problem.id}: {error}") from error


def _pin(run: RunDir, rows: Sequence[Tokens], *, fresh: bool) -> None:
    """Record a hash of the rows of a new run. Raises UserError if a resumed run has other rows."""
    digest = hashlib.sha256()
    for row in rows:
        for ids in (row.prompt_ids, row.response_ids):
            digest.update(array("q", [len(ids), *ids]).tobytes())
    if fresh:
        run.update(rows_hash=digest.hexdigest())
    elif run.manifest.get("rows_hash", digest.hexdigest()) != digest.hexdigest():
        raise RunError(f"the rows are not those that {run.path} was started with; restore the old data, or {ANEW}")


def supervised_step(
    policy: Policy, optimizer: Optimizer, rows: Sequence[Tokens], token_budget: int, world: World
) -> tuple[float, float]:
    """One optimizer step on the mean negative log-likelihood per response token. Returns the loss, in nats per token,
    and the norm of the gradient.

    rows: the rows of the step, of all processes. token_budget: the largest number of input tokens of a micro-batch.
    """
    tokens = sum(len(row.response_ids) for row in rows)
    total = 0.0
    with policy.casting_once():
        for microbatch in microbatches([rows[i] for i in world.share(len(rows))], token_budget):
            logprobs, _ = policy.logprobs(policy.collate(microbatch))
            loss = -logprobs.sum() / tokens
            loss.backward()
            total += float(loss.detach())
    world.sum_gradients(optimizer.parameters)
    with torch.no_grad():
        norm = optimizer.step()
    return world.sum_values({"loss": total})["loss"], norm
