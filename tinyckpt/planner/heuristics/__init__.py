"""Rematerialization heuristics: eviction, DTR, greedy, local search, beam search, knapsack."""
