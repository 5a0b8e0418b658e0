"""Judged samples of any harness: the roles of their columns, and refusals of samples that are too unclear to count.

A column is chosen by its name (`dph.evaluation.fields`) and by its values. Nothing is guessed: if two readings are
possible and differ, a DataError names them and the option that decides.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dph.config import Reading
from dph.config.checks import unfinished
from dph.errors import DataError, counted
from dph.evaluation.fields import MANY_VERDICTS, Role, preference, role_of, verdict_number, verdict_rank
from dph.evaluation.logs import Table, read_table
from dph.types import UNSCORED

LINE = "line"
"""The id that is a row's place in its file."""
NONE = "none"
_NO_ANSWER = {"", "none", "null", "[invalid]", "nan"}
_FAILED_RUN = {"error", "failed", "cancelled", "canceled", "started", "running"}
_SHOWN = 4
_DIGITS = 9
"""Digits of a number of rows, at most."""
_MOST = 10.0**15
"""No header counts so many samples."""

IntArray = NDArray[np.int32]


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

    @property
    def n(self) -> NDArray[np.int64]:
        """[problems] Samples of each problem."""
        return np.bincount(self.problem, minlength=len(self.problems))

    @property
    def c(self) -> NDArray[np.int64]:
        """[problems] Correct samples of each problem."""
        return np.bincount(self.problem[self.right], minlength=len(self.problems))


def read_samples(path: str | Path, reading: Reading | None = None) -> Samples:
    """Judged samples from a file or folder; formats: docs/guides/passk.md. Raises DataError for what is damaged or
    missing, and for what can be read in two ways."""
    reading = reading or Reading()
    column, _, _ = reading.correct.partition("=")
    named = {reading.id, column, reading.answer, reading.prompt} | {text.partition("=")[0] for text in reading.filter}
    table = read_table(Path(path), named=named - {"", LINE, NONE}, records=reading.records)
    for place, header in table.headers:
        if (status := str(header.get("status", "")).lower()) in _FAILED_RUN:
            wrong = f"{place}: the run did not finish (status {status!r}), so it is not a result"
            raise DataError(wrong + (unfinished(Path(path)) or "; finish it, or name another"))
    if not table.rows:
        raise DataError(f"{path} holds no samples; a sample needs an id and a verdict")
    return _Choice(str(path), table, reading).samples()


class _Choice:
    """The columns of one table, and the rows that count."""

    def __init__(self, name: str, table: Table, reading: Reading) -> None:
        self.name, self.table, self.reading = name, table, reading
        self.rows: NDArray[np.intp] = np.arange(table.rows)
        self.notes: list[str] = []
        self.contradictory = False
        """Whether an id has several prompts."""

    def samples(self) -> Samples:
        self._select()
        if self._empty_responses().all():
            raise self._error(f"every response of {len(self.rows)} samples is empty: the run failed")
        verdict_name, right = self._verdicts()
        id_name, ids, keys = self._ids()
        self._check_rows(ids, keys, id_name)
        prompt_name, prompts = self._prompts(ids, keys, id_name)
        answer_name, answers = self._answers(verdict_name, ids)
        judged = ~np.isnan(right)
        if lacking := int((~judged).sum()):
            text = f"{lacking} of {len(right)} samples have no verdict, for example of {keys[ids[~judged][0]]!r}"
            if not self.reading.partial or not judged.any():
                raise self._error(f"{text}; --partial leaves them out")
            self.notes.append(f"{self.name}: {text}; they are left out")
        used, problem = np.unique(ids[judged], return_inverse=True)
        self._check_counts(np.bincount(problem), [keys[i] for i in used])
        roles = {"problem": id_name, "verdict": verdict_name, "answer": answer_name, "prompt": prompt_name}
        shown = ", ".join(f"{column} as the {role}" for role, column in roles.items() if column)
        return Samples(
            self.name,
            [keys[i] for i in used],
            problem.astype(np.int32),
            right[judged] > 0,
            None if answers is None else answers[judged],
            None if prompts is None else [prompts[i] for i in used],
            f"{self.name}: {shown}; {counted(len(used), 'problem')}, {counted(len(problem), 'sample')}",
            self.notes,
        )

    def _error(self, text: str) -> DataError:
        return DataError(f"{self.name}: {text}")

    def _column(self, name: str) -> NDArray[np.object_]:
        """The values of a column in the rows that count; None without one. Raises DataError for an unknown name."""
        if name not in self.table.columns:
            raise self._error(f"no column is named {name!r}; there are {self._all_names()}")
        return self.table.columns[name][self.rows]

    def _all_names(self) -> str:
        names = sorted({*self.table.columns, *self.table.others}, key=lambda name: (name.count("."), name))
        return ", ".join(names[:20]) + (" …" if len(names) > 20 else "")

    def _of(self, role: Role) -> list[str]:
        """The columns of a role that have a value, the preferred one first."""
        names = [name for name in self.table.columns if role_of(name) == role]
        names = [name for name in names if any(value is not None for value in self._column(name))]
        return sorted(names, key=lambda name: preference(name, role))

    def _where(self, name: str, wanted: Callable[[Any], bool], *, missing: bool = False) -> NDArray[np.bool_]:
        """The rows whose value in a column is wanted."""
        return np.array([missing if value is None else wanted(value) for value in self._column(name)], np.bool_)

    def _select(self) -> None:
        """Keep the rows that are asked for; refuse several models, steps or filters in one file."""
        for text in self.reading.filter:
            name, equals, value = text.partition("=")
            if not equals:
                name, value = next(iter(self._of("filter")), ""), text
            if name:
                self.rows = self.rows[self._where(name, lambda entry, value=value: _text(entry) == value)]
            else:
                self.rows = self._nth_rows(text)
            if not len(self.rows):
                raise self._error(f"no row is left by --filter {text}")
        for name in self._of("sample"):  # −1 is the greedy response of `dph eval`
            self.rows = self.rows[self._where(name, lambda number: number != -1, missing=True)]
        for role in ("filter", "model", "step"):
            for name in self._of(role):
                _, values = _merged(self._column(name))
                if len(values) > 1 and "." not in name:
                    rows = f"the rows have {len(values)} values of {name!r} ({', '.join(values[:_SHOWN])})"
                    raise self._error(f"{rows}, not samples of one run; choose one with --filter {name}={values[-1]}")

    def _nth_rows(self, text: str) -> NDArray[np.intp]:
        """The rows that are the first, second … of their problem."""
        if not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
            raise self._error(f"no column is named filter; --filter {text} needs COLUMN=VALUE or a number from 1 on")
        _, ids, _ = self._ids()
        order = np.argsort(ids, kind="stable")
        return np.sort(self.rows[order[_ranks(np.bincount(ids)) == int(text) - 1]])

    def _empty_responses(self) -> NDArray[np.bool_]:
        names = self._of("response")
        empty = [self._where(name, lambda text: text == "", missing=True) for name in names]
        return np.logical_and.reduce(empty) if names else np.zeros(len(self.rows), bool)

    def _ids(self) -> tuple[str, IntArray, list[str]]:
        """The column of ids, the problem of each row, and the problems' ids."""
        names = [self.reading.id] if self.reading.id else [*self._of("id"), *self._of("prompt"), *self._of("task")][:1]
        if names and names[0] != LINE:
            codes, keys = _merged(self._column(names[0]))
            if (codes < 0).any():
                place = int(self.rows[np.argmax(codes < 0)]) + 1
                raise self._error(f"row {place} has no {names[0]!r}, which names the problems of the others")
            for other in self._of("id") if not self.reading.id and len(codes) == len(keys) > 1 else ():
                sizes = np.bincount(_merged(self._column(other))[0] + 1)[1:]
                if len(sizes) > 1 and sizes.min() == sizes.max() > 1:
                    rows = f"{names[0]} differs in every row, but each {other} is there {sizes[0]} times"
                    raise self._error(f"{rows}; choose with --id {names[0]} or --id {other}")
            for task in self._of("task"):  # one id in two tasks names two problems
                split, tasks = _merged(self._column(task))
                pairs, _, both = _pairs(codes, split)
                if len(tasks) > 1:
                    apart = pairs.shape[1] > len(keys)
                    keys = [f"{tasks[j]}/{keys[i]}" if apart and j >= 0 else keys[i] for i, j in pairs.T]
                    codes = both.astype(np.int32)
            return names[0], codes, keys
        sizes = {source.rows for source in self.table.sources}
        if self.reading.id != LINE and (len(self.table.sources) < 2 or len(sizes) > 1 or not self._is_numbered()):
            choice = "choose one with --id, or the place in the file with --id line"
            raise self._error(f"no column names the problems; {choice}; there are {self._all_names()}")
        place = np.concatenate([np.arange(source.rows) for source in self.table.sources])
        return LINE, place[self.rows].astype(np.int32), [str(i + 1) for i in range(max(sizes))]

    def _is_numbered(self) -> bool:
        """Whether the files' names differ in one number only, which counts from 0 or 1."""
        names = [re.split(r"(\d+)", source.name) for source in self.table.sources]
        differ = [i for i in range(len(names[0])) if len({tuple(name[i : i + 1]) for name in names}) > 1]
        if len({*map(len, names)}) > 1 or len(differ) != 1 or differ[0] % 2 == 0:
            return False
        numbers = sorted(int(name[differ[0]]) for name in names)
        return numbers in ([*range(len(numbers))], [*range(1, len(numbers) + 1)])

    def _check_rows(self, ids: IntArray, keys: Sequence[str], id_name: str) -> None:
        """Refuse files that overlap without being numbered, and rows that are one sample."""
        files = len(self.table.sources)
        file = np.repeat(np.arange(files), [source.rows for source in self.table.sources])[self.rows]
        if _pairs(ids, file)[0].shape[1] > len(np.unique(ids)) and not self._is_numbered():
            names = ", ".join(Path(source.name).name for source in self.table.sources[:_SHOWN])
            raise self._error(f"its files hold the same problems and are not numbered ({names}); name one of them")
        for name in self._of("sample"):
            codes, numbers = _merged(self._column(name))
            numbered = codes >= 0
            pairs, times, _ = _pairs(ids[numbered].astype(np.int64) * files + file[numbered], codes[numbered])
            if (times > 1).any():
                problem, code = pairs[:, np.argmax(times > 1)]
                id, value = keys[problem // files], f"{name} {numbers[code]}"
                raise self._error(f"{id_name} {id!r} has {times.max()} rows with {value}: duplicates")
        filtered = [name for name in self._of("answer") if name.rpartition(".")[2].startswith("filtered_")]
        if filtered and not self._of("sample") and (most := int(np.bincount(ids).max())) > 1:
            id = keys[int(np.bincount(ids).argmax())]
            rows = f"{id_name} {id!r} has {most} rows with {filtered[0]}, one for each filter, which are not samples"
            raise self._error(f"{rows}; choose one with --filter 1 to --filter {most}")

    def _prompts(self, ids: IntArray, keys: Sequence[str], id_name: str) -> tuple[str, list[Any] | None]:
        """The column of prompts, and each problem's. Raises DataError if ids and prompts contradict each other."""
        name = self.reading.prompt or next(iter(self._of("prompt")), NONE)
        if name == NONE:
            return "", None
        codes, texts = _merged(self._column(name))
        pairs, _, _ = _pairs(ids, codes)
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

    def _verdicts(self) -> tuple[str, NDArray[np.float64]]:
        """The column of verdicts and, for each row, 1, 0 or NaN if there is none."""
        if self.reading.correct:
            return self._named_verdicts()
        scores = {name: self._scores(name) for name in self.table.columns if verdict_rank(name)}
        scores = {name: values for name, values in scores.items() if not np.isnan(values).all()}
        order = sorted(scores, key=lambda name: (verdict_rank(name), name.count("."), name))
        counts = [name for name in order if name.rpartition(".")[2] in (*MANY_VERDICTS, "correct", "passed")]
        if counts and self._of("count") and self._are_counts(counts[0], scores[counts[0]]):
            return self._repeated(counts[0], scores[counts[0]])
        order = [name for name in order if name.rpartition(".")[2] not in MANY_VERDICTS]
        if not order:
            raise self._error(f"no column holds verdicts that can be read; {self._advice()}")
        rank = verdict_rank(order[0])
        order = [name for name in order if verdict_rank(name) < 3 or rank == 3]
        binary = {name: right for name in order if (right := self._binary(scores[name])) is not None}
        graded = [name for name in order if verdict_rank(name) == rank and name not in binary]
        if graded and (rank > 1 or verdict_rank(next(iter(binary), "")) != 1):
            raise self._graded(graded[0], scores[graded[0]])
        first = next(iter(binary))
        for right in binary.values():
            both = ~np.isnan(right) & ~np.isnan(binary[first])
            if (right != binary[first])[both].any():
                shares = ", ".join(f"{rival} ({np.nanmean(values):.3f} right)" for rival, values in binary.items())
                raise self._error(f"the verdicts differ between {shares}; choose one, for example --correct {first}")
        return first, self._unscored(binary[first])

    def _named_verdicts(self) -> tuple[str, NDArray[np.float64]]:
        name, equals, value = self.reading.correct.partition("=")
        if equals:
            right = self._where(name, lambda entry: _text(entry) == value).astype(float)
            if not right.any():
                raise self._error(f"no row has {value!r} in {name!r}; there are {self._examples(name)}")
            return self.reading.correct, np.where(self._where(name, lambda _: True), right, math.nan)
        scores = self._scores(name)
        if np.isnan(scores).all():
            unknown = f"{name!r} has values of unknown meaning ({self._examples(name)})"
            raise self._error(f"{unknown}; say which one is right with --correct {name}=VALUE")
        if (right := self._binary(scores)) is None:
            raise self._graded(name, scores)
        return name, self._unscored(right)

    def _advice(self) -> str:
        unclear = [name for name in self.table.columns if verdict_rank(name)]
        if not unclear:
            return f"name one with --correct; there are {self._all_names()}"
        return f"{unclear[0]!r} has {self._examples(unclear[0])}: say --correct {unclear[0]}=VALUE"

    def _graded(self, name: str, scores: NDArray[np.float64]) -> DataError:
        values = Counter(scores[~np.isnan(scores)].tolist()).most_common(_SHOWN)
        shown = ", ".join(f"{value:g} {times} times" for value, times in values)
        return self._error(
            f"{name!r} is graded ({shown}); say from which score on a sample is right, for example --threshold "
            f"{np.nanmax(scores):g}, or name another column with --correct"
        )

    def _are_counts(self, name: str, correct: NDArray[np.float64]) -> bool:
        """Whether a column has numbers of correct samples: some above 1, or one row a problem with several samples."""
        if np.nanmax(correct) > 1 or any(isinstance(value, bool | str) for value in self._column(name)):
            return bool(np.nanmax(correct) > 1)
        _, ids, keys = self._ids()
        return len(ids) == len(keys) and bool(np.nanmax(self._scores(self._of("count")[0])) > 1)

    def _repeated(self, name: str, correct: NDArray[np.float64]) -> tuple[str, NDArray[np.float64]]:
        """Rows with numbers of correct samples become as many rows as there are samples."""
        total_name = self._of("count")[0]
        total = self._scores(total_name)
        if self._of("sample") or not (np.mod(correct, 1) == 0).all() or not (total >= np.maximum(correct, 1)).all():
            raise self._error(f"{name!r} and {total_name!r} are not numbers of correct and of all samples of a problem")
        times = total.astype(np.intp)
        self.rows = np.repeat(self.rows, times)
        return f"{name} of {total_name}", (_ranks(times) < np.repeat(correct, times)).astype(float)

    def _unscored(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Without the verdicts of samples whose judging failed, or that failed before there was a response."""
        for name in self.table.columns:
            if verdict_rank(name) == 3:
                right = np.where(self._where(name, lambda value: value in UNSCORED), math.nan, right)
        for name in self._of("error"):
            right = np.where(self._empty_responses() & self._where(name, bool), math.nan, right)
        return right

    def _scores(self, name: str) -> NDArray[np.float64]:
        """The number of each row's verdict, NaN without one; NaN everywhere if a value is not a verdict."""
        numbers = [math.nan if value is None else verdict_number(value) for value in self._column(name)]
        return np.full(len(numbers), math.nan) if None in numbers else np.array(numbers, np.float64)

    def _binary(self, scores: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """1 for right, 0 for wrong and NaN for no score; None for graded scores without a threshold."""
        threshold = self.reading.threshold
        values = set(np.unique(scores[~np.isnan(scores)]).tolist())
        if math.isinf(threshold) and not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
            return None
        right = scores > 0 if math.isinf(threshold) else scores >= threshold
        return np.where(np.isnan(scores), math.nan, right)

    def _examples(self, name: str) -> str:
        return ", ".join(repr(text[:40]) for text in _merged(self._column(name))[1][-_SHOWN:])

    def _answers(self, verdict: str, ids: IntArray) -> tuple[str, IntArray | None]:
        """The column of answers, and the number of each row's answer."""
        if self.reading.answer == NONE:
            return "", None
        table = verdict.rpartition(".")[0]
        names = [self.reading.answer] if self.reading.answer else self._of("answer")
        for name in sorted(names, key=lambda name: not (table and name.rpartition(".")[0] == table)):
            codes, keys = _merged(self._column(name))
            silent = np.array([*(key.strip().lower() in _NO_ANSWER for key in keys), True])
            codes = np.where(silent[codes], -1, codes)
            unsure = name.rpartition(".")[2] in ("answer", "answers") and name.rpartition(".")[0] != (table or None)
            if unsure and not self.reading.answer:
                varies = _pairs(ids, codes)[0].shape[1] > len(np.unique(ids))
                if self.contradictory or not varies:
                    continue  # one for all samples of a problem: it may be the gold answer
            return name, codes.astype(np.int32)
        return "", None

    def _check_counts(self, n: NDArray[np.intp], keys: Sequence[str]) -> None:
        """Refuse unequal numbers of samples, and fewer than a header promises."""
        if (low := int(n.min())) < (high := int(n.max())):
            text = f"{int((n < high).sum())} of {len(n)} problems have fewer than {high} samples"
            text += f", for example {keys[int(n.argmin())]!r} with {low}"
            if not self.reading.partial:
                raise self._error(f"{text}; --partial counts them with those that they have")
            self.notes.append(f"{self.name}: {text}")
        for place, header in () if self.reading.filter or self.reading.partial else self.table.headers:
            for name, promised, count in _promises(header, len(n), int(n.sum())):
                if promised > count:
                    fault = f"but there are {count}: {self.name} is cut off or not finished"
                    raise DataError(f"{place} promises {promised:g} ({name}), {fault}")


def _text(value: Any) -> str:
    """A value as an id or answer: 1 and 1.0 are one, as a table may have changed one into the other."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _merged(column: NDArray[np.object_]) -> tuple[IntArray, list[str]]:
    """The number of each row's value, −1 without one, and the texts of the values, in the order of the rows."""
    numbers: dict[str, int] = {}
    texts = (value if value is None or type(value) is str else _text(value) for value in column)
    codes = [-1 if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
    return np.array(codes, np.int32), list(numbers)


def _pairs(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[np.int64], ...]:
    """Distinct pairs [2, pairs] of two columns, from 0 and from −1 on; how often each occurs; the pair of each row."""
    width = np.int64(int(second.max(initial=0)) + 2)
    pairs, which, times = np.unique(first * width + second + 1, return_inverse=True, return_counts=True)
    return np.stack([pairs // width, pairs % width - 1]), times, which


def _ranks(lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    """0 … l − 1 for each length l."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


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
