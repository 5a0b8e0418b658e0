"""What a process needs besides its work: peers, signals, child processes, progress."""

__all__ = ["distributed", "interrupts", "jobs", "orphans", "progress", "user_code"]
