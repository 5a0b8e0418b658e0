"""Logging of metrics to metrics.jsonl and timings.jsonl of the run directory, TensorBoard and an optional tracker."""

import importlib
import importlib.util
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from dph.errors import SettingsError, UserError, how_to_install
from dph.process.places import check_place
from dph.process.progress import say
from dph.runs.directory import RunDir
from dph.runs.files import naming

if TYPE_CHECKING:  # slow to load, and the command line needs load_tracker for its help
    from dph.runs.samples import Sample

_SAMPLES = 16
"""The number of responses of a step and source that are sent to trackers. The run directory has more."""
_COLUMNS = ("id", "sample", "outcome", "reward", "advantage", "tokens", "prompt", "response")


def load_tracker(name: str) -> Any:
    """The module of a tracker, with the user logged in. Raises UserError if it is not installed, or if the login
    fails."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        remedy = f"run `pip install {name}`, or remove the setting"
        raise SettingsError(f"tracker {name!r} is not installed; {remedy}") from error
    if name == "wandb":
        with _tracker_errors(name):
            module.login()  # does nothing offline
    return module


@contextmanager
def _tracker_errors(name: str) -> Iterator[None]:
    """Context in which any error of a tracker becomes a UserError, because the cause is its login, its server or the
    network."""
    try:
        yield
    except Exception as error:
        remedy = "fix this" + (", or set WANDB_MODE=offline" if name == "wandb" else "") + ", or remove the setting"
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise SettingsError(f"tracker {name!r} does not work: {reason}; {remedy}") from error


class Metrics:
    """Logs each step to all destinations, in the leading process. In the other processes it does nothing."""

    def __init__(self, run: RunDir, tracker: str, leads: bool) -> None:
        self._run, self._name, self._leads = run, tracker, leads
        self._board: Any = None
        self._tracker: Any = load_tracker(tracker) if leads and tracker != "none" else None
        if self._tracker is not None:
            with _tracker_errors(tracker):
                self._tracker.init(project="dph-rl", config=run.settings(), resume="allow", **self._identity())

    def _identity(self) -> dict[str, str]:
        """The name of the run in a tracker, which stays the same when the run is resumed. W&B recognises the run by its
        id, and trackio by its name."""
        if "tracker_id" not in self._run.manifest:
            self._run.update(tracker_id=secrets.token_hex(4))
        name, number = self._run.path.resolve().name, self._run.manifest["tracker_id"]
        return {"name": name, "id": number} if self._name == "wandb" else {"name": f"{name}-{number}"}

    def begin(self, step: int) -> None:
        """Start to log the steps after `step`. TensorBoard, which needs the extra `report`, drops later steps that an
        interrupted run had logged."""
        if self._leads and importlib.util.find_spec("tensorboard") is None:
            say(f"nothing is written for TensorBoard, which is not installed: {how_to_install('report')}")
        elif self._leads:
            from torch.utils.tensorboard.writer import SummaryWriter

            threading.excepthook = _silent_about_tensorboard(threading.excepthook)
            folder = self._run.path / "tensorboard"
            check_place(folder / "events")
            self._board = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def log(self, step: int, values: Mapping[str, float], timings: Mapping[str, float]) -> None:
        """Log the metrics of a step and, separately, its timings in seconds."""
        if not self._leads:
            return
        self._run.log(step, values, timings)
        numbers = {**values, **{f"time/{key}": value for key, value in timings.items()}}
        if self._board is not None:
            with naming(self._run.path / "tensorboard"):
                for name, value in numbers.items():
                    self._board.add_scalar(name, value, step)
        if self._tracker is not None:
            with _tracker_errors(self._name):
                self._tracker.log(numbers, step=step)

    def log_samples(self, step: int, source: str, samples: "Sequence[Sample]") -> None:
        """Send some responses of a step to TensorBoard, as text, and to the tracker, as a table."""
        if not self._leads:
            return
        name, sent = f"samples/{source}", samples[:_SAMPLES]
        if self._board is not None:
            texts = [(f"`{s.id}`: {s.facts()}", _code(s.prompt), "answered by", _code(s.response)) for s in sent]
            with naming(self._run.path / "tensorboard"):
                self._board.add_text(name, "\n\n".join(block for blocks in texts for block in blocks), step)
        if self._tracker is not None:
            with _tracker_errors(self._name):
                if self._name == "trackio":  # trackio reads texts as Markdown
                    sent = [replace(s, prompt=_code(s.prompt), response=_code(s.response)) for s in sent]
                rows = [[getattr(sample, column) for column in _COLUMNS] for sample in sent]
                self._tracker.log({name: self._tracker.Table(columns=list(_COLUMNS), data=rows)}, step=step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._board is not None:
            try:
                self._board.close()
            except OSError as error:  # the run itself continues, or ends for its own reason
                say(f"cannot write TensorBoard's file: {error.strerror}")
        if self._tracker is not None:
            try:
                with _tracker_errors(self._name):
                    self._tracker.finish()
            except UserError as error:  # the run itself continues
                say(str(error))


def _silent_about_tensorboard(before: Any) -> Any:
    """A hook for the errors of threads, which leaves out the errors of TensorBoard about a file that it cannot write.
    The next call of its writer raises such an error again. before: the hook that prints the other errors."""

    def report(error: Any) -> None:
        if not (isinstance(error.exc_value, OSError) and type(error.thread).__module__.startswith("tensorboard.")):
            before(error)

    return report


def _code(text: str) -> str:
    """A text as Markdown code. Nothing in it is then markup, so that a model cannot write links or images."""
    return "\n".join(f"    {line}" for line in text.splitlines())
