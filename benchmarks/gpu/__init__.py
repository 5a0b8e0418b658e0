"""What `scripts/gpu` runs on a machine with a GPU, and at toy size on a CPU: `python -m benchmarks.gpu --help`."""
