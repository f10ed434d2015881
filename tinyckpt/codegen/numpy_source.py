"""Code generation: a schedule as straight-line NumPy source, with a ``del`` for every free.

Kernels that are a single expression are inlined, with operands and attributes in place; others are
imported and called by name. The program reads like hand-written code, and runs without any
interpreter between one operator and the next. In: a legal schedule and a backend. Out: the program
and its source, for ``codegen.compiled``.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import accumulate
from typing import Any

from tinyckpt.base.errors import BackendError
from tinyckpt.base.tree import leaves_with_paths
from tinyckpt.codegen.in_place import InPlace, statements_over
from tinyckpt.core.backend import NUMPY, Backend
from tinyckpt.core.graph import Operator
from tinyckpt.core.schedule import EVALUATIONS, Evaluation, Fetch, Free, Schedule, recomputations
from tinyckpt.ops.kernel_inlining import Known, constant_line, inline_kernel, is_own, literal

LONGEST_NAME = 60  # characters of a user's label in an identifier or comment, for readability
RESERVED = {"np", "park", "fetch", *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}


def plain_program(
    schedule: Schedule, backend: Backend
) -> tuple[str, Callable[..., Any], tuple[Any, ...]]:
    """Return the source of a schedule's program, the function, and the constants it refers to.

    Raises:
        BackendError: if an operator is abstract.
    """
    writer = SourceWriter(schedule, backend)
    source = writer.source()
    namespace = dict(writer.namespace)
    namespace.update((name, backend.to_device(array)) for name, array in writer.arrays.items())
    filename = f"<{schedule.policy} of {schedule.graph.name}>"
    exec(builtins.compile(source, filename, "exec"), namespace)
    # Read back from the namespace: the program text itself defines scalar constants.
    constants = tuple([namespace[name] for name in writer.arrays])
    return source, namespace["step"], constants


def source_of(schedule: Schedule) -> tuple[str, tuple[int, ...]]:
    """Return the NumPy source of a legal schedule, and the line number of every step, from 0.

    Nothing is executed: this is for display next to the steps.

    Raises:
        BackendError: if an operator is abstract.

    >>> import tinyckpt as tc
    >>> source, lines = source_of(tc.plan(tc.networks.chain(2), "store_all"))
    >>> [source.splitlines()[line].strip() for line in lines[-3:]]
    ['b1 = tanh_vjp(np, f1, b2)', 'del f1, b2', 'del f1, b2']
    """
    source = SourceWriter(schedule, NUMPY).source()
    frees = [isinstance(step, Free) for step in schedule.steps]
    # Every step begins a line, except a free after another free; "return" is the last line.
    begins = [not (own and before) for own, before in zip(frees, [False, *frees], strict=False)]
    first = source.count("\n") - sum(begins)
    return source, tuple(first + count - 1 for count in accumulate(begins))


def kernel_of(operator: Operator) -> Callable[..., Any]:
    """Return an operator's kernel, ``kernel(xp, *operands, **attrs)``.

    A user's kernel of one output may return a tuple or list of it, which is unpacked, as
    ``execute`` does: NumPy would take it for an array with one axis more.
    """
    assert operator.primitive is not None  # checked at the start
    kernel = operator.primitive.forward
    return kernel if is_own(kernel) or len(operator.outputs) > 1 else partial(only_result, kernel)


def only_result(kernel: Callable[..., Any], *operands: Any, **attrs: Any) -> Any:
    """Call a kernel of one output; return it."""
    results = kernel(*operands, **attrs)
    if not isinstance(results, tuple | list):
        return results
    (result,) = results
    return result


class SourceWriter:
    """The emitter of one schedule's source; allocates a Python name for every value."""

    def __init__(self, schedule: Schedule, backend: Backend) -> None:
        self.schedule, self.graph, self.backend = schedule, schedule.graph, backend
        is_numpy = backend.xp is NUMPY.xp
        self.to_host, self.from_host = "np.array" if is_numpy else "np.asnumpy", "np.array"
        self.on_host: dict[int, str] = {}
        self.taken = set(RESERVED)
        self.imported: dict[str, set[str]] = {}  # by module
        self.namespace: dict[str, Any] = {}  # user-defined kernels, and types
        if is_numpy and backend.host is not None:
            host = backend.host()
            self.to_host, self.from_host = "park", "fetch"
            self.namespace |= {"park": host.park, "fetch": lambda it: host.fetch(it, [], ())}
        self.arrays: dict[str, Any] = {}  # constants
        self.written: Known = {}
        self.names: dict[int, str] = {}
        self.parameters: list[str] = []
        # Kernel names are reserved before any value can take them.
        for operator in self.graph.operators:
            if operator.primitive is None:
                raise BackendError(f"{operator.name} is abstract: it has no kernel to compile")
            if is_own(operator.primitive.forward):
                self.taken.add(operator.primitive.forward.__name__)

    def source(self) -> str:
        """Emit the whole program."""
        prologue = self.unpacking()
        for data, value in self.graph.constants.items():
            self.names[data] = name = self.identifier(f"c_{self.graph.data[data].name}")
            self.arrays[name] = value
        for node in self.graph.data:
            if node.producer is not None:
                self.names[node.id] = self.identifier((node.label or node.name)[:LONGEST_NAME])
        body = [*prologue, *self.steps(), f"return {self.results()}"]
        lines = [f"import {self.backend.name} as np"]
        for module, names in sorted(self.imported.items()):
            lines.append(f"from {module} import {', '.join(sorted(names))}")
        if any("'bfloat16'" in line for line in (*body, *map(str, self.arrays.values()))):
            lines.insert(1, "import ml_dtypes  # for bfloat16")
        lines.append("")
        lines.extend(constant_line(name, value) for name, value in self.arrays.items())
        lines.extend(["", f"def step({', '.join(self.parameters)}):"] if self.arrays else
                     [f"def step({', '.join(self.parameters)}):"])  # fmt: skip
        return "\n".join([*lines, *(f"    {line}" for line in body)])

    def identifier(self, text: str) -> str:
        """Return a valid, unused Python identifier that resembles the text."""
        stem = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "value"
        if stem[0].isdigit():
            stem = f"v_{stem}"
        name, count = stem, 1
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name

    def unpacking(self) -> list[str]:
        """Name the parameters; return the lines that unpack nested arguments."""
        lines = []
        for position, template in enumerate(self.graph.arguments):
            pairs = list(leaves_with_paths(template, ""))
            root = self.graph.data[pairs[0][1]].name if pairs else f"arg{position}"
            parameter = self.identifier(re.split(r"\W", root, maxsplit=1)[0])
            self.parameters.append(parameter)
            for path, data in pairs:
                if path:
                    self.names[data] = self.identifier(parameter + path)
                    lines.append(f"{self.names[data]} = {parameter}{path}")
                else:
                    self.names[data] = parameter
        return lines

    def steps(self) -> Iterable[str]:
        """Yield the line of every step; consecutive frees share one ``del``."""
        freed: list[str] = []
        scope, steps = "", self.schedule.steps
        # A recomputation has the same text as the first evaluation.
        written = cache(self.evaluated)
        for step, is_repeat in zip(steps, recomputations(steps), strict=True):
            if isinstance(step, Free):
                freed.append(self.names[step.data])
                continue
            if freed:
                yield f"del {', '.join(freed)}"
                freed = []
            if isinstance(step, EVALUATIONS):
                operator = self.graph.operators[step.operator]
                entered = one_line(operator.scope) if operator.scope != scope else ""
                comment = ", ".join(filter(None, [entered, "again" if is_repeat else ""]))
                yield written(step) + (f"  # {comment}" if comment else "")
                scope = operator.scope
            elif isinstance(step, Fetch):
                name, host = self.names[step.data], self.on_host[step.data]
                yield f"{name} = {self.from_host}({host}); del {host}"
            else:
                name = self.names[step.data]
                host = self.on_host.setdefault(step.data, self.identifier(f"host_{name}"))
                yield f"{host} = {self.to_host}({name}); del {name}"
        if freed:
            yield f"del {', '.join(freed)}"

    def evaluated(self, step: Evaluation) -> str:
        """Return the line of an evaluation."""
        operator = self.graph.operators[step.operator]
        if not isinstance(step, InPlace):
            return self.evaluation(operator)
        lines, result = self.in_place(step), self.names[operator.outputs[0]]
        # The last call returns what it has written to.
        return "; ".join([*lines[:-1], f"{result} = {lines[-1]}"])

    def in_place(self, step: InPlace) -> list[str]:
        """Return the statements that evaluate an operator into the array of an operand."""
        operator = self.graph.operators[step.operator]
        names = [self.names[data] for data in operator.inputs]
        lines = statements_over(operator, names, operator.inputs.index(step.data))
        if lines is None:  # a kernel that takes out=
            name, attrs = self.kernel_name(operator)
            options = ", ".join(["np", *names, *attrs, f"out={self.names[step.data]}"])
            lines = [f"{name}({options})"]
        return lines

    def evaluation(self, operator: Operator) -> str:
        """Return the assignment that evaluates an operator."""
        assert operator.primitive is not None  # checked at the start
        operands = [self.names[data] for data in operator.inputs]
        kernel = operator.primitive.forward
        expression = inline_kernel(kernel, operands, operator.attrs, self.written)
        if expression is None:
            name, attrs = self.kernel_name(operator)
            expression = f"{name}({', '.join(['np', *operands, *attrs])})"
        results = ", ".join(self.names[data] for data in operator.outputs)
        if self.graph.data[operator.outputs[0]].spec.shape == ():
            if len(operator.outputs) == 1:
                expression = f"np.asarray({expression})"
            else:
                expression = f"map(np.asarray, {expression})"
        return f"{results} = {expression}"

    def kernel_name(self, operator: Operator) -> tuple[str, list[str]]:
        """Return a kernel's name in the program, and its attributes as keyword arguments.

        tinyckpt's own kernels are imported. A user's kernel may be any callable with any
        attributes: it is bound to them here, as a partial, under a fresh name.
        """
        assert operator.primitive is not None  # checked at the start
        kernel = operator.primitive.forward
        if is_own(kernel):
            self.imported.setdefault(kernel.__module__, set()).add(kernel.__name__)
            return kernel.__name__, [f"{k}={literal(v)}" for k, v in operator.attrs.items()]
        name = self.identifier(f"kernel_{operator.name}")
        self.namespace[name] = partial(kernel_of(operator), **operator.attrs)
        return name, []

    def results(self) -> str:
        """Return the expression of (value, gradients)."""
        return f"{self.nesting(self.graph.results)}, {self.nesting(self.graph.gradients)}"

    def nesting(self, template: Any) -> str:
        """Return a template as an expression, with names in place of ids."""
        if isinstance(template, tuple) and hasattr(template, "_fields"):
            kind = self.identifier(type(template).__name__)
            self.namespace[kind] = type(template)
            return f"{kind}({', '.join(map(self.nesting, template))})"
        if isinstance(template, dict):
            pairs = (f"{key!r}: {self.nesting(value)}" for key, value in template.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(template, list):
            return f"[{', '.join(map(self.nesting, template))}]"
        if isinstance(template, tuple):
            items = ", ".join(map(self.nesting, template))
            return f"({items}{',' if len(template) == 1 else ''})"
        if template is None:
            return "None"
        return self.names[template]


def one_line(text: str) -> str:
    """Sanitise text for a comment: no line breaks, limited length."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"
