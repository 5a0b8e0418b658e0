"""One training step, and what watches it."""
