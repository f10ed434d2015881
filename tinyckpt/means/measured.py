"""What steps take where they run: seconds beside store-all's, and how far gradients are off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from time import perf_counter
from typing import Any

from tinyckpt import cost
from tinyckpt.backend import NUMPY, Backend
from tinyckpt.cost import cost_of
from tinyckpt.errors import BackendError
from tinyckpt.means.case import Planned
from tinyckpt.pipeline.stages import EXCHANGE
from tinyckpt.tree import leaves

ROUNDS = 3  # of all steps in turn; the quickest of each counts
FLOPS_A_SECOND = 2e9  # what NumPy can be trusted to do on any machine


def measured(
    plans: Mapping[str, Planned],
    reference: str,
    arrays: Callable[[], tuple[Any, ...]],
    backend: Backend,
    time_limit: float,
) -> tuple[dict[str, float], dict[str, float]]:
    """Run what can be run in time; return seconds, and how far each one's gradients are off.

    Args:
        plans: by name.
        reference: the one whose gradients are exact.
        arrays: makes arguments of the network; they may be too large for what is not run.
        backend: what runs.
        time_limit: seconds for each, as far as its FLOPs tell.

    Returns:
        By name, the seconds of one step, where they say something (``is_timed``); and the norm of
        what gradients are off by, divided by the gradients' norm if that is not 0.

    Raises:
        BackendError: if a step fails, or its gradients are not finite.
    """
    begins = {
        name: planned.begin
        for name, planned in plans.items()
        if planned.begin is not None
        and runs_in_time(planned, time_limit)
        and (planned.devices == 1 or backend is NUMPY)
    }
    if reference not in begins:
        return {}, {}
    own = arrays()
    steps = {name: begin(own, backend) for name, begin in begins.items()}
    exact = steps[reference]()
    errors = {name: error_of(step(), exact, name, backend) for name, step in steps.items()}
    seconds: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            if is_timed(plans[name], backend):
                begin = perf_counter()
                step()
                if backend.synchronize is not None:
                    backend.synchronize()
                spent = perf_counter() - begin
                seconds[name] = min(spent, seconds.get(name, spent))
    return seconds, errors


def is_timed(planned: Planned, backend: Backend) -> bool:
    """Whether seconds here say something: not of several devices in turn, nor of no copies.

    On NumPy the host's memory is the device's, and a value that is moved stays where it is.
    """
    return planned.devices == 1 and not (backend is NUMPY and planned.host_bytes)


def runs_in_time(planned: Planned, time_limit: float) -> bool:
    """Whether a step has kernels, and can be taken as often as it is in the time that there is."""
    flops = 0.0
    for schedule, times in planned.schedules:
        operators = [operator for operator in schedule.graph.operators if operator.kind != EXCHANGE]
        if any(operator.primitive is None for operator in operators):
            return False
        flops += times * cost_of(schedule, cost.flops(schedule.graph))
    return (ROUNDS + 1) * flops <= time_limit * FLOPS_A_SECOND


def error_of(found: Any, exact: Any, name: str, backend: Backend) -> float:
    """Return how far gradients are off.

    Raises:
        BackendError: if they are not finite.
    """
    xp = backend.xp
    off = norm = 0.0
    for ours, theirs in zip(leaves(found), leaves(exact), strict=True):
        wide = theirs.astype(xp.float64)
        off += ((ours.astype(xp.float64) - wide) ** 2).sum().item()
        norm += (wide**2).sum().item()
    error = sqrt(off / norm) if norm else sqrt(off)
    if not 0 <= error < float("inf"):
        raise BackendError(f"{name}: the gradients of random arguments are not finite")
    return error
