"""The policies by name: each turns a training graph into a schedule."""

from tinyckpt.policies.policy import Policy
from tinyckpt.policies.recompute_all import RECOMPUTE_ALL
from tinyckpt.policies.retain import RETAIN
from tinyckpt.policies.sqrt_n import SQRT_N
from tinyckpt.policies.store_all import STORE_ALL

POLICIES: dict[str, Policy] = {
    policy.name: policy for policy in (STORE_ALL, RECOMPUTE_ALL, SQRT_N, RETAIN)
}

__all__ = ["POLICIES", "Policy"]
