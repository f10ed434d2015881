"""SVG renderer of still images and graphs."""
