"""Manual rematerialization: the user names the values to save or the functions to recompute."""
