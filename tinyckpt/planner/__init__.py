"""Rematerialization planning: from a graph and a memory budget to a schedule and a cost bound."""
