"""Policies: models with their tokenizers, and the batches they read."""
