"""Programs changed to need less memory: compressed saved values, chunked losses."""
