"""Scores of judged responses: pass@k, intervals, styles and measures of diversity.

    from dph.evaluation import Reading, compare, read_samples
    comparison = compare(read_samples("before.jsonl"), read_samples("after.jsonl", Reading(threshold=1.0)))

Only `dph.evaluation.evaluator`, which samples a policy's responses, loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dph.evaluation.changes import Change, Comparison, Scores, compare
    from dph.evaluation.samples import Reading, Samples, read_samples
    from dph.evaluation.wording import verdict

__all__ = ["Change", "Comparison", "Reading", "Samples", "Scores", "compare", "read_samples", "verdict"]


def __getattr__(name: str) -> Any:
    """Load a public name, and numpy, at its first use."""
    if name not in __all__:
        raise AttributeError(f"module 'dph.evaluation' has no attribute {name!r}")
    homes = {"verdict": "wording"} | dict.fromkeys(("Reading", "Samples", "read_samples"), "samples")
    home = homes.get(name, "changes")
    return getattr(import_module(f"dph.evaluation.{home}"), name)
