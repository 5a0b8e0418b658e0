"""Experiment B (`python -m experiments anchor`): where an anchor to the base model acts, and in which direction."""
