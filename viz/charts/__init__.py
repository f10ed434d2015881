"""Charts by matplotlib: memory timelines, Pareto frontiers, space-time diagrams, pipelines."""
