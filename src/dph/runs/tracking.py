"""Logging of metrics to metrics.jsonl and timings.jsonl of the run directory, TensorBoard and an optional tracker."""

import importlib
from collections.abc import Mapping
from typing import Any

from dph.errors import UserError
from dph.runs.directory import RunDir


class Metrics:
    """Logs each step to all destinations; does nothing except in the leading process."""

    def __init__(self, run: RunDir, tracker: str, leads: bool) -> None:
        self._run, self._leads = run, leads
        self._board: Any = None
        self._tracker: Any = None
        if not leads:
            return
        if tracker != "none":
            try:
                self._tracker = importlib.import_module(tracker)
            except ImportError as error:
                raise UserError(
                    f"tracker {tracker!r} is not installed; run `pip install {tracker}`, or remove the setting"
                ) from error
            self._tracker.init(project="dph-rl", name=run.path.name)

    def begin(self, step: int) -> None:
        """Start logging after `step`. TensorBoard drops later steps, which an interrupted run logged."""
        if self._leads:
            from torch.utils.tensorboard.writer import SummaryWriter

            folder = str(self._run.path / "tensorboard")
            self._board = SummaryWriter(folder, purge_step=step + 1 if step else None)

    def log(self, step: int, values: Mapping[str, float], timings: Mapping[str, float]) -> None:
        """Log the metrics of a step and, separately, its timings in seconds."""
        if not self._leads:
            return
        self._run.log(step, values, timings)
        for name, value in {**values, **{f"time/{key}": value for key, value in timings.items()}}.items():
            assert self._board is not None, "call begin first"
            self._board.add_scalar(name, value, step)
        if self._tracker is not None:
            self._tracker.log(dict(values), step=step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
        if self._tracker is not None:
            self._tracker.finish()

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
