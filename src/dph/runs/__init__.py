"""Run directories: their layout, locks, pinned inputs, metrics and samples, and the cache."""
