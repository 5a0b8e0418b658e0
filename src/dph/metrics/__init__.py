"""Numbers computed from verdicts and texts: pass@k, intervals, diversity. No torch."""

from dph.metrics.bootstrap import (
    Interval,
    bootstrap_interval,
    cluster_bootstrap,
    cluster_difference,
    paired_difference,
    wilson_interval,
)
from dph.metrics.diversity import canonical_sql, expected_distinct, ngram_overlap, pass_area, token_entropy
from dph.metrics.passk import exploration_rate, keep_rate, mean_at_k, pass_at_k, pass_curve

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
    "pass_curve",
    "token_entropy",
    "wilson_interval",
]
