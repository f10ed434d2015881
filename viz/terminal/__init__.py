"""Interactive prompts on a terminal."""
