"""The atlas: what reinforcement learning cost in pass@k, in public and own counts."""
