"""Where metrics go: metrics.jsonl and timings.jsonl of the run directory, TensorBoard, a tracker if one is named."""

import importlib
from collections.abc import Mapping
from typing import Any

from dph.errors import UserError
from dph.runs.directory import RunDir


class Metrics:
    """Logs each step to every place; does nothing in processes that do not lead."""

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
                    f"tracker {tracker!r} is not installed; pip install {tracker}, or leave it out"
                ) from error
            self._tracker.init(project="dph-rl", name=run.path.name)

    def begin(self, step: int) -> None:
        """Go on after a step: what TensorBoard holds beyond it came from before an interruption and is not shown."""
        if self._leads:
            from torch.utils.tensorboard.writer import SummaryWriter

            folder = str(self._run.path / "tensorboard")
            self._board = SummaryWriter(folder, purge_step=step + 1 if step else None)

    def log(self, step: int, values: Mapping[str, float], timings: Mapping[str, float]) -> None:
        """Log a step's metrics, and seconds apart from them."""
        if not self._leads:
            return
        self._run.log(step, values, timings)
        for name, value in {**values, **{f"time/{key}": value for key, value in timings.items()}}.items():
            assert self._board is not None, "begin comes first"
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
