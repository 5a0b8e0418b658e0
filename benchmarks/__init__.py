"""Measurements of speed, memory, verifiers and reliability: python -m benchmarks.FOLDER.NAME, in the repository."""
