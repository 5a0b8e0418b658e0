"""The paper's mathematics: divergences, advantages, losses. Pure functions on tensors."""
