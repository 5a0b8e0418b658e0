"""Killable worker processes that run untrusted queries, expressions and functions."""

__all__ = ["fork", "loop", "pool", "process"]
