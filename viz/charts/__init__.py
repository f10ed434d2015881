"""Charts of traces and frontiers, by matplotlib, as PNG, SVG or PDF in the theme's colours."""
