"""What is weighed, and what one of the means makes of it: plain data.

Memory is counted as ``replay`` does it: what a schedule holds, and not what the caller supplies.
What a means holds besides, such as gradients that micro-batches add up, counts too. Gradients are
among it either way: store-all's are results, which a schedule holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from tinyckpt.base.errors import GraphError, ScheduleError
from tinyckpt.core.costs import Costs, cost_of
from tinyckpt.core.graph import Graph, TrainingGraph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.networks import Network
from tinyckpt.planner.offload.link import Link
from tinyckpt.planner.portfolio.search import Progress

# What becomes of gradients. "unproven" is exact if the loss is a mean over samples, which is not
# known here of all losses, nor of all operators before.
Gradients = Literal["bitwise", "rounded", "unproven", "approximate"]
# From a network's arguments to a step, which returns its gradients when it is called.
Begin = Callable[[tuple[Any, ...], Any], Callable[[], Any]]

# Where nothing else is said, the link is PCI Express 4.0 with 16 lanes, 32 GB/s in each direction,
# beside an A100: 19.5 TFLOP/s in float32, 1,555 GB/s from its own memory (NVIDIA's data sheet).
LINKS = {
    "FLOPs": Link(Fraction(32, 19_500)),
    "bytes moved": Link(Fraction(32, 1_555)),
    "seconds": Link(32 * 10**9),
}


@dataclass(frozen=True, slots=True)
class Case:
    """What the means are weighed on.

    Attributes:
        graph: loss and gradients of the whole batch.
        network: the function that it is of; None if there is but the graph.
        costs_of: from a graph to the costs of its operators, in one unit.
        budget: the peak to stay within, in bytes.
        link: to the host, and from device to device; None if none is known in the unit of costs.
        time_limit: seconds for each plan.
        stages: devices of a pipeline.
        chunks: pieces of the loss.
        progress: as of ``plan``.
        stored: the graph's schedule that keeps everything.
    """

    graph: TrainingGraph
    network: Network | None
    costs_of: Callable[[Graph], Costs]
    budget: int
    link: Link | None
    time_limit: float
    stages: int
    chunks: int
    progress: Progress | None
    stored: Schedule = field(repr=False)

    @property
    def function(self) -> Network:
        """The network.

        Raises:
            GraphError: if there is but its graph.
        """
        if self.network is None:
            raise GraphError("there is but a graph, and no function to be called otherwise")
        return self.network

    @property
    def known_link(self) -> Link:
        """The link.

        Raises:
            ScheduleError: if none is known.
        """
        if self.link is None:
            unit = self.costs_of(self.graph).unit
            raise ScheduleError(
                f"no link is known in {unit}: give its bandwidth, in bytes for each"
            )
        return self.link


@dataclass(frozen=True, slots=True)
class Planned:
    """What one of the means takes.

    Attributes:
        peak: bytes, on the device that holds most.
        cost: of a step, all devices' time together, in the unit of the case's costs.
        gradients: what becomes of them.
        sense: in what sense they are approximate, in a few words; or why they may be.
        takes: what it takes besides, in a few words.
        schedules: what a device does, and how often; or what each stage does, of its graph.
        host_bytes: the most that is on the host.
        devices: how many there are.
        begin: how a step is made ready; None if it is not run here.
    """

    peak: int
    cost: float
    gradients: Gradients = "bitwise"
    sense: str = ""
    takes: str = ""
    schedules: tuple[tuple[Schedule, int], ...] = field(default=(), repr=False)
    host_bytes: int = 0
    devices: int = 1
    begin: Begin | None = field(default=None, repr=False)


def peak_of(schedule: Schedule) -> int:
    """Return the peak of a schedule in bytes."""
    return replay(schedule).peak_bytes


def own_cost(case: Case, schedule: Schedule) -> float:
    """Return what a schedule costs, in the unit of the case."""
    return cost_of(schedule, case.costs_of(schedule.graph))
