"""The machine with the arrays: runs a schedule on NumPy or CuPy and measures what it holds.

It keeps its own account, from the arrays alone: an array's memory is that of the array at the end
of its ``base`` chain, counted once however many views there are. Shapes, sizes and views are not
looked up in the graph, so that a kernel which copies where its primitive promises a view, or the
other way round, makes this trace differ from that of ``replay``. Workspace alone is as declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from tinyckpt.backend import NUMPY, Backend
from tinyckpt.errors import BackendError, ScheduleError
from tinyckpt.graph import Graph
from tinyckpt.schedule import Compute, Fetch, Free, Offload, Schedule
from tinyckpt.trace import Trace, memory_kinds

Array = Any
Watch = Callable[[int, int, tuple[Array, ...]], None]
OF_A_SOURCE = -1


def execute(
    schedule: Schedule,
    sources: Mapping[int, Array],
    backend: Backend = NUMPY,
    watch: Watch | None = None,
) -> tuple[dict[int, Array], Trace]:
    """Run a schedule.

    Args:
        schedule: what to do.
        sources: the backend's arrays of all inputs and parameters, by data id, C-contiguous.
        backend: the array library.
        watch: called as ``watch(step, operator id, results)`` after every evaluation.

    Returns:
        The results of the graph by data id, and the trace with measured seconds.

    Raises:
        BackendError: if an operator is abstract, or a kernel fails; names step and operator.
        ScheduleError: if a step needs a value that is not there.
    """
    graph = schedule.graph
    run = bind_kernels(graph, backend.xp)
    values: list[Array | None] = [None] * len(graph.data)
    for data, array in sources.items():
        values[data] = array
    for data, constant in graph.constants.items():
        values[data] = backend.to_device(constant)

    kind = memory_kinds(graph)
    array_type = backend.xp.ndarray
    block: list[int] = [OF_A_SOURCE] * len(graph.data)  # which allocation each value is in
    holders: list[int] = []  # by allocation: how many resident values are in it
    sizes: list[int] = []  # by allocation: bytes
    charged: list[int] = []  # by allocation: kind of memory
    live = [0, 0, 0]
    nodes = host = evaluations = 0
    on_host: dict[int, Array] = {}
    rows: list[tuple[int, ...]] = []
    seconds: list[float] = []
    synchronize, xp = backend.synchronize, backend.xp
    position = -1

    for position, step in enumerate(schedule.steps):  # an error message reads it
        workspace = 0
        begin = perf_counter()
        if type(step) is Compute:
            kernel, inputs, outputs, workspace, scalar = run[step.operator]
            arguments = [values[data] for data in inputs]
            try:
                results = kernel(*arguments)
            except Exception as error:
                raise failure(graph, position, step.operator, arguments, error) from error
            if synchronize is not None:
                synchronize()
            seconds.append(perf_counter() - begin)
            evaluations += 1
            if len(outputs) == 1:
                results = (results,)
            for data, array in zip(outputs, results):  # noqa: B905  # in the hot loop
                if scalar:
                    array = xp.asarray(array)  # NumPy returns scalars where an array is 0-d
                if values[data] is not None:
                    raise ScheduleError(f"step {position}: {graph.data[data].name} is still there")
                values[data] = array
                nodes += 1
                if array.base is None:
                    allocation = len(sizes)
                    sizes.append(array.nbytes)
                    holders.append(1)
                    charged.append(kind[data])
                    live[kind[data]] += array.nbytes
                    block[data] = allocation
                    continue
                owner = memory_owner(array, array_type)
                for source, argument in zip(inputs, arguments):  # noqa: B905
                    if memory_owner(argument, array_type) is owner:
                        allocation = block[source]
                        if allocation != OF_A_SOURCE:
                            holders[allocation] += 1
                        break
                else:
                    allocation = len(sizes)
                    sizes.append(owner.nbytes)
                    holders.append(1)
                    charged.append(kind[data])
                    live[kind[data]] += owner.nbytes
                block[data] = allocation
            if watch is not None:
                watch(position, step.operator, tuple(results))
        elif type(step) is Free or type(step) is Offload:
            data = step.data
            array = values[data]
            if array is None or graph.data[data].producer is None:
                raise ScheduleError(f"step {position}: {graph.data[data].name} is not there")
            if type(step) is Offload:
                on_host[data] = backend.to_host(array)
                host += on_host[data].nbytes
            values[data] = array = None
            nodes -= 1
            allocation = block[data]
            if allocation != OF_A_SOURCE:
                holders[allocation] -= 1
                if holders[allocation] == 0:
                    live[charged[allocation]] -= sizes[allocation]
            seconds.append(perf_counter() - begin)
        elif type(step) is Fetch:
            data = step.data
            if data not in on_host:
                raise ScheduleError(f"step {position}: {graph.data[data].name} is not on the host")
            moved = on_host.pop(data)
            host -= moved.nbytes
            array = values[data] = xp.array(moved)
            nodes += 1
            block[data] = len(sizes)
            sizes.append(array.nbytes)
            holders.append(1)
            charged.append(kind[data])
            live[kind[data]] += array.nbytes
            seconds.append(perf_counter() - begin)
        rows.append((nodes, live[0], live[1], live[2], workspace, host, evaluations))
        # Nothing of the step may outlive it: a name here would hold memory that was freed.
        arguments = results = array = None  # type: ignore[assignment]

    columns: Any = tuple(zip(*rows, strict=True)) if rows else ((),) * 7
    missing = [graph.data[data].name for data in graph.outputs if values[data] is None]
    if missing:
        raise ScheduleError(f"the schedule ends without {', '.join(missing)}")
    results_by_id = {data: values[data] for data in graph.outputs}
    return results_by_id, Trace(schedule, *columns, tuple(seconds))


def bind_kernels(graph: Graph, xp: Any) -> list[tuple[Any, ...]]:
    """Return for every operator its kernel with attributes filled in, and what the loop needs."""
    bound = []
    for operator in graph.operators:
        if operator.primitive is None:
            raise BackendError(
                f"{operator.name} is abstract: it has a size and a cost but no kernel; it can be "
                "planned, replayed and drawn, not executed"
            )
        kernel = partial(operator.primitive.forward, xp, **operator.attrs)
        scalar = any(graph.data[data].spec.shape == () for data in operator.outputs)
        bound.append((kernel, operator.inputs, operator.outputs, operator.workspace, scalar))
    return bound


def memory_owner(array: Array, array_type: type) -> Array:
    """Return the array whose memory this one shows: itself, or the end of its base chain."""
    while isinstance(array.base, array_type):
        array = array.base
    return array


def failure(
    graph: Graph, position: int, index: int, arguments: list[Array], error: Exception
) -> BackendError | ScheduleError:
    """Return the error to raise when a kernel failed."""
    operator = graph.operators[index]
    for data, argument in zip(operator.inputs, arguments, strict=True):
        if argument is None:
            return ScheduleError(
                f"step {position}: compute {operator.name} needs {graph.data[data].name}, which is "
                "not there; tc.replay(schedule) says why"
            )
    specs = ", ".join(str(graph.data[data]) for data in operator.inputs)
    return BackendError(f"step {position}: {operator.name} of {specs} failed: {error}")
