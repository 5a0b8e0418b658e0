"""The coverage ledger: how often each problem was solved whenever training sampled it, and which are being lost.

pass@k falls while the mean reward rises: some problems are no longer solved at all. Training sees this as it happens,
because it samples every prompt again and again. coverage.jsonl has one line for each step:

    {"step": 3, "problems": [["id", correct, judged], …]}

Step 0 holds what the reference policy did in pre-sampling; a run without pre-sampling has no such line. Lines are
written before the update of their step, and a resumed run drops those after its checkpoint.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import comb, exp, lgamma, sqrt
from pathlib import Path

from dph.config import RehearsalConfig
from dph.config.text import parse_json
from dph.runs.files import write_atomically

FILE = "coverage.jsonl"
CLASSES = {"hard": (0.0, 0.25), "middle": (0.25, 0.75), "easy": (0.75, 1.0)}
"""Difficulty by the pass rate of the reference policy: above the first number, up to the second; hard from 0 on."""

FALLING = RehearsalConfig().falling
"""A pass rate has fallen if the reference policy would do as badly with at most this probability."""

LATELY = 64
"""Visits to a class that tell whether it is falling: the last so many, and at least a quarter of them."""

Visit = tuple[str, int, int]
"""A problem's id, its correct responses and its judged ones at one visit."""


class Ledger:
    """What is known of each problem: its visits so far, and the reference policy's pass rate if it was pre-sampled."""

    def __init__(self, reference: Mapping[str, tuple[int, int]], falling: float = FALLING) -> None:
        """reference: correct and all responses of the reference policy by problem; falling: see `is_falling`."""
        self._reference, self._falling = reference, falling
        self._class = {id: _class_of(correct / samples) for id, (correct, samples) in reference.items() if samples}
        self._solved = {id for id, (correct, _) in reference.items() if correct}
        self._last: dict[str, tuple[int, int]] = {}
        self._fallen: dict[str, bool] = {}
        self._lately = {name: deque[bool](maxlen=LATELY) for name in CLASSES}
        """Of each class, whether the pass rate had fallen at each of the last visits, oldest first."""

    @property
    def reference(self) -> list[Visit]:
        """What the reference policy did in pre-sampling."""
        return [(id, correct, samples) for id, (correct, samples) in self._reference.items()]

    def visited(self, id: str) -> bool:
        """Whether a response to the problem was judged."""
        return id in self._last

    def is_falling(self, id: str) -> bool:
        """Whether the reference policy would solve the problem as seldom as the last visit did with a probability of at
        most `falling`, by its own counts; False for a problem that was not pre-sampled or never visited."""
        return self._fallen.get(id, False)

    def class_is_falling(self, id: str) -> bool:
        """Whether the problem's class is being lost: of its last `LATELY` visits to problems that the reference policy
        had solved, more than the share `falling` had fallen, by more than one standard error of that share.

        Without a change of the policy about that share falls at most, so this says for problems that were never visited
        what `is_falling` says for the others. False for a problem that the reference policy did not solve.
        """
        lately = self._lately.get(self._class.get(id, ""), ())
        if len(lately) < LATELY // 4 or not self._reference[id][0]:
            return False
        error = sqrt(self._falling * (1 - self._falling) / len(lately))
        return sum(lately) / len(lately) > self._falling + error

    @property
    def lost(self) -> list[str]:
        """Problems that were solved once, by this policy or by the reference, and were not when last visited."""
        return [id for id, (correct, _) in self._last.items() if not correct and id in self._solved]

    @property
    def falling(self) -> list[str]:
        """Problems whose pass rate fell below the reference policy's; see `is_falling`."""
        return [id for id in self._last if self.is_falling(id)]

    def by_class(self, ids: Iterable[str]) -> dict[str, int]:
        """How many of some problems belong to each of `CLASSES`; those that were not pre-sampled to none."""
        found = [self._class.get(id) for id in ids]
        return {name: found.count(name) for name in CLASSES}

    @property
    def seen(self) -> list[str]:
        """Problems with a visit."""
        return list(self._last)

    def note(self, visits: Sequence[Visit]) -> dict[str, float]:
        """Take a step's visits into account; returns the metrics coverage/… (docs/reference/metrics.md)."""
        for id, correct, judged in visits:
            if judged:
                self._last[id] = (correct, judged)
                if id in self._reference:
                    before, out_of = self._reference[id]
                    self._fallen[id] = as_few(correct, judged, before, out_of) <= self._falling
                    if before:
                        self._lately[self._class[id]].append(self._fallen[id])
                if correct:
                    self._solved.add(id)
        found = {
            "coverage/visited": float(len(self._last)),
            "coverage/falling": float(len(self.falling)),
            "coverage/lost": float(len(self.lost)),
            "coverage/unsolved": float(sum(id not in self._solved for id in self._last)),
        }
        for name in CLASSES:
            own = [correct > 0 for id, correct, judged in visits if judged and self._class.get(id) == name]
            if own:
                found[f"coverage/solved_{name}"] = sum(own) / len(own)
        found |= {f"coverage/fell_{name}": sum(own) / len(own) for name, own in self._lately.items() if own}
        return found


def as_few(correct: int, n: int, before: int, out_of: int) -> float:
    """Probability of at most `correct` correct responses of n, after `before` of `out_of` were correct.

    The pass rate p has a uniform prior, so that X | before is beta-binomial with a = before+1, b = out_of−before+1:

        P(X = k) = C(n, k) · B(k + a, n − k + b) / B(a, b).
    """
    a, b = before + 1, out_of - before + 1

    def log_beta(x: int, y: int) -> float:
        return lgamma(x) + lgamma(y) - lgamma(x + y)

    return sum(comb(n, k) * exp(log_beta(k + a, n - k + b) - log_beta(a, b)) for k in range(correct + 1))


def _class_of(rate: float) -> str:
    return next(name for name, (low, high) in CLASSES.items() if low < rate <= high or rate == low == 0.0)


def write_visits(run: Path, step: int, visits: Sequence[Visit]) -> None:
    """Append a step's line."""
    with (run / FILE).open("a", encoding="utf-8") as file:
        file.write(_line(step, visits))


def read_visits(run: Path) -> dict[int, list[Visit]]:
    """Visits by step, oldest first, those of the reference policy at step 0; a line that an interruption cut off ends
    them."""
    found: dict[int, list[Visit]] = {}
    if not (run / FILE).is_file():
        return found
    for line in (run / FILE).read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = parse_json(line)
            step, visits = row["step"], [(id, correct, judged) for id, correct, judged in row["problems"]]
        except (ValueError, TypeError, KeyError):
            break
        if type(step) is not int:
            break
        found[step] = visits
    return found


def drop_visits(run: Path, after: int) -> None:
    """Remove the lines of steps after `after`."""
    if (run / FILE).is_file():
        kept = [_line(step, visits) for step, visits in read_visits(run).items() if step <= after]
        write_atomically(run / FILE, "".join(kept))


def _line(step: int, visits: Sequence[Visit]) -> str:
    return json.dumps({"step": step, "problems": visits}, ensure_ascii=False) + "\n"
