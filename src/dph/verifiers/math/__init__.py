"""Judges mathematical answers by equivalence."""

__all__ = ["algebra", "answer", "paper", "policy", "python", "qwen", "qwen_text", "verifier", "worker"]
