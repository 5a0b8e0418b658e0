"""Judged samples of any harness: the roles of their columns, and refusals of samples that are too unclear to count.

A column is chosen by its name (`dph.measure.fields`) and by its values. Nothing is guessed: if two readings are
possible and differ, a DataError names them and the option that decides.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dph.columns import ignored
from dph.config import Reading
from dph.config.checks import unfinished
from dph.errors import DataError, counted
from dph.measure.crossed import Grouped, Part, pairs_of, part_of, twins
from dph.measure.fields import verdict_number
from dph.measure.kinds import kind_of
from dph.measure.logs import read_table
from dph.measure.rows import LINE, SHOWN, IntArray
from dph.measure.table import FEW_VALUES
from dph.measure.verdicts import Scale, Verdicts

NONE = "none"
_NO_ANSWER = {"", "none", "null", "[invalid]", "nan"}
_FAILED_RUN = {"error", "failed", "cancelled", "canceled", "started", "running"}
_MOST = 10.0**15
"""No header counts so many samples."""
_LONG = 200
"""Characters from which on a text is a whole response, not an answer; so is one with a box, a block or lines."""
_FEWEST = 10
"""Problems from which on rows that come again in the same order are said to do so, although they hold no response."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Judged samples of the problems of one file or folder."""

    name: str
    problems: Sequence[str]
    """Ids."""
    problem: IntArray
    """[samples] The problem of each sample, as a place in `problems`."""
    right: NDArray[np.bool_]
    """[samples]"""
    answer: IntArray | None
    """[samples] The number of its answer, or −1 for none; None if the file has no answers."""
    prompts: Sequence[Any] | None
    """The prompt of each problem, if the file has them."""
    read_as: str
    """One line: which column was read as what."""
    notes: Sequence[str] = ()
    number: IntArray | None = None
    """[samples] The number of each sample among those of its problem, by a column or the names of the files; None if
    the file numbers none, so that the order of its rows means nothing."""
    judged: NDArray[np.bool_] | None = None
    """[samples] Whether a sample has a verdict; None if all have one, or the others were left out."""
    used: frozenset[str] = frozenset()
    """The options of `Reading` that had an effect, each by its name, and `filter` with its text."""
    files: Sequence[Path] = ()
    """The files that were read."""
    scale: Scale | None = None
    """The scores that a threshold was compared with, if there are any."""

    @property
    def n(self) -> NDArray[np.int64]:
        """[problems] Samples of each problem."""
        return np.bincount(self.problem, minlength=len(self.problems))

    @property
    def c(self) -> NDArray[np.int64]:
        """[problems] Correct samples of each problem."""
        return np.bincount(self.problem[self.right], minlength=len(self.problems))


def read_samples(path: str | Path, reading: Reading | None = None, *, each: bool = False) -> Samples:
    """Judged samples from a file or folder; formats: docs/guides/passk.md. Raises DataError for what is damaged or
    missing, and for what can be read in two ways.

    each: keep also the samples without a verdict (`Samples.judged`), and read a run of `dph eval` from its completions,
    which have numbers, instead of the counts of its problems.

    >>> _ = Path("samples.jsonl").write_text('{"id": "a", "correct": true}' + chr(10) + '{"id": "a", "correct": false}')
    >>> samples = read_samples("samples.jsonl")
    >>> samples.problems, samples.right.tolist()
    (['a'], [True, False])
    """
    reading = reading or Reading()
    named = {reading.answer, reading.prompt, *(text.partition("=")[0] for text in reading.filter)}
    named |= {reading.id, *reading.id.split(","), reading.correct, *reading.correct.split("=", 1)}
    named |= {name for part in reading.correct.split("/", 1) for name in part.split("+")}
    table = read_table(Path(path), named=named - {"", LINE, NONE}, records=reading.records, each=each)
    for place, header in table.headers:
        if (status := str(header.get("status", "")).lower()) in _FAILED_RUN:
            wrong = f"{place}: the run did not finish (status {status!r}), so it is not a result"
            raise DataError(wrong + (unfinished(Path(path)) or "; finish it, or name another"))
    if not table.rows:
        raise DataError(f'{path} holds no samples, as {{"id": "p1", "correct": true}} is one; name a file with some')
    return SampleRows(str(path), table, reading).samples(each)


class SampleRows(Verdicts):
    """The columns of one table, and the rows that count."""

    contradictory = False
    """Whether an id has several prompts."""

    def samples(self, each: bool) -> Samples:
        self.notes += [f"{self.name}: {note}" for note in self.table.notes]
        self._select()
        if not len(self.rows):
            raise self._error("it holds greedy responses only (sample -1), and no sample; sample with --rollout.n")
        if self._empty_responses().all():
            raise self._error(f"every response of {counted(len(self.rows), 'sample')} is empty: the run failed")
        verdict_name, right = self._verdicts()
        id_name, ids, keys = self._ids()
        self._check_rows(ids, keys, id_name)
        prompt_name, prompts = self._prompts(ids, keys, id_name)
        answer_name, answers = self._answers(verdict_name, ids)
        parts = self._parts(ids, id_name)
        numbers, numbered = self._numbers(ids, parts), self._are_numbered(ids, parts or {})
        doubtful = [name for name, part in (parts or {}).items() if part and kind_of(name) in ("measure", "result")]
        self._check_conditions(parts, id_name, leave_out=doubtful)
        if parts is not None and (numbers is None or len(self.table.sources) > 1) and not numbered:
            self._check_twins(ids, right, answers, id_name)
        if not numbered:  # what numbered samples turned out to have tells nothing apart
            self._check_conditions({name: part for name, part in (parts or {}).items() if name in doubtful}, id_name)
        unused = [name for name, part in (parts or {}).items() if part == "ignored"]
        unused += [name for name in doubtful if numbered]
        judged = ~np.isnan(right)
        self._check_judged(judged, keys, ids, each)
        kept = np.ones(len(judged), np.bool_) if each else judged
        used, problem = np.unique(ids[kept], return_inverse=True)
        self._check_counts(np.bincount(problem), [keys[i] for i in used])
        roles = {"problem": id_name, "verdict": verdict_name, "answer": answer_name, "prompt": prompt_name}
        shown = ", ".join(f"{column} as the {role}" for role, column in roles.items() if column)
        size = f"{counted(len(used), 'problem')}, {counted(len(problem), 'sample')}"
        differ = ignored(unused, "these differ within a problem")
        return Samples(
            self.name,
            [keys[i] for i in used],
            problem.astype(np.int32),
            right[kept] > 0,
            None if answers is None else answers[kept],
            None if prompts is None else [prompts[i] for i in used],
            f"{self.name}: {shown}; {size}" + (differ and f"; {differ}"),
            self.notes,
            None if numbers is None else numbers[kept],
            None if judged[kept].all() else judged,
            frozenset(self.used),
            self.table.files,
            self._scale(verdict_name),
        )

    def _check_judged(self, judged: NDArray[np.bool_], keys: Sequence[str], ids: IntArray, each: bool) -> None:
        """Refuse samples without a verdict, unless they are kept or may be left out, which a note says."""
        if judged.all():
            return
        text = f"{int((~judged).sum())} of {counted(len(judged), 'sample')} have no verdict"
        text += f", for example of {keys[ids[~judged][0]]!r}"
        if not judged.any():
            raise self._error(f"none of {counted(len(judged), 'sample')} has a verdict: name another file")
        if each:
            self.notes.append(f"{self.name}: {text}; they count against the certificate")
            return
        if not self.reading.partial:
            raise self._error(f"{text}; --partial leaves them out")
        self.used.add("partial")
        self.notes.append(f"{self.name}: {text}; they are left out")

    def _check_rows(self, ids: IntArray, keys: Sequence[str], id_name: str) -> None:
        """Refuse files that overlap without being numbered, and rows that are one sample."""
        files, file = len(self.table.sources), self._file()
        if files > 1 and pairs_of(ids, file)[0].shape[1] > len(np.unique(ids)) and not self._is_numbered():
            self._check_files(id_name, ids, file)
        for name in self._of("sample"):
            codes, numbers = self._values(name)
            numbered = codes >= 0
            pairs, times, _ = pairs_of(ids[numbered].astype(np.int64) * files + file[numbered], codes[numbered])
            if (times > 1).any():
                problem, code = pairs[:, np.argmax(times > 1)]
                id, value = keys[problem // files], f"{name} {numbers[code]}"
                twice = f"{id_name} {id!r} has {times.max()} rows with {value}: duplicates"
                raise self._error(f"{twice}; remove one of them")
        filtered = [name for name in self._of("answer") if name.rpartition(".")[2].startswith("filtered_")]
        if filtered and not self._of("sample") and (most := int(np.bincount(ids).max())) > 1:
            id = keys[int(np.bincount(ids).argmax())]
            rows = f"{id_name} {id!r} has {most} rows with {filtered[0]}, one for each filter, which are not samples"
            raise self._error(f"{rows}; choose one with --filter 1 to --filter {most}")

    def _check_files(self, id_name: str, ids: IntArray, file: NDArray[np.intp]) -> None:
        """Refuse files with the same problems that number no samples. Numbers beside a word for systems or conditions
        do so if the id was named, and a note says it."""
        names = _shown([source.name for source in self.table.sources])
        sizes = np.bincount(np.unique(file * (int(ids.max()) + 1) + ids) // (int(ids.max()) + 1))
        # Files of different sizes may be of different tasks, which have ids such as 0 and 1 in common.
        same = "hold the same problems" if len({*sizes.tolist()} - {0}) == 1 else "have ids in common"
        text = f"its files {same} and are not numbered ({names})"
        one = "unpack it and name one of them" if Path(self.name).is_file() else "name one of them"
        if not self._are_systems():
            raise self._error(f"{text}; {one}")
        text = f"its files hold the same problems, and their names may tell systems or conditions apart ({names})"
        if not self.reading.id:
            raise self._error(f"{text}; {one}, or count all as samples with --id {id_name}")
        self.notes.append(f"{self.name}: {text}; they count as samples of {id_name}")

    def _parts(self, ids: IntArray, id_name: str) -> dict[str, Part] | None:
        """What each column with few different values is among the rows of a problem; None if no problem has two."""
        if len(np.unique(ids)) == len(ids):
            return None
        others = [name for role in ("model", "filter", "step") for name in self._of(role) if "." in name]
        others += [name for name in self._of("id") if name not in (id_name, *id_name.split(","))]
        columns = {name: self._few(name) for name in (*self.table.few, *others)}
        rows = Grouped(ids)
        return {name: part_of(name, each, rows) for name, each in columns.items() if len(each.values) <= FEW_VALUES}

    def _check_conditions(
        self, parts: Mapping[str, Part] | None, id_name: str, leave_out: Collection[str] = ()
    ) -> None:
        """Refuse rows of several conditions, systems or episodes, unless the id was named: then they count as samples,
        which a note says."""
        for name, part in (parts or {}).items():
            if name in leave_out:
                continue
            column = self._few(name)
            if part == "condition":
                codes = np.unique(column.codes)
                values = [str(column.values[code]) if code < len(column.values) else "null" for code in codes]
                text = f"{name!r} differs within a problem and repeats across problems ({', '.join(values[:SHOWN])})"
                if not self.reading.id:
                    raise self._error(f"{text}: {self._ways(name, values[-1], id_name)}")
                self.notes.append(f"{self.name}: {text}; they count as samples of {id_name}")

    def _ways(self, name: str, value: str, id_name: str) -> str:
        """What to type to read rows of several conditions. value: one of those of the column."""
        apart = f"take each as a problem of its own with --id {id_name},{name}, " if id_name != LINE else ""
        return f"choose one with --filter {name}={value}, {apart}or count all as samples with --id {id_name}"

    def _check_twins(self, ids: IntArray, right: NDArray[np.float64], answers: IntArray | None, id_name: str) -> None:
        """Refuse rows that are there twice, as a resumed run or a second upload leaves them; a named id allows it."""
        prints = None if self.table.prints is None else self.table.prints[self.rows]
        if prints is not None and (prints == prints[0]).all():
            prints = None  # one text in every row says nothing
        without = np.zeros(len(ids), np.int64) if answers is None else answers.astype(np.int64)
        found = twins(ids, without if prints is None else prints, right)
        if found is None:
            return
        often = f"{found.times} times" if found.times > 2 else "twice"
        if prints is None:
            if found.again and found.problems >= _FEWEST and 0 < np.nanmean(right) < 1:
                self.notes.append(
                    f"{self.name}: all rows come {often} in one order, with equal verdicts: perhaps copies"
                )
            return
        which = f"{counted(found.problems, 'problem')}"
        text = f"every response to {which} is there {often} with the same verdict"
        if not (found.sure or found.again):
            self.notes.append(f"{self.name}: {text}: perhaps the samples are greedy ones")
        elif self.reading.id:
            self.notes.append(f"{self.name}: {text}; all count as samples of {id_name}")
        else:
            ways = f"remove the copies, or count all as samples with --id {id_name}"
            raise self._error(f"{text}, as if a file had been written {often}; {ways}")

    def _are_numbered(self, ids: IntArray, parts: Mapping[str, Part]) -> bool:
        """Whether a column, and not only a file's name, numbers the samples of each problem."""
        if "number" in parts.values():
            return True
        numbers = [self._values(name)[0] for name in self._of("sample")]
        return any((codes >= 0).all() and pairs_of(ids, codes)[0].shape[1] == len(ids) for codes in numbers)

    def _numbers(self, ids: IntArray, parts: Mapping[str, Part] | None) -> IntArray | None:
        """The number of each row's sample, if they have numbers and these tell a problem's samples apart."""
        columns = []
        for name in self._of("sample"):
            codes, texts = self._values(name)
            values = [verdict_number(text) for text in texts]
            columns.append(np.array([*(np.nan if value is None else value for value in values), np.nan])[codes])
        for name in [name for name, part in (parts or {}).items() if part == "number" and name in self.table.few]:
            column = self._few(name)
            if all(type(value) is int for value in column.values):
                values = np.array([*column.values, np.nan], np.float64)
                columns.append(values[np.minimum(column.codes, len(column.values))])
        if len(self.table.sources) > 1 and self._counted() is not None:
            columns.append(self._file().astype(np.float64))
        for numbers in columns:
            whole = not np.isnan(numbers).any() and bool((np.mod(numbers, 1) == 0).all())
            if whole and np.abs(numbers).max() < 1 << 31:
                codes = numbers.astype(np.int32)
                if pairs_of(ids, codes - codes.min())[0].shape[1] == len(ids):
                    return codes
        return None

    def _prompts(self, ids: IntArray, keys: Sequence[str], id_name: str) -> tuple[str, list[Any] | None]:
        """The column of prompts, and each problem's. Raises DataError if ids and prompts contradict each other."""
        found = next(iter(self._of("prompt")), NONE)
        name = self.reading.prompt or found
        self.used |= set() if name == found == NONE else {"prompt"}
        if name == NONE:
            return "", None
        codes, texts = self._values(name)
        pairs, _, _ = pairs_of(ids, codes)
        of_id, of_prompt = np.bincount(pairs[0]), np.bincount(pairs[1] + 1)[1:]
        choice = f"--id {name} takes the prompt as the problem, --id {id_name} the id as it is"
        if of_id.max() > 1:
            text = f"{id_name} {keys[int(of_id.argmax())]!r} has {of_id.max()} different prompts ({name})"
            if not self.reading.id:
                raise self._error(f"{text}; {choice}")
            self.notes.append(f"{self.name}: {text}")
            self.contradictory = True
            return "", None
        times = set(of_prompt[of_prompt > 0].tolist())
        if not self.reading.id and len(ids) == len(keys) and len(times) == 1 and min(times) > 1:
            raise self._error(f"{id_name} differs in every row, but each {name} is there {min(times)} times; {choice}")
        prompts: list[Any] = [None] * len(keys)
        for problem, code in pairs.T:
            prompts[problem] = texts[code] if code >= 0 else None
        return (name if name != id_name else ""), prompts

    def _answers(self, verdict: str, ids: IntArray) -> tuple[str, IntArray | None]:
        """The column of answers, and the number of each row's answer."""
        if self.reading.answer == NONE:
            self.used |= {"answer"} if self._of("answer") else set()
            return "", None
        self.used.add("answer")
        table = verdict.rpartition(".")[0]
        names = [self.reading.answer] if self.reading.answer else self._of("answer")
        for name in sorted(names, key=lambda name: not (table and name.rpartition(".")[0] == table)):
            codes, keys = self._values(name)
            if not self.reading.answer and _are_responses(keys):
                self.notes.append(f"{self.name}: {name} holds whole responses, so no answers are counted")
                continue
            silent = np.array([*(key.strip().lower() in _NO_ANSWER for key in keys), True])
            codes = np.where(silent[codes], -1, codes)
            unsure = name.rpartition(".")[2] in ("answer", "answers") and name.rpartition(".")[0] != (table or None)
            if unsure and not self.reading.answer:
                varies = pairs_of(ids, codes)[0].shape[1] > len(np.unique(ids))
                if self.contradictory or not varies:
                    continue  # one for all samples of a problem: it may be the gold answer
            return name, codes.astype(np.int32)
        return "", None

    def _check_counts(self, n: NDArray[np.intp], keys: Sequence[str]) -> None:
        """Refuse unequal numbers of samples, and fewer than a header promises."""
        if (low := int(n.min())) < (high := int(n.max())):
            text = f"{int((n < high).sum())} of {counted(len(n), 'problem')} have fewer than {counted(high, 'sample')}"
            text += f", for example {keys[int(n.argmin())]!r} with {low}"
            if not self.reading.partial:
                raise self._error(f"{text}; --partial counts them with those that they have")
            self.used.add("partial")
            self.notes.append(f"{self.name}: {text}")
        for place, header in () if self.reading.filter else self.table.headers:
            for name, promised, count in _promises(header, len(n), int(n.sum())):
                if promised > count and self.reading.partial:
                    self.used.add("partial")
                elif promised > count:
                    fault = f"but there are {count}: {self.name} is cut off or not finished"
                    raise DataError(f"{place} promises {promised:g} ({name}), {fault}")


def _shown(paths: Sequence[str]) -> str:
    """The first of some paths, without the folders that all have."""
    parts = [PurePath(path).parts for path in paths]
    same = next((i for i, names in enumerate(zip(*parts, strict=False)) if len({*names}) > 1), 0)
    return ", ".join("/".join(part[same:]) for part in parts[:SHOWN])


def _are_responses(texts: Sequence[str]) -> bool:
    """Whether the different texts of a column are whole responses rather than answers."""
    first = texts[:1000]
    whole = sum(len(text) > _LONG or any(mark in text for mark in ("\n", r"\boxed", "```")) for text in first)
    return 2 * whole > len(first)


_OF_SAMPLES = ("total_samples", "num_samples", "n_samples", "total_count", "num_results", "completed_samples")
_OF_PROBLEMS = ("num_examples", "total_examples", "num_problems", "n_problems", "effective")
_EACH = ("rollouts_per_example", "completions_per_prompt", "samples_per_problem", "num_samples_per_task")


def _promises(header: Mapping[str, Any], problems: int, samples: int) -> list[tuple[str, float, int]]:
    """Numbers of a header, each with its name, its value, and the number in the files."""
    plain: dict[str, float] = {}
    tables: list[Mapping[str, Any]] = [header]
    for table in tables:
        for key, value in table.items():
            if isinstance(value, dict) and key not in ("config", "dataset", "eval", "args", "sampling_args"):
                tables.append(value)
            elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST:
                plain.setdefault(key, value)
    each = max([plain[name] for name in _EACH if name in plain], default=0)
    promises = [(name, plain[name], samples) for name in _OF_SAMPLES if name in plain]
    for name in _OF_PROBLEMS:
        if name in plain:
            promises.append((name, plain[name], problems))
            promises.append((f"{name} × samples", plain[name] * each, samples))
    return promises
