"""Processes: distributed training, signals, child processes, standard streams, progress, memory, and the code of
users."""
