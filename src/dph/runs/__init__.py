"""Run directories: layout, locks, pinned inputs, metrics, cache."""

__all__ = ["cache", "code", "directory", "files", "locks", "pinned", "tracking"]
