"""Judges SQL by execution."""
