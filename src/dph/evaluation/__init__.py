"""Scores of judged responses: pass@k, intervals, styles and measures of diversity.

Only `dph.evaluation.evaluator`, which samples a policy's responses, loads torch.
"""
