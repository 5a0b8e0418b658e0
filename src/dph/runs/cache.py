"""Where generated worlds and base models are kept between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$DPH_CACHE, or dph in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    named = os.environ.get("DPH_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dph"
