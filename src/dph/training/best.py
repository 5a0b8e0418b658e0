"""Which checkpoint is the best: the rule, and what is written about it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dph.errors import SettingsError
from dph.runs.directory import read_metrics
from dph.runs.files import write_atomically
from dph.training.checkpoints import path_of, steps_saved


@dataclass(slots=True)
class Best:
    """The best of the measured steps, step 0 included; a function of metrics.jsonl alone.

    Greedy accuracy is highest where a policy has collapsed onto few solutions as often as where it has not. So steps
    whose value is within a tolerance of the highest count as equal, and among these pass@k decides.
    """

    metric: str
    within: float
    start: str
    """The model that training began with; it is the best until a step is better."""
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    """What was measured at the best step."""
    _highest: float = -math.inf

    @classmethod
    def so_far(cls, run: Path, metric: str, within: float, start: str) -> "Best":
        """The best of the steps that a run has logged and still has checkpoints of."""
        there = {0, *steps_saved(run)}
        lines = read_metrics(run)
        best = cls(metric, within, start)._after(lines)
        if best.step is not None and best.step not in there:  # somebody deleted it
            best = cls(metric, within, start)._after([line for line in lines if line["step"] in there])
        return best

    def _after(self, lines: Sequence[Mapping[str, float]]) -> "Best":
        for line in lines:
            self.note(int(line["step"]), line)
        return self

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps whose checkpoints must be kept."""
        return (self.step,) if self.step else ()

    def check(self, values: Mapping[str, float]) -> None:
        """Raises UserError when the monitor does not measure the metric."""
        if self.metric and self.metric not in values:
            raise SettingsError(f"keep_best is {self.metric!r}, but the monitor measures: {', '.join(sorted(values))}")

    def note(self, step: int, values: Mapping[str, float]) -> bool:
        """Take a step's metrics into account; returns whether it is a training step and the best so far."""
        if not self.metric or self.metric not in values:
            return False
        self._highest = max(self._highest, values[self.metric])
        near = self._highest - self.within
        if values[self.metric] < near:
            return False
        if self.step is not None and self.values[self.metric] >= near and self._rank(values) <= self._rank(self.values):
            return False
        self.step, self.values = step, dict(values)
        return step > 0

    def _rank(self, values: Mapping[str, float]) -> list[float]:
        return [*(values[name] for name in deciding(values)), values[self.metric]]

    def write(self, run: Path) -> None:
        """Write checkpoints/best.json, once there is a best."""
        if self.step is not None:
            facts = {
                "step": self.step,
                "metric": self.metric,
                "value": self.values[self.metric],
                **{name: self.values[name] for name in deciding(self.values)},
                "model": f"{path_of(run, self.step).name}/model" if self.step else self.start,
            }
            write_atomically(run / "checkpoints" / "best.json", json.dumps(facts, indent=1) + "\n")


def deciding(values: Mapping[str, float]) -> list[str]:
    """What decides between steps of about the same accuracy: the name of pass@k at the largest k of which there are 2k
    samples, or else at k = 1; none without samples."""
    ks = sorted(int(name.removeprefix("eval/pass@")) for name in values if name.startswith("eval/pass@"))
    return [f"eval/pass@{max(k for k in ks if k == 1 or 2 * k <= ks[-1])}"] if ks else []
