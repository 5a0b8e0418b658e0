"""What a process needs besides its work: peers, signals, child processes, progress."""
