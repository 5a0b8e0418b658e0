"""The command line."""

__all__ = ["main", "shortcuts"]
