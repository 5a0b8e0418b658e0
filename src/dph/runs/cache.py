"""The directory that keeps generated worlds and base models between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$DPH_CACHE if it is set, otherwise `dph` in the user's cache directory ($XDG_CACHE_HOME or ~/.cache)."""
    named = os.environ.get("DPH_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dph"
