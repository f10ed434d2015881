"""The planning problem: budgets, liveness, chain stages, lower bounds."""
