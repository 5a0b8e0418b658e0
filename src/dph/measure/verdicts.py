"""The column of verdicts of judged samples: right, wrong or not judged, and what is too unclear to be a verdict."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dph.errors import DataError
from dph.measure.fields import (
    MANY_VERDICTS,
    OF_EITHER,
    OF_SAMPLES,
    OF_TESTS,
    counts_tests,
    counts_up,
    failing_of,
    is_maximum,
    may_be_maximum,
    role_of,
    sample_of,
    verdict_rank,
)
from dph.measure.rows import SHOWN, Rows, is_text, ranks_of
from dph.types import UNSCORED

_COUNTED = (*MANY_VERDICTS, "correct", "passed", "c")
"""Names of numbers of correct samples, or of passed tests."""
_OF_EITHER = (*OF_EITHER, "correct", "passed", "c")
"""Those that may count tests as well as samples."""
MOST_SAMPLES = 100_000_000
"""Samples of all problems that counts may stand for: each takes some bytes while the files are compared."""
Scores = NDArray[np.float64]


class Verdicts(Rows):
    """The rows that count, with the verdict of each."""

    def _verdicts(self) -> tuple[str, Scores]:
        """The column of verdicts and, for each row, 1, 0 or NaN if there is none."""
        if self.reading.correct:
            return self._named_verdicts()
        scores = {name: self._scores(name) for name in self.table.columns if verdict_rank(name)}
        scores = {name: values for name, values in scores.items() if not np.isnan(values).all()}
        order = sorted(scores, key=lambda name: (verdict_rank(name), name.count("."), name))
        for name in [name for name in (*order, "c") if name in self.table.columns and _leaf(name) in _COUNTED]:
            if total := self._total_of(name):
                return self._repeated(name, total)
            if _leaf(name) in OF_SAMPLES and (failing := self._failing_of(name)):
                return self._repeated(name, f"{name}+{failing}")
        sure = [name for name in order if verdict_rank(name) < 3]
        parts = {name: most for name in sure if (most := self._failing_of(name) or self._maximum_of(name))}
        whole = [name for name in order if name not in parts and _leaf(name) not in MANY_VERDICTS]
        if parts and not any(verdict_rank(name) < 3 for name in whole):
            self._check_parts(*next(iter(parts.items())))
        order = [name for name in (whole or order) if _leaf(name) not in MANY_VERDICTS]
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
        return f"each of {names[0]} to {names[-1]}", right

    def _agreed(self, order: list[str], scores: Mapping[str, Scores]) -> tuple[str, Scores]:
        """The first of the columns, if all that are as sure agree with it."""
        rank = verdict_rank(order[0])
        order = [name for name in order if verdict_rank(name) < 3 or rank == 3]
        binary = {name: right for name in order if (right := self._binary(name, scores[name])) is not None}
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

    def _named_verdicts(self) -> tuple[str, Scores]:
        """Those of --correct COLUMN, COLUMN=VALUE, PART=ALL (equal numbers) or SOME/ALL (so many of the samples)."""
        text = self.reading.correct
        name, equals, value = text.partition("=")
        some, slash, every = text.partition("/")
        if slash and not equals and {some, *every.split("+")} <= self.table.columns.keys():
            return self._repeated(some, every)
        if equals:
            right = self._where(name, is_text(value)).astype(float)
            if not right.any() and value in self.table.columns:
                first, second = self._scores(name), self._scores(value)
                return text, np.where(np.isnan(first) | np.isnan(second), math.nan, first == second)
            if not right.any():
                raise self._error(f"no row has {value!r} in {name!r}; there are {self._examples(name)}")
            return text, np.where(self._where(name, lambda _: True), right, math.nan)
        if _leaf(name) in _COUNTED and (total := self._total_of(name)):
            return self._repeated(name, total)
        if most := self._failing_of(name) or self._maximum_of(name):
            self._check_parts(name, most)
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
        if counts := next((name for name in unclear if _leaf(name) in MANY_VERDICTS), ""):
            return f"say --correct {counts}/ALL, where ALL is the column with the number of all samples of the problem"
        examples = self._examples(unclear[0])
        what = "" if examples.startswith("'[") else "=VALUE"  # a list has one verdict for each sample
        return f"{unclear[0]!r} has {examples}: say --correct {unclear[0]}{what}"

    def _graded(self, name: str, scores: Scores) -> DataError:
        values = Counter(scores[~np.isnan(scores)].tolist()).most_common(SHOWN)
        shown = ", ".join(f"{value:g} {times} times" for value, times in values)
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
        if _leaf(name) in _OF_EITHER and _leaf(total) in OF_TESTS:
            if is_score:
                return ""
            both = f"{name!r} of {total!r} may be tests of one sample or samples of one problem"
            ways = f"--correct {name}={total} counts a sample as right that passes all tests"
            raise self._error(f"{both}; {ways}, --correct {name}/{total} counts so many of so many samples")
        few = set(correct[~np.isnan(correct)].tolist()) <= {0.0, 1.0} and _leaf(name) in ("correct", "passed")
        if few and not self.table.counts:
            if is_score:
                return ""
            both = f"{name!r} may be the verdict of a sample, or the number of correct ones of {total!r} samples"
            ways = f"--correct {name}=1 counts a row as one sample, --correct {name}/{total} as so many"
            raise self._error(f"{both}; {ways}")
        if is_score:
            raise self._error(f"{name!r} of {total!r} are numbers of samples, which need no --threshold; leave it out")
        return total

    def _are_counts(self, name: str, correct: Scores, total: str) -> bool:
        """Whether a column has numbers of correct samples: some above 1, or one row a problem with several samples."""
        if np.nanmax(correct) > 1 or any(isinstance(value, bool) for value in self._column(name)):
            return bool(np.nanmax(correct) > 1)
        if any(isinstance(value, str) and not _is_number(value) for value in self._column(name)):
            return False
        every = self._scores(total)
        _, ids, keys = self._ids()
        return len(ids) == len(keys) and not np.isnan(every).all() and bool(np.nanmax(every) > 1)

    def _repeated(self, name: str, total_name: str) -> tuple[str, Scores]:
        """Rows with numbers of correct samples become as many rows as there are samples."""
        correct, total = self._scores(name), sum(map(self._scores, total_name.split("+")), np.zeros(len(self.rows)))
        whole = (np.mod(correct, 1) == 0).all() and (np.mod(total, 1) == 0).all()
        if self._of("sample") or not whole or not ((total >= np.maximum(correct, 1)) & (correct >= 0)).all():
            raise self._error(f"{name!r} and {total_name!r} are not numbers of correct and of all samples of a problem")
        if total.sum() > MOST_SAMPLES:
            raise self._error(f"{total_name!r} counts more than {MOST_SAMPLES:,} samples in all, too many to compare")
        times = total.astype(np.intp)
        self.rows = np.repeat(self.rows, times)
        label = f"{name} of {total_name.replace('+', ' + ')}"
        return label, (ranks_of(times) < np.repeat(correct, times)).astype(float)

    def _failing_of(self, name: str) -> str:
        """The column that counts failures where this one counts successes; "" without one, or if both are verdicts of
        one sample, as 1 and 0 are."""
        other = failing_of(name, (*self.table.columns, *self.table.few))
        if not other or any(isinstance(value, bool) for value in self._column(name)):
            return ""
        numbers, failing = self._scores(name), self._scores(other)
        both = ~np.isnan(numbers) & ~np.isnan(failing)
        whole = (np.mod(numbers[both], 1) == 0).all() and (np.mod(failing[both], 1) == 0).all()
        positive = bool(both.any()) and min(numbers[both].min(), failing[both].min()) >= 0
        return other if whole and positive and (numbers + failing)[both].max() > 1 else ""

    def _maximum_of(self, name: str) -> str:
        """The column with the most points, or the number of tests, of which this one has a part; "" without one."""
        if any(value is not None and not _is_number(value) for value in self._column(name)):
            return ""  # words and truth values are verdicts
        scores = self._scores(name)
        others = [n for n in self.table.columns if is_maximum(n) and (role_of(n) != "count" or _leaf(n) in OF_TESTS)]
        if verdict_rank(name) == 2:
            others += [n for n in (*self.table.columns, *self.table.few) if n not in others and may_be_maximum(n)]
        for other in others:
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
        some, every = (f"{self._scores(one)[0]:g}" for one in (name, other))
        if failing_of(name, [other]):
            parts = f"{name!r} and {other!r} are numbers (the first row has {some} and {every})"
            ways = f"--correct {other}=0 counts a sample as right that has none of {other!r}"
            if not counts_tests(name):
                ways += f", --correct {name}/{name}+{other} counts so many of so many samples"
            raise self._error(f"{parts}; {ways}")
        sure = is_maximum(other)
        parts = f"{name!r} {'is' if sure else 'may be'} a part of {other!r} (the first row has {some} of {every})"
        ways = f"--correct {name}={other} counts a sample as right that has all of it"
        ways += "" if sure else ", --threshold 1 one that has a score of 1 or more"
        raise self._error(f"{parts}; {ways}")

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
        if not math.isinf(threshold):
            if graded or any(value is not None and _is_number(value) for value in self._column(name)):
                self.used.add("threshold")
            else:
                threshold = math.inf
        if math.isinf(threshold) and graded:
            return None
        right = scores > 0 if math.isinf(threshold) else scores >= threshold
        return np.where(np.isnan(scores), math.nan, right)


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        return False
