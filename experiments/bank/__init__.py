"""Experiment B2: does a bank of every way that was ever found keep pass@k (experiments/results/bank.md)?"""
