"""Scores of sampled responses: accuracy, pass@k, styles and measures of diversity."""
