"""The coverage ledger: how often each problem was solved whenever training sampled it, and which problems are being
lost.

pass@k can fall while the mean reward rises, because some problems are never solved any more. Training sees this as it
happens, because it samples every prompt again and again. coverage.jsonl has one line for each step:

    {"step": 3, "problems": [["id", correct, judged], …]}

Step 0 holds the counts of the reference policy in pre-sampling. A run without pre-sampling has no such line. Lines are
written before the update of their step, and a resumed run drops the lines after its checkpoint.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

from dph.errors import RunError
from dph.runs.directory import drop_lines, step_lines
from dph.runs.files import appended

FILE = "coverage.jsonl"
CERTIFICATE = "certificate.jsonl"
"""The ledger file of the certification set. Step 0 is the base model, and the other steps are the checkpoints that were
checked."""
MONITORED = "monitor.jsonl"
"""The ledger file of the monitored problems, with a line for each measured step."""
CLASSES = {"hard": (0.0, 0.25), "middle": (0.25, 0.75), "easy": (0.75, 1.0)}
"""The classes of difficulty, by the pass rate of the reference policy. A rate lies above the first number and is at
most the second; a rate of 0 is hard."""

MOST_SAMPLES, _MOST_VISITED = 1_000_000, 4096
"""The largest number of samples of a problem in a table, and in one step of training. No run draws so many, and the
limit keeps sums over samples short."""

FALLING = 0.2
"""A pass rate has fallen if the reference policy would do as badly with at most this probability."""

Visit = tuple[str, int, int]
"""The id of a problem, and the numbers of correct and of judged responses of one group."""


class Ledger:
    """The record of each problem: its visits so far, and the pass rate of the reference policy if the problem was
    pre-sampled."""

    def __init__(self, reference: Mapping[str, tuple[int, int]]) -> None:
        """reference: the numbers of correct and of all responses of the reference policy, by the id of the problem."""
        self._reference = reference
        rates = {id: correct / samples for id, (correct, samples) in reference.items() if samples}
        self._class = {
            id: next(name for name, (low, high) in CLASSES.items() if low < rate <= high or rate == low == 0.0)
            for id, rate in rates.items()
        }
        self._solved = {id for id, (correct, _) in reference.items() if correct}
        self._last: dict[str, tuple[int, int]] = {}
        self._fallen: dict[str, bool] = {}

    @property
    def reference(self) -> list[Visit]:
        """The counts of the reference policy in pre-sampling."""
        return [(id, correct, samples) for id, (correct, samples) in self._reference.items()]

    @property
    def lost(self) -> list[str]:
        """The problems that were solved once, by this policy or by the reference policy, but not at their last
        visit."""
        return [id for id, (correct, _) in self._last.items() if not correct and id in self._solved]

    @property
    def falling(self) -> list[str]:
        """The problems of which the last visit shows a fallen pass rate: by the counts of the reference policy, it
        would have at most so many correct responses with a probability of at most `FALLING`. Problems that were not
        pre-sampled are never among them."""
        return [id for id, fallen in self._fallen.items() if fallen]

    def by_class(self, ids: Iterable[str]) -> dict[str, int]:
        """The number of problems of each of `CLASSES` among some problems. A problem that was not pre-sampled belongs
        to none."""
        classes = [self._class.get(id) for id in ids]
        return {name: classes.count(name) for name in CLASSES}

    @property
    def seen(self) -> list[str]:
        """The problems that have been visited."""
        return list(self._last)

    def note(self, visits: Sequence[Visit]) -> dict[str, float]:
        """Take the visits of a step into account. Returns the metrics coverage/… (docs/reference/metrics.md).

        One policy made all responses of a step. The visits of a problem in the step are therefore counted together, in
        whatever order they come.

        >>> ledger = Ledger({"a": (4, 8)})
        >>> metrics = ledger.note([("a", 0, 8), ("b", 1, 8)])
        >>> metrics["coverage/visited"], metrics["coverage/lost"], ledger.lost
        (2.0, 1.0, ['a'])
        """
        step: dict[str, tuple[int, int]] = {}
        for id, correct, judged in visits:
            if judged:
                before = step.get(id, (0, 0))
                step[id] = (before[0] + correct, before[1] + judged)
        self._last |= step
        for id, counts in step.items():
            self._fallen[id] = id in self._reference and as_few(*counts, *self._reference[id]) <= FALLING
        self._solved |= {id for id, (correct, _) in step.items() if correct}
        metrics = {
            "coverage/visited": float(len(self._last)),
            "coverage/falling": float(len(self.falling)),
            "coverage/lost": float(len(self.lost)),
            "coverage/unsolved": float(sum(id not in self._solved for id in self._last)),
        }
        for name in CLASSES:
            solved = [correct > 0 for id, (correct, _) in step.items() if self._class.get(id) == name]
            if solved:
                metrics[f"coverage/solved_{name}"] = sum(solved) / len(solved)
        return metrics


def as_few(correct: int, n: int, before: int, out_of: int) -> float:
    """The probability of at most `correct` correct responses of n, after `before` of `out_of` were correct.

    The pass rate has a uniform prior, so that the number X of correct responses is beta-binomial. In whole numbers:

        P(X = k) = C(before + k, k) · C(out_of − before + n − k, n − k) / C(out_of + n + 1, n).

    >>> as_few(0, 1, before=0, out_of=0), as_few(0, 1, before=1, out_of=1)  # 1/2 without data, then 1/3
    (0.5, 0.3333333333333333)
    """
    missed = out_of - before
    ways, term = 0, comb(missed + n, n)  # the term of k = 0; each further term follows from the term before it
    for k in range(correct + 1):
        ways += term
        term = term * (before + k + 1) * (n - k) // ((k + 1) * (missed + n - k) or 1)
    return ways / comb(out_of + n + 1, n)


def write_visits(run: Path, step: int, visits: Sequence[Visit], name: str = FILE) -> None:
    """Append the line of a step to the ledger file `name` of a run."""
    with appended(run / name) as file:
        file.write(f"{json.dumps({'step': step, 'problems': visits}, ensure_ascii=False)}\n".encode())


def read_visits(run: Path, name: str = FILE, *, strict: bool = False) -> dict[int, list[Visit]]:
    """The visits of each step, oldest first; step 0 has the counts of the reference policy.

    Reading ends at a line that was cut off, and at a damaged line. With `strict`, a damaged line raises RunError,
    because the lines after it would be left out.
    """
    by_step: dict[int, list[Visit]] = {}
    for line, row in step_lines(run / name):
        if not _has_visits(row):
            if strict:
                raise RunError(f"{run / name} is damaged at {line:.100}; restore it, or delete it")
            break
        by_step[row["step"]] = [(id, correct, judged) for id, correct, judged in row["problems"]]
    return by_step


def _has_visits(row: Mapping[str, Any]) -> bool:
    """Whether a line has the form of the lines that `write_visits` writes."""
    visits = row.get("problems")
    return isinstance(visits, list) and all(
        isinstance(visit, list)
        and len(visit) == 3
        and isinstance(visit[0], str)
        and are_counts(visit[1], visit[2], _MOST_VISITED)
        for visit in visits
    )


def are_counts(correct: object, samples: object, most: int = MOST_SAMPLES) -> bool:
    """Whether two values are the number of correct samples and the number of all samples of a problem."""
    whole = type(correct) is int and type(samples) is int
    return whole and 0 <= correct <= samples <= most  # type: ignore[operator]


def drop_visits(run: Path, after: int, name: str = FILE) -> None:
    """Remove the lines of steps after `after` from the ledger file `name` of a run."""
    drop_lines(run / name, after)
