"""From a budget to a certified schedule."""
