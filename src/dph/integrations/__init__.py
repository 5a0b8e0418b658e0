"""Adapters to other training engines (TRL, verl). They compute no loss of their own: `dph.objective` does."""

__all__ = ["problems", "trl", "verl"]
