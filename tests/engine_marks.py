"""Marks of the tests that need another engine's package."""

import importlib.util

import pytest


def needs(package: str) -> list[pytest.MarkDecorator]:
    """Run with the step of the engines, where the package is installed; its warnings of what it misses are not ours."""
    missing = importlib.util.find_spec(package) is None
    return [
        pytest.mark.engines,
        pytest.mark.skipif(missing, reason=f"{package} is not installed in this environment"),
        pytest.mark.filterwarnings("ignore"),
    ]
