"""Mathematical answers judged by equivalence."""

__all__ = ["algebra", "answer", "paper", "policy", "python", "qwen", "qwen_text", "verifier", "worker"]
