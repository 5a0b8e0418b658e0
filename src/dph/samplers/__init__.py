"""Samplers: what turns prompts into responses with log-probabilities."""
