"""Fixtures for the tests of the package; the others are those of the repository's conftest.py."""

import signal
from collections.abc import Iterator

import pytest

from dph.process.interrupts import SIGNALS


@pytest.fixture
def signals() -> Iterator[None]:
    """Restores the handlers of signals after a test that replaces them."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
