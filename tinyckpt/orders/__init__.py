"""How orders of evaluations are made, and how they become steps."""
