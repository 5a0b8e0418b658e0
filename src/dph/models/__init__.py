"""Policies: models with their tokenizers, and the batches they read."""

__all__ = ["batch", "loading", "logprobs", "packing", "policy", "prefix", "scratch", "sharing"]
