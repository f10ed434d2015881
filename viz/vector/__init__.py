"""SVG renderer of stills and graphs."""
