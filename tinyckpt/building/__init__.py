"""What serves ``build``: how a call of a function is read."""
