"""Settings and fixtures for all tests, those of the experiments included."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from dph.process.interrupts import SIGNALS
from dph.process.progress import show_messages

# Set before any library reads them: no network, and no thread pools that compete for the cores.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine must not fail a property test, and CI must use the same examples as a developer's machine.
settings.register_profile("dph", deadline=None, derandomize=True)
settings.load_profile("dph")

_SHARED = Path(__file__).resolve().parents[1] / "shared" / "data"


@pytest.fixture(autouse=True)
def _messages_are_printed() -> None:
    """Tests read what stages and experiments say on standard error, as the command line prints it."""
    show_messages()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public data sets beside the repository; tests that need it are skipped without it."""
    if not _SHARED.is_dir():
        pytest.skip("there is no folder shared/data with public data sets beside the repository")
    return _SHARED


@pytest.fixture
def signals() -> Iterator[None]:
    """Restores the handlers of signals after a test that replaces them."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
