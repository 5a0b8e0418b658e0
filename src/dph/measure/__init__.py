"""Scores of judged responses: pass@k, intervals, styles and measures of diversity.

    from dph.measure import Reading, compare, read_samples
    comparison = compare(read_samples("before.jsonl"), read_samples("after.jsonl", Reading(threshold=1.0)))

Nothing here loads torch or a model: judged samples are read from files and counted with numpy. `dph.evaluation` draws
a model's responses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dph.measure.changes import Change, Comparison, Scores, compare
    from dph.measure.samples import Reading, Samples, read_samples
    from dph.measure.wording import verdict

__all__ = ["Change", "Comparison", "Reading", "Samples", "Scores", "compare", "read_samples", "verdict"]


def __getattr__(name: str) -> Any:
    """Load a public name, and numpy, at its first use."""
    if name not in __all__:
        raise AttributeError(f"module 'dph.measure' has no attribute {name!r}")
    homes = {"verdict": "wording"} | dict.fromkeys(("Reading", "Samples", "read_samples"), "samples")
    home = homes.get(name, "changes")
    return getattr(import_module(f"dph.measure.{home}"), name)
