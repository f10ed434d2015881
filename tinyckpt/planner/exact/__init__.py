"""Exact planning: a CP-SAT relaxation with Benders cuts, and A* searches over resident sets.

``reduced_graph``: the problem without sources, views and dead operators, in integers and bit sets.
``cp_model`` and ``stage_order``: the staged relaxation as a constraint program. ``stage_astar``:
the exact cost of one stage. ``benders``: the loop of solving, pricing and cutting. ``optimal``: the
policy that combines them. ``offload_astar``: the least makespan with a host memory.
"""
