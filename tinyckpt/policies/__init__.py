"""The policies by name: each turns a training graph into a schedule."""

from tinyckpt.policies.blocks import BLOCKS
from tinyckpt.policies.chen_budget import CHEN_BUDGET
from tinyckpt.policies.chen_recursive import CHEN_RECURSIVE
from tinyckpt.policies.dtr import DTR
from tinyckpt.policies.greedy import GREEDY
from tinyckpt.policies.knapsack import KNAPSACK
from tinyckpt.policies.offload import OFFLOAD
from tinyckpt.policies.optimal import OPTIMAL
from tinyckpt.policies.policy import Policy
from tinyckpt.policies.recompute_all import RECOMPUTE_ALL
from tinyckpt.policies.regions import REGIONS
from tinyckpt.policies.retain import RETAIN
from tinyckpt.policies.revolve import REVOLVE
from tinyckpt.policies.rotor import ROTOR
from tinyckpt.policies.saveable import SAVEABLE
from tinyckpt.policies.sqrt_n import SQRT_N
from tinyckpt.policies.store_all import STORE_ALL

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
