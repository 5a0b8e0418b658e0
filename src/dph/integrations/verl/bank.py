# pyright: reportMissingImports=false
"""The bank in verl's driver: a step's correct responses are admitted, and stored rows are taken from it.

A step rehearses what earlier steps admitted. Responses are seen when their advantages are computed, with the
log-probabilities that the trainer has computed of them, and admitted when the step's updates have been taken. verl's
checkpoint global_step_N holds the bank in its folder `dph_bank`; the folder `bank` beside the checkpoints has the rest
(`dph.integrations.bank`).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta

from dph.config import TaskSource
from dph.engine import BankKey, Forms, Presampled, Rehearsal, Solution, answer_of, derive_key, make_task, style_of
from dph.errors import DataError, RunError, UserError
from dph.integrations.bank import KeptBank
from dph.integrations.verl.judged import JudgedResponse
from dph.integrations.verl.settings import DPHSettings
from dph.types import Problem, read_problem

FOLDER = "dph_bank"
"""Within verl's checkpoint."""
_NEWEST = "latest_checkpointed_iteration.txt"
"""Beside verl's checkpoints: verl writes it when a checkpoint is whole."""


class DriverBank:
    """The bank of verl's trainer."""

    def __init__(self, settings: DPHSettings, dataset: Any, presampled: Presampled | None, folder: Path) -> None:
        """A bank that `start` fills. Raises UserError for a data set whose problems are unknown, for a key that they
        lack, and for stored responses to other problems.

        Args:
            settings: the block `dph`.
            dataset: verl's data set of training.
            presampled: the run with whose stored responses the bank begins; None for an empty bank.
            folder: the folder of verl's checkpoints.
        """
        problems = _problems_of(dataset)
        self._stored = presampled.stored if presampled else []
        if unknown := [row.problem_id for row in self._stored if row.problem_id not in problems]:
            raise DataError(
                f"the bank would begin with responses to problems that training does not draw (first {unknown[0]!r}); "
                "make the data with --prompt-set all, or set dph.bank.begun=false"
            )
        task = cache(lambda: make_task(TaskSource(settings.task, settings.task_options)))

        def style(problem: Problem, response: str) -> str | None:
            return style_of(task(), problem, response) if settings.task else None

        if settings.task and settings.bank.key == "style":
            task()  # whose data must be here
        key = BankKey(settings.bank.key, Forms(problems, style, answer_of))
        self._places = {name: place for place, name in enumerate(problems)}
        self._seed, self._folder = settings.seed, folder
        given = (key, settings.bank.capacity, settings.seed, [*problems], folder)
        self._kept = KeptBank(*given, off="dph.bank.key=''", resume="trainer.resume_mode=auto")
        self._seen: list[Solution] = []

    def start(self, checkpoint: Path | None) -> None:
        """The bank of verl's checkpoint, or a new one. Raises RunError for a checkpoint of another folder, without a
        bank or with a damaged one, and for a new bank where checkpoints of another are."""
        if checkpoint is None:
            whole = (self._folder / _NEWEST).exists()  # without it verl was stopped in its first checkpoint
            self._kept.begin(self._stored, self._folder.glob(f"global_step_*/{FOLDER}") if whole else (), writes=True)
            return
        if checkpoint.resolve().parent != self._folder.resolve():
            raise RunError(
                f"the bank of the checkpoint {checkpoint} continues in the folder of its checkpoints only; set "
                f"trainer.default_local_dir={checkpoint.parent}"
            )
        self._kept.restore(checkpoint / FOLDER, writes=True)

    def draw(self, count: int) -> list[Rehearsal]:
        """The stored responses of the next update, over all ranks; fewer while the bank has fewer."""
        return self._kept.draw(count)

    def see(self, batch: KVBatchMeta, judged: Sequence[JudgedResponse]) -> None:
        """Take the responses of a batch, in its order. Raises UserError for responses of several turns, and for rewards
        that do not say which responses are correct."""
        fields = ["prompts", "extra_info"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        for one, prompt, info in zip(judged, data["prompts"], data["extra_info"], strict=True):
            verdict = one.rollout.verdict
            if not verdict.scored:
                continue
            if not one.outcome and 0 < verdict.reward < 1:
                raise UserError(
                    f"the bank admits correct responses, but the reward function pays graded rewards "
                    f"({verdict.reward:g}) and does not say which are correct; let it return the key `outcome` too, "
                    "with the value correct or wrong, or leave dph.bank.key out"
                )
            if not bool(one.own.all()):
                raise UserError(
                    "the bank keeps responses of one turn, and this one has what tools or users said in it; leave "
                    "dph.bank.key out"
                )
            drawn = one.rollout.completion
            self._seen.append(
                Solution(
                    _problem_of(info).id,
                    prompt.tolist(),
                    drawn.token_ids,
                    drawn.logprobs,
                    one.rollout.text,
                    correct=verdict.correct,
                    finished=drawn.finish_reason == "stop",
                )
            )

    def admit(self, step: int) -> dict[str, float]:
        """Admit what was seen in a step, whose updates have been taken; returns the metrics bank/….

        The responses of a step come in an order that depends on when they ended, and on the balance of the ranks. So
        problems are taken in the order of the data set, and the responses to a problem in one that a seed decides.
        """
        groups: dict[str, list[Solution]] = {}
        for solution in self._seen:
            groups.setdefault(solution.problem_id, []).append(solution)
        self._seen = []
        sightings = [
            self._kept.bank.sight(name, sorted(groups[name], key=lambda one: self._rank(step, one)))
            for name in sorted(groups, key=lambda name: self._places[name])
        ]
        return self._kept.admit(step, sightings, writes=True)

    def _rank(self, step: int, solution: Solution) -> tuple[int, list[int]]:
        tokens = list(solution.response_ids)
        return derive_key(self._seed, "bank of verl", step, *tokens), tokens

    def save(self, checkpoint: Path) -> None:
        """Write the bank into verl's checkpoint."""
        self._kept.save(checkpoint / FOLDER)

    def finish(self, step: int) -> None:
        """Write the entries that are in no file yet, after the last step."""
        self._kept.finish(step)


def _problems_of(dataset: Any) -> dict[str, Problem]:
    """The problems of verl's data set by id, in its order. Raises UserError if it does not have them as data.sh writes
    them."""
    table = getattr(dataset, "dataframe", None)
    try:
        problems = [_problem_of(info) for info in table["extra_info"]]  # type: ignore[index]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            "the bank has to know the problem of each prompt, and the data set of training does not have it "
            "(extra_info.problem); make the data with data.sh of a launch, or leave dph.bank.key out"
        ) from error
    return {problem.id: problem for problem in problems}


def _problem_of(info: Mapping[str, Any]) -> Problem:
    return read_problem(getattr(info, "data", info)["problem"])
