"""The responses that a training run keeps, so that people can see what it learns: some responses of every monitored
step.

Each step and source has a file samples/SOURCE-STEP.parquet. The source "rollouts" has rollouts of the step with their
advantages, and "monitor" has responses to held-out problems. A file is written whole or not at all, and a resumed run
drops the files after its step. The files are therefore a function of the settings and the seed. The folder can be read
as one table.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dph.errors import RunError, counted, one_line
from dph.extras import require_installed
from dph.process.places import check_place
from dph.runs.files import remove_leftovers, written_atomically
from dph.runs.parquet import read_parquet, rows_of
from dph.types import Problem, Rollout, as_text

if TYPE_CHECKING:  # a plain installation lacks it
    import pyarrow as pa

FOLDER = "samples"
"""The folder of the samples within the run directory."""
ROLLOUTS, MONITOR = "rollouts", "monitor"
"""The sources of responses."""
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Sample:
    """A response in the form in which it is kept and shown."""

    step: int
    source: str
    id: str
    """The id of the problem."""
    sample: int
    """The place of the response in its group; -1 is the greedy response."""
    prompt: str
    response: str
    outcome: str
    reward: float
    """The reward of the verdict, without a length penalty."""
    advantage: float | None
    """The advantage of the response, or the mean over its tokens if they differ; None for a response that is not in the
    loss."""
    logprob: float
    """The log-probability of the response under the sampler, in nats: the sum over its tokens."""
    tokens: int
    """The number of tokens that the policy wrote."""
    finish_reason: str

    @classmethod
    def of(
        cls, step: int, source: str, problem: Problem, sample: int, rollout: Rollout, advantage: float | None = None
    ) -> "Sample":
        """The sample of a judged response."""
        completion = rollout.completion
        return cls(
            step=step,
            source=source,
            id=problem.id,
            sample=sample,
            prompt=as_text(problem.prompt),
            response=rollout.transcript or rollout.text,
            outcome=str(rollout.verdict.outcome),
            reward=float(rollout.reward),
            advantage=advantage,
            logprob=float(sum(completion.logprobs)),
            tokens=completion.length,
            finish_reason=completion.finish_reason,
        )

    def facts(self) -> str:
        """The verdict, the reward, the advantage and the length of the response in words."""
        advantage = "" if self.advantage is None else f", advantage {self.advantage:+.2f}"
        cut = ", cut off" if self.finish_reason == "length" else ""
        return f"{self.outcome}, reward {self.reward:g}{advantage}, {counted(self.tokens, 'token')}{cut}"

    def line(self) -> str:
        """The sample on one line for a terminal: its facts, and the beginning and the end of the response."""
        text = self.response
        if len(text) > _SHOWN:
            text = f"{text[: _SHOWN * 2 // 3]} […] {text[-_SHOWN // 3 :]}"
        return one_line(f"{self.id}: {self.facts()}: {text or '(empty)'}")


@cache
def _schema() -> "pa.Schema":
    import pyarrow as pa

    types = {int: pa.int64(), str: pa.string()}
    return pa.schema([(field.name, types.get(field.type, pa.float64())) for field in fields(Sample)])


def write_samples(run: Path, step: int, source: str, samples: Sequence[Sample]) -> None:
    """Write the samples of a step and source into the run directory `run`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = run / FOLDER
    check_place(folder / "samples")
    folder.mkdir(exist_ok=True)
    with written_atomically(folder / f"{source}-{step:08d}.parquet") as file:
        pq.write_table(pa.Table.from_pylist([asdict(sample) for sample in samples], schema=_schema()), file)


def drop_samples(run: Path, after: int) -> None:
    """Remove the samples of all steps after `after`, and the unfinished files of a killed process."""
    for step, file in _files(run):
        if step > after:
            file.unlink()
    remove_leftovers(run / FOLDER)


def read_kept_samples(run: Path, source: str) -> list[Sample]:
    """The samples of a source, in the order of the steps; an empty list if the run kept none. Raises UserError if a
    file is damaged."""
    samples: list[Sample] = []
    if not (files := _files(run, source)):
        return samples
    require_installed(f"reading the samples of {run}", "pyarrow")
    import pyarrow as pa

    for _, file in files:
        try:
            table = read_parquet(file, _schema().names).cast(_schema())
            if any(table[name].null_count for name in _schema().names if name != "advantage"):
                raise ValueError("a value is missing")
            samples += [Sample(**row) for row in rows_of(table)]
        except (OSError, ValueError, pa.ArrowException) as error:
            raise RunError(f"{file} is damaged ({one_line(str(error))}); delete it") from error
    return samples


def _files(run: Path, source: str = "*") -> Sequence[tuple[int, Path]]:
    files = sorted((run / FOLDER).glob(f"{source}-*.parquet"))
    return [(int(digits), file) for file in files if (digits := file.stem.rpartition("-")[2]).isdecimal()]
