"""Judges mathematical answers by equivalence."""
