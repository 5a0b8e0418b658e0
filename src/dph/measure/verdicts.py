"""The column of verdicts of judged samples: right, wrong or not judged, and what is too unclear to be a verdict."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dph.config import Reading
from dph.errors import DataError, counted
from dph.measure.fields import (
    MANY_VERDICTS,
    OF_EITHER,
    OF_SAMPLES,
    OF_TESTS,
    counts_tests,
    failing_of,
    is_finite_number,
    is_list_of_verdicts,
    is_maximum,
    is_maximum_of_points,
    is_of_request,
    is_share,
    is_share_of_samples,
    leaf_of,
    may_be_maximum,
    role_of,
    snake,
    verdict_rank,
)
from dph.measure.kinds import counts_up, sample_of
from dph.measure.lists import flat_of
from dph.measure.rows import SHOWN, Rows, ranks_of
from dph.measure.table import LogTable
from dph.types import UNSCORED

_COUNTED = (*MANY_VERDICTS, "correct", "passed", "c")
"""Names of numbers of correct samples, or of passed tests."""
_OF_EITHER = (*OF_EITHER, "correct", "passed", "c")
"""Those that may count tests as well as samples."""
_ROUNDED = 0.005
"""By how much a share may be rounded."""
MOST_SAMPLES = 100_000_000
"""Samples of all problems that counts may stand for: each takes some bytes while the files are compared."""
Scores = NDArray[np.float64]


class Scale(NamedTuple):
    """The scores that a threshold was compared with."""

    least: float
    highest: float
    most: float
    """The highest score that the file says is possible."""
    graded: bool
    """Whether the threshold was needed: 0 and 1 say themselves what is right."""


class Verdicts(Rows):
    """The rows that count, with the verdict of each."""

    def __init__(self, name: str, table: LogTable, reading: Reading) -> None:
        super().__init__(name, table, reading)
        self._compared: dict[str, Scale] = {}
        """By the name of a column of verdicts, the scores that a threshold was compared with."""

    def _verdicts(self) -> tuple[str, Scores]:
        """The column of verdicts and, for each row, 1, 0 or NaN if there is none."""
        if self.reading.correct:
            return self._named_verdicts()
        scores = {name: self._scores(name) for name in self.table.columns if verdict_rank(name)}
        scores = {name: values for name, values in scores.items() if not np.isnan(values).all()}
        order = sorted(scores, key=lambda name: (verdict_rank(name), name.count("."), name))
        for name in [name for name in (*order, "c") if name in self.table.columns and leaf_of(name) in _COUNTED]:
            if total := self._total_of(name):
                return self._repeated(name, total)
            if leaf_of(name) in OF_SAMPLES and (failing := self._failing_of(name)):
                return self._repeated(name, f"{name}+{failing}")
        for name in filter(is_share_of_samples, self.table.columns):
            if total := self._total_of_mean(name):
                return self._repeated(name, total, mean=True)
        sure = [name for name in order if verdict_rank(name) < 3]
        parts = {name: most for name in sure if (most := self._failing_of(name) or self._maximum_of(name))}
        whole = [name for name in order if name not in parts and leaf_of(name) not in MANY_VERDICTS]
        if parts and not any(verdict_rank(name) < 3 for name in whole):
            self._check_parts(*next(iter(parts.items())))
        order = [name for name in (whole or order) if leaf_of(name) not in MANY_VERDICTS]
        if wide := self._wide(order):
            return self._of_columns(wide)
        if not order:
            raise self._error(f"no column holds verdicts that can be read; {self._advice()}")
        return self._agreed(order, scores)

    def _wide(self, order: Sequence[str]) -> list[str]:
        """The columns that hold one of a problem's samples each, in the order of their numbers, if there are no other
        verdicts."""
        groups: dict[str, dict[int, str]] = {}
        for name in self.table.columns:
            found = sample_of(name)
            if found and (name in order or not np.isnan(self._scores(name)).all()):
                groups.setdefault(found[0], {})[found[1]] = name
        found = [group for group in groups.values() if len(group) > 1 and counts_up(sorted(group))]
        if len(found) != 1 or not {*order} <= {*found[0].values()}:
            return []
        return [found[0][number] for number in sorted(found[0])]

    def _of_columns(self, names: Sequence[str]) -> tuple[str, Scores]:
        """A row becomes as many rows as it has columns of samples."""
        scores = np.stack([self._scores(name) for name in names], axis=1).reshape(-1)
        if (right := self._binary(names[0], scores)) is None:
            raise self._graded(names[0], scores)
        self.rows = np.repeat(self.rows, len(names))
        label = f"each of {names[0]} to {names[-1]}"
        if names[0] in self._compared:
            self._compared[label] = self._compared[names[0]]
        return label, right

    def _agreed(self, order: list[str], scores: Mapping[str, Scores]) -> tuple[str, Scores]:
        """The first of the columns, if all that are as sure agree with it."""
        rank = verdict_rank(order[0])
        order = [name for name in order if verdict_rank(name) < 3 or rank == 3]
        binary = {name: right for name in order if (right := self._binary(name, scores[name])) is not None}
        graded = [name for name in order if verdict_rank(name) == rank and name not in binary]
        if graded and (rank > 1 or verdict_rank(next(iter(binary), "")) != 1):
            raise self._graded(graded[0], scores[graded[0]])
        first = next(iter(binary))
        self._check_header(first)
        if is_of_request(first) and (binary[first] == 1).all():
            made = f"{first!r} is true in all rows and may only say that a response was made"
            raise self._error(f"{made}; name the verdict with --correct, {first} if it is that")
        for right in binary.values():
            both = ~np.isnan(right) & ~np.isnan(binary[first])
            if (right != binary[first])[both].any():
                shares = ", ".join(f"{rival} ({np.nanmean(values):.3f} right)" for rival, values in binary.items())
                raise self._error(f"the verdicts differ between {shares}; choose one, for example --correct {first}")
        return first, self._unscored(binary[first])

    def _named_verdicts(self) -> tuple[str, Scores]:
        """Those of --correct COLUMN, COLUMN=VALUE, PART=ALL (equal numbers) or SOME/ALL (so many of the samples)."""
        text = self.reading.correct
        name, equals, value = text.partition("=")
        some, slash, every = text.partition("/")
        if text in self.table.columns:  # COLUMN=all
            name, equals = text, ""
        if slash and not equals and {some, *every.split("+")} <= self.table.columns.keys():
            shares = is_share_of_samples(some) and float(np.nanmax(self._scores(some), initial=0)) <= 1
            return self._repeated(some, every, mean=shares)
        if equals:
            right = self._with_value(name, value).astype(float)
            if not right.any() and value in self.table.columns:
                first, second = self._scores(name), self._scores(value)
                return text, np.where(np.isnan(first) | np.isnan(second), math.nan, first == second)
            if not right.any():
                raise self._error(f"no row has {value!r} in {name!r}; there are {self._examples(name)}")
            return text, np.where(self._where(name, lambda _: True) | (right > 0), right, math.nan)
        if leaf_of(name) in _COUNTED and (total := self._total_of(name)):
            return self._repeated(name, total)
        if most := self._failing_of(name) or self._maximum_of(name):
            self._check_parts(name, most)
        self._check_header(name)
        scores = self._scores(name)
        if np.isnan(scores).all():
            unknown = f"{name!r} has values of unknown meaning ({self._examples(name)})"
            raise self._error(f"{unknown}; say which one is right with --correct {name}=VALUE")
        if (right := self._binary(name, scores)) is None:
            raise self._graded(name, scores)
        return name, self._unscored(right)

    def _advice(self) -> str:
        unclear = [name for name in self.table.columns if verdict_rank(name)]
        if not unclear:
            return f"name one with --correct; there are {self._all_names()}"
        if counts := next((name for name in unclear if leaf_of(name) in MANY_VERDICTS), ""):
            return f"say --correct {counts}/ALL, where ALL is the column with the number of all samples of the problem"
        examples = self._examples(unclear[0])
        lists = [text for text in self._values(unclear[0])[1] if text.startswith("[")]
        if not lists:
            return f"{unclear[0]!r} has {examples}: say --correct {unclear[0]}=VALUE"
        if all(map(is_list_of_verdicts, lists)):  # one verdict for each sample
            return f"{unclear[0]!r} has {examples}: say --correct {unclear[0]}"
        return f"{unclear[0]!r} has {examples}, which are no verdicts; name another column with --correct"

    def _graded(self, name: str, scores: Scores) -> DataError:
        values = Counter(scores[~np.isnan(scores)].tolist()).most_common(SHOWN)
        shown = ", ".join(f"{value:.15g} {counted(times, 'time')}" for value, times in values)
        return self._error(
            f"{name!r} is graded ({shown}); say from which score on a sample is right with --threshold SCORE, or name "
            "another column with --correct"
        )

    def _total_of(self, name: str) -> str:
        """The column with the numbers of all samples of which this one has the correct ones; "" if it has verdicts.
        Raises DataError if they may be numbers of tests."""
        correct, totals = self._scores(name), self._of("count")
        if not totals or np.isnan(correct).all() or not self._are_counts(name, correct, totals[0]):
            return ""
        total = totals[0]
        is_score = not math.isinf(self.reading.threshold)
        if leaf_of(name) in _OF_EITHER and leaf_of(total) in OF_TESTS:
            if is_score:
                return ""
            both = f"{name!r} of {total!r} may be tests of one sample or samples of one problem"
            ways = f"--correct {name}={total} counts a sample as right that passes all tests"
            raise self._error(f"{both}; {ways}, --correct {name}/{total} counts so many of so many samples")
        few = set(correct[~np.isnan(correct)].tolist()) <= {0.0, 1.0} and leaf_of(name) in ("correct", "passed")
        if few and not self.table.counts:
            if is_score:
                return ""
            both = f"{name!r} may be the verdict of a sample, or the number of correct ones of {total!r} samples"
            ways = f"--correct {name}=1 counts a row as one sample, --correct {name}/{total} as so many"
            raise self._error(f"{both}; {ways}")
        if is_score:
            raise self._error(f"{name!r} of {total!r} are numbers of samples, which need no --threshold; leave it out")
        return total

    def _total_of_mean(self, name: str) -> str:
        """The column with the numbers of samples of which this one has the share of correct ones; "" if it has verdicts
        or scores. Raises DataError if the numbers may be those of tests."""
        totals, shares = self._of("count"), self._scores(name)
        if not totals or any(isinstance(value, bool | str) for value in self._column(name)):
            return ""
        every = self._scores(totals[0])
        correct = shares * every
        whole = not np.isnan(correct).any() and (np.abs(correct - np.rint(correct)) < _ROUNDED * every).all()
        if not whole or not ((shares >= 0) & (shares <= 1) & (every >= 1)).all() or every.max() < 2:
            return ""
        if leaf_of(totals[0]) not in OF_TESTS:
            return totals[0]
        if not math.isinf(self.reading.threshold):
            return ""
        both = f"{name!r} of {totals[0]!r} may be of the tests of one sample or of the samples of one problem"
        ways = "--threshold 1 counts a sample as right that passes all tests"
        raise self._error(f"{both}; {ways}, --correct {name}/{totals[0]} counts that share of so many samples")

    def _are_counts(self, name: str, correct: Scores, total: str) -> bool:
        """Whether a column has numbers of correct samples: some above 1, or one row a problem with several samples."""
        if np.nanmax(correct) > 1 or any(isinstance(value, bool) for value in self._column(name)):
            return bool(np.nanmax(correct) > 1)
        if any(isinstance(value, str) and not is_finite_number(value) for value in self._column(name)):
            return False
        every = self._scores(total)
        _, ids, keys = self._ids()
        several = not np.isnan(every).all() and bool(np.nanmax(every) > 1)
        return len(ids) == len(keys) and (several or leaf_of(name) == "c")

    def _repeated(self, name: str, total_name: str, mean: bool = False) -> tuple[str, Scores]:
        """Rows with numbers of correct samples, or with their share, become as many rows as there are samples."""
        correct, total = self._scores(name), sum(map(self._scores, total_name.split("+")), np.zeros(len(self.rows)))
        correct = np.rint(correct * total) if mean else correct
        whole = (np.mod(correct, 1) == 0).all() and (np.mod(total, 1) == 0).all()
        if self._of("sample") or not whole or not ((total >= np.maximum(correct, 1)) & (correct >= 0)).all():
            raise self._error(f"{name!r} and {total_name!r} are not numbers of correct and of all samples of a problem")
        if total.sum() > MOST_SAMPLES:
            raise self._error(f"{total_name!r} counts more than {MOST_SAMPLES:,} samples in all, too many to compare")
        self._check_one_row_each()
        times = total.astype(np.intp)
        self.rows = np.repeat(self.rows, times)
        label = f"{name} of {total_name.replace('+', ' + ')}"
        return label, (ranks_of(times) < np.repeat(correct, times)).astype(float)

    def _check_one_row_each(self) -> None:
        """Refuse several rows of counts of one problem, which would be added up, unless the id was named."""
        id_name, ids, keys = self._ids()
        if len(ids) > len(keys) and not self.reading.id:
            times = np.bincount(ids)
            text = f"{id_name} {keys[int(times.argmax())]!r} has {times.max()} rows with numbers of samples"
            ways = f"remove the copies, choose one run with --filter, or add the rows up with --id {id_name}"
            raise self._error(f"{text}, as copies or several runs have; {ways}")

    @cached_property
    def _columns_by_name(self) -> dict[str, str]:
        return {snake(column): column for column in (*self.table.columns, *self.table.few)}

    @cached_property
    def _maxima(self) -> tuple[list[str], list[str]]:
        """The columns that hold a maximum by their names, and those that may hold one."""
        columns = self.table.columns
        sure = [
            name for name in columns if is_maximum(name) and (role_of(name) != "count" or leaf_of(name) in OF_TESTS)
        ]
        return sure, [name for name in (*columns, *self.table.few) if may_be_maximum(name) and name not in {*sure}]

    def _failing_of(self, name: str) -> str:
        """The column that counts failures where this one counts successes; "" without one, or if both are verdicts of
        one sample, as 1 and 0 are."""
        other = failing_of(name, self._columns_by_name)
        if not other or any(isinstance(value, bool) for value in self._column(name)):
            return ""
        numbers, failing = self._scores(name), self._scores(other)
        both = ~np.isnan(numbers) & ~np.isnan(failing)
        whole = (np.mod(numbers[both], 1) == 0).all() and (np.mod(failing[both], 1) == 0).all()
        positive = bool(both.any()) and min(numbers[both].min(), failing[both].min()) >= 0
        return other if whole and positive and (numbers + failing)[both].max() > 1 else ""

    def _maximum_of(self, name: str) -> str:
        """The column with the most points, or the number of tests, of which this one has a part; "" without one."""
        if any(value is not None and not is_finite_number(value) for value in self._column(name)):
            return ""  # words and truth values are verdicts
        scores = self._scores(name)
        sure, doubtful = self._maxima
        for other in (*sure, *(doubtful if verdict_rank(name) == 2 else ())):
            if other != name:
                most = self._scores(other)
                both = ~np.isnan(scores) & ~np.isnan(most)
                if both.any() and (most >= scores)[both].all() and most[both].max() > 1:
                    return other
        return ""

    def _check_parts(self, name: str, other: str) -> None:
        """Refuse a part of a maximum, or a number beside that of failures, as a verdict, unless a threshold says from
        which part on a sample is right."""
        if not math.isinf(self.reading.threshold):
            return
        part, whole = (f"{self._scores(column)[0]:g}" for column in (name, other))
        if failing_of(name, {snake(other): other}):
            parts = f"{name!r} and {other!r} are numbers (the first row has {part} and {whole})"
            ways = f"--correct {other}=0 counts a sample as right that has none of {other!r}"
            if not counts_tests(name):
                ways += f", --correct {name}/{name}+{other} counts so many of so many samples"
            raise self._error(f"{parts}; {ways}")
        sure = is_maximum(other)
        parts = f"{name!r} {'is' if sure else 'may be'} a part of {other!r} (the first row has {part} of {whole})"
        ways = f"--correct {name}={other} counts a sample as right that has all of it"
        ways += "" if sure else ", --threshold 1 one that has a score of 1 or more"
        raise self._error(f"{parts}; {ways}")

    def _check_header(self, name: str) -> None:
        """Refuse a score of which a header says the most points, unless a threshold says from which one on a sample is
        right."""
        if verdict_rank(name) != 2 or not math.isinf(self.reading.threshold):
            return
        highest = float(np.nanmax(self._scores(name), initial=0))
        for place, path, most in self._maxima_of_headers():
            if most > max(1.0, highest - 1e-9):
                where = "its header" if place == self.name else place
                part = f"{where} says {path} {most:g}, of which {name!r} may be a part"
                raise self._error(f"{part}; --threshold {most:g} counts a sample as right that has all of it")

    def _maxima_of_headers(self) -> Iterator[tuple[str, str, float]]:
        """The numbers of headers that say the most points of a score, each with its file and its path."""
        for place, header in self.table.headers:
            for path, value in flat_of(header).items():
                if is_maximum_of_points(path) and is_finite_number(value):
                    yield place, path, float(value)

    def _scale(self, name: str) -> Scale | None:
        """The scores of a column of verdicts; None if no threshold was compared with them."""
        scale = self._compared.get(name)
        if scale is None:
            return None
        most = [scale.highest, *(number for _, _, number in self._maxima_of_headers())]
        if name in self.table.columns and (other := self._maximum_of(name)):
            most.append(float(np.nanmax(self._scores(other))))
        return scale._replace(most=max(most))

    def _unscored(self, right: Scores) -> Scores:
        """Without the verdicts of samples whose judging failed, or that failed before there was a response."""
        for name in self.table.columns:
            if verdict_rank(name) == 3:
                right = np.where(self._where(name, lambda value: value in UNSCORED), math.nan, right)
        for name in self._of("error"):
            right = np.where(self._empty_responses() & self._where(name, bool), math.nan, right)
        return right

    def _binary(self, name: str, scores: Scores) -> Scores | None:
        """1 for right, 0 for wrong and NaN for no score; None for graded scores without a threshold. Words and truth
        values say themselves what is right, whatever the threshold is."""
        threshold = self.reading.threshold
        values = set(np.unique(scores[~np.isnan(scores)]).tolist())
        graded = not (values <= {0.0, 1.0} or values <= {-1.0, 1.0})  # also words, of which one is partly right
        graded = graded or any(map(is_share, self._column(name)))  # "0/4" and "4/4" may be of samples
        if not math.isinf(threshold):
            if graded or any(value is not None and is_finite_number(value) for value in self._column(name)):
                self.used.add("threshold")
                least, highest = min(values, default=0.0), max(values, default=0.0)
                self._compared[name] = Scale(least, highest, highest, graded)
            else:
                threshold = math.inf
        if math.isinf(threshold) and graded:
            return None
        right = scores > 0 if math.isinf(threshold) else scores >= threshold
        return np.where(np.isnan(scores), math.nan, right)
