"""Process management: distributed training, signals, child processes, progress, user code."""
