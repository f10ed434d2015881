"""Chunking: a function of an array as the same function of one piece of it after another."""
