"""The table of all rematerialization policies by name: store-all, sqrt(n), Revolve, Rotor, DTR, ...

``POLICIES`` maps each name to its ``Policy``, which turns a training graph into a schedule.

>>> import tinyckpt as tc
>>> tc.POLICIES["revolve"].source
'Griewank and Walther 2000, doi:10.1145/347837.347846'
"""

from tinyckpt.core.policies import RECOMPUTE_ALL, SQRT_N, STORE_ALL, Policy
from tinyckpt.planner.chain_dp.chen_budget import CHEN_BUDGET
from tinyckpt.planner.chain_dp.chen_recursive import CHEN_RECURSIVE
from tinyckpt.planner.chain_dp.revolve import REVOLVE
from tinyckpt.planner.chain_dp.rockmate_dp import BLOCKS
from tinyckpt.planner.chain_dp.rotor import ROTOR
from tinyckpt.planner.exact.optimal import OPTIMAL
from tinyckpt.planner.heuristics.dtr import DTR
from tinyckpt.planner.heuristics.greedy import GREEDY
from tinyckpt.planner.heuristics.knapsack import KNAPSACK
from tinyckpt.planner.manual.regions import REGIONS
from tinyckpt.planner.manual.retain import RETAIN
from tinyckpt.planner.manual.saveable import SAVEABLE
from tinyckpt.planner.offload.offload_saved_values import OFFLOAD

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        STORE_ALL,
        RECOMPUTE_ALL,
        SQRT_N,
        CHEN_RECURSIVE,
        CHEN_BUDGET,
        REVOLVE,
        ROTOR,
        BLOCKS,
        OPTIMAL,
        DTR,
        GREEDY,
        KNAPSACK,
        RETAIN,
        SAVEABLE,
        REGIONS,
        OFFLOAD,
    )
}

__all__ = ["POLICIES", "Policy"]
