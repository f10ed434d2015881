"""Errors, units, nested arguments, files, deadlines: what knows nothing of graphs."""
