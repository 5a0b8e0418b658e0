"""Numbers computed from verdicts and texts: pass@k, intervals, diversity. No torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dph.metrics.bootstrap import bootstrap_interval, cluster_bootstrap, cluster_difference, paired_difference
    from dph.metrics.diversity import canonical_sql, expected_distinct, ngram_overlap, pass_area, token_entropy
    from dph.metrics.passk import exploration_rate, keep_rate, mean_at_k, pass_at_k, pass_at_powers, pass_curve
    from dph.metrics.wilson import Interval, wilson_interval

__all__ = [
    "Interval",
    "bootstrap_interval",
    "canonical_sql",
    "cluster_bootstrap",
    "cluster_difference",
    "expected_distinct",
    "exploration_rate",
    "keep_rate",
    "mean_at_k",
    "ngram_overlap",
    "paired_difference",
    "pass_area",
    "pass_at_k",
    "pass_at_powers",
    "pass_curve",
    "token_entropy",
    "wilson_interval",
]

_MODULES = ("wilson", "passk", "bootstrap", "diversity")  # from fast to slow to import


def __getattr__(name: str) -> Any:
    """Load a public name at its first use: judging needs few of them, and neither numpy nor sqlglot."""
    if name in __all__:
        for module in map(import_module, (f"{__name__}.{module}" for module in _MODULES)):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
