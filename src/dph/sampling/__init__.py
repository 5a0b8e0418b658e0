"""From problems to judged groups of responses."""
