# pyright: reportMissingImports=false
"""The bank in a GRPO trainer of TRL: what the trainer generates is admitted, and stored rows are taken from it.

A step rehearses what earlier steps admitted. Generations are seen when they are scored, while the policy is still the
one that drew them, and admitted when their optimizer step has been taken. All processes see all generations, so that
they hold the same bank and run the model equally often, as FSDP needs. The bank of a checkpoint is in its folder, and
the folder `bank` of the trainer's output_dir (`dph.rehearsal.bank_files`).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainerCallback

from dph.config import TaskConfig, from_dict
from dph.engine import (
    Bank,
    BankKey,
    Forms,
    Presampled,
    Rehearsal,
    Sighting,
    Solution,
    Tokens,
    answer_of,
    load_problems,
    style_of,
)
from dph.errors import DataError, RunError, SettingsError, UserError
from dph.integrations.bank import KeptBank
from dph.integrations.trl.shared_prefix import padded_rows
from dph.types import Problem, read_problem

_OF_PROBLEMS = ("style", "answer")
"""Keys that read the problem of a response."""


class TrainerBank(TrainerCallback):
    """The bank of a trainer; as a callback it admits at the end of each optimizer step."""

    def __init__(self, trainer: Any, stored: Sequence[Rehearsal], run: Path | None) -> None:
        """stored: responses with which the bank begins. run: the presample run that they are of, if there is one.
        Raises UserError for a trainer whose generations cannot be admitted, and for a key that its problems lack."""
        self._trainer, self._stored = trainer, stored
        args = trainer.args
        _check_trainer(trainer)
        problems, self._has_problems = _problems_of(trainer.train_dataset)
        if stored and not self._has_problems:
            raise DataError(
                "a bank that begins with stored responses has to tell their problems from those of the data set, which "
                "lacks the column `problem`; make it with exploration_set(…, prompt_set='all'), or leave rehearsal_set "
                "out"
            )
        task, of_task = _task_of(run)
        problems |= of_task  # which have their prompts
        if unknown := [row.problem_id for row in stored if row.problem_id not in problems]:
            raise DataError(f"the bank would begin with responses to unknown problems (first {unknown[0]!r})")
        if args.bank in _OF_PROBLEMS and not self._has_problems:
            raise SettingsError(
                f"bank is {args.bank!r}, which reads problems, but the data set has no column `problem`; make it with "
                "exploration_set, or choose text, tokens or a key of a plug-in"
            )
        style = partial(style_of, task) if task is not None else lambda problem, response: None
        key, resume = BankKey(args.bank, Forms(problems, style, answer_of)), "resume_from_checkpoint"
        given = (key, args.bank_capacity, args.seed, [*problems], Path(args.output_dir))
        self._kept = KeptBank(*given, off="bank=''", resume=resume)
        self._restored = False
        self._completions: list[list[int]] = []
        self._rewards = torch.empty(0)
        self._seen: list[Sighting] = []

    @property
    def bank(self) -> Bank:
        """The entries."""
        return self._kept.bank

    # Rehearsal ---------------------------------------------------------------------------------------------------

    def draw(self, count: int) -> list[Rehearsal]:
        """The stored responses of the next optimizer step, over all processes; fewer while the bank has fewer."""
        return self._kept.draw(count)

    # Admission ---------------------------------------------------------------------------------------------------

    def note_rewards(self, completions: list[list[int]], rewards: torch.Tensor) -> None:
        """Take the token ids of this process's completions, and the rewards [N, functions] of all processes', NaN
        where a function gave none."""
        self._completions, self._rewards = completions, rewards.detach().float().cpu()

    def see(self, inputs: Sequence[Mapping[str, Any]], prompts: Iterable[list[int]]) -> None:
        """See what was generated and scored last. inputs: this process's rows of the data set; prompts: the token ids
        of their prompts."""
        trainer, args = self._trainer, self._trainer.args
        texts = trainer._tokenizer.batch_decode(self._completions, skip_special_tokens=True)
        ends = set(trainer.eos_token_ids)
        mine = [
            (self._id(row), prompt, ids, text, bool(ids) and ids[-1] in ends)
            for row, prompt, ids, text in zip(inputs, prompts, self._completions, texts, strict=True)
        ]
        rewards = (self._rewards * trainer.reward_weights.cpu()).nansum(1).tolist()
        scored = (~self._rewards.isnan().all(1)).tolist()
        least = 1.0 if args.bank_correct_from is None else args.bank_correct_from
        graded = [reward for reward, judged in zip(rewards, scored, strict=True) if judged and 0 < reward < 1]
        if graded and args.bank_correct_from is None:
            raise SettingsError(
                f"the bank admits correct responses, but the reward function pays graded rewards ({graded[0]:g}), and "
                "nobody said from which one on a response is correct; set bank_correct_from (0.999 if only a reward of "
                "1 is)"
            )
        solutions = [
            Solution(id, prompt, ids, [], text, correct=judged and reward >= least, finished=finished)
            for (id, prompt, ids, text, finished), reward, judged in zip(
                gather_object(mine), rewards, scored, strict=True
            )
        ]
        size = trainer.num_generations
        groups = [solutions[start : start + size] for start in range(0, len(solutions), size)]
        seen = [self.bank.sight(group[0].problem_id, group) for group in groups]
        new = [row for one in seen for row in (*one.rows.values(), *one.each)]
        exact = iter(zip(new, self._logprobs(new), strict=True))
        for one in seen:
            rows = {mode: next(exact) for mode in one.rows}, [next(exact) for _ in one.each]
            found = {mode: row.with_logprobs(values) for mode, (row, values) in rows[0].items()}
            self._seen.append(replace(one, rows=found, each=[row.with_logprobs(values) for row, values in rows[1]]))

    @torch.no_grad()
    def _logprobs(self, rows: Sequence[Tokens]) -> list[list[float]]:
        """log π of each response token under the policy as it is, of the main process, by TRL's own method."""
        trainer, size = self._trainer, self._trainer.args.per_device_train_batch_size
        found = list[list[float]]()
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            padded = padded_rows(some, trainer._tokenizer.pad_token_id, trainer.accelerator.device)
            values, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, *padded)
            found += [
                line[: len(row.response_ids)].tolist() for row, line in zip(some, values.float().cpu(), strict=True)
            ]
        shared = [found]
        broadcast_object_list(shared)  # another device may round otherwise
        return shared[0]

    def _id(self, row: Mapping[str, Any]) -> str:
        return read_problem(row["problem"]).id if self._has_problems else _id_of_prompt(row["prompt"])

    # A training --------------------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the bank, unless a checkpoint was read."""
        if self._restored:
            return
        if state.global_step:
            raise RunError("the checkpoint was read without its bank; give train() the folder of the checkpoint")
        earlier = Path(args.output_dir).glob("checkpoint-*")
        self._kept.begin(self._stored, earlier, writes=args.should_save)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Admit what was seen in the step."""
        metrics = self._kept.admit(state.global_step, self._seen, writes=args.should_save)
        self._seen = []
        for name, value in metrics.items():
            self._trainer._metrics["train"][name].append(value)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the entries that are in no file yet."""
        self._restored = False
        if args.should_save:
            self._kept.finish(state.global_step)

    def save(self, checkpoint: Path) -> None:
        """Write the bank into the folder of a checkpoint."""
        self._kept.save(checkpoint)

    def restore(self, checkpoint: Path) -> None:
        """The bank as it was when a checkpoint was written. Raises UserError for files that are missing or damaged."""
        self._kept.restore(checkpoint, writes=self._trainer.args.should_save)
        self._restored = True


def _check_trainer(trainer: Any) -> None:
    args, dataset = trainer.args, trainer.train_dataset
    if trainer.tools or getattr(trainer, "environment_factories", None):
        raise SettingsError("the bank keeps responses of one turn, and this trainer has tools; leave bank out")
    if not hasattr(dataset, "__len__"):
        raise SettingsError("the bank draws problems of the data set in its own order; give a data set with a length")
    if images := {"image", "images"} & set(getattr(dataset, "column_names", None) or ()):
        raise SettingsError(f"the bank keeps texts, and the data set has the column {min(images)!r}; leave bank out")
    if len(trainer.reward_funcs) > 1 and args.bank_correct_from is None:
        raise SettingsError(
            f"the bank admits correct responses, and this trainer has {len(trainer.reward_funcs)} reward functions; "
            "set bank_correct_from, the weighted sum of rewards from which on a response is correct"
        )


def _problems_of(dataset: Any) -> tuple[dict[str, Problem], bool]:
    """The problems of a data set by id, and whether it has them in the column `problem`; else the id is a hash of the
    prompt."""
    if "problem" not in dataset.column_names:
        return {id: Problem(id, "", "", "none") for id in map(_id_of_prompt, dataset["prompt"])}, False
    try:
        problems = [read_problem(text) for text in dataset["problem"]]
    except (ValueError, TypeError) as error:
        raise UserError(
            f"the column `problem` does not hold problems as exploration_set writes them ({error}); rename it"
        ) from error
    return {problem.id: problem for problem in problems}, True


def _id_of_prompt(prompt: Any) -> str:
    return hashlib.blake2b(json.dumps(prompt, sort_keys=True).encode(), digest_size=16).hexdigest()


def _task_of(run: Path | None) -> tuple[Any, dict[str, Problem]]:
    """The task of a presample run, and its problems by id; nothing without a run."""
    if run is None:
        return None, {}
    task, problems = load_problems(from_dict(TaskConfig, Presampled.open(run).run.manifest["task"]))
    return task, {problem.id: problem for problem in problems}
