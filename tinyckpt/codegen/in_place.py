"""In-place operators (buffer forwarding): an elementwise result in the memory of a dying operand.

Where an elementwise operator is the last reader of an operand of its result's shape and dtype, it
may write over that operand instead of into fresh memory; at this step one value less is live. In: a
legal schedule, of any policy. Out: the same schedule with ``InPlace`` in place of such ``Compute``
steps. Order and number of evaluations stay as they are, and so do the bits of all results.

An operator is computed in place only where that is exact: the kernel is one of tinyckpt's own and
reads the operand no more once it has begun to write (``codegen.destinations``); nothing else is in
that memory: no view, no source, no value that is read later; and all operands are C-contiguous, so
that the result lies in memory as a fresh one would, and later reductions add in the same order.

A result in place is in its operand's memory, as an update's is in its source's, and a view's in its
base's: replay and execution account for all three alike. The operand is freed right after the step.

Source: "inplace" in Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost",
2016, arXiv 1604.06174, section 3; TensorFlow's ``forward_input_or_allocate_output`` and XLA's
aliasing of operand and output in buffer assignment do the same.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, final

import numpy as np

from tinyckpt.base.errors import ScheduleError
from tinyckpt.base.units import counted
from tinyckpt.codegen.destinations import steps_into, written_into
from tinyckpt.core import execute, replay
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.schedule import Compute, Free, Offload, Schedule, Step, Update, compute
from tinyckpt.ops.kernel_inlining import inline_kernel, is_own, literal


@final
@dataclass(frozen=True, slots=True)
class InPlace(Update):
    """This step is read as: evaluate the operator, which overwrites one of its operands.

    Where an ``Update`` overwrites a source, this overwrites a value that is read for the last time:
    only ``Free`` steps may follow until it is freed. ``tc.plan(..., in_place=True)`` makes them.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(1)
    >>> print(tc.plan(graph, in_place=True))
    0  compute  f1   live 1 node, 512 B
    1  compute  l    live 2 nodes, 1.0 KiB
    2  inplace  b1   live 3 nodes, 1.0 KiB
    3  free     f1   live 2 nodes, 1.0 KiB
    4  free     l    live 1 node, 512 B
    store_all on chain:1: 3 evaluations, 0 of them recomputations; peak 3 nodes, 1.0 KiB
    >>> tc.plan(graph, in_place=True).steps[2]
    InPlace(operator=2, data=1)

    Attributes:
        operator: the operator.
        data: the operand whose memory its result takes.
    """

    data: int


# --------------------------------------------------------------------------------------------------
# Which operands of an operator may be overwritten.


def takes_out(kernel: Callable[..., Any]) -> bool:
    """Whether a kernel that is written out takes ``out=``, which may be any of its operands."""
    out = inspect.signature(kernel).parameters.get("out")
    return out is not None and out.default is None


def statements_over(
    operator: Operator, names: Sequence[str], place: int, out: str = ""
) -> list[str] | None:
    """Return the statements by which an operator overwrites the operand at ``place``, or None.

    Args:
        operator: the operator.
        names: the Python names of its operands.
        place: the position of one.
        out: another name for this one, where it is written to.

    >>> import tinyckpt as tc
    >>> operators = tc.networks.chain(1).operators
    >>> statements_over(operators[0], ["x"], 0)
    ['np.tanh(x, out=x)']
    >>> statements_over(operators[2], ["y", "g"], 0)
    ['np.multiply(y, y, out=y)', 'np.subtract(1, y, out=y)', 'np.multiply(y, g, out=y)']
    """
    kernel = operator.primitive.forward  # type: ignore[union-attr]
    out = out or names[place]
    inlined = inline_kernel(kernel, names, operator.attrs, {})
    if inlined is None:
        return steps_into(kernel, names, operator.attrs, out)
    node = ast.parse(inlined, mode="eval").body
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        # As ``x ** 2`` does, this squares, where ``np.power`` may take a logarithm.
        is_base = ast.unparse(node.left) == names[place]
        return [f"{out}.__ipow__({ast.unparse(node.right)})"] if is_base else None
    line = written_into(inlined, out, np)
    return None if line is None else [line]


def reads_before_it_writes(operator: Operator, place: int) -> bool:
    """Whether a kernel reads an operand in no statement after the one that first overwrites it.

    That one may read it, element by element: a ufunc with the operand itself as an argument.
    """
    names = [f"x{position}" for position in range(len(operator.inputs))]
    lines = statements_over(operator, names, place, "out")
    if lines is None:
        return False
    for number, line in enumerate(lines):
        call = ast.parse(line, mode="eval").body
        assert isinstance(call, ast.Call)
        function, arguments = ast.unparse(call.func), call.args
        ufunc = getattr(np, function.removeprefix("np."), None)
        is_elementwise = isinstance(ufunc, np.ufunc) and ufunc.signature is None
        if not is_elementwise and function != "out.__ipow__":
            return False  # a reduction, or a product of matrices
        if number == 0:
            arguments = [each for each in arguments if not isinstance(each, ast.Name)]
        named = {
            each.id for part in arguments for each in ast.walk(part) if isinstance(each, ast.Name)
        }
        if names[place] in named:
            return False
    return True


BROADCASTS = ("broadcast_to", "sum_vjp")
BY_UFUNCS = ("matmul", "sum", "cross_entropy_vjp")  # others that compute their results by ufuncs


class Operands:
    """The operands of a graph's operators that may be overwritten, as far as the graph tells.

    Attributes:
        graph: the graph.
        contiguous: for each value, whether it is known to be C-contiguous.
        ordered: whether its strides do not increase along the axes, but for those of 0 where it is
            broadcast. Of such operands a ufunc makes a C-contiguous result.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.contiguous = [True] * len(graph.data)
        self.ordered = [True] * len(graph.data)
        self.known: dict[tuple[Any, ...], bool] = {}  # by kernel, operands, position, attributes
        self.kernels: dict[tuple[Any, ...], Callable[..., Any]] = {}  # by the same
        for operator in graph.operators:
            contiguous = self.makes_contiguous(operator)
            broadcast = operator.kind in BROADCASTS and self.ordered[operator.inputs[0]]
            for data in operator.outputs:
                self.contiguous[data] = contiguous
                self.ordered[data] = contiguous or broadcast

    def makes_contiguous(self, operator: Operator) -> bool:
        """Whether an operator's results are known to be C-contiguous."""
        if operator.primitive is None:
            return False
        if operator.primitive.contiguous is not None:
            return operator.primitive.contiguous
        if not is_own(operator.primitive.forward):
            return False
        if all(self.contiguous[data] for data in operator.inputs):
            return True
        return self.is_by_ufuncs(operator) and all(self.ordered[data] for data in operator.inputs)

    def is_by_ufuncs(self, operator: Operator) -> bool:
        """Whether an operator's result is allocated by a ufunc, in the order of its operands."""
        if operator.kind in BY_UFUNCS:
            return True
        # Others may take ``empty_like`` of an operand, which puts a broadcast axis last.
        return not takes_out(operator.primitive.forward) and self.allows(operator, 0)  # type: ignore[union-attr]

    def obstacle(self, operator: Operator, data: int) -> str:
        """Return why an operator cannot overwrite an operand, in words; empty if it can."""
        nodes = self.graph.data
        if data not in operator.inputs:
            return "it does not read that"
        if len(operator.outputs) > 1 or nodes[operator.outputs[0]].view_of is not None:
            return "its results are several, or a view"
        if nodes[data].spec != nodes[operator.outputs[0]].spec:
            return "shape or dtype of the result differ"
        if operator.primitive is None:
            return ""  # of a document: shapes are all that is known
        known = self.contiguous if takes_out(operator.primitive.forward) else self.ordered
        if not self.contiguous[data] or not all(known[each] for each in operator.inputs):
            return "an operand may not be C-contiguous, and the result's layout would differ"
        places = [place for place, each in enumerate(operator.inputs) if each == data]
        if operator.once or not all(self.allows(operator, place) for place in places):
            return f"the kernel of {operator.kind} does not write over it"
        return ""

    def allows(self, operator: Operator, place: int) -> bool:
        """Whether an operator's kernel may write over the operand at a position."""
        kernel = operator.primitive.forward  # type: ignore[union-attr]
        if not is_own(kernel):
            return False
        key = kernel_key(operator, place)
        if key not in self.known:
            self.known[key] = takes_out(kernel) or reads_before_it_writes(operator, place)
        return self.known[key]

    def kernel_over(self, operator: Operator, place: int) -> Callable[..., Any]:
        """Return the kernel ``(xp, *operands)`` that overwrites the operand at a position."""
        key = kernel_key(operator, place)
        if key not in self.kernels:
            self.kernels[key] = kernel_over(operator, place)
        return self.kernels[key]


def kernel_key(operator: Operator, place: int) -> tuple[Any, ...]:
    """Return what decides whether and how a kernel writes over an operand."""
    attrs = [(name, literal(value)) for name, value in operator.attrs.items()]
    return (operator.primitive.forward, len(operator.inputs), place, *attrs)  # type: ignore[union-attr]


def operands_of(scratch: dict[str, Any], graph: Graph) -> Operands:
    """Return the operands that may be overwritten, found once per run."""
    if "in place" not in scratch:
        scratch["in place"] = Operands(graph)
    found: Operands = scratch["in place"]
    return found


# --------------------------------------------------------------------------------------------------
# The pass.


def forward_in_place(schedule: Schedule) -> Schedule:
    """Compute operators in place where an operand of the result's shape and dtype dies.

    The peak is no higher, and cost and results are the same. A certificate is dropped: it is about
    schedules that compute nothing in place.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(16), "sqrt_n")
    >>> tc.replay(schedule).peak_bytes, tc.replay(forward_in_place(schedule)).peak_bytes
    (4608, 4096)

    Raises:
        ScheduleError: if the schedule is illegal.
    """
    graph, operands = schedule.graph, Operands(schedule.graph)
    machine = replay.ReplayState(schedule)
    results = frozenset(graph.outputs)
    shown = {node.id for node in graph.data if node.view_of is not None}  # arrays that are views
    copied: set[int | None] = set()  # allocations that a copy to the host may still be reading
    steps: list[Step] = []
    count = 0
    for position, step in enumerate(schedule.steps):
        chosen = step
        if type(step) is Compute:
            operator = graph.operators[step.operator]
            # Of an abstract operator it is unknown whether it is elementwise.
            freed = freed_after(schedule.steps, position) if operator.primitive else ()
            for data in freed:
                if operands.obstacle(operator, data) or not is_alone(machine, data):
                    continue
                if machine.block[data] in copied:
                    continue
                if data in shown:
                    if operator.outputs[0] in results:
                        continue  # the caller gets arrays that own their memory
                    shown.add(operator.outputs[0])
                chosen, count = InPlace(step.operator, data), count + 1
                break
        elif isinstance(step, Offload):
            copied.add(machine.block[step.data])
        machine.take(position, step)
        steps.append(chosen)
    machine.check_outputs()
    if not count:
        return schedule
    note = "; ".join(filter(None, [schedule.note, f"{counted(count, 'evaluation')} in place"]))
    return replace(schedule, steps=tuple(steps), note=note, certificate=None)


def is_alone(machine: replay.ReplayState, data: int) -> bool:
    """Whether a value is the only one in its allocation, and as large."""
    block = machine.block[data]
    if block is None or block < 0:
        return False  # not resident, or in the caller's memory
    nbytes = machine.graph.data[data].spec.nbytes
    return machine.holders[block] == 1 and machine.block_bytes[block] == nbytes


def freed_after(steps: Sequence[Step], position: int) -> list[int]:
    """Return the values that are freed right after a step."""
    freed = []
    for later in range(position + 1, len(steps)):
        step = steps[later]
        if not isinstance(step, Free):
            break
        freed.append(step.data)
    return freed


def computed_anew(schedule: Schedule) -> Schedule:
    """Return a schedule with all results in fresh memory: the reverse of ``forward_in_place``.

    For runs that check each evaluation, which are told of ``Compute`` steps.
    """
    steps = (compute(s.operator) if isinstance(s, InPlace) else s for s in schedule.steps)
    return replace(schedule, steps=tuple(steps))


# --------------------------------------------------------------------------------------------------
# The rules of replay and execution.


def replay_in_place(machine: replay.ReplayState, position: int, step: InPlace) -> int:
    """Evaluate an operator into the allocation of an operand, which is freed right after it."""
    graph, data = machine.graph, step.data
    operator = graph.operators[step.operator]
    obstacle = operands_of(machine.scratch, graph).obstacle(operator, data)
    if not obstacle and machine.block[data] is not None and not is_alone(machine, data):
        obstacle = "other values are in that memory"
    if not obstacle and data not in freed_after(machine.schedule.steps, position):
        obstacle = "that is not freed right after it"
    if obstacle:
        name = str(data)
        if 0 <= data < len(graph.data):
            name = machine.name(data)
        machine.fail(position, f"inplace {operator.name} cannot overwrite {name}: {obstacle}")
    workspace = machine.compute(position, step)
    # It was given an allocation, the last one: undone.
    (output,) = operator.outputs
    machine.holders.pop()
    machine.live[machine.block_kind.pop()] -= machine.block_bytes.pop()
    machine.nodes -= 1
    block = machine.block[data]
    assert block is not None  # it was computed from
    machine.hold(output, block)
    # The memory is counted as what it shows from now on.
    nbytes, kind = machine.block_bytes[block], machine.kind[output]
    machine.live[machine.block_kind[block]] -= nbytes
    machine.live[kind] += nbytes
    machine.block_kind[block] = kind
    return workspace


class Overwritten:
    """What stands for an overwritten value until it is freed: any use of it is an error."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __getattr__(self, name: str) -> NoReturn:
        raise ScheduleError(self.why)


def execute_in_place(
    memory: execute.Allocations, position: int, step: InPlace, bound: execute.DispatchTable
) -> None:
    """Evaluate an operator into the array of an operand."""
    graph, data = memory.graph, step.data
    operator = graph.operators[step.operator]
    arrays: list[Any] = [memory.values[each] for each in operator.inputs]
    if any(array is None for array in arrays):
        raise execute.missing_input(graph, position, step.operator, memory.values)
    operands = operands_of(memory.scratch, graph)
    obstacle, block = operands.obstacle(operator, data), memory.block[data]
    if memory.overwritten.intersection(operator.inputs):
        obstacle = "an operand was updated"
    elif not obstacle and (block == execute.OF_A_SOURCE or memory.holders[block] > 1):
        obstacle = "other values are in that memory"
    elif not obstacle and not arrays[operator.inputs.index(data)].flags.c_contiguous:
        obstacle = "it is not C-contiguous"
    (output,) = operator.outputs[:1]
    if not obstacle and (memory.values[output] is not None or output in memory.on_host):
        obstacle = "its result is still resident"
    if obstacle:
        raise ScheduleError(f"step {position}: {operator.name} cannot be in place: {obstacle}")
    memory.settle()
    array = memory.values[data]
    try:
        operands.kernel_over(operator, operator.inputs.index(data))(memory.backend.xp, *arrays)
    except Exception as error:
        raise execute.failure(graph, position, step.operator, error) from error
    memory.row[execute.EVALUATIONS] += 1
    memory.row[execute.WORKSPACE] = operator.workspace
    memory.row[execute.NODES] += 1
    memory.row[memory.charged[block]] -= memory.sizes[block]
    memory.charged[block] = memory.column[output]
    memory.row[memory.charged[block]] += memory.sizes[block]
    memory.holders[block] += 1
    memory.values[output], memory.block[output] = array, block
    name = graph.data[data].name
    memory.values[data] = Overwritten(f"{name} was overwritten at step {position}")


def kernel_over(operator: Operator, place: int) -> Callable[..., Any]:
    """Return the kernel ``(xp, *operands)`` that overwrites the operand at a position."""
    kernel = operator.primitive.forward  # type: ignore[union-attr]
    if takes_out(kernel):
        return lambda xp, *arrays: kernel(xp, *arrays, out=arrays[place], **operator.attrs)
    names = [f"x{position}" for position in range(len(operator.inputs))]
    lines = statements_over(operator, names, place)
    assert lines is not None  # ``obstacle`` has tried
    namespace: dict[str, Any] = {}
    exec("\n    ".join([f"def step(np, {', '.join(names)}):", *lines]), namespace)
    step: Callable[..., Any] = namespace["step"]
    return step


def install() -> None:
    """Fill the tables of the engine."""
    replay.STEP_RULES[InPlace] = replay_in_place
    execute.STEP_RULES[InPlace] = execute_in_place
