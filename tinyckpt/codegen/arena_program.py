"""Compilation of a schedule into one buffer: every value and every workspace at a static address.

The program has a view of the buffer for every evaluation, made once, and each line writes into its
place by ``out=``. The first call runs the schedule step by step, and notes what kernels allocate
and how values lie in memory (row-major or not), so that later calls give the same bits; it is done
again for arguments of other strides. On NumPy, lines are chosen for what a call costs: small
products by ``dot``, numbers as arrays. In: a legal schedule, its ``arena`` and a backend. Out: a
function, and its source.

Not done: kernels written by the user, and those whose temporaries depend on the data (gathers and
scatters with repeated indices), allocate as they please; their results are copied into place. Of
the three arrays of dropout's generator one does not fit into workspace and result beside the
others, and is allocated in every call.
"""

from __future__ import annotations

import ast
import builtins
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.base.lru_cache import ProgramCache
from tinyckpt.base.tree import leaves, leaves_with_paths, map_leaves
from tinyckpt.base.units import counted
from tinyckpt.codegen.arena import ALIGNMENT, allocations_of, packed
from tinyckpt.codegen.destinations import steps_into, written_into
from tinyckpt.codegen.in_place import InPlace, statements_over, takes_out
from tinyckpt.codegen.kernel_memory import (
    WORKSPACE,
    Layout,
    Place,
    Placed,
    PlacedKernel,
    Recorded,
    layout_of,
)
from tinyckpt.codegen.numpy_source import LONGEST_NAME, SourceWriter, kernel_of, one_line
from tinyckpt.core.backend import Backend
from tinyckpt.core.graph import Graph, Operator
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Free, Schedule
from tinyckpt.ops.kernel_inlining import constant_line, inline_kernel, is_own

Array = Any
ARITHMETIC = {"np.add", "np.subtract", "np.multiply", "np.divide"}
# BLAS has products of these, and NumPy computes with a Python number as with an array of it.
BLAS_DTYPES: tuple[np.dtype[Any], ...] = (np.dtype("float32"), np.dtype("float64"))
CACHE = 2**18  # bytes; of larger results, a pass more takes longer than NumPy's buffer
# Elements of each buffer in which NumPy repeats what it broadcasts. Its own choice is 8192: 64 KiB
# of float64 for every operand.
BUFFERED = 1024
MOST_LAYOUTS = 8  # sets of argument strides whose programs are kept
# Kernels whose temporaries depend on the data.
DATA_DEPENDENT = "tinyckpt.ops.kernels_indexing"


def result_storages(graph: Graph) -> frozenset[int]:
    """Return the results of a graph, and all values whose memory they are views of."""
    found: set[int] = set()
    for data in graph.outputs:
        found.add(data)  # a view that was fetched has memory of its own
        while (base := graph.data[data].view_of) is not None:
            data = base
            found.add(data)
    return frozenset(found)


def with_operands_in_place(schedule: Schedule, outside: frozenset[int]) -> frozenset[int]:
    """Return values with all that share memory with them since an operator is computed in place."""
    graph, found = schedule.graph, set(outside)
    pairs = [
        (step.data, graph.operators[step.operator].outputs[0])
        for step in schedule.steps
        if isinstance(step, InPlace)
    ]
    known = -1
    while known < len(found):
        known = len(found)
        for data, output in reversed(pairs):
            if found.intersection((data, output)):
                found |= {data, output}
                while (base := graph.data[data].view_of) is not None:
                    data = base
                    found.add(data)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the allocations of a schedule stand in a buffer.

    Attributes:
        nbytes: of the buffer.
        values: offset of each value, by (step that allocates it, data id).
        workspaces: offset of each evaluation's workspace, by step.
        outside: values that have memory of their own, since results share it.
        freed: the (start, stop) of what is freed, by step.
    """

    nbytes: int
    values: Mapping[tuple[int, int], int]
    workspaces: Mapping[int, int]
    outside: frozenset[int]
    freed: Mapping[int, list[tuple[int, int]]]


def addresses_of(schedule: Schedule, results: Literal["new", "reused"]) -> Addresses:
    """Plan the buffer of a program; results stand outside of it if they are new in every call."""
    outside = result_storages(schedule.graph) if results == "new" else frozenset()
    outside = with_operands_in_place(schedule, outside)
    placed = [
        each
        for each in allocations_of(schedule)
        if each.kind == "workspace" or each.storage not in outside
    ]
    plan = packed(schedule, tuple(placed))
    values, workspaces = {}, {}
    freed: dict[int, list[tuple[int, int]]] = {}
    for each, offset in zip(placed, plan.offsets, strict=True):
        # A value is freed by a step of its own, a workspace with the evaluation.
        last = each.stop if each.kind == "value" else each.start
        freed.setdefault(last, []).append((offset, offset + each.nbytes))
        if each.kind == "value":
            values[each.start, each.storage] = offset
        else:
            workspaces[each.start] = offset
    return Addresses(plan.nbytes, values, workspaces, outside, freed)


# --------------------------------------------------------------------------------------------------
# The source.


class ArenaWriter:
    """The emitter of a program with static addresses."""

    def __init__(
        self, schedule: Schedule, backend: Backend, addresses: Addresses, poison: bool
    ) -> None:
        self.base, self.poison = SourceWriter(schedule, backend), poison
        self.schedule, self.graph, self.addresses = schedule, schedule.graph, addresses
        self.names = self.base.names
        self.fixed: set[str] = set()  # names of views of the buffer
        self.views: list[str] = []
        self.body: list[str] = []
        self.known: dict[Any, list[str]] = {}  # names of views of one operator, by its base's name
        self.transposed: dict[str, str] = {}  # names of transposed views, by their expressions
        self.numbers: dict[tuple[Any, bytes], str] = {}  # names of numbers, by dtype and bytes

    def source(self) -> str:
        """Emit the whole program."""
        base, graph = self.base, self.graph
        self.base.taken |= {"at", "placed", "poison", "dot"}
        self.body += base.unpacking()
        for data, value in graph.constants.items():
            self.names[data] = name = base.identifier(f"c_{graph.data[data].name}")
            base.arrays[name] = value
        scope = ""
        for position, step in enumerate(self.schedule.steps):
            before = len(self.body)
            if isinstance(step, EVALUATIONS):
                operator = graph.operators[step.operator]
                if isinstance(step, InPlace):
                    self.in_place(position, step)
                else:
                    self.evaluation(position, operator)
                if operator.scope != scope and len(self.body) > before:
                    scope = operator.scope
                    self.body[before] += f"  # {one_line(scope)}" if scope else ""
            elif isinstance(step, Fetch):
                host = base.on_host[step.data]
                if self.bind_output(position, step.data, 0):
                    self.body.append(f"{self.names[step.data]}[...] = {base.from_host}({host})")
                else:
                    self.body.append(f"{self.names[step.data]} = {base.from_host}({host})")
                self.body.append(f"del {host}")
            elif not isinstance(step, Free):
                name = self.names[step.data]
                host = base.on_host.setdefault(step.data, base.identifier(f"host_{name}"))
                self.body.append(f"{host} = {base.to_host}({name})")
            if self.poison:
                for start, stop in self.addresses.freed.get(position, ()):
                    self.body.append(f"poison({start}, {stop})")
        self.body.append(f"return {base.results()}")
        lines = [f"import {base.backend.name} as np"]
        for module, names in sorted(base.imported.items()):
            lines.append(f"from {module} import {', '.join(sorted(names))}")
        if any("'bfloat16'" in line for line in (*self.body, *map(str, base.arrays.values()))):
            lines.insert(1, "import ml_dtypes  # for bfloat16")
        lines.append("")
        lines.extend(constant_line(name, value) for name, value in base.arrays.items())
        size = counted(self.addresses.nbytes, "byte")
        lines.append(f"# One buffer of {size}: at(offset, step) is a view of it.")
        if any("dot(" in line for line in self.body):
            lines.append(
                "# dot is np.dot where all is row-major and NumPy has a BLAS; else np.matmul."
            )
        lines += [*self.views, "", f"def step({', '.join(base.parameters)}):"]
        return "\n".join([*lines, *(f"    {line}" for line in self.body)])

    def bind_output(self, position: int, data: int, output: int) -> bool:
        """Name the view in which a value stands from this step on; False if it stands outside."""
        node = self.graph.data[data]
        name = self.base.identifier((node.label or node.name)[:LONGEST_NAME])
        self.names[data] = name
        if data in self.addresses.outside:
            return False
        offset = self.addresses.values[position, data]
        which = f", {output}" if output else ""
        self.views.append(f"{name} = at({offset}, {position}{which})  # {node.spec}")
        self.fixed.add(name)
        return True

    def in_place(self, position: int, step: InPlace) -> None:
        """Emit the lines that evaluate an operator into the array of an operand."""
        operator = self.graph.operators[step.operator]
        (output,), owner = operator.outputs, self.names[step.data]
        node = self.graph.data[output]
        name = self.base.identifier((node.label or node.name)[:LONGEST_NAME])
        operands = [self.names[data] for data in operator.inputs]
        lines = statements_over(operator, operands, operator.inputs.index(step.data))
        if lines is None:  # a kernel that takes out=, with its temporaries in the workspace
            kernel, attrs = self.base.kernel_name(operator)
            call = self.base.identifier(f"{kernel}_over_{owner}")
            self.views.append(f"{call} = placed({kernel}, {position})")
            lines = [f"{call}({', '.join([*operands, *attrs, f'out={owner}'])})"]
        self.body += lines
        if owner in self.fixed:
            self.views.append(f"{name} = {owner}  # {node.spec}")
            self.fixed.add(name)
        else:
            self.body.append(f"{name} = {owner}")
        self.names[output] = name

    def evaluation(self, position: int, operator: Operator) -> None:
        """Emit the lines of one evaluation."""
        primitive = operator.primitive
        assert primitive is not None  # checked by the SourceWriter
        operands = [self.names[data] for data in operator.inputs]
        if self.graph.data[operator.outputs[0]].view_of is not None:
            self.view(operator)
            return
        inside = [
            self.bind_output(position, data, output) for output, data in enumerate(operator.outputs)
        ]
        results = [self.names[data] for data in operator.outputs]
        inlined = inline_kernel(primitive.forward, operands, operator.attrs, self.base.written)
        if inlined is not None and len(results) == 1:
            if not inside[0]:
                call = f"np.matmul({', '.join(inlined.split(' @ '))})"
                if (product := self.as_dot(operator, call)) != call:
                    self.body.append(f"{results[0]} = {self.with_views(operator, product)}")
                else:
                    self.body.append(self.base.evaluation(operator))
                return
            if operator.kind == "unbroadcast":
                inlined = self.without_reshape(operator, inlined)
            if line := written_into(inlined, results[0], self.base.backend.xp):
                line = self.with_views(operator, self.as_dot(operator, line))
                self.body += self.tuned(operator, line)
                return
        if inside == [True]:
            lines = steps_into(primitive.forward, operands, operator.attrs, results[0])
            if lines is not None:
                self.body += [each for line in lines for each in self.tuned(operator, line)]
                return
        name, attrs = self.base.kernel_name(operator)
        call = self.base.identifier(f"{name}_into_{results[0]}")
        self.views.append(f"{call} = placed({name}, {position})")
        line = f"{call}({', '.join([*operands, *attrs])})"
        if not all(inside):
            targets = [each if not at else "_" for each, at in zip(results, inside, strict=True)]
            line = f"{', '.join(targets)} = {line}"
        self.body.append(line)

    def tuned(self, operator: Operator, line: str) -> list[str]:
        """Return lines that do the same in less time, on small arrays above all.

        NumPy makes an array of a Python number in every call; the program has it made once. And to
        add a broadcast operand takes NumPy's general iterator, with a buffer: instead it is written
        into the result's place first, unless that is larger than a cache.
        """
        (output,) = operator.outputs
        spec = self.graph.data[output].spec
        call = ast.parse(line, mode="eval").body
        assert isinstance(call, ast.Call)
        if (
            self.base.backend.xp is not np
            or ast.unparse(call.func) not in ARITHMETIC
            or spec.dtype not in BLAS_DTYPES
            or any(self.graph.data[data].spec.dtype != spec.dtype for data in operator.inputs)
        ):
            return [line]
        call.args = [self.constant(each, spec.dtype) for each in call.args]
        result, lines = self.names[output], []
        texts = [ast.unparse(each) for each in call.args]
        specs = {self.names[data]: self.graph.data[data].spec for data in operator.inputs}
        shapes = [specs[text].shape if text in specs else () for text in texts]
        if spec.nbytes <= CACHE and spec.shape in shapes and result not in texts:
            for place, shape in enumerate(shapes):
                if shape not in ((), spec.shape):
                    lines.append(f"{result}[...] = {texts[place]}")
                    call.args[place] = ast.Name(result)
        return [*lines, ast.unparse(call)]

    def as_dot(self, operator: Operator, line: str) -> str:
        """Return a small product of matrices as a call of ``dot``, whose call takes less time.

        As BLAS itself, it does not report overflows to ``np.errstate``.
        """
        nodes = [self.graph.data[data] for data in (*operator.inputs, *operator.outputs)]
        if (
            operator.kind == "matmul"
            and self.base.backend.xp is np
            and all(len(node.spec.shape) == 2 and min(node.spec.shape) > 1 for node in nodes)
            and nodes[-1].spec.dtype in BLAS_DTYPES
            and len({node.spec.dtype for node in nodes}) == 1
            and all(node.view_of is None for node in nodes)
            and nodes[-1].spec.nbytes <= CACHE
        ):
            return line.replace("np.matmul(", "dot(", 1)
        return line

    def constant(self, node: ast.expr, dtype: Any) -> ast.expr:
        """Return a number as the name of an array; any other operand as it is."""
        try:
            with np.errstate(over="ignore"):
                value = np.array(ast.literal_eval(node), dtype)
        except ValueError:
            return node
        if not np.isfinite(value):
            return node
        key = dtype, value.tobytes()
        if key not in self.numbers:
            name = self.base.identifier(f"c_{ast.unparse(node)}")
            self.numbers[key], self.base.arrays[name] = name, value
        return ast.Name(self.numbers[key])

    def with_views(self, operator: Operator, line: str) -> str:
        """Return a line with names for the transposed views of values in the buffer."""
        for data in operator.inputs:
            owner = self.names[data]
            text = f"{owner}.mT"
            pattern = rf"\b{re.escape(text)}\b"
            if owner in self.fixed and re.search(pattern, line):
                if text not in self.transposed:
                    self.transposed[text] = self.base.identifier(f"{owner}_mT")
                    self.views.append(f"{self.transposed[text]} = {text}")
                line = re.sub(pattern, self.transposed[text], line)
        return line

    def without_reshape(self, operator: Operator, expression: str) -> str:
        """Return the sum of a broadcast operand's cotangent without a reshape that does nothing."""
        (source,) = operator.inputs
        axes, shape = operator.attrs["axes"], operator.attrs["shape"]
        if len(self.graph.data[source].spec.shape) - len(axes) != len(shape):
            return expression
        return expression.rpartition(".reshape(")[0]

    def view(self, operator: Operator) -> None:
        """Emit the views that an operator returns: once, if they are views of the buffer."""
        base = self.graph.data[operator.outputs[0]].view_of
        assert base is not None
        owner = self.names[base]
        key = operator.id, owner
        if owner in self.fixed and key in self.known:
            self.names.update(zip(operator.outputs, self.known[key], strict=True))
            return
        for data in operator.outputs:
            node = self.graph.data[data]
            self.names[data] = self.base.identifier((node.label or node.name)[:LONGEST_NAME])
        line = self.base.evaluation(operator)
        if owner not in self.fixed:
            self.body.append(line)
            return
        self.known[key] = [self.names[data] for data in operator.outputs]
        self.fixed.update(self.known[key])
        self.views.append(line)


# --------------------------------------------------------------------------------------------------
# The program.


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the first call notes of one evaluation or fetch.

    Attributes:
        outputs: layouts of the results.
        numbers: for each result the number of the kernel's allocation that it is, or None.
        allocations: layouts of all arrays that the kernel allocates, in order.
        temporaries: where those stand that are no results, by number.
    """

    outputs: tuple[Layout, ...]
    numbers: tuple[int | None, ...] = ()
    allocations: tuple[Layout | None, ...] = ()
    temporaries: Mapping[int, Place] = field(default_factory=dict)


class Memory:
    """One thread's buffer, and the functions on it by the strides of their arguments."""

    def __init__(self) -> None:
        self.buffer: Array = None  # allocated by the first call
        self.steps = ProgramCache[Callable[..., Any]](MOST_LAYOUTS)


class ArenaProgram:
    """A schedule's program on one buffer.

    Attributes:
        source: its text.
        nbytes: of the buffer.
        results, threads: as in ``compile``.
        constants: the constant arrays that the program refers to.

    With ``poison`` the program overwrites every range with NaNs when it is freed: for tests.
    """

    def __init__(
        self,
        schedule: Schedule,
        backend: Backend,
        results: Literal["new", "reused"] = "new",
        threads: Literal["wait", "own"] = "wait",
        poison: bool = False,
    ) -> None:
        if results not in ("new", "reused"):
            raise OptionError(f"results={results!r}; expected 'new' or 'reused'")
        if threads not in ("wait", "own"):
            raise OptionError(f"threads={threads!r}; expected 'wait' or 'own'")
        self.schedule, self.backend = schedule, backend
        self.results: Literal["new", "reused"] = results
        self.threads: Literal["wait", "own"] = threads
        self.addresses = addresses_of(schedule, results)
        self.nbytes = self.addresses.nbytes
        self.writer = ArenaWriter(schedule, backend, self.addresses, poison)
        self.source = self.writer.source()
        arrays = self.writer.base.arrays
        self.arrays = {name: backend.to_device(array) for name, array in arrays.items()}
        self.constants = tuple(self.arrays.values())
        self.small_buffers = backend.xp is np and may_buffer_less(schedule.graph)
        self.strides = strides_of(self.writer.base.parameters, schedule.graph)
        self.lock: Any = threading.Lock() if threads == "wait" else nullcontext()
        self.memory = Memory()
        self.own = threading.local()

    def __call__(self, *arguments: Any) -> tuple[Any, Any]:
        with self.lock:
            memory = self.memory
            if self.threads == "own":
                memory = self.own.__dict__.setdefault("memory", Memory())
            key = self.strides(*arguments)
            if memory.buffer is None:
                memory.buffer = aligned_bytes(self.backend.xp, self.nbytes)
            first: list[tuple[Any, Any]] = []

            def made() -> Callable[..., Any]:
                result, noted = self.first_call(arguments, memory.buffer)
                first.append(result)
                return self.build(memory.buffer, noted, arguments)

            step = memory.steps.get(key, made)
            if first:
                return first[0]
            if not self.small_buffers:
                both: tuple[Any, Any] = step(*arguments)
                return both
            elements = np.setbufsize(BUFFERED)
            try:
                both = step(*arguments)
            finally:
                np.setbufsize(elements)
            return both

    def first_call(
        self, arguments: tuple[Any, ...], buffer: Array
    ) -> tuple[tuple[Any, Any], dict[int, Evaluation]]:
        """Run the schedule operator by operator; note what each evaluation allocates.

        Kernels allocate as ever; what they return is moved into its place at once, so that this
        call, too, needs no more than the buffer and one operator's arrays.
        """
        graph, writer, xp = self.schedule.graph, self.writer.base, self.backend.xp
        values = dict(zip(leaves(graph.arguments), leaves(arguments), strict=True))
        values.update((data, self.arrays[writer.names[data]]) for data in graph.constants)
        on_host: dict[int, Any] = {}
        park = writer.namespace.get("park", self.backend.to_host)
        fetch = writer.namespace.get("fetch", self.backend.to_device)
        noted: dict[int, Evaluation] = {}
        record = Recorded(xp)

        def moved(position: int, data: int, output: int, array: Array) -> Array:
            offset = self.addresses.values.get((position, data))
            if offset is None:  # a view, or outside
                return array
            place = noted[position].outputs[output].view(buffer[offset:])
            place[...] = array
            return place

        for position, step in enumerate(self.schedule.steps):
            if isinstance(step, Free):
                del values[step.data]
            elif isinstance(step, EVALUATIONS):
                operator = graph.operators[step.operator]
                kernel = kernel_of(operator)
                record.begin()
                over = values[step.data] if isinstance(step, InPlace) else None
                results = kernel(
                    record.library if is_placed(kernel) else xp,
                    *[values[data] for data in operator.inputs],
                    **operator.attrs,
                    **({"out": over} if over is not None and takes_out(kernel) else {}),
                )
                outputs = results if len(operator.outputs) > 1 else (results,)
                outputs = tuple([xp.asarray(output) for output in outputs])
                noted[position] = evaluation_of(record, outputs, operator.workspace)
                for output, data in enumerate(operator.outputs):
                    values[data] = moved(position, data, output, outputs[output])
                    if over is not None and outputs[output] is not over:
                        over[...] = outputs[output]
                        values[data] = over
                del results, outputs, over
            elif isinstance(step, Fetch):
                array = fetch(on_host.pop(step.data))
                noted[position] = Evaluation((layout_or_rows(array),))
                values[step.data] = moved(position, step.data, 0, array)
            else:
                on_host[step.data] = park(values.pop(step.data))
        result, gradients = (
            map_leaves(lambda data: values[data], tree) for tree in (graph.results, graph.gradients)
        )
        return (result, gradients), noted

    def build(
        self, buffer: Array, noted: Mapping[int, Evaluation], arguments: tuple[Any, ...]
    ) -> Callable[..., Any]:
        """Make the views of the buffer, and the function that runs on them."""
        xp, addresses = self.backend.xp, self.addresses

        def at(offset: int, position: int, output: int = 0) -> Array:
            return noted[position].outputs[output].view(buffer[offset:])

        def placed(kernel: Callable[..., Any], position: int) -> PlacedKernel:
            step, evaluation = self.schedule.steps[position], noted[position]
            operator = self.schedule.graph.operators[step.operator]  # type: ignore[union-attr]
            offsets = [addresses.values.get((position, data)) for data in operator.outputs]
            places: list[Array | None] = [None] * len(evaluation.allocations)
            copied = [
                None if offset is None else at(offset, position, output)
                for output, offset in enumerate(offsets)
            ]
            for output, (number, offset) in enumerate(
                zip(evaluation.numbers, offsets, strict=True)
            ):
                layout = None if number is None else evaluation.allocations[number]
                if layout is not None and offset is not None:
                    places[number] = layout.view(buffer[offset:])  # type: ignore[index]
                    copied[output] = None
            regions = {WORKSPACE: addresses.workspaces.get(position), **dict(enumerate(offsets))}
            for number, (region, offset) in evaluation.temporaries.items():
                layout, begin = evaluation.allocations[number], regions[region]
                if layout is not None and begin is not None:
                    places[number] = layout.view(buffer[begin + offset :])
            allocated = Placed(xp, places) if places else None
            return PlacedKernel(kernel, xp, allocated, tuple(copied))

        def poison(start: int, stop: int) -> None:
            buffer[start:stop] = 255  # a NaN in every floating-point type

        namespace = {**self.writer.base.namespace, **self.arrays}
        in_rows = all(array.flags.c_contiguous for array in leaves(arguments)) and all(
            layout.axes == tuple(range(len(layout.shape)))
            for evaluation in noted.values()
            for layout in evaluation.outputs
        )
        dot = self.backend.xp.dot if in_rows and dot_is_matmul() else self.backend.xp.matmul
        namespace.update({"at": at, "placed": placed, "poison": poison, "dot": dot})
        filename = f"<{self.schedule.policy} of {self.schedule.graph.name}, in one buffer>"
        exec(builtins.compile(self.source, filename, "exec"), namespace)
        step: Callable[..., Any] = namespace["step"]
        return step


def strides_of(parameters: Sequence[str], graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """Return a function from arguments to the strides of all arrays in them.

    Generated, since a walk over a tree takes longer: a tenth of a step of 200 layers of 8x8.
    """
    arrays = [
        path
        for parameter, template in zip(parameters, graph.arguments, strict=True)
        for path, _ in leaves_with_paths(template, parameter)
    ]
    strides = "".join([f"{path}.strides, " for path in arrays])
    function: Callable[..., tuple[Any, ...]] = eval(f"lambda {', '.join(parameters)}: ({strides})")
    return function


def may_buffer_less(graph: Graph) -> bool:
    """Whether results have the same bits whatever the size of NumPy's buffers.

    A sum that casts its operand, as of float16 in float32, adds buffer by buffer. Where all
    floating-point values have one dtype of 32 bits or more, tinyckpt's kernels cast no such value
    that they sum up; ``max_vjp`` counts in whole numbers, which are exact below 2**24.
    """
    dtypes = {node.spec.dtype for node in graph.data}
    inexact = {dtype for dtype in dtypes if dtype.kind not in "biu"}
    return (
        len(inexact) == 1
        and inexact.issubset(BLAS_DTYPES)
        and all(is_own(operator.primitive.forward) for operator in graph.operators)  # type: ignore[union-attr]
    )


@cache
def dot_is_matmul() -> bool:
    """Whether NumPy has a BLAS, which computes ``dot`` and ``matmul`` by the same routine."""
    square = np.sin(np.arange(31.0 * 31)).reshape(31, 31)
    squares = [square.astype(dtype) for dtype in BLAS_DTYPES]
    return all(np.dot(a, a).tobytes() == (a @ a).tobytes() for a in squares)


def is_placed(kernel: Callable[..., Any]) -> bool:
    """Whether a kernel allocates the same arrays whenever its operands have the same shapes."""
    return is_own(kernel) and kernel.__module__ != DATA_DEPENDENT


def layout_or_rows(array: Array) -> Layout:
    """Return an array's layout; row-major if it does not cover its memory once."""
    return layout_of(array) or Layout(array.shape, array.dtype, tuple(range(array.ndim)))


def evaluation_of(record: Recorded, outputs: tuple[Array, ...], workspace: int) -> Evaluation:
    """Return what a recorded evaluation allocated."""
    # A view that does not cover its memory in some order of its axes, such as a reversed one, is
    # copied.
    numbers = tuple([record.number_of(array) if layout_of(array) else None for array in outputs])
    layouts = tuple([layout_or_rows(array) for array in outputs])
    temporaries = record.temporaries(numbers, workspace)
    return Evaluation(layouts, numbers, tuple(record.layouts), temporaries)


def aligned_bytes(xp: Any, nbytes: int) -> Array:
    """Return a buffer of bytes that begins at a multiple of the alignment."""
    if xp is not np:  # CuPy aligns what it allocates to 512 bytes
        return xp.empty(nbytes, "uint8")
    buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    skipped = -buffer.ctypes.data % ALIGNMENT
    return buffer[skipped : skipped + nbytes]
