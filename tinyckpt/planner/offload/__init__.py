"""Offloading: values copied to host memory and back (prefetch), overlapped with computation.

``link``: the cost model of a copy. ``offload_saved_values``: which values leave, in Belady's order,
and the policy ``offload``. ``offload_dp``: plans of a chain that recompute and offload, at a price
per byte moved. ``prefetch``: each copy back, moved earlier while there is room. ``simulate``: the
makespan of the result. ``portfolio.plan_with_host`` tries them all, within budgets.
"""
