"""What kernels hold besides inputs and outputs, and how long they take: each evaluated alone.

The truth about memory is what the allocator hands out. On a CPU the profiler sees each of its
blocks come and go, kernels' temporaries included; on a GPU the allocator counts for itself.
"""

from __future__ import annotations

import gc
import os
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import fx
from torch.profiler import ProfilerActivity, profile, record_function

from tinyckpt.errors import GraphError
from tinyckpt.interop.torch.capture import storage_of, tree_leaves, tree_map, with_real_tensors
from tinyckpt.interop.torch.joint import Joint

REPEATS = 5  # of a timed operator; the shortest counts, since whatever disturbs makes it longer
MARK = "tinyckpt:"  # begins the name of an operator's span in the profile
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Measured:
    """What was seen of one operator.

    Attributes:
        workspace: bytes that its kernel held at its peak, less what is held of it afterwards.
        outputs: bytes of the storage of each result, which may be larger than the tensor: some
            kernels reduce in place. Empty if none was seen.
        seconds: of one evaluation; 0 unless asked for.
    """

    workspace: int = 0
    outputs: tuple[int, ...] = ()
    seconds: float = 0.0


# What the allocator hands out --------------------------------------------------------------------


def allocator_peak(function: Callable[[], Result], device: str = "cpu") -> tuple[int, Result]:
    """Run a function; return the peak of what the allocator held for it, in bytes, and its result.

    What was allocated before is not counted.

    Args:
        function: takes nothing; what it returns is held by the caller from then on.
        device: ``cpu``, or that of a GPU.
    """
    gc.collect()
    if torch.device(device).type == "cpu":
        with profiled() as profiler:
            result = function()
        changes, _ = events_of(profiler)
        return peak_and_rest(nbytes for _, nbytes in changes)[0], result
    peak, _, result = allocated_on_gpu(function, device)
    return peak, result


def allocated_on_gpu(function: Callable[[], Result], device: str) -> tuple[int, int, Result]:
    """Return the most bytes that a function held, those that it still holds, and its result."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = function()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return peak - before, torch.cuda.memory_allocated(device) - before, result


@contextmanager
def profiled() -> Iterator[profile]:
    """Record what the CPU's allocator does."""
    # The profiler writes to the terminal when it starts and stops, unless told not to beforehand.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield profiler


def events_of(profiler: profile) -> tuple[list[tuple[int, int]], dict[int, tuple[int, int]]]:
    """Return the allocator's events, by time, and from when to when each marked span lasted.

    Times are nanoseconds; bytes are handed out, or taken back if less than 0.
    """
    changes, spans = [], {}
    for event in profiler.profiler.kineto_results.events():
        name = event.name()
        if name == "[memory]":
            changes.append((event.start_ns(), event.nbytes()))
        elif name.startswith(MARK):
            spans[int(name.removeprefix(MARK))] = event.start_ns(), event.end_ns()
    return sorted(changes, key=lambda change: change[0]), spans


def peak_and_rest(changes: Iterable[int]) -> tuple[int, int]:
    """Return the most bytes that were held, and those that are held at the end."""
    held = peak = 0
    for nbytes in changes:
        held += nbytes
        peak = max(peak, held)
    return peak, held


# Operators by themselves -------------------------------------------------------------------------


def measure(joint: Joint, calls: Sequence[fx.Node], timed: bool) -> dict[fx.Node, Measured]:
    """Evaluate every distinct operator once, alone, on tensors made up for it.

    Operators are the same if they are called with the same arguments but for numbers in tensors.
    What only returns views is not evaluated: it has no kernel.

    Args:
        joint: where shapes, strides and devices are known from.
        calls: the nodes to measure.
        timed: whether to measure seconds as well, in evaluations of their own.

    Raises:
        GraphError: if tensors are on a device that is not here, or an operator fails by itself.
    """
    alike: dict[Any, list[fx.Node]] = {}
    for node in calls:
        if not is_view(joint, node):
            alike.setdefault(signature(joint, node), []).append(node)
    firsts = [nodes[0] for nodes in alike.values()]
    with with_real_tensors(), torch.random.fork_rng(), torch.no_grad():
        seen = memory_of(joint, firsts)
        seconds = [seconds_of(joint, node) if timed else 0.0 for node in firsts]
    found = dict.fromkeys(calls, Measured())
    for nodes, measured, time in zip(alike.values(), seen, seconds, strict=True):
        found |= dict.fromkeys(nodes, replace(measured, seconds=time))
    return found


def memory_of(joint: Joint, nodes: Sequence[fx.Node]) -> list[Measured]:
    """Return for each operator what it holds at its peak, less what is left, and what it makes."""
    held: dict[int, tuple[int, int]] = {}
    made: list[tuple[int, ...]] = []
    with profiled() as profiler:
        for position, node in enumerate(nodes):
            evaluate, device = evaluation(joint, node)
            if device.startswith("cuda"):
                peak, left, result = allocated_on_gpu(evaluate, device)
                held[position] = peak, left
            else:
                with record_function(f"{MARK}{position}"):
                    result = evaluate()
            storages = map(storage_of, tree_leaves(result))
            made.append(tuple(0 if found is None else found[1] for found in storages))
            del evaluate, result
    changes, spans = events_of(profiler)
    times = [time for time, _ in changes]
    for position, (begin, end) in spans.items():
        inside = changes[bisect(times, begin) : bisect(times, end)]
        held[position] = peak_and_rest(nbytes for _, nbytes in inside)
    return [
        Measured(held[position][0] - held[position][1], outputs)
        for position, outputs in enumerate(made)
    ]


def seconds_of(joint: Joint, node: fx.Node) -> float:
    """Return the seconds of one evaluation, the shortest of a few."""
    evaluate, device = evaluation(joint, node)
    synchronize = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    seconds = []
    for _ in range(REPEATS):
        synchronize()
        start = perf_counter()
        evaluate()
        synchronize()
        seconds.append(perf_counter() - start)
    return min(seconds)


def evaluation(joint: Joint, node: fx.Node) -> tuple[Callable[[], Any], str]:
    """Return what evaluates an operator on tensors made up for it, and the device it does it on."""
    args, kwargs = fx.node.map_arg(
        (node.args, dict(node.kwargs)),
        lambda source: tree_map(made_up, joint.values[source]),
    )
    touched = (x for x in tree_leaves((args, kwargs, joint.values[node])))
    devices = [str(x.device) for x in touched if isinstance(x, torch.Tensor)]

    def evaluate() -> Any:
        try:
            return node.target(*args, **kwargs)
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise GraphError(
                f"{node.name}, {node.target}, cannot be evaluated by itself: "
                f"{type(error).__name__}: {text}; workspace=False, and a cost other than "
                "measured, do without"
            ) from error

    return evaluate, max(devices, default="cpu")  # a GPU's name, if there is one


def signature(joint: Joint, node: fx.Node) -> Any:
    """Return what an evaluation of a node depends on, numbers in tensors aside."""

    def layout(source: fx.Node) -> Any:
        return tuple(
            (str(x.dtype), str(x.device), tuple(x.shape), x.stride(), x.storage_offset())
            if isinstance(x, torch.Tensor)
            else x
            for x in leaves_of(joint, source)
        )

    return node.target, repr(fx.node.map_arg((node.args, dict(node.kwargs)), layout))


def is_view(joint: Joint, node: fx.Node) -> bool:
    """Whether all that a node makes is in the memory of what it reads."""
    given = {storage_of(x) for source in node.all_input_nodes for x in leaves_of(joint, source)}
    return all(storage_of(x) in given for x in leaves_of(joint, node))


def leaves_of(joint: Joint, node: fx.Node) -> list[Any]:
    """Return the values of a node, without nesting."""
    found: list[Any] = tree_leaves(joint.values[node])
    return found


def made_up(value: Any) -> Any:
    """Return a tensor with the layout of a FakeTensor: numbers from 0 to 1, or zeros.

    Zeros are legal as indices, and as masks.

    Raises:
        GraphError: if its device is not here.
    """
    if not isinstance(value, torch.Tensor):
        return value
    device, size = value.device, value.untyped_storage().nbytes() // value.element_size()
    if device.type == "meta" or (device.type == "cuda" and not torch.cuda.is_available()):
        raise GraphError(
            f"workspace and seconds are measured where the tensors are, and there is no device "
            f"{device} here; pass workspace=False, and a cost other than measured"
        )
    made = torch.zeros(size, dtype=value.dtype, device=device)
    if value.dtype.is_floating_point:
        made = torch.rand(size, device=device).to(value.dtype)
    return made.as_strided(value.shape, value.stride(), value.storage_offset())
