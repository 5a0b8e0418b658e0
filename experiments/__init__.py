"""The laboratory: what chooses methods, seeds and worlds, and the counts and pages of what was run. See README.md."""
