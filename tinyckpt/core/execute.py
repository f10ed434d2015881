"""The executor: runs a schedule's kernels on arrays, and measures live memory.

In: a schedule and the sources' arrays. Out: the results and a trace. Memory is accounted for
independently of ``replay``, from the arrays: an array's memory belongs to the array at the end of
its ``base`` chain, counted once however many views share it. Shapes, sizes and aliasing are
not looked up in the graph, so that a kernel that copies where its primitive promises a view, or
the reverse, makes this trace differ from that of ``replay``. Workspace is as declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from tinyckpt.base.errors import BackendError, ScheduleError
from tinyckpt.core.backend import NUMPY, Backend
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import Compute, Free, Schedule
from tinyckpt.core.trace import COLUMNS, Trace, memory_kinds, trace_of

NODES, FIRST_KIND, WORKSPACE, HOST, EVALUATIONS = map(
    COLUMNS.index, ("nodes", "activation", "workspace", "host", "evaluations_so_far")
)
OF_A_SOURCE = -1  # sentinel: the allocation of sources, which are not charged
Array = Any
Watch = Callable[[int, int, tuple[Array, ...]], None]
# By operator: kernel, number of inputs (-1 where there are several outputs, which must not be taken
# for one), inputs, first output, workspace in bytes.
DispatchTable = list[tuple[Any, ...]]

# Extensions: the rule of a further kind of step, ``rule(memory, position, step, dispatch table)``;
# and what a graph's kernels are wrapped in, by operator.
STEP_RULES: dict[type, Callable[[Allocations, int, Any, DispatchTable], None]] = {}
KERNEL_GUARDS: list[Callable[[Graph], Mapping[int, Callable[[Any], Any]]]] = []


def execute(
    schedule: Schedule,
    sources: Mapping[int, Array],
    backend: Backend = NUMPY,
    timed: bool = False,
    watch: Watch | None = None,
) -> tuple[dict[int, Array], Trace]:
    """Run a schedule on arrays.

    Args:
        schedule: the schedule to run.
        sources: the backend's arrays of all inputs and parameters, by data id, C-contiguous.
            Those that the graph updates are overwritten.
        backend: the array library.
        timed: whether to measure the seconds of every step; on a GPU this synchronises each step.
        watch: called as ``watch(step, operator id, results)`` after every Compute.

    Returns:
        The results of the graph by data id, and the trace.

    Raises:
        BackendError: if an operator is abstract, or a kernel fails; names step and operator.
        ScheduleError: if a step needs a value that is not resident.
    """
    graph, array_type = schedule.graph, backend.xp.ndarray
    bound = bind_kernels(graph, backend.xp)
    memory = Allocations(graph, sources, backend)
    values, block, column, row = memory.values, memory.block, memory.column, memory.row
    on_host = memory.on_host
    sizes, holders, charged = memory.sizes, memory.holders, memory.charged
    rows: list[int] = []
    seconds: list[float] = []
    before = perf_counter()
    # This loop is the whole overhead over NumPy: common cases are inlined in one flat body over
    # local names; rare ones are methods of Allocations.
    for position, step in enumerate(schedule.steps):
        if type(step) is Compute:
            kernel, count, inputs, only, workspace = bound[step.operator]
            try:
                # Inputs are checked first: NumPy would accept a None as an object array.
                if count == 2:
                    first, second = values[inputs[0]], values[inputs[1]]
                    if first is None or second is None:
                        raise missing_input(graph, position, step.operator, values)
                    results = kernel(first, second)
                    fresh = results is not first and results is not second
                elif count == 1:
                    first = values[inputs[0]]
                    if first is None:
                        raise missing_input(graph, position, step.operator, values)
                    results = kernel(first)
                    fresh = results is not first
                else:
                    arguments = [values[data] for data in inputs]
                    if any(argument is None for argument in arguments):
                        raise missing_input(graph, position, step.operator, values)
                    results = kernel(*arguments)
                    fresh = count != -1 and all(results is not argument for argument in arguments)
                    del arguments
            except ScheduleError:
                raise
            except Exception as error:
                raise failure(graph, position, step.operator, error) from error
            row[EVALUATIONS] += 1
            row[WORKSPACE] = workspace
            # The common case of ``memory.hold``, inlined: one array that owns fresh memory.
            if (
                fresh
                and type(results) is array_type
                and results.base is None
                and values[only] is None
                and not on_host
            ):
                values[only] = results
                row[NODES] += 1
                nbytes, charge = results.nbytes, column[only]
                row[charge] += nbytes
                block[only] = len(sizes)
                sizes.append(nbytes)
                holders.append(1)
                charged.append(charge)
            else:
                outputs = graph.operators[step.operator].outputs
                if not isinstance(results, tuple | list):
                    results = (results,)
                if len(results) != len(outputs):
                    name = graph.operators[step.operator].name
                    raise BackendError(
                        f"step {position}: {name} has {len(outputs)} outputs, but its kernel "
                        f"returned {len(results)}"
                    )
                earlier: dict[int, int] = {}
                for data, array in zip(outputs, results, strict=True):
                    memory.hold(position, data, array, inputs, earlier)
            if watch is not None:
                watch(
                    position,
                    step.operator,
                    tuple(results) if isinstance(results, tuple | list) else (results,),
                )
            # A local name would keep alive memory that the schedule frees.
            results = array = first = second = None
        else:
            row[WORKSPACE] = 0
            if type(step) is Free:
                data = step.data
                allocation = block[data]
                if allocation >= 0 and values[data] is not None:
                    values[data] = None
                    row[NODES] -= 1
                    remaining = holders[allocation] = holders[allocation] - 1
                    if remaining == 0:
                        row[charged[allocation]] -= sizes[allocation]
                else:
                    memory.release(position, data)
            else:
                if (rule := STEP_RULES.get(type(step))) is None:
                    raise ScheduleError(f"step {position}: no extension executes {step!r}")
                rule(memory, position, step, bound)
        rows.extend(row)
        if timed:
            if backend.synchronize is not None:
                backend.synchronize()
            now = perf_counter()
            seconds.append(now - before)
            before = now

    memory.settle()
    missing = [graph.data[data].name for data in graph.outputs if values[data] is None]
    missing += [graph.data[data].name for data in graph.outputs if data in memory.overwritten]
    if missing:
        raise ScheduleError(f"the schedule ends without {', '.join(missing)}")
    return {data: values[data] for data in graph.outputs}, trace_of(schedule, rows, seconds)


class Allocations:
    """The memory account: values on the device and on the host, and the allocations behind them.

    ``row`` is the trace's current row, in the order of ``COLUMNS``.
    """

    def __init__(self, graph: Graph, sources: Mapping[int, Array], backend: Backend) -> None:
        self.graph, self.backend = graph, backend
        self.values: list[Array | None] = [None] * len(graph.data)
        self.overwritten: set[int] = set()  # values whose contents an in-place update has changed
        self.column = [FIRST_KIND + kind for kind in memory_kinds(graph)]
        self.row = [0] * len(COLUMNS)
        self.on_host: dict[int, Any] = {}
        self.scratch: dict[str, Any] = {}  # what extensions remember during one run
        self.pending: list[Callable[[], None]] = []  # of extensions: wait for copies in flight
        # Allocations, numbered in order: bytes, reference count, column charged.
        self.sizes: list[int] = []
        self.holders: list[int] = []
        self.charged: list[int] = []
        # The allocation of each value, current or last.
        self.block = [OF_A_SOURCE] * len(graph.data)
        for data, array in sources.items():
            self.values[data] = array
        for data, constant in graph.constants.items():
            self.values[data] = backend.to_device(constant)

    def hold(
        self,
        position: int,
        data: int,
        result: Array,
        inputs: Sequence[int],
        earlier: dict[int, int],
    ) -> None:
        """Make a result resident, in memory of its own or that of an input or an earlier output.

        ``earlier`` has the operator's outputs so far that own memory, by ``id`` of the array.
        """
        if self.values[data] is not None or data in self.on_host:
            raise ScheduleError(f"step {position}: {self.graph.data[data].name} is still resident")
        xp = self.backend.xp
        array = xp.asarray(result)  # NumPy returns scalars where an array is 0-d
        owner = memory_owner(array, xp.ndarray)
        self.values[data] = array
        self.row[NODES] += 1
        for source in (earlier[id(owner)],) if id(owner) in earlier else inputs:
            if memory_owner(self.values[source], xp.ndarray) is owner:
                self.block[data] = self.block[source]
                if self.block[data] != OF_A_SOURCE:
                    self.holders[self.block[data]] += 1
                return
        earlier[id(owner)] = data
        self.allocate(data, owner.nbytes)

    def allocate(self, data: int, nbytes: int) -> None:
        """Charge a fresh allocation to a value."""
        self.block[data] = len(self.sizes)
        self.sizes.append(nbytes)
        self.holders.append(1)
        self.charged.append(self.column[data])
        self.row[self.column[data]] += nbytes

    def release(self, position: int, data: int) -> None:
        """End a value's residence; its allocation is freed with the last value in it."""
        if self.values[data] is None or self.graph.data[data].producer is None:
            raise self.absent(position, data)
        self.values[data] = None
        self.row[NODES] -= 1
        allocation = self.block[data]
        if allocation != OF_A_SOURCE:
            self.holders[allocation] -= 1
            if self.holders[allocation] == 0:
                self.row[self.charged[allocation]] -= self.sizes[allocation]

    def settle(self) -> None:
        """Wait for all copies in flight."""
        for wait in self.pending:
            wait()

    def absent(self, position: int, data: int) -> ScheduleError:
        """Return the error for freeing or moving a value that is not resident."""
        node = self.graph.data[data]
        why = "a source, which stays with the caller" if node.is_source else "not resident"
        return ScheduleError(f"step {position}: {node.name} cannot be freed or moved: it is {why}")


def bind_kernels(graph: Graph, xp: Any) -> DispatchTable:
    """Precompute each operator's dispatch record, as DispatchTable says."""
    bound: DispatchTable = []
    for operator in graph.operators:
        primitive = operator.primitive
        if primitive is None:
            raise BackendError(
                f"{operator.name} is abstract: it has a size and a cost but no kernel; it can be "
                "planned, replayed and drawn, not executed"
            )
        kernel: Any = partial(primitive.forward, xp, **operator.attrs)
        inputs, only = operator.inputs, operator.outputs[0]
        count = len(inputs) if len(operator.outputs) == 1 else -1
        bound.append((kernel, count, inputs, only, operator.workspace))
    for guards_of in KERNEL_GUARDS:
        for index, guard in guards_of(graph).items():
            bound[index] = (guard(bound[index][0]), *bound[index][1:])
    return bound


def memory_owner(array: Array, array_type: type) -> Array:
    """Return the array that owns the memory of this one: the end of its ``base`` chain."""
    while isinstance(array.base, array_type):
        array = array.base
    return array


def missing_input(
    graph: Graph, position: int, index: int, values: Sequence[Array | None]
) -> ScheduleError:
    """Return the error for an evaluation whose input is not resident."""
    operator = graph.operators[index]
    absent = next(graph.data[data].name for data in operator.inputs if values[data] is None)
    return ScheduleError(
        f"step {position}: compute {operator.name} needs {absent}, which is not resident; "
        "tc.replay(schedule) says why"
    )


def failure(graph: Graph, position: int, index: int, error: Exception) -> BackendError:
    """Return the error for a kernel that raised."""
    operator = graph.operators[index]
    specs = ", ".join(str(graph.data[data]) for data in operator.inputs)
    return BackendError(f"step {position}: {operator.name} of {specs} failed: {error}")
