"""Problems from a data set of a model hub, or from a folder that the library `datasets` saved."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dph.config.checks import ask_hub
from dph.errors import DataError, SettingsError, one_line
from dph.tasks import Task, register_task
from dph.tasks.records import read_problem
from dph.tasks.tables import with_short_floats
from dph.types import Message, Problem

_PROMPTS = ("prompt", "question", "problem", "instruction", "messages")
_ANSWERS = ("answer", "final_answer", "target", "label")
_HELD_OUT = "dev"
_SAVED = ("dataset_dict.json", "state.json")
"""Files by which `save_to_disk` is recognised: of several splits, and of one."""
_FIELD = re.compile(r"\{(\w+)\}")


@register_task("hub")
@dataclass(kw_only=True)
class Hub(Task):
    """A data set by its name on a hub, with the names of its columns (docs/guides/problems.md says what each option
    does).

    Its splits are the task's. With `held_out`, rows of its split `train` become a split `dev`, and `train` has the
    others: for data sets that come without one. Raises UserError for a pattern that cannot be used.
    """

    name: str
    """Name on the hub, or a folder that `save_to_disk` wrote."""
    config: str = ""
    revision: str = ""
    prompt: str = ""
    answer: str = ""
    answer_pattern: str = ""
    template: str = ""
    system: str = ""
    verifier: str = ""
    verifier_column: str = "verifier"
    id: str = ""
    db_root: str = ""
    held_out: int = 0
    held_out_seed: int = 0

    def __post_init__(self) -> None:
        try:
            self._pattern = re.compile(self.answer_pattern) if self.answer_pattern else None
        except re.error as error:
            raise SettingsError(f"the option answer_pattern is not a regular expression: {error}") from error

    @cached_property
    def _splits(self) -> Mapping[str, Any]:
        return _load(self.name, self.config, self.revision)

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split, in the order of its rows. Raises UserError when the data set cannot be loaded, has
        no such split, or has a row that cannot be used."""
        source, numbers = self._rows_of(split)
        rows = self._splits[source].select(numbers)
        schema, where = rows.features.arrow_schema, f"the data set {self.name}, split {source}, row"
        return [
            self._problem(with_short_floats(row, schema), f"{where} {number}", f"{source}-{number}")
            for number, row in zip(numbers, rows, strict=True)
        ]

    def _rows_of(self, split: str) -> tuple[str, list[int]]:
        """The data set's split that a split of the task reads, and its rows."""
        splits = self._splits
        if self.held_out and _HELD_OUT in splits:
            raise SettingsError(f"the data set {self.name} has a split 'dev' of its own; remove the option held_out")
        source = "train" if self.held_out and split == _HELD_OUT else split
        if source not in splits:
            more = "" if self.held_out else "; the option held_out makes a split 'dev' of rows of 'train'"
            raise SettingsError(f"the data set {self.name} has no split {source!r}; it has: {', '.join(splits)}{more}")
        count = len(splits[source])
        if not self.held_out or source != "train":
            return source, list(range(count))
        if not 0 < self.held_out < count:
            raise SettingsError(
                f"held_out is {self.held_out}; it must lie between 1 and {count - 1}, one less than the rows"
            )
        order = [
            hashlib.blake2b(f"{self.held_out_seed}:{number}".encode(), digest_size=8).digest()
            for number in range(count)
        ]
        held_out = set(sorted(range(count), key=order.__getitem__)[: self.held_out])
        return source, [number for number in range(count) if (number in held_out) == (split == _HELD_OUT)]

    def _problem(self, row: dict[str, Any], where: str, default_id: str) -> Problem:
        fields: dict[str, Any] = {"prompt": self._prompt(row, where), "verifier": row.get(self.verifier_column)}
        fields["id"] = self._value(row, self.id, where) if self.id else None
        if (answer := self._answer(row, where)) is not None:
            fields["answer"] = answer
        roots = [Path(self.db_root)] if self.db_root else []
        rest = {key: value for key, value in row.items() if key != "messages"}
        return read_problem(rest | fields, where, default_id, roots, self.verifier)

    def _prompt(self, row: Mapping[str, Any], where: str) -> Any:
        if not self.template:
            if not (name := self.prompt or _first(row, _PROMPTS)):
                has = ", ".join(row)
                raise DataError(f"{where}: no column for the prompt; name it with the option prompt: {has}")
            prompt = self._value(row, name, where)
        elif any(name in row for name in _FIELD.findall(self.template)):
            prompt = _FIELD.sub(lambda field: str(row[field[1]]) if field[1] in row else field[0], self.template)
        else:
            raise SettingsError(f"{where}: the template names no column in braces; it has: {', '.join(row)}")
        if not self.system:
            return prompt
        messages = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
        return [Message(role="system", content=self.system), *messages] if isinstance(messages, list) else messages

    def _answer(self, row: Mapping[str, Any], where: str) -> Any:
        """The row's answer; None for a row without one, which only a reward function can judge."""
        name = self.answer or _first(row, _ANSWERS)
        answer = self._value(row, name, where) if name else None
        if self._pattern is None or answer is None:
            return answer
        matches = list(self._pattern.finditer(str(answer)))
        if not matches:
            raise DataError(f"{where}: answer_pattern matches nothing in the answer {str(answer)[-80:]!r}")
        return matches[-1][1 if self._pattern.groups else 0].strip()

    def _value(self, row: Mapping[str, Any], name: str, where: str) -> Any:
        if name in row:
            return row[name]
        value: Any = row
        for key in name.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise DataError(f"{where}: no column {name!r}; it has: {', '.join(row)}")
            value = value[key]
        return value


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of some names under which a row has a value; "" if there is none."""
    return next((name for name in names if row.get(name) is not None), "")


def _load(name: str, config: str, revision: str) -> Mapping[str, Any]:
    """The splits of a data set by name. Raises UserError without the library `datasets`, and when loading fails."""
    folder = Path(name).expanduser()
    saved = folder.is_dir()
    if saved and not any((folder / file).is_file() for file in _SAVED):
        raise DataError(
            f"{name} is not a folder that save_to_disk of the library datasets wrote; for JSONL and Parquet files use "
            "--task records"
        )
    try:
        import datasets
        import datasets.config
    except ImportError as error:
        raise DataError("data sets of a hub need the library datasets; run: pip install 'dph-rl[hub]'") from error
    try:
        if saved:
            loaded = datasets.load_from_disk(str(folder))
        else:
            if not datasets.config.HF_HUB_OFFLINE:
                ask_hub(name, "README.md", "dataset")
            loaded = datasets.load_dataset(name, config or None, revision=revision or None)
    except Exception as error:  # of the network, the hub, the library, or damaged files
        advice = "it may be damaged" if saved else _ELSEWHERE
        raise DataError(f"cannot load the data set {name!r} ({one_line(str(error), 300)}); {advice}") from error
    splits = loaded if isinstance(loaded, datasets.DatasetDict) else {loaded.split or "train": loaded}
    return {str(name): rows for name, rows in splits.items()}


_ELSEWHERE = (
    "check the name, the option config and the network, give a folder that save_to_disk wrote, or set HF_HUB_OFFLINE=1 "
    "if the data set is in the cache"
)
