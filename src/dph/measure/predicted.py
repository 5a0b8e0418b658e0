"""What the rows of predictions say besides the predictions: whose prompts they answer, and that they are no samples of
one model. The refusals of the second kind are those of `dph passk`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dph.config import Reading
from dph.errors import DataError, one_line
from dph.measure.fields import role_of
from dph.measure.lists import flat_of
from dph.measure.samples import SampleRows
from dph.measure.table import Source, TableBuilder
from dph.types import Problem

PROMPTS = ("prompt", "question", "problem", "problem_statement", "full_prompt", "user_prompt", "input", "input_text",
           "input_prompt", "prompt_text", "origin_prompt")  # fmt: skip
"""Columns with the prompt of a row; others with such a role (`query`, `instruction`) may hold something else."""
_BOUNDARY = re.compile(r"[.?!:]\s|\n")


class _Predicted(SampleRows):
    """Rows of predictions, for which `dph verify` has no option that chooses some of them."""

    def _ways(self, name: str, value: str, id_name: str) -> str:
        return f"keep the rows of one in the file, as those with {name} {value}"

    def _one_of(self, name: str, value: str) -> str:
        return self._ways(name, value, "")

    def check(self, keys: Sequence[str], *, shared: bool) -> None:
        """Refuse rows that are no samples of one model; keys: the problem of each row; shared: a key may name several
        problems."""
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        id_name = "id"
        ids = np.array([numbers[key] for key in keys], np.int32)
        self._check_systems()
        if not shared:
            self._check_rows(ids, list(numbers), id_name)
        self._check_conditions(self._parts(ids, id_name), id_name)


def check_rows(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    others: Iterable[str],
    keys: Sequence[str],
    *,
    shared: bool,
) -> None:
    """Raises DataError for rows of several systems or conditions, and for two rows of one sample.

    columns: the column of each row's prediction; others: columns that may hold predictions or golds; keys: the problem
    of each row; shared: a key may name several problems."""
    left_out = {*others, *columns}
    builder = TableBuilder(frozenset())
    for row, column in zip(rows, columns, strict=True):
        facts = {name: value for name, value in row.items() if name not in left_out}
        flat = {name: value for name, value in flat_of(facts).items() if role_of(name) != "answer"}
        builder.add(flat | {"response": row[column]})
    builder.table.sources.append(Source(str(path), len(rows)))
    _Predicted(str(path), builder.finished(), Reading()).check(keys, shared=shared)


def prompts_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The prompts that a row of predictions names, as texts; none without one."""
    named = (value for name, value in row.items() if name.lower() in PROMPTS)
    return tuple(text for text in map(_text, named) if text)


def _text(prompt: Any) -> str:
    """A prompt as one text, whatever its white space is: that of a chat is that of its turns."""
    if isinstance(prompt, list | tuple):
        prompt = "\n".join(str(turn.get("content", "")) for turn in prompt if isinstance(turn, Mapping))
    return "\n".join(" ".join(line.split()) for line in prompt.strip().splitlines()) if isinstance(prompt, str) else ""


class Asked:
    """The prompts of problems and of the rows of a file, without what all of them share, which is a template."""

    def __init__(self, problems: Sequence[Problem], rows: Iterable[tuple[str, ...]]) -> None:
        """rows: the prompts of each row that names some, of the same columns."""
        whole = [_text(problem.prompt) for problem in problems]
        self._problems = dict(
            zip((problem.id for problem in problems), zip(whole, _cores(whole), strict=True), strict=True)
        )
        columns = [list(dict.fromkeys(texts)) for texts in zip(*rows, strict=False)]
        self._core = {text: core for texts in columns for text, core in zip(texts, _cores(texts), strict=True)}
        by_text: dict[str, set[str]] = {}
        for id, texts in self._problems.items():
            for text in {*texts}:
                by_text.setdefault(text, set()).add(id)
        self._by_text = {text: next(iter(ids)) for text, ids in by_text.items() if len(ids) == 1}

    def problem_of(self, prompts: Sequence[str]) -> str | None:
        """The id of the only problem with one of these prompts; None without one."""
        texts = [*prompts, *(self._core.get(text, text) for text in prompts)]
        return next((self._by_text[text] for text in texts if text in self._by_text), None)

    def check(self, where: str, prompts: Sequence[str], problem: Problem) -> None:
        """Raises DataError if a row names prompts none of which may be that of its problem."""
        whole, core = self._problems[problem.id]
        if not prompts or not whole or any(core in text or self._core.get(text, text) in whole for text in prompts):
            return
        asks = f"it is paired with problem {problem.id!r}, which asks {one_line(core, 60)!r}"
        has = f"{where}: its prompt is {one_line(self._core.get(prompts[0], prompts[0]), 60)!r}, but {asks}"
        raise DataError(f"{has}; correct the id, or, if only the template differs, remove the column of prompts")


def _cores(texts: Sequence[str]) -> list[str]:
    """Texts without the sentences and lines at their beginning and end that all of them share."""
    if len({*texts}) < 2:
        return list(texts)
    first, last = _beginning(texts), _beginning([text[::-1] for text in texts])[::-1]
    start = max((match.end() for match in _BOUNDARY.finditer(first)), default=0)
    end = next((len(last) - match.start() - 1 for match in _BOUNDARY.finditer(last)), 0)
    return [text[start : max(start, len(text) - end)].strip() or text for text in texts]


def _beginning(texts: Sequence[str]) -> str:
    """The characters that all texts begin with."""
    low, high = min(texts), max(texts)
    same = next((i for i, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
    return low[:same]
