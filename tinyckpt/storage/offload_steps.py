"""Offload and fetch as steps of a schedule: replay rules, execute rules, insertion.

``replay`` moves bytes from the device's account to the host's; ``execute`` moves the array itself,
through the host store of the backend. A fetched value gets a fresh allocation, even if it was a
view before it was offloaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from tinyckpt.core import execute, replay
from tinyckpt.core.graph import producer_of
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Offload, Schedule, Step
from tinyckpt.storage.host import Copies, Host


def replay_offload(machine: replay.ReplayState, position: int, step: Offload) -> int:
    """Move a value from the device's account to the host's."""
    machine.require(position, step, step.data)
    machine.host += machine.graph.data[step.data].spec.nbytes
    machine.on_host.add(step.data)
    machine.release(position, step.data, "moved to the host")
    return 0


def replay_fetch(machine: replay.ReplayState, position: int, step: Fetch) -> int:
    """Move a value back to the device, into a fresh allocation."""
    if step.data not in machine.on_host:
        machine.fail(position, f"fetch {machine.name(step.data)}, which is not on the host")
    machine.on_host.remove(step.data)
    machine.host -= machine.graph.data[step.data].spec.nbytes
    machine.allocate(step.data)
    return 0


def execute_offload(
    memory: execute.Allocations, position: int, step: Offload, bound: execute.DispatchTable
) -> None:
    """Copy an array to the host store, and release it."""
    array = memory.values[step.data]
    memory.release(position, step.data)
    memory.on_host[step.data] = moved = host_of(memory).park(array)
    memory.row[execute.HOST] += moved.nbytes


def execute_fetch(
    memory: execute.Allocations, position: int, step: Fetch, bound: execute.DispatchTable
) -> None:
    """Copy an array back from the host store."""
    data = step.data
    if data not in memory.on_host:
        raise memory.absent(position, data)
    moved = memory.on_host.pop(data)
    memory.row[execute.HOST] -= moved.nbytes
    array = host_of(memory).fetch(moved, bound, memory.graph.consumers[data])
    memory.values[data] = array
    memory.allocate(data, array.nbytes)
    memory.row[execute.NODES] += 1


def host_of(memory: execute.Allocations) -> Host:
    """Return the host store of a run, created at the first offload."""
    if (host := memory.scratch.get("host")) is None:
        backend = memory.backend
        create = backend.host or (lambda: Copies(backend.to_host, backend.xp.array))
        host = memory.scratch["host"] = create()
        memory.pending.append(host.settle)
    found: Host = host
    return found


def insert_offloads(schedule: Schedule, values: Collection[int]) -> Schedule:
    """Insert offload and fetch steps: values wait in host memory between forward and backward use.

    A value is offloaded right after its last use in the forward sweep, and fetched right before
    its first use in the backward sweep.

    Args:
        schedule: compute and free steps.
        values: forward values that own their memory; those that are recomputed are left alone.
    """
    graph = schedule.graph
    last_forward_use: dict[int, int] = {}
    first_backward_use: dict[int, int] = {}
    in_backward = False
    for position, step in enumerate(schedule.steps):
        if not isinstance(step, EVALUATIONS):
            continue
        operator = graph.operators[step.operator]
        in_backward = in_backward or operator.phase == "backward"
        for data in (*operator.inputs, *operator.outputs):
            if data in values and data not in first_backward_use:
                (first_backward_use if in_backward else last_forward_use)[data] = position
    offloads: dict[int, list[Step]] = {}
    fetches: dict[int, list[Step]] = {}
    computed = Counter(step.operator for step in schedule.steps if isinstance(step, EVALUATIONS))
    for data, position in first_backward_use.items():
        if data not in last_forward_use or computed[producer_of(graph, data)] > 1:
            continue  # first computed in the backward sweep, or recomputed: nothing to fetch
        offloads.setdefault(last_forward_use[data], []).append(Offload(data))
        fetches.setdefault(position, []).append(Fetch(data))
    steps: list[Step] = []
    for position, step in enumerate(schedule.steps):
        steps += [*fetches.get(position, ()), step, *offloads.get(position, ())]
    return replace(schedule, steps=tuple(steps))


def install() -> None:
    """Fill the tables of the engine."""
    replay.STEP_RULES.update({Offload: replay_offload, Fetch: replay_fetch})
    execute.STEP_RULES.update({Offload: execute_offload, Fetch: execute_fetch})
