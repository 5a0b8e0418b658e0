"""Certificates of checkpoints. A certificate says, up to a bound, whether a policy still solves the problems that the
base model solved."""

from collections.abc import Callable
from pathlib import Path

from dph.errors import RunError
from dph.evaluation.certification import CertificationSet, solved
from dph.evaluation.evaluator import Evaluator
from dph.measure.certificate import Certificate, Counts
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.coverage import CERTIFICATE, drop_visits, read_visits, write_visits


class Certifier:
    """Makes certificates of checkpoints, in the order of their steps, until one fails. The last certified model is
    kept.

    certificate.jsonl holds the whole state. The result of a check may end training but must not change it otherwise: a
    run that rolled back after a failed check would depend on the certification set.
    """

    def __init__(
        self,
        run: Path,
        held: CertificationSet,
        evaluator: Evaluator,
        world: World,
        save: Callable[[Path, str], None],
        after: int,
        *,
        every: int,
        stop: bool,
    ) -> None:
        """save: writes the current model into a folder, with a note in its card. after: in a resumed run, the last step
        whose check counts; -1 in a new run. every: the number of steps between checks. stop: whether training ends
        after the first check that fails. Raises UserError if the certification set is not the set that the run was
        started with."""
        self.certified = self.failed = 0
        """The last certified step, and the first step that failed; 0 if there is none."""
        self._every, self._stop = every, stop
        self._run, self._held, self._evaluator, self._world, self._save = run, held, evaluator, world, save
        visits = read_visits(run, CERTIFICATE).items()
        seen = {
            step: {id: (correct, samples) for id, correct, samples in problems}
            for step, problems in visits
            if step <= after
        }
        if world.leads:
            drop_visits(run, after, CERTIFICATE)
        if world.leads and not seen:
            write_visits(run, 0, [(id, *count) for id, count in held.base.items()], CERTIFICATE)
        if seen.pop(0, held.base) != held.base:
            raise RunError(f"{held.run.path} is not the certification set that {run} was started with; restore it")
        for step, counts in seen.items():
            self._note(step, held.certificate(counts))

    @property
    def ended(self) -> bool:
        """Whether training has to end."""
        return self._stop and self.failed > 0

    def due(self, step: int) -> bool:
        """Whether the checkpoint after a step is checked."""
        return step > 0 and step % self._every == 0

    def check(self, step: int) -> dict[str, float]:
        """Check the current policy. Returns the metrics certify/… (docs/reference/metrics.md)."""
        share = [self._held.problems[i] for i in self._world.share(len(self._held.problems))]
        parts = self._world.gather(self._world.together(lambda: solved(self._evaluator, share)))
        known = {id: count for part in parts for id, count in part.items()}
        counts = {problem.id: known[problem.id] for problem in self._held.problems}  # in the order of a single process
        certificate = self._held.certificate(counts)
        self._note(step, certificate)
        self._world.decided(lambda: self._write(step, certificate, counts))
        numbers = {name: getattr(certificate, name) for name in ("loss", "bound", "epsilon")}
        numbers |= {"lost": len(certificate.lost), "certified": self.certified == step}
        return {f"certify/{name}": float(value) for name, value in numbers.items()}

    def _note(self, step: int, certificate: Certificate) -> None:
        if certificate.certified and not self.failed:
            self.certified = step
        self.failed = self.failed or (0 if certificate.certified else step)

    def _write(self, step: int, certificate: Certificate, counts: Counts) -> None:
        write_visits(self._run, step, [(id, *count) for id, count in counts.items()], CERTIFICATE)
        late = "" if self.failed in (0, step) else f"; nothing is certified after the failure at step {self.failed}"
        say(f"step {step}: {certificate.sentence()}{late}")
        if self.certified == step:
            self._save(self._run / "certified", f"After step {step}, {certificate.sentence()}.")
