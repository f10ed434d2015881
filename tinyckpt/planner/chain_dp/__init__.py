"""Checkpointing dynamic programs over a chain of stages: Chen, Revolve, Rotor, Rockmate."""
