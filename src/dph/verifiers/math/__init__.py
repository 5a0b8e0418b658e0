"""Mathematical answers judged by equivalence."""
