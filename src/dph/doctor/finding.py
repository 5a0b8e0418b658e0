"""The result of a check of `dph doctor`."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the machine or the installation."""

    name: str
    status: Literal["ok", "note", "broken"]
    """ok: works; note: works with limitations; broken: something that is needed does not work."""
    detail: str
    advice: str = ""
    """What the user should do; may be empty."""


def ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


def note(name: str, detail: str, advice: str = "") -> Finding:
    return Finding(name, "note", detail, advice)


def broken(name: str, detail: str, advice: str) -> Finding:
    return Finding(name, "broken", detail, advice)
