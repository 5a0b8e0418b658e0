"""Run directories: layout, locks, pinned inputs, metrics, cache."""
