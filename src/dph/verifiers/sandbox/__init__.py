"""Killable worker processes for untrusted queries and expressions."""

__all__ = ["fork", "loop", "pool", "process"]
