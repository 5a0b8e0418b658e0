"""Samples of a model, judged: `evaluator` draws and scores them, `certification` certifies what training keeps.

What is computed from judged samples (pass@k, intervals, measures of diversity) is in `dph.measure`, which needs no
model.
"""
