"""What else than memory values may wait in."""
