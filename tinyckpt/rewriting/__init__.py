"""A network turned into another that computes the same and keeps less for the backward half."""
