"""The exact planner's machinery: a staged model for a solver, and a search that makes it exact.

``reduced``: the problem without sources, views and dead ends, in whole numbers. ``model`` and
``order``: the staged relaxation, for CP-SAT. ``search``: what a stage really costs. ``solver``: the
loop around the two. The policy ``optimal`` puts them together.
"""
