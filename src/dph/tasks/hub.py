"""Problems from a data set of a model hub, or from a folder that the library `datasets` saved."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dph.config.checks import ask_hub
from dph.config.files import expanded, irregular
from dph.errors import DataError, SettingsError, how_to_install, one_line
from dph.tasks import register_task
from dph.tasks.rows import RowTask
from dph.tasks.tables import described_rows
from dph.types import Problem

_HELD_OUT = "dev"
_SAVED = ("dataset_dict.json", "state.json")
"""Files by which `save_to_disk` is recognised: of several splits, and of one."""


@register_task("hub")
@dataclass(kw_only=True)
class Hub(RowTask):
    """A data set by its name on a hub, with its splits. With `held_out`, rows of its split `train` become a split
    `dev`, and `train` has the others."""

    name: str
    """Name on the hub, or a folder that `save_to_disk` wrote."""
    config: str = ""
    revision: str = ""
    held_out: int = 0
    held_out_seed: int = 0

    @cached_property
    def _splits(self) -> Mapping[str, Any]:
        return _load(self.name, self.config, self.revision)

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split, in the order of its rows. Raises UserError when the data set cannot be loaded, has
        no such split, or has a row that cannot be used."""
        source, numbers = self._rows_of(split)
        chosen, where = self._splits[source].select(numbers), f"the data set {self.name}, split {source}"
        try:  # as stored: to decode pictures takes further libraries, and classes are wanted by their names
            rows = described_rows(chosen.with_format("arrow")[:], chosen.features.to_dict())
        except (ValueError, OverflowError) as error:  # pyarrow's errors of values are ValueErrors too
            raise DataError(f"{where} cannot be read: {one_line(str(error), 300)}; it may be damaged") from error
        placed = [
            (f"{where}, row {number}", f"{source}-{number}", row) for number, row in zip(numbers, rows, strict=True)
        ]
        return self.read(placed, [])

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


def _load(name: str, config: str, revision: str) -> Mapping[str, Any]:
    """The splits of a data set by name. Raises UserError without the library `datasets`, and when loading fails."""
    folder = expanded(name)
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
        raise DataError(f"data sets of a hub need the library datasets; run: {how_to_install('hub')}") from error
    if saved and (odd := irregular(folder)):
        raise DataError(f"cannot load the data set {name!r}: {odd} in it is not a regular file; remove it")
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
