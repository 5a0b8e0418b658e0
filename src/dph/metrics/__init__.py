"""Numbers computed from verdicts and texts: pass@k, intervals, diversity."""
