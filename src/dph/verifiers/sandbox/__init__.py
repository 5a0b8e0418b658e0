"""Killable worker processes for untrusted queries and expressions."""
