"""Killable worker processes that run untrusted queries, expressions and functions."""
