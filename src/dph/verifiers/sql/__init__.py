"""SQL judged by execution."""
