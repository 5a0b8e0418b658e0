"""Libraries that a plain installation lacks: which extra of this package brings each, and what is said without it."""

from collections.abc import Sequence
from importlib.util import find_spec

from dph.errors import SettingsError, how_to_install

EXTRA_OF = {
    "torch": "train",
    "transformers": "train",
    "tokenizers": "train",
    "safetensors": "train",
    "pyarrow": "parquet",
    "math_verify": "math",
    "word2number": "math",
}
"""Importable name of a library → the extra that brings it."""


TRAINING = ("torch", "transformers", "pyarrow")
"""What has to be there to load a model, and to read and write the runs of the stages that do."""


def missing_of(libraries: Sequence[str]) -> list[str]:
    """The libraries that are not installed; none of them is imported."""
    return [name for name in libraries if find_spec(name) is None]


def require_training(purpose: str) -> None:
    """Check that the extra `train` is installed; see `require_installed`."""
    require_installed(purpose, *TRAINING, extra="train")


def require_installed(purpose: str, *libraries: str, extra: str = "") -> None:
    """Check that libraries are installed; none of them is imported.

    purpose: the subject of the message, "dph train". extra: the extra to install in place of the first library's own.
    Raises SettingsError with the missing libraries and how to install them.
    """
    if missing := missing_of(libraries):
        remedy = how_to_install(extra or EXTRA_OF[missing[0]])
        absent = "which is not installed" if len(missing) == 1 else "which are not installed"
        names = f"{', '.join(missing[:-1])} and {missing[-1]}" if missing[1:] else missing[0]
        raise SettingsError(f"{purpose} needs {names}, {absent}; run: {remedy}")
