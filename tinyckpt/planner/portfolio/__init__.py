"""The portfolio: every policy's schedules, their Pareto frontier, and the best one."""
