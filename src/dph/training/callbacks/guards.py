"""Guards, alarms and the coverage ledger look at the rollouts of a step before the step learns from them. A guard stops
the run. An alarm says that something seems wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dph.errors import SharedUserError
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.coverage import Ledger, read_visits, write_visits
from dph.runs.pinned import Pinned
from dph.sampling.rollouts import unjudged_fault
from dph.training.callbacks.statistics import StepStats
from dph.training.rollouts import Drawn
from dph.types import Outcome

FAILURES = frozenset({Outcome.ERROR, Outcome.TIMEOUT, Outcome.INFRA_ERROR, Outcome.GOLD_ERROR})
"""The outcomes that are an error or a timeout, of the response or of the judging."""


class StepGuard:
    """Looks at the rollouts of each step before the step learns from them."""

    def __init__(
        self, run: Path, world: World, pinned: Pinned, ledger: Ledger, *, max_unjudged: float, by_function: bool
    ) -> None:
        """run: the run directory, whose coverage.jsonl gets a line for each step. ledger: the ledger of the earlier
        steps. max_unjudged: the share of the responses of a step whose judging may fail. by_function: as in
        `VerdictAlarm`."""
        self._run, self._world, self._pinned, self._ledger = run, world, pinned, ledger
        self._max_unjudged, self._alarm = max_unjudged, VerdictAlarm(by_function)

    def check(self, step: int, drawn: Drawn, stats: StepStats) -> dict[str, float]:
        """Note the rollouts of a step, and return the metrics coverage/….

        Raises SharedUserError (UserError in a single process) if the run must stop, because judging failed for too many
        responses, or because a database of the problems of the step has changed since the run started.
        """
        lost = stats.outcomes.get(Outcome.INFRA_ERROR, 0)
        if fault := unjudged_fault(lost, stats.responses, stats.reasons, self._max_unjudged):
            raise SharedUserError(fault)
        self._world.together(lambda: self._pinned.check(group.problem for group in drawn.sampled))
        if self._world.leads:
            if message := self._alarm.note(stats):
                say(f"step {step}: {message}")
            if step == 1 and self._ledger.reference:
                write_visits(self._run, 0, self._ledger.reference)
            write_visits(self._run, step, stats.visits)
        return self._ledger.note(stats.visits)


def ledger_after(run: Path, step: int, reference: Mapping[str, tuple[int, int]]) -> Ledger:
    """The ledger of a run after a step, from the file that the run wrote. reference: as in `Ledger`."""
    ledger = Ledger(reference)
    for earlier, visits in read_visits(run).items():
        if 0 < earlier <= step:
            ledger.note(visits)
    return ledger


@dataclass(slots=True)
class VerdictAlarm:
    """Watches the verdicts of consecutive steps for signs that the fault lies in the verifier, the prompts or a limit,
    and not in the policy. A condition that lasts is reported in its 1st, 2nd, 4th, 8th, … step."""

    by_function: bool = False
    """Whether a reward function judges, and not the verifiers."""
    failed: int = 0
    """The number of newest steps in a row in which every verdict is an error."""
    unrewarded: int = 0
    """The number of newest steps in a row in which every reward is 0."""

    def note(self, stats: StepStats) -> str | None:
        """Count a step. Returns the message of the alarm, or None. If all verdicts are errors, the message is about the
        errors and not about the missing reward."""
        failures = sum(stats.outcomes.get(outcome, 0) for outcome in FAILURES)
        self.failed = self.failed + 1 if 0 < failures == stats.responses else 0
        self.unrewarded = self.unrewarded + 1 if stats.responses and not stats.sampled["rewarded"] else 0
        lasted = self.failed or self.unrewarded
        if lasted.bit_count() != 1:  # a power of two
            return None
        message = "every verdict is an error" if self.failed else "every reward is 0"
        since = "this step" if lasted == 1 else f"{lasted} steps in a row"
        by_count = sorted(stats.outcomes.items(), key=lambda item: (-item[1], item[0]))
        counts = ", ".join(f"{n} {outcome}" for outcome, n in by_count)
        return f"{message} in {since} ({stats.responses} responses: {counts}); {self._advice(by_count[0][0])}"

    def _advice(self, commonest: Outcome) -> str:
        if self.by_function and commonest in FAILURES:
            return "check the reward function: it failed, as messages above say, or returned None"
        if self.by_function:
            return (
                "check that the reward function gives good responses more than 0 and reads the format that the prompt "
                "asks for, that rollout.max_tokens does not cut responses off, and whether the problems are too hard "
                "for this model"
            )
        if commonest is Outcome.NO_ANSWER:
            return (
                "check that the prompt asks for the answer format that the verifier reads, and that "
                "rollout.max_tokens does not cut responses off"
            )
        if commonest is Outcome.TIMEOUT:
            return "check whether verifier.timeout is too short for this machine"
        if commonest in FAILURES:
            return "check the verifier's databases and the format of the responses"
        return "check whether the gold answers are right, and whether the problems are too hard for this model"
