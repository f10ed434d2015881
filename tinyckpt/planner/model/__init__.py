"""The rematerialization problem: budgets, liveness analysis, chain stages, cost lower bounds."""
