"""Graph layout: cells, grouping, node placement, edge routing, label fitting, DOT."""
