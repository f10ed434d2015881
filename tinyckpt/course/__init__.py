"""Puzzles, and the grader of the course: students' code runs in a process of its own.

That process returns schedules and numbers as data; they are replayed and scored here.
"""
