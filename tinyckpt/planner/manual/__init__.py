"""Rematerialization by annotation: what to save is said by the user."""
