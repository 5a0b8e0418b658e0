"""Adapters to other training engines (TRL, verl). They compute no loss of their own: `dph.objective` does."""
