"""Settings and fixtures for all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything loads a library that reads them: no network, no thread pools that fight with each other.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine must not fail a property, and CI must see the examples that a developer saw.
settings.register_profile("dph", deadline=None, derandomize=True)
settings.load_profile("dph")

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public data sets beside the repository; tests that need it are skipped where it is absent."""
    if not _SHARED.is_dir():
        pytest.skip("the folder shared/data with public data sets does not lie beside the repository")
    return _SHARED
