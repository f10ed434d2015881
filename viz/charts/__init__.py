"""Charts by matplotlib (PNG, SVG, PDF): memory timelines, Pareto frontiers, ledgers, pipelines."""
