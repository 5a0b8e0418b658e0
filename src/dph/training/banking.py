"""The bank in the loop of `dph train`: a step's rollouts become what it is asked to admit, in every process alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dph.config import BankConfig
from dph.errors import SharedUserError, counted
from dph.models.batch import Tokens
from dph.process.distributed import World
from dph.process.progress import say
from dph.rehearsal.bank import Admission, Bank, Sighting
from dph.rehearsal.bank_files import BankFiles
from dph.rehearsal.modes import BankKey, Solution
from dph.rehearsal.store import Rehearsal
from dph.training.rollouts import Drawn
from dph.types import Group


@dataclass(frozen=True, slots=True)
class Banking:
    """The bank of a run, and its files."""

    bank: Bank
    files: BankFiles
    world: World
    logprobs: Callable[[Sequence[Tokens]], list[list[float]]] | None = None
    """log π of the policy as it is, for responses whose sampler does not report it exactly."""
    chosen_by_default: bool = False
    """Whether a reward function judges, and nobody said from which reward on a response is correct: from 1 on."""

    @classmethod
    def started(
        cls,
        config: BankConfig,
        key: BankKey,
        seed: int,
        problem_ids: Sequence[str],
        stored: Sequence[Rehearsal],
        run: Path,
        world: World,
        saved: Path | None,
    ) -> "Banking":
        """The bank as it is after a checkpoint or, without one, as it is before the first step: with the `stored`
        responses. Raises UserError when its files are damaged.

        problem_ids: those that training draws.
        """
        every = dict.fromkeys([*problem_ids, *(row.problem_id for row in stored)])
        bank, files = Bank(key, config.capacity, seed, list(every)), BankFiles(run)
        if saved is not None:
            files.restore(bank, saved)
            return cls(bank, files, world)
        begun = bank.begin(stored)
        if world.leads:
            files.write(0, begun)
            files.commit()
            problems = len({entry.row.problem_id for entry in bank.entries})
            held = f"with {len(bank)} ways to solve {counted(problems, 'problem')}" if begun else "empty"
            say(f"the bank begins {held} (bank.key {key.name})")
        return cls(bank, files, world)

    def admission(self, step: int, drawn: Drawn) -> Admission:
        """What the rollouts of a step change, the same in all processes; the leading process may write a file. The
        bank stays as it is. Raises SharedUserError for rewards that do not say which responses are correct."""
        mine = self.world.together(lambda: [self._sight(group) for group in drawn.sampled])
        graded = next((reward for group in drawn.sampled for reward in self._graded(group)), None)
        parts = self.world.gather((list(zip(drawn.order, mine, strict=True)), graded))
        if rewards := [reward for _, reward in parts if reward is not None]:
            raise SharedUserError(
                f"the bank admits correct responses, but the reward function pays graded rewards ({rewards[0]:g}), and "
                "nobody said from which one on a response is correct; set reward.correct_from (0.999 if only a reward "
                "of 1 is)"
            )
        placed = sorted((pair for pairs, _ in parts for pair in pairs), key=lambda pair: pair[0])
        admission = self.bank.admission(step, [seen for _, seen in placed])
        if self.world.leads:
            self.files.write(step, admission.admitted)
        return admission

    def commit(self, admission: Admission) -> dict[str, float]:
        """Change the bank; returns its metrics."""
        self.bank.commit(admission)
        self.files.commit()
        return self.bank.metrics(admission)

    def save(self, checkpoint: Path) -> None:
        """Write the bank into the folder of a checkpoint."""
        self.files.save(self.bank, checkpoint)

    def finish(self, step: int) -> None:
        """Write the entries that are in no file yet, after the last step."""
        if self.world.leads:
            self.files.finish(step)

    def _sight(self, group: Group) -> Sighting:
        solutions = [
            Solution(
                group.problem.id,
                group.prompt_ids,
                rollout.completion.token_ids,
                rollout.completion.logprobs,
                rollout.text,
                correct=rollout.verdict.correct,
                finished=rollout.completion.finish_reason == "stop",
            )
            for rollout in group.rollouts
        ]
        seen = self.bank.sight(group.problem.id, solutions)
        if self.logprobs is None or not (rows := [*seen.rows.values(), *seen.each]):
            return seen
        exact = self.logprobs(rows)
        rows = [row.with_logprobs(values) for row, values in zip(rows, exact, strict=True)]
        new = dict(zip(seen.rows, rows, strict=False))
        return replace(seen, rows=new, each=rows[len(new) :])

    def _graded(self, group: Group) -> list[float]:
        """Rewards of a group that are between those of wrong responses, 0 or less, and of right ones, 1 or more."""
        if not self.chosen_by_default:
            return []
        return [rollout.reward for rollout in group.rollouts if rollout.verdict.scored and 0 < rollout.reward < 1]
