"""The engine: from a function to a graph, its gradient, a schedule, and what runs it."""
