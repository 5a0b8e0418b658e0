"""Settings and fixtures for the tests of the experiments."""

import os
from pathlib import Path

import pytest

from dph.process.progress import show_messages

# Set before any library reads them: no network, and no thread pools that compete for the cores.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

_SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def messages_are_printed() -> None:
    """Tests read what the experiments say on standard error, as the command line prints it."""
    show_messages()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public data sets beside the repository; tests that need it are skipped without it."""
    if not _SHARED.is_dir():
        pytest.skip("there is no folder shared/data with public data sets beside the repository")
    return _SHARED
