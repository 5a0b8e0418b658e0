"""Scores of judged responses: accuracy, pass@k, styles and measures of diversity.

`dph.evaluation.evaluator` samples a policy's responses; it needs torch, so it is not imported here.
"""

from dph.evaluation.measures import MEASURES, diversity_of
from dph.evaluation.scoring import Scored, metric_means, score_group, summarise

__all__ = ["MEASURES", "Scored", "diversity_of", "metric_means", "score_group", "summarise"]
