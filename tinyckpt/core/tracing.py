"""Tracing: from a Python function to a graph, by one call on abstract values (define-then-run).

``build`` passes the function one ``Var`` for every array among its arguments. A Var has a shape
and a dtype but no numbers; arithmetic on it adds operators to the graph under construction.
Nothing is evaluated here: what is evaluated, when and how often is decided by the schedule.

Sections: ``build``; the ``Builder`` (the mutable graph under construction); ``apply``; ``Var`` (the
tracer object); marks (``scope``, ``name``); dead code elimination.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyckpt.base.calls import Call, bind_arguments, function_name, split_call
from tinyckpt.base.errors import GraphError, expect
from tinyckpt.base.spec import Spec, spec_of, unmasked, weak_float
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.base.tree import Template, check_depth, leaves, leaves_with_paths, map_leaves
from tinyckpt.core.graph import DataNode, Graph, Operator, Phase, Role
from tinyckpt.core.primitive import ARITHMETIC, RULE_ERRORS, Primitive

__all__ = ["Builder", "Var", "build", "name", "scope"]


@short_traceback
def build(
    function: Callable[..., Any],
    *args: Any,
    graph_name: str | None = None,
    static: str | Collection[str] = (),
    **named: Any,
) -> Graph:
    """Trace a function into its forward graph, by calling it once with shapes.

    Args:
        function: ordinary Python over the operators of tinyckpt; returns a Var, or Vars nested in
            dicts, lists and tuples.
        args: its arguments: arrays, numbers or ``Spec(shape, dtype)``, nested in dicts, lists and
            tuples. Only shapes and dtypes are used.
        graph_name: the graph's title in pictures; the function's name if not given.
        static: names of arguments that are not arrays, such as ``("train",)``: the function gets
            their values as they are, and the graph is specialised to them: they are not among its
            arguments.
        named: keyword arguments. The graph's arguments are all positional, in the order of the
            function's parameters.

    Raises:
        GraphError: if the function does with a Var what needs numbers, if shapes or dtypes do not
            match, if it returns anything but Vars, or if an argument cannot be static.

    >>> import tinyckpt as tc
    >>> print(tc.build(lambda x: tc.tanh(x) * 2.0, tc.Spec((3,)), graph_name="double"))
    double: 2 operators, 4 data nodes
      tanh_1 = tanh(x)   float64[3]
      multiply_1 = multiply(tanh_1, 2.0)   float64[3]
    """
    return trace(split_call(function, args, named, static), graph_name)


def trace(call: Call, graph_name: str | None = None) -> Graph:
    """Trace one call of a function into its forward graph."""
    bind_arguments(call.function, call.args, call.named)  # raises if they do not match
    name = checked_text("graph_name", graph_name or function_name(call.function))
    builder = Builder(name)
    for path, argument in zip(call.names, call.arguments, strict=True):
        check_depth(path, argument)
    weak = weak_float(call.arguments)
    variables = [
        named_sources(builder, path, argument, weak)
        for path, argument in zip(call.names, call.arguments, strict=True)
    ]
    with builder.active():
        result = call.again(variables)
        check_depth(f"what {builder.graph_name} returned", result)
        result = map_leaves(lambda leaf: returned_var(builder, leaf), result)
        result = ARITHMETIC["unalias"](result)
    arguments = tuple(map_leaves(lambda variable: variable.node.id, tree) for tree in variables)
    results = map_leaves(lambda variable: variable.node.id, result)
    if not leaves(results):
        raise GraphError(f"{builder.graph_name} returned nothing; return the Var to be computed")
    return builder.seal(arguments, results)


def named_sources(builder: Builder, name: str, argument: Any, weak: Any) -> Any:
    """Replace every array of an argument by a new source, named by its path."""
    pairs = list(leaves_with_paths(argument, name))
    for path, leaf in pairs:
        if isinstance(leaf, Var):
            raise GraphError(f"{path}: a Var of another build; pass an array or a tc.Spec")
    created = (builder.add_source(path, spec_of(path, leaf, weak), "input") for path, leaf in pairs)
    return map_leaves(lambda leaf: next(created), argument)


def returned_var(builder: Builder, leaf: Any) -> Var:
    """Convert a leaf of the function's result to a Var; a plain number becomes a constant."""
    if isinstance(leaf, Var | bool | int | float | np.ndarray | np.generic):
        return builder.as_var(leaf)
    raise GraphError(
        f"{builder.graph_name} returned a {type(leaf).__name__}; return Vars, nested in dicts, "
        "lists and tuples"
    )


# ------------------------------------------------------------------------------------------------
# The builder: the graph under construction, the only mutable state of tracing.

# The builder of the graph under construction, or None outside of a trace.
ACTIVE_BUILDER: ContextVar[Builder | None] = ContextVar("ACTIVE_BUILDER", default=None)


@dataclass(frozen=True, slots=True)
class TracingContext:
    """The tracing context: attributes that the builder gives to every operator it adds.

    Attributes:
        phase: forward or backward pass.
        adjoint_of: the forward operator whose adjoint is being added, or None.
        name: the operators' name; after their primitive, if not given.
        scope, regions: as in ``Operator``.
    """

    phase: Phase = "forward"
    adjoint_of: int | None = None
    name: str | None = None
    scope: str = ""
    regions: tuple[int, ...] = ()


class ContextSwitch:
    """Context manager that switches the builder's tracing context, and restores it on exit."""

    __slots__ = ("builder", "inside", "outside")

    def __init__(self, builder: Builder, inside: TracingContext) -> None:
        self.builder, self.inside = builder, inside

    def __enter__(self) -> None:
        self.outside, self.builder.here = self.builder.here, self.inside

    def __exit__(self, *raised: object) -> None:
        self.builder.here = self.outside


class Builder:
    """The graph under construction; ``build`` and ``differentiate`` fill it, ``seal`` ends it.

    Operators are appended one by one. Their phase, adjoint, name and scope are set by the context
    managers ``backward_half``, ``adjoint``, ``named`` and ``scoped`` around calls that add them.

    Args:
        graph_name: the graph's title in pictures and tables.
        adjoint_name: maps the name of a forward operator to that of its adjoint.
    """

    def __init__(
        self, graph_name: str, adjoint_name: Callable[[str], str] = "{}_vjp".format
    ) -> None:
        self.graph_name = graph_name
        self.adjoint_name = adjoint_name
        self.data: list[DataNode] = []
        self.operators: list[Operator] = []
        self.constants: dict[int, Any] = {}
        self.scratch: dict[str, Any] = {}  # what operator families remember during one build
        self.here = TracingContext()
        self._numbers: dict[tuple[str, str], Var] = {}
        self._captured: list[tuple[Any, Var]] = []
        self._used: dict[str, int] = {}
        # Of a nested derivative (``training.transformations``): sources that stand in for its
        # arguments, and what replaces them.
        self.stand_ins: dict[int, int] = {}
        self.replaced: dict[int, int] = {}

    # Data nodes ----------------------------------------------------------------------------------

    def add_source(self, name: str, spec: Spec, role: Role) -> Var:
        """Add a data node that the caller supplies."""
        return self.add_data(self.unique(name), spec, role)

    def add_constant(self, value: Any) -> Var:
        """Add a constant source; an equal number, or the same array, is not added again."""
        # A copy: the graph must not change when the caller's array does.
        array = np.array(unmasked(value), order="C")
        spec = Spec(array.shape, array.dtype)
        if array.ndim == 0:
            known = self._numbers.get(number_key(array))
        else:
            known = next((constant for seen, constant in self._captured if seen is value), None)
        if known is not None:
            return known
        name = repr(array.item()) if array.ndim == 0 else f"constant_{len(self._captured) + 1}"
        variable = self.add_source(name, spec, "constant")
        self.constants[variable.node.id] = array
        if array.ndim == 0:
            self._numbers[number_key(array)] = variable
        else:
            self._captured.append((value, variable))
        return variable

    def add_data(
        self,
        name: str,
        spec: Spec,
        role: Role,
        producer: int | None = None,
        view_of: int | None = None,
    ) -> Var:
        nbytes = spec.nbytes if view_of is None else 0
        node = DataNode(len(self.data), name, spec, role, nbytes, producer, view_of)
        self.data.append(node)
        return Var(node, self)

    def as_var(self, operand: Any, weak: Any = None) -> Var:
        """Convert an operand to a Var of this build; arrays and numbers become constants.

        A Python number (not a NumPy scalar) is weakly typed: it takes the dtype ``weak`` of the
        arrays that it is combined with.
        """
        if isinstance(operand, Var):
            if operand.builder is not self:
                raise GraphError(
                    f"{operand!r} belongs to another build; pass values between functions as "
                    "arguments, not through variables outside of them"
                )
            return self.resolved(operand.node.id) if self.replaced else operand
        if operand is None or isinstance(operand, str | dict | list | tuple):
            raise GraphError(f"an operand is a {type(operand).__name__}: use np.array or tc.stack")
        try:
            if weak is not None and type(operand) in (bool, int, float):
                return self.add_constant(np.asarray(operand, np.result_type(weak, operand)))
            return self.add_constant(operand)
        except OverflowError as error:
            raise GraphError(f"the number {operand} does not fit {weak or 'int64'}") from error

    def var(self, data: int) -> Var:
        """Return a value of this build by its data id."""
        return Var(self.data[data], self)

    def resolved(self, data: int) -> Var:
        """Return a value by its id; for a stand-in, the value that it represented."""
        while data in self.replaced:
            data = self.replaced[data]
        return self.var(data)

    # Operators -----------------------------------------------------------------------------------

    def add_operator(
        self, primitive: Primitive, operands: Sequence[Any], attrs: Mapping[str, Any]
    ) -> tuple[Var, ...]:
        """Add one application of a primitive: infer its outputs, and return them."""
        try:
            weak = weak_dtype(operands)
            inputs = [self.as_var(operand, weak) for operand in operands]
            specs = tuple([variable.node.spec for variable in inputs])
            output_specs = primitive.output_specs(specs, attrs)
            flops = primitive.flops(specs, output_specs, **attrs)
            workspace = primitive.workspace(specs, output_specs, **attrs)
        except RULE_ERRORS as error:
            where = f" in scope {self.here.scope}" if self.here.scope else ""
            raise GraphError(f"{primitive.name}{where}: {error}") from error.__cause__
        here = self.here
        name = self.unique(here.name or primitive.name, numbered=here.name is None)
        ids = tuple([variable.node.id for variable in inputs])
        operator_id = len(self.operators)
        role: Role = "activation" if here.phase == "forward" else "cotangent"
        view_of = None if primitive.alias is None else ids[primitive.alias]
        outputs = []
        for position, spec in enumerate(output_specs):
            output_name = name if len(output_specs) == 1 else f"{name}.{position}"
            outputs.append(self.add_data(output_name, spec, role, operator_id, view_of))
        self.operators.append(
            Operator(
                operator_id, name, primitive.name, ids,
                tuple([variable.node.id for variable in outputs]), here.phase, here.adjoint_of,
                here.scope, flops, workspace, primitive, attrs, here.regions,
            )
        )  # fmt: skip
        return tuple(outputs)

    def unique(self, name: str, numbered: bool = False) -> str:
        """Return the name, with the next free number appended if it is taken or ``numbered``."""
        count = self._used.get(name, 0)
        self._used[name] = count + 1
        if not numbered and count == 0:
            return name
        numbered_name = f"{name}_{count + 1}"
        return self.unique(numbered_name)

    def relabel(self, variable: Var, label: str) -> Var:
        """Give a value the label by which policies can select it."""
        node = replace(self.data[variable.node.id], label=label)
        self.data[node.id] = node
        return Var(node, self)

    # Tracing context: phase, adjoint, name, scope, region ----------------------------------------

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the active builder: operators called inside are added to this graph."""
        token = ACTIVE_BUILDER.set(self)
        try:
            yield
        finally:
            ACTIVE_BUILDER.reset(token)

    def named(self, name: str) -> ContextSwitch:
        """Name the operators added inside, with a number appended where the name is taken."""
        here = self.here
        return ContextSwitch(
            self, TracingContext(here.phase, here.adjoint_of, name, here.scope, here.regions)
        )

    def scoped(self, name: str) -> ContextSwitch:
        """Put the operators added inside into a scope, nested in the current one."""
        scope = f"{self.here.scope}/{name}" if self.here.scope else name
        return ContextSwitch(self, replace(self.here, scope=scope))

    def backward_half(self) -> ContextSwitch:
        """Put the operators added inside into the backward pass.

        Derivatives that the traced function itself takes, with ``gradients``, are not part of it:
        they belong to the computation, and so to the forward pass.
        """
        return ContextSwitch(self, replace(self.here, phase="backward"))

    def adjoint(self, operator: Operator) -> ContextSwitch:
        """Make the operators added inside part of an operator's adjoint, in its scope."""
        here, name = self.here, self.adjoint_name(operator.name)
        return ContextSwitch(
            self, TracingContext(here.phase, operator.id, name, operator.scope, here.regions)
        )

    # From and to an immutable graph --------------------------------------------------------------

    @classmethod
    def reopen(cls, graph: Graph) -> Builder:
        """Create a builder that continues a sealed graph."""
        builder = cls(graph.name)
        builder.data = list(graph.data)
        builder.operators = list(graph.operators)
        builder.constants = dict(graph.constants)
        for data, value in graph.constants.items():
            if value.ndim == 0:
                builder._numbers[number_key(value)] = Var(graph.data[data], builder)
        for operator in graph.operators:
            if operator.primitive is None:
                raise GraphError(
                    f"{operator.name} is abstract: it has no kernel and no derivative; build the "
                    "graph from a function to differentiate it"
                )
            stem = f"{operator.kind}_"
            builder._used[operator.name] = 1
            number = operator.name.removeprefix(stem)
            if number.isdigit():
                builder._used[operator.kind] = max(builder._used.get(operator.kind, 0), int(number))
        for node in graph.data:
            builder._used.setdefault(node.name, 1)
        return builder

    def seal(self, arguments: Template, results: Template, gradients: Template = None) -> Graph:
        """Return the finished graph, after dead code elimination."""
        graph = Graph(
            self.graph_name,
            tuple(self.data),
            tuple(self.operators),
            arguments,
            results,
            gradients,
            self.constants,
        )
        return eliminate_dead_code(graph)


def weak_dtype(operands: Sequence[Any]) -> Any:
    """Return the dtype that Python numbers among the operands take: that of the arrays, or None.

    Floating arrays decide where there are any: the condition of a ``where`` does not count.
    """
    arrays = (Var, np.ndarray, np.generic)
    dtypes = [operand.dtype for operand in operands if isinstance(operand, arrays)]
    if len(dtypes) == len(operands) or not dtypes:
        return None
    floats = [dtype for dtype in dtypes if dtype.kind == "f"]
    return np.result_type(*(floats or dtypes))


def number_key(array: Any) -> tuple[str, str]:
    """Return a key under which constants are shared: dtype and every digit, the sign of 0 too."""
    return array.dtype.name, repr(array.item())


# ------------------------------------------------------------------------------------------------
# Applying a primitive: adding an operator to the graph under construction.


def active_builder(what: str) -> Builder:
    """Return the builder of the function being traced, or raise a GraphError outside of a trace."""
    builder = ACTIVE_BUILDER.get()
    if builder is None:
        raise GraphError(f"{what} was called outside of a function that tc.build or tc.grad traces")
    return builder


def as_var(operand: Any) -> Var:
    """Convert an operand to a Var of the function being traced; arrays become constants."""
    return active_builder("an operator").as_var(operand)


def apply_all(primitive: Primitive, *operands: Any, **attrs: Any) -> tuple[Var, ...]:
    """Add one operator to the graph being traced, and return all its outputs.

    >>> import numpy as np, tinyckpt as tc
    >>> swap = tc.Primitive("swap", lambda xp, x, y: (y + 0, x + 0), lambda x, y: (y, x))
    >>> [float(value) for value in tc.jit(lambda x, y: tc.apply_all(swap, x, y))(1.0, 2.0)]
    [2.0, 1.0]
    """
    builder = active_builder(expect(primitive, Primitive).name)
    return builder.add_operator(primitive, operands, attrs)


def apply(primitive: Primitive, *operands: Any, **attrs: Any) -> Var:
    """Add one operator to the graph being traced, and return its only output.

    >>> import tinyckpt as tc
    >>> square = tc.Primitive("my_square", lambda xp, x: x * x, lambda x: (x,))
    >>> float(tc.jit(lambda x: tc.apply(square, x))(3.0))
    9.0
    """
    outputs = apply_all(primitive, *operands, **attrs)
    if len(outputs) > 1:
        raise GraphError(f"{primitive.name} has {len(outputs)} outputs: use tc.apply_all")
    return outputs[0]


# ------------------------------------------------------------------------------------------------
# Var, the abstract value (tracer) that a traced function computes with: shape and dtype, no data.
#
# Arithmetic on a Var, and NumPy functions of it, add operators to the graph under construction;
# these methods are installed by ``ops.methods``, since each is an operator.
# Whatever would need numbers (``if``, ``float``, iteration, in-place writes) raises a GraphError
# that names the alternative, by methods from there too.


if TYPE_CHECKING:

    def installed(self: Any, other: Any) -> Var:
        """Stand for a method that ``ops.methods`` installs, to type checkers."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var:
    """An abstract value (tracer): shape and dtype of a value being traced, without numbers.

    >>> import tinyckpt as tc
    >>> def function(x):
    ...     print(x, x.shape, tc.tanh(x).dtype)
    ...     return x.sum()
    >>> graph = tc.build(function, tc.Spec((2, 3), "float32"))
    Var(x: float32[2,3]) (2, 3) float32
    """

    node: DataNode
    builder: Builder

    @property
    def spec(self) -> Spec:
        """Shape and dtype."""
        return self.node.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of every axis."""
        return self.node.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype."""
        return self.node.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.node.spec.shape)

    def __repr__(self) -> str:
        return f"Var({self.node})"

    def __len__(self) -> int:
        if not self.shape:
            raise GraphError(f"{self!r} is a scalar, which has no length")
        return self.shape[0]

    if TYPE_CHECKING:
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = installed
        __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = installed
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = installed
        __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = installed
        __pow__ = __rpow__ = __matmul__ = __rmatmul__ = installed
        __gt__ = __ge__ = __lt__ = __le__ = installed
        __eq__ = __ne__ = installed  # type: ignore[assignment]  # elementwise, as in NumPy

        def __neg__(self) -> Var: ...
        def __pos__(self) -> Var: ...
        def __abs__(self) -> Var: ...
        def __invert__(self) -> Var: ...
        def __getitem__(self, key: Any) -> Var: ...
        def __getattr__(self, name: str) -> Any: ...

    __hash__ = None  # type: ignore[assignment]  # == is elementwise


# ------------------------------------------------------------------------------------------------
# Marks: annotations of operators and values, for pictures and for policies.
#
# They do not change the computation. Outside of a trace they do nothing: the function runs on
# arrays as it is.


def scope(name: str) -> AbstractContextManager[None]:
    """Group the operators built inside, as in ``with tc.scope("layer3"):``; scopes nest.

    Outside of a trace it does nothing, as ``name``.

    >>> import tinyckpt as tc
    >>> def model(x):
    ...     with tc.scope("layer1"), tc.scope("mlp"):
    ...         return tc.tanh(x)
    >>> tc.build(model, tc.Spec(3)).operators[0].scope
    'layer1/mlp'
    """
    checked, builder = checked_text("scope", name), ACTIVE_BUILDER.get()
    return nullcontext() if builder is None else builder.scoped(checked)


def name(x: Var, label: str) -> Var:
    """Label a value, so that policies can select it, as JAX's ``checkpoint_name`` does.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.name(tc.tanh(x), "hidden"), tc.Spec((3,)))
    >>> graph.data[1].label
    'hidden'
    """
    checked, builder = checked_text("name", label), ACTIVE_BUILDER.get()
    return x if builder is None else builder.relabel(builder.as_var(x), checked)


def checked_text(what: str, text: str) -> str:
    """Return a user's name or label, or raise a GraphError if it is not a string."""
    if not isinstance(text, str):
        raise GraphError(f"{what}: expected a string, got a {type(text).__name__}")
    return text


# ------------------------------------------------------------------------------------------------
# Dead code elimination: dropping what a traced function computed and did not return.


def eliminate_dead_code(graph: Graph) -> Graph:
    """Eliminate dead code: drop the operators that no result depends on.

    Arguments stay, used or not: they are the call's signature. Returns the graph itself if all
    operators are live.
    """
    live = bytearray(len(graph.data))
    for data in (*graph.outputs, *leaves(graph.arguments)):
        live[data] = 1
    kept = bytearray(len(graph.operators))
    for operator in reversed(graph.operators):
        if any(live[output] for output in operator.outputs):
            kept[operator.id] = 1
            for data in (*operator.inputs, *operator.outputs):
                live[data] = 1
    if all(live) and all(kept):
        return graph
    data_ids, operator_ids = compact_ids(live), compact_ids(kept)
    return replace(
        graph,
        data=tuple(
            renumbered_data(node, data_ids, operator_ids) for node in graph.data if live[node.id]
        ),
        operators=tuple(
            renumbered_operator(operator, data_ids, operator_ids)
            for operator in graph.operators
            if kept[operator.id]
        ),
        arguments=map_leaves(data_ids.__getitem__, graph.arguments),
        results=map_leaves(data_ids.__getitem__, graph.results),
        gradients=map_leaves(data_ids.__getitem__, graph.gradients),
        constants={data_ids[i]: value for i, value in graph.constants.items() if live[i]},
    )


def compact_ids(kept: bytearray) -> dict[Any, Any]:
    """Map the positions that are kept to new consecutive ids; None maps to None."""
    ids: dict[Any, Any] = {None: None}
    ids.update((old, new) for new, old in enumerate(i for i, keep in enumerate(kept) if keep))
    return ids


def renumbered_data(node: DataNode, data_ids: Any, operator_ids: Any) -> DataNode:
    """Return the node under its new ids; the same object if nothing changes."""
    new_id, producer = data_ids[node.id], operator_ids[node.producer]
    view_of = data_ids[node.view_of]
    if new_id == node.id and producer == node.producer and view_of == node.view_of:
        return node
    return replace(node, id=new_id, producer=producer, view_of=view_of)


def renumbered_operator(operator: Operator, data_ids: Any, operator_ids: Any) -> Operator:
    """Return the operator under its new ids; the same object if nothing changes."""
    new_id = operator_ids[operator.id]
    inputs = tuple([data_ids[i] for i in operator.inputs])
    outputs = tuple([data_ids[i] for i in operator.outputs])
    # The adjoint's forward operator may have been eliminated: a loss whose value is not returned.
    adjoint_of = operator_ids.get(operator.adjoint_of)
    if (new_id, inputs, outputs, adjoint_of) == (
        operator.id, operator.inputs, operator.outputs, operator.adjoint_of,
    ):  # fmt: skip
        return operator
    return replace(operator, id=new_id, inputs=inputs, outputs=outputs, adjoint_of=adjoint_of)
