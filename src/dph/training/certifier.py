"""Certificates of the checkpoints of a training run, in their order, until one fails."""

from collections.abc import Callable
from pathlib import Path

from dph.errors import RunError
from dph.evaluation.certificate import Certificate, Counts
from dph.evaluation.certification import CertificationSet, solved
from dph.evaluation.evaluator import Evaluator
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.coverage import CERTIFICATE, drop_visits, read_visits, write_visits

FOLDER = "certified"
"""Within the run directory: the last certified model."""


class Certifier:
    """Checks checkpoints, and keeps the last certified one; certificate.jsonl is its state.

    Its findings may only end training. Checkpoints of a run that rolled back and continued would depend on the set.
    """

    def __init__(
        self,
        run: Path,
        held: CertificationSet,
        evaluator: Evaluator,
        world: World,
        save: Callable[[Path, str], None],
        after: int,
    ) -> None:
        """save: writes the current model into a folder, with a note in its card. after: the last step whose check
        counts, of a resumed run; -1 for a new one."""
        self.certified = self.failed = 0
        """The last certified step, and the first that failed; 0 if there is none."""
        self._run, self._held, self._evaluator, self._world, self._save = run, held, evaluator, world, save
        visits = read_visits(run, CERTIFICATE).items()
        seen = {step: {id: (c, n) for id, c, n in every} for step, every in visits if step <= after}
        if world.leads:
            drop_visits(run, after, CERTIFICATE)
        if world.leads and not seen:
            write_visits(run, 0, [(id, *each) for id, each in held.base.items()], CERTIFICATE)
        if seen.pop(0, held.base) != held.base:
            raise RunError(f"{held.run.path} is not the certification set that {run} was started with; restore it")
        for step, counts in seen.items():
            self._note(step, held.certificate(counts))

    @property
    def ended(self) -> bool:
        """Whether training is to end."""
        return self._held.allowed.stop and self.failed > 0

    def due(self, step: int) -> bool:
        """Whether the checkpoint after a step is checked."""
        return step > 0 and step % self._held.allowed.every == 0

    def check(self, step: int) -> dict[str, float]:
        """Check the current policy; returns the metrics certify/… (docs/reference/metrics.md)."""
        share = [self._held.problems[i] for i in self._world.share(len(self._held.problems))]
        parts = self._world.gather(self._world.together(lambda: solved(self._evaluator, share)))
        counts = {id: each for part in parts for id, each in part.items()}
        found = self._held.certificate(counts)
        self._note(step, found)
        self._world.decided(lambda: self._write(step, found, counts))
        numbers = {"loss": found.loss, "bound": found.bound, "epsilon": found.epsilon, "lost": len(found.lost)}
        numbers["certified"] = self.certified == step
        return {f"certify/{name}": float(value) for name, value in numbers.items()}

    def _note(self, step: int, found: Certificate) -> None:
        if found.certified and not self.failed:
            self.certified = step
        self.failed = self.failed or (0 if found.certified else step)

    def _write(self, step: int, found: Certificate, counts: Counts) -> None:
        write_visits(self._run, step, [(id, *each) for id, each in counts.items()], CERTIFICATE)
        late = "" if self.failed in (0, step) else f"; nothing is certified after the failure at step {self.failed}"
        say(f"step {step}: {found.sentence()}{late}")
        if self.certified == step:
            self._save(self._run / FOLDER, f"After step {step}, {found.sentence()}.")
