"""Foundations without graphs: errors, units, pytrees, dtypes, files, deadlines, caches, display."""
