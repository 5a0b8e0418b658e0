"""The bank in a trainer of another library: its entries, the order in which they are drawn, and both in a checkpoint.

A checkpoint holds the files of `dph.rehearsal.bank_files`, of which the folder `bank` beside the checkpoints has the
rest, and bank_state.json, which holds the cursor of the order.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from dph.engine import Bank, BankFiles, BankKey, Rehearsal, Sighting, say
from dph.errors import RunError

STATE = "bank_state.json"
"""In a checkpoint: the cursor of the bank's order of problems."""


class KeptBank:
    """The bank of a training run. All processes may hold one; the one that writes says so."""

    def __init__(
        self, key: BankKey, capacity: int, seed: int, problem_ids: Sequence[str], folder: Path, off: str, resume: str
    ) -> None:
        """A bank that neither `begin` nor `restore` has filled yet.

        Args:
            key, capacity, seed, problem_ids: as of `Bank`.
            folder: the folder of the run's checkpoints.
            off: what to write in order to train without a bank, for messages.
            resume: what to write in order to resume from a checkpoint, for messages.
        """
        self._empty = lambda: Bank(key, capacity, seed, problem_ids)
        self._key, self._folder, self._off, self._resume = key.name, folder, off, resume
        self.bank, self._files, self._cursor = self._empty(), BankFiles(folder), 0

    def draw(self, count: int) -> list[Rehearsal]:
        """The stored responses of the next step, over all processes; fewer while the bank has fewer."""
        rows, self._cursor = self.bank.draw(self._cursor, count)
        return rows

    def begin(self, stored: Sequence[Rehearsal], checkpoints: Iterable[Path], *, writes: bool) -> None:
        """Begin a training with stored responses, or without any.

        Args:
            stored: the responses with which the bank begins.
            checkpoints: the folders of the whole checkpoints that are there.
            writes: whether this process writes the files.
        Raises:
            RunError: the folder has checkpoints of another training with a bank.
        """
        if earlier := next((one for one in checkpoints if (one / STATE).exists()), None):
            name = earlier.relative_to(self._folder)
            raise RunError(
                f"{self._folder} has checkpoints of another training with a bank ({name}), whose files a new "
                f"bank would replace; resume from it ({self._resume}), or choose another folder"
            )
        self.bank, self._cursor = self._empty(), 0
        begun = self.bank.begin(stored)
        if writes:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._files.drop(None)
            self._files.write(0, begun)
            self._files.commit()
            say(f"the bank begins {f'with {len(begun)} responses' if begun else 'empty'} (bank key {self._key!r})")

    def admit(self, step: int, seen: Sequence[Sighting], *, writes: bool) -> dict[str, float]:
        """Admit what a step has shown, once its update was taken; returns the metrics bank/…"""
        admission = self.bank.admission(step, seen)
        if writes:
            self._files.write(step, admission.admitted)
            self._files.commit()
        self.bank.commit(admission)
        return self.bank.metrics(admission)

    def finish(self, step: int) -> None:
        """Write the entries that are in no file yet, after the last step."""
        self._files.finish(step)

    def save(self, checkpoint: Path) -> None:
        """Write the bank into the folder of a checkpoint."""
        checkpoint.mkdir(parents=True, exist_ok=True)
        self._files.save(self.bank, checkpoint)
        (checkpoint / STATE).write_text(json.dumps({"cursor": self._cursor}) + "\n", encoding="utf-8")

    def restore(self, checkpoint: Path, *, writes: bool) -> None:
        """The bank as it was when a checkpoint was written. Raises RunError for files that are missing or damaged."""
        try:
            self._cursor = int(json.loads((checkpoint / STATE).read_text(encoding="utf-8"))["cursor"])
        except FileNotFoundError as error:
            raise RunError(
                f"the checkpoint {checkpoint} has no bank; resume with {self._off}, or from another"
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{checkpoint / STATE} is damaged ({error}); resume from another checkpoint") from error
        self.bank = self._empty()
        self._files.restore(self.bank, checkpoint)
        if writes:
            self._files.drop(checkpoint)
