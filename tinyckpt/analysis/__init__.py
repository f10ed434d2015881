"""Facts about a graph, for those that plan: none of this makes a schedule."""
