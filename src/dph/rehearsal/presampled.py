"""A finished presample run, as training, evaluation and other trainers read it: which prompts are explored, which are
mastered, and the stored responses to the mastered ones.

The files of the run are compared with the hashes in its manifest once, when the run is opened. `dph.rehearsal.check`
compares an opened run with a training and its policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from dph.config import TaskConfig, comparable, differences
from dph.errors import DataError, RunError, counted, refused
from dph.process.progress import say
from dph.rehearsal.partition import Set
from dph.rehearsal.store import Rehearsal, read_rehearsal
from dph.runs.coverage import are_counts
from dph.runs.directory import RunDir
from dph.runs.files import sha256
from dph.runs.parquet import read_parquet, rows_of
from dph.runs.pinned import compare_problems, content_hashes
from dph.types import Problem

PARTITION, STORED = FILES = ("partition.parquet", "rehearsal.parquet")
"""What a presample run writes: the partition of the prompts, and the stored responses."""


def file_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a presample run, by the name of the file. Raises UserError for a file that is missing."""
    try:
        return {name: sha256(folder / name) for name in FILES}
    except OSError as error:
        raise RunError(refused(f"{error.filename} cannot be read", error, "run `dph presample` again")) from error


@dataclass(frozen=True)
class Presampled:
    """A finished presample run whose files have not changed since the run wrote them. Each file is read at its first
    use, and once."""

    run: RunDir

    @classmethod
    def open(cls, path: Path) -> "Presampled":
        """Open the presample run in a folder. Raises UserError if there is none, it is not finished, or one of its
        files has changed."""
        run = RunDir.open(path, "presample")
        if not run.complete:
            raise RunError(f"the presample run {path} is not complete; run `dph presample --resume --out {path}`")
        written = run.manifest.get("files")
        if not isinstance(written, dict):
            raise RunError(f"the manifest of {path} does not say what its files hold; run `dph presample` again")
        task = run.manifest.get("task")
        if not isinstance(task, dict) or not isinstance(task.get("split"), str):
            raise RunError(f"the manifest of {path} does not say which problems it sampled; run `dph presample` again")
        hashes = file_hashes(path)
        for name in FILES:
            if written.get(name) != hashes[name]:
                raise RunError(
                    f"{path / name} is not the file that the run wrote (it was changed, damaged or replaced); run "
                    "`dph presample` again"
                )
        return cls(run)

    # The stored responses ------------------------------------------------------------------------------------------

    @cached_property
    def stored(self) -> Sequence[Rehearsal]:
        """The stored responses to near-perfect prompts, or to prompts that can lose pass@k (`presample.for_k`). Raises
        UserError as `read_rehearsal` does, and if there are none."""
        stored = read_rehearsal(self.run.path / STORED)
        if not stored:
            if k := self.run.manifest.get("for_k"):
                raise DataError(
                    f"the presample run {self.run.path} found no prompt that can lose pass@{k} (its for_k), so there "
                    "is nothing to rehearse; draw more samples (rollout.n), choose another for_k, or train with a "
                    "method without rehearsal"
                )
            raise DataError(
                f"the presample run {self.run.path} found no near-perfect prompt, so there is nothing to rehearse; "
                "lower its threshold, train with a method without rehearsal or, if the model solves nothing, begin "
                "with `dph sft`: docs/guides/your-data.md, 'When the model solves nothing'"
            )
        return stored

    @property
    def stored_hash(self) -> str:
        """SHA-256 of the file of the stored responses."""
        return self.run.manifest["files"][STORED]

    # The partition -------------------------------------------------------------------------------------------------

    @property
    def partition(self) -> dict[str, Set]:
        """The set of every problem, by its id. Raises UserError for a file of another layout."""
        return {row["problem_id"]: row["set"] for row in self._rows}

    @property
    def reference_counts(self) -> dict[str, tuple[int, int]]:
        """The number of correct and of all judged responses of the reference policy to each problem, by its id. Raises
        UserError for a file of another layout."""
        return {row["problem_id"]: (row["correct"], row["samples"]) for row in self._rows}

    def new_counts(self) -> dict[str, tuple[int, int]]:
        """The number of correct and of all judged new samples of each problem that the run kept aside, by its id.
        Raises RunError if the run kept no problem aside."""
        if not self.run.manifest.get("sizes", {}).get("certify"):
            raise RunError(
                f"the presample run {self.run.path} kept no problem aside; run `dph presample` with certify.share "
                "above 0"
            )
        rows = self._read("new_correct", "new_samples")
        return {row["problem_id"]: (row["new_correct"], row["new_samples"]) for row in rows if row["set"] == "certify"}

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return self._read()

    def _read(self, *further: str) -> list[dict[str, Any]]:
        """The rows of the partition, with further columns, which hold counts of the problems that were kept aside."""
        file = self.run.path / PARTITION
        try:
            rows = rows_of(read_parquet(file, ["problem_id", "set", "correct", "samples", "content", *further]))
        except (OSError, ValueError) as error:
            raise RunError(f"{file} cannot be read ({error}); run `dph presample` again") from error
        for number, row in enumerate(rows, 1):
            texts = all(isinstance(row[name], str) for name in ("problem_id", "set", "content"))
            new = further and row["set"] == "certify"  # the others have no new samples
            counts = [(row["correct"], row["samples"]), *([[row[name] for name in further]] if new else [])]
            if not texts or not all(are_counts(*pair) for pair in counts):
                raise RunError(f"{file} is damaged in row {number}; run `dph presample` again")
        return rows

    # The problems of a training ------------------------------------------------------------------------------------

    def check_task(self, task: TaskConfig) -> None:
        """Raises RunError if the run sampled another task. The run may cover more splits, whose responses are then
        rehearsed too."""
        sampled, wanted = self.run.manifest["task"], asdict(task)
        covers = _split_names(task.split) <= _split_names(sampled["split"])
        if not covers or _apart_from_splits(sampled) != _apart_from_splits(wanted):
            differing = "; ".join(differences(comparable(sampled), comparable(wanted)))
            raise RunError(
                f"the presample run {self.run.path} was made for another task ({differing}); name the same for both"
            )

    def check_problems(self, problems: Sequence[Problem], splits: str) -> None:
        """Raises UserError if a problem of a task has an id of the partition, but is not, in prompt, answer, verifier
        and database, the problem that the run sampled. If the run sampled the same splits, every problem must still be
        there.

        splits: the splits that the problems are of, separated by commas."""
        rows = [row for row in self._rows if row["set"] != "dropped"]
        before, now = {row["problem_id"]: row["content"] for row in rows}, content_hashes(problems)
        if _split_names(splits) != _split_names(self.run.manifest["task"]["split"]) and before.keys() & now.keys():
            before = {id: content for id, content in before.items() if id in now}
        known = {id: now[id] for id in before if id in now}
        compare_problems(self.run.path, before, known, "run `dph presample` again")

    def training_problems(
        self,
        task: TaskConfig,
        prompt_set: Literal["all", "explore", "other"],
        problems: Sequence[Problem],
        *,
        fresh: bool = True,
    ) -> list[Problem]:
        """The problems of a task whose prompts a training draws. Says how many problems are in no set.

        Args:
            task: the settings of the task. The run must cover it, unless `prompt_set` is "other".
            prompt_set: "explore" for the exploration set D_exp; "all" for all problems that the run did not drop;
                "other" for all problems, none of which the run may have sampled.
            problems: all problems of the task.
            fresh: whether the training begins now. A training that is resumed compares its problems with its own
                record (`dph.runs.pinned.pin`), and not with the run.

        Raises:
            UserError: the run sampled another task or other problems, or no problem is left.
        """
        partition = self.partition
        if prompt_set == "other":
            if common := [problem.id for problem in problems if problem.id in partition]:
                raise DataError(
                    f"prompt_set is other, but {len(common)} of {counted(len(problems), 'problem')} are in the "
                    f"presample run {self.run.path} too (first {common[0]!r}); leave them out of one set, or choose "
                    "explore or all"
                )
            return list(problems)
        self.check_task(task)
        if fresh:
            self.check_problems(problems, task.split)
        unknown = [problem.id for problem in problems if problem.id not in partition]
        if fresh and unknown:
            say(
                f"not trained on: {len(unknown)} of {counted(len(problems), 'problem')} (first {unknown[0]!r}), "
                f"because the presample run {self.run.path} left them out or they were added later; `dph presample` "
                "into a new folder includes these"
            )
        wanted = {"explore"} if prompt_set == "explore" else {"explore", "perfect"}
        chosen = [problem for problem in problems if partition.get(problem.id) in wanted]
        if not chosen:
            raise DataError(
                f"the presample run {self.run.path} left no prompt to explore; train on harder ones, or on all "
                "(--prompt-set all)"
            )
        return chosen


def _apart_from_splits(task: Mapping[str, Any]) -> Any:
    """The settings that two tasks must have in common. Without a limit both have the same problems in any order."""
    shuffle = bool(task.get("shuffle") and task.get("limit"))
    return comparable({**task, "split": "", "shuffle": shuffle})


def _split_names(splits: str) -> set[str]:
    """The names in a text like "train,sums"."""
    return {name.strip() for name in splits.split(",")}
