"""Rematerialization planning: from a budget to a certified schedule."""
