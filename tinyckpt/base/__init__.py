"""Utilities independent of graphs: errors, units, pytrees, dtypes, files, deadlines, caches."""
