"""Logging of metrics to metrics.jsonl and timings.jsonl of the run directory, TensorBoard and an optional tracker."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dph.errors import UserError
from dph.process.progress import say
from dph.runs.directory import RunDir


def load_tracker(name: str) -> Any:
    """The module of a tracker, logged in. Raises UserError if it is not installed or nobody can be logged in."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"tracker {name!r} is not installed; run `pip install {name}`, or remove the setting"
        ) from error
    if name == "wandb":
        with _its_errors(name):
            module.login()  # does nothing offline
    return module


@contextmanager
def _its_errors(name: str) -> Iterator[None]:
    """Turn any error of a tracker into a UserError: it is due to its login, its server or the network."""
    try:
        yield
    except Exception as error:
        offline = ", or set WANDB_MODE=offline" if name == "wandb" else ""
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise UserError(
            f"tracker {name!r} does not work: {reason}; fix this{offline}, or remove the setting"
        ) from error


class Metrics:
    """Logs each step to all destinations; does nothing except in the leading process."""

    def __init__(self, run: RunDir, tracker: str, leads: bool) -> None:
        self._run, self._name, self._leads = run, tracker, leads
        self._board: Any = None
        self._tracker: Any = None
        if not leads:
            return
        if tracker != "none":
            self._tracker = load_tracker(tracker)
            with _its_errors(tracker):
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
            with _its_errors(self._name):
                self._tracker.log(dict(values), step=step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
        if self._tracker is not None:
            try:
                with _its_errors(self._name):
                    self._tracker.finish()
            except UserError as error:  # the run itself goes on
                say(str(error))

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
