"""Copies to the host's memory and back, beside computation: the link, the clock, the places."""
