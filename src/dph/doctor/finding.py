"""What a check of `dph doctor` reports."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the machine or the installation."""

    name: str
    status: Literal["ok", "note", "broken"]
    """ok; note: works, but with less than one might expect; broken: something that is needed does not work."""
    detail: str
    advice: str = ""
    """What to do; empty where there is nothing to do."""


def ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


def note(name: str, detail: str, advice: str = "") -> Finding:
    return Finding(name, "note", detail, advice)


def broken(name: str, detail: str, advice: str) -> Finding:
    return Finding(name, "broken", detail, advice)
