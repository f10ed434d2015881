"""Reverse-mode autodiff and gradient checkpointing, end to end: trace, differentiate, plan, run.

Reading order, one idea per file: ``graph`` (the dataflow IR), ``primitive`` (the operator table),
``tracing`` (function to graph), ``autodiff`` (graph to graph), ``schedule`` (the instruction set),
``costs``, ``cuts`` (dominators, keep sets), ``lowering`` (liveness: where to free), ``policies``
(store-all, recompute-all, sqrt(n)), ``backend``, ``trace``, ``replay`` (abstract interpreter),
``execute``.
"""
