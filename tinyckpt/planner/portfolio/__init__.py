"""Portfolio planning: run all policies at many settings, and choose from the Pareto frontier."""
