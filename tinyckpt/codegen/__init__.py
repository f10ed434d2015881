"""Code generation: from a schedule to straight-line NumPy source."""
