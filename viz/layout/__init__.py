"""Graph layout: node grouping, layout algorithms, edge routing, label fitting, DOT export."""
