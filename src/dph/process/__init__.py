"""Process management: distributed training, signals, child processes, progress, user code."""

__all__ = ["distributed", "interrupts", "jobs", "orphans", "progress", "user_code"]
