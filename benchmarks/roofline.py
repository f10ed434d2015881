"""Roofline model: the least time of a step on this machine, from its bytes and FLOPs.

An evaluation takes no less than its FLOPs over the peak FLOP/s, no less than the bytes of its
inputs and outputs over the bandwidth, and no less than one call of NumPy. All are measured: the
peak as a large product of matrices in the step's dtype, the bandwidth as a copy in as much memory
as the step's buffer, so that a step that fits a cache is measured against the cache, the call as a
product of two numbers. Operators that take a tanh take no less than NumPy's, on one thread. Other
functions, as exp, run below the peak too: the true optimum lies above the bound.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
multicore architectures", Communications of the ACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

import tinyckpt as tc
from tinyckpt.core.schedule import EVALUATIONS

Clock = Callable[[], float]
ROUNDS = 9
PRODUCT = 1536  # rows and columns: 7 GFLOP, and 54 MiB in float64
TANHS = {"tanh", "gelu_tanh", "gelu_tanh_vjp"}  # operators of one tanh per element
COPIED = 2**26  # bytes that one timing of a copy moves, at least


def best_seconds(function: Callable[[], object], clock: Clock, calls: int = 1) -> float:
    """Return the shortest time of a call, over some rounds."""
    function()
    seconds = []
    for _ in range(ROUNDS):
        begin = clock()
        for _ in range(calls):
            function()
        seconds.append((clock() - begin) / calls)
    return min(seconds)


def measured_bandwidth(nbytes: int, clock: Clock = perf_counter) -> float:
    """Return the bytes per second, read and written, of a copy within some bytes of memory."""
    source, target = np.ones((2, max(64, nbytes // 16)))
    moved = source.nbytes + target.nbytes
    return moved / best_seconds(lambda: np.copyto(target, source), clock, max(1, COPIED // moved))


def measured_peak(dtype: str, clock: Clock = perf_counter) -> float:
    """Return the FLOP/s of a large product of matrices."""
    a, b, out = np.ones((3, PRODUCT, PRODUCT), dtype)
    return 2 * PRODUCT**3 / best_seconds(lambda: np.matmul(a, b, out=out), clock)


def measured_call(clock: Clock = perf_counter) -> float:
    """Return the seconds of the shortest call of a ufunc, with its destination."""
    a, b, out = np.ones((3, 1))
    return best_seconds(lambda: np.multiply(a, b, out=out), clock, 10_000)


def measured_tanh(dtype: str, clock: Clock = perf_counter) -> float:
    """Return the seconds per element of a tanh within a cache."""
    x = np.linspace(-2, 2, 2**12, dtype=dtype)
    out = np.empty_like(x)
    return best_seconds(lambda: np.tanh(x, out=out), clock, 100) / x.size


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine does at best: bytes and FLOPs per second, seconds per call and per tanh."""

    bandwidth: float
    peak: float
    call: float
    tanh: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """The least seconds of a schedule.

    Attributes:
        apart: with every evaluation reading its inputs and writing its outputs.
        fused: in one pass: arguments read once, results written once, all else in registers.
    """

    apart: float
    fused: float


def roofline(schedule: tc.Schedule, machine: Machine) -> Roofline:
    """Return the least seconds of a schedule on a machine."""
    graph = schedule.graph
    apart = flops = 0.0
    for step in schedule.steps:
        if not isinstance(step, EVALUATIONS):
            continue
        operator = graph.operators[step.operator]
        if graph.data[operator.outputs[0]].view_of is not None:
            continue  # moves nothing
        touched = {*operator.inputs, *operator.outputs}
        nbytes = sum(graph.data[data].spec.nbytes for data in touched)
        tanhs = graph.data[operator.outputs[0]].spec.size * (operator.kind in TANHS)
        flops += operator.flops
        apart += max(
            nbytes / machine.bandwidth,
            operator.flops / machine.peak,
            tanhs * machine.tanh,
            machine.call,
        )
    ends = {*tc.tree.leaves(graph.arguments), *graph.outputs}
    nbytes = sum(graph.data[data].spec.nbytes for data in ends)
    return Roofline(apart, max(nbytes / machine.bandwidth, flops / machine.peak))
