"""Scores of judged responses: accuracy, pass@k, styles and measures of diversity.

`dph.evaluation.evaluator` samples a policy's responses; it needs torch, so it is not imported here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dph.evaluation.measures import MEASURES, diversity_of
    from dph.evaluation.scoring import Scored, metric_means, score_group, summarise

__all__ = ["MEASURES", "Scored", "diversity_of", "metric_means", "score_group", "summarise"]


def __getattr__(name: str) -> Any:
    """Load a public name at its first use: `dph verify` needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "measures" if name in ("MEASURES", "diversity_of") else "scoring"
    return getattr(import_module(f"{__name__}.{home}"), name)
