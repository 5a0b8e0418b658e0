"""Policies, that is, causal language models with their tokenizers, and the inputs that they read.

`Policy` computes log-probabilities of rows of token ids. Rows that share a prompt can be packed, so that the prompt is
computed once. `new_policy` makes a small model from scratch.
"""
