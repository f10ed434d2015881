"""Rematerialization planning: from a graph and a memory budget to a schedule with a certificate."""
