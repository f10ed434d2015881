"""Portfolio planning: all policies at many settings, their Pareto frontier, the best schedule."""
