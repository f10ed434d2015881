"""Heuristics: eviction, greedy, local search, beam search."""
