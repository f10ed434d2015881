"""Raster renderer: palette-indexed pixels, sprites, and encoders of animations (GIF, MP4, ...)."""
