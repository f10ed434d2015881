"""The lab: a page that plans by itself, what to keep and what to recompute."""
