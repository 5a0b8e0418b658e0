"""Libraries that a plain installation lacks: which extra of this package brings each, and what is said without it."""

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


def require_installed(purpose: str, *libraries: str, extra: str = "") -> None:
    """Check that libraries are installed; none of them is imported.

    purpose: the subject of the message, "dph train". extra: the extra to install in place of the first library's own.
    Raises SettingsError with the missing libraries and how to install them.
    """
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        remedy = how_to_install(extra or EXTRA_OF[missing[0]])
        absent = "which is not installed" if len(missing) == 1 else "which are not installed"
        names = f"{', '.join(missing[:-1])} and {missing[-1]}" if missing[1:] else missing[0]
        raise SettingsError(f"{purpose} needs {names}, {absent}; run: {remedy}")
