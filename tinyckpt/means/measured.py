"""What steps take where they run: seconds beside store-all's, and how far gradients are off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from time import perf_counter
from typing import Any

from tinyckpt.base.errors import BackendError
from tinyckpt.base.tree import leaves
from tinyckpt.base.units import size_text
from tinyckpt.core import costs as cost
from tinyckpt.core.backend import NUMPY, Backend
from tinyckpt.core.costs import cost_of
from tinyckpt.means.case import Planned
from tinyckpt.pipeline.stages import EXCHANGE

ROUNDS = 3  # of all steps in turn; the quickest of each counts
FLOPS_A_SECOND = 2e9  # what NumPy can be trusted to do on any machine
MOST_BYTES = 2**32  # of arguments and a peak, which can be had on any machine


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found by running steps, by the names of the means.

    Attributes:
        seconds: of one step, where they say something (``is_timed``).
        errors: the norm of what gradients are off by, divided by theirs if that is not 0.
        reasons: why some were not run; the reference alone if it was not, nor anything else.
    """

    seconds: dict[str, float]
    errors: dict[str, float]
    reasons: dict[str, str]


def measured(
    plans: Mapping[str, Planned],
    reference: str,
    arrays: Callable[[], tuple[Any, ...]],
    backend: Backend,
    time_limit: float,
) -> Measured:
    """Run what can be run in time and in memory; see how long it takes, and how far it is off.

    Args:
        plans: by name.
        reference: the one whose gradients are exact.
        arrays: makes arguments of the network; they may be too large for what is not run.
        backend: what runs.
        time_limit: seconds for each, as far as its FLOPs tell.

    Raises:
        BackendError: if a step fails, or its gradients are not finite.
    """
    sources = plans[reference].schedules[0][0].graph.source_bytes
    found = {name: obstacle(plans[name], sources, time_limit, backend) for name in plans}
    reasons = {name: reason for name, reason in found.items() if reason}
    if reference in reasons:
        return Measured({}, {}, {reference: reasons[reference]})
    begins = {name: each.begin for name, each in plans.items() if each.begin and not found[name]}
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
    return Measured(seconds, errors, reasons)


def is_timed(planned: Planned, backend: Backend) -> bool:
    """Whether seconds here say something: not of several devices in turn, nor of no copies.

    On NumPy the host's memory is the device's, and a value that is moved stays where it is.
    """
    return planned.devices == 1 and not (backend is NUMPY and planned.host_bytes)


def obstacle(planned: Planned, sources: int, time_limit: float, backend: Backend) -> str:
    """Return why a step is not run; nothing if it is.

    Args:
        planned: what would run.
        sources: bytes of the network's arguments, which are made for it.
        time_limit: seconds for all of its rounds.
        backend: what would run it.
    """
    if planned.begin is None or (planned.devices > 1 and backend is not NUMPY):
        return "several devices are run on NumPy alone"
    flops = 0.0
    for schedule, times in planned.schedules:
        operators = [operator for operator in schedule.graph.operators if operator.kind != EXCHANGE]
        if any(operator.primitive is None for operator in operators):
            return "it has operators without a kernel"
        flops += times * cost_of(schedule, cost.flops(schedule.graph))
    held = sources + planned.devices * planned.peak
    if held > MOST_BYTES:
        most = size_text(MOST_BYTES)
        return f"it holds {size_text(held)}, arguments included, and {most} may be taken"
    seconds = (ROUNDS + 1) * flops / FLOPS_A_SECOND
    if seconds > time_limit:
        return f"{ROUNDS + 1} steps may take {seconds:,.0f} s, and {time_limit:g} s are given"
    return ""


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
