"""The bench: every method with settings of its own, chosen on development worlds and compared on others."""
