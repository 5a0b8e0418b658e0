"""Spider and its variants."""
