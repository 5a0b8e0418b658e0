"""Judges SQL by execution."""

__all__ = [
    "compare",
    "credit",
    "extract",
    "files",
    "gold",
    "plan",
    "plan_worker",
    "readonly",
    "rewards",
    "rules",
    "text",
    "tokens",
    "verifier",
    "worker",
]
