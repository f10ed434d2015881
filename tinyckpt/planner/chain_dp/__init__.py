"""Dynamic programs over chains of stages: Chen, Revolve, Rotor, Rockmate."""
