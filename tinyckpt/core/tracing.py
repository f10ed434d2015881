"""From an ordinary Python function to a Graph: the function is called once, with shapes.

``build`` hands the function one ``Var`` for every array of its arguments. A Var has a shape and a
dtype but no numbers; arithmetic on it adds operators to the graph being built. Nothing is evaluated
here: what is evaluated, when and how often is the schedule's business alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from typing import Any, NoReturn

import numpy as np

from tinyckpt.base.errors import GraphError, meant
from tinyckpt.base.tree import (
    Template,
    Tree,
    check_depth,
    fill,
    leaves,
    leaves_with_paths,
    map_leaves,
)
from tinyckpt.core.graph import DataNode, Graph, Operator, Role, Spec
from tinyckpt.core.primitive import ACTIVE_BUILDER, Around, Belonging, Primitive
from tinyckpt.ops import (
    arrangement,
    casting,
    comparison,
    elementwise,
    indexing,
    linalg,
    logic,
    protocols,
    rounding,
    shape,
)
from tinyckpt.ops.shape import in_memory_of_their_own

__all__ = ["Builder", "Var", "build", "checkpoint", "name", "once", "scope", "spec_of"]


def build(
    function: Callable[..., Any],
    *args: Any,
    graph_name: str | None = None,
    static: str | Collection[str] = (),
    **named: Any,
) -> Graph:
    """Trace a function into its forward graph by calling it once with shapes.

    Args:
        function: ordinary Python over the operators of tinyckpt; returns a Var, or Vars nested in
            dicts, lists and tuples.
        args: its arguments: arrays, numbers or ``Spec(shape, dtype)``, nested in dicts, lists and
            tuples. Only shapes and dtypes are looked at.
        graph_name: what pictures call the graph; the function's name if not given.
        static: names of arguments that are no arrays, such as ``("train",)``: the function gets
            them as they are, and the graph, which is for these values, has no arguments for them.
        named: arguments by keyword. The graph's arguments are all by position, in the order of the
            function's parameters.

    Raises:
        GraphError: if the function does with a Var what only numbers can do, if shapes or dtypes
            do not fit, if it returns something else than Vars, or if a static argument cannot be.

    >>> import tinyckpt as tc
    >>> print(tc.build(lambda x: tc.tanh(x) * 2.0, tc.Spec((3,)), graph_name="double"))
    double: 2 operators, 4 data nodes
      tanh_1 = tanh(x)   float64[3]
      multiply_1 = multiply(tanh_1, 2.0)   float64[3]
    """
    return trace(call_of(function, args, named, static), graph_name)


def trace(call: Call, graph_name: str | None = None) -> Graph:
    """Return the forward graph of one call of a function."""
    bound(call.function, call.args, call.named)  # says what does not fit the function's parameters
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
        result = in_memory_of_their_own(result)
    arguments = tuple(map_leaves(lambda variable: variable.node.id, tree) for tree in variables)
    results = map_leaves(lambda variable: variable.node.id, result)
    if not leaves(results):
        raise GraphError(f"{builder.graph_name} returned nothing; return the Var to be computed")
    return builder.seal(arguments, results)


def named_sources(builder: Builder, name: str, argument: Any, weak: Any) -> Any:
    """Return the argument with a source in the place of every array."""
    pairs = list(leaves_with_paths(argument, name))
    created = [builder.add_source(path, spec_of(path, leaf, weak), "input") for path, leaf in pairs]
    positions = iter(range(len(created)))
    return fill(map_leaves(lambda leaf: next(positions), argument), created)


def weak_float(tree: Tree) -> np.dtype[Any]:
    """Return the dtype of Python floats among the arguments: that of the floating arrays there.

    So a learning rate of 0.5 beside float32 parameters is a float32, as NumPy and NEP 50 have it;
    float64 where there is no such array. Python integers stay int64: they may be seeds or labels.
    """
    dtypes = {getattr(leaf, "dtype", None) for leaf in leaves(tree)}
    floats = [dtype for dtype in dtypes if isinstance(dtype, np.dtype) and dtype.kind == "f"]
    return np.result_type(*floats) if floats else np.dtype("float64")


def spec_of(path: str, leaf: Any, weak: Any = "float64") -> Spec:
    """Return the spec of one argument, or raise a GraphError that names it.

    ``weak`` is the dtype of a Python float.
    """
    if isinstance(leaf, Spec):
        return leaf
    if type(leaf) is float:
        return Spec((), weak)
    if isinstance(leaf, Var):
        raise GraphError(f"{path}: a Var of another build; pass an array or a tc.Spec")
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        if not isinstance(leaf, bool | int | float | np.generic):
            raise GraphError(
                f"{path}: expected an array, a number or a tc.Spec, got a {type(leaf).__name__}; "
                "an argument that is none of them is to be named in static=(...)"
            )
        leaf = np.asarray(leaf)
    try:
        return Spec(tuple(leaf.shape), leaf.dtype)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def returned_var(builder: Builder, leaf: Any) -> Var:
    """Return something the function returned as a Var; a plain number becomes a constant."""
    if isinstance(leaf, Var | bool | int | float | np.ndarray | np.generic):
        return builder.as_var(leaf)
    raise GraphError(
        f"{builder.graph_name} returned a {type(leaf).__name__}; return Vars, nested in dicts, "
        "lists and tuples"
    )


# ------------------------------------------------------------------------------------------------
# The graph under construction: the one mutable thing here, gone once the graph is sealed.


class Builder:
    """The graph under construction; ``build`` and ``differentiate`` fill it, ``seal`` ends it.

    Operators are added one by one. What they belong to (a half of the graph, the adjoint of an
    operator, a scope) is said by the context managers ``backward_half``, ``adjoint``, ``named``,
    ``scoped`` and ``region``, each around the calls that add them.

    Args:
        graph_name: what pictures and tables call the graph.
        adjoint_name: from the name of a forward operator to that of its adjoint.
    """

    def __init__(
        self, graph_name: str, adjoint_name: Callable[[str], str] = "{}_vjp".format
    ) -> None:
        self.graph_name = graph_name
        self.adjoint_name = adjoint_name
        self.data: list[DataNode] = []
        self.operators: list[Operator] = []
        self.constants: dict[int, Any] = {}
        self.updated: set[int] = set()  # sources that have their update
        # What the rules of one operator share: operands that are joined, and their running sum.
        self.edges: tuple[Sequence[Var], list[int]] | None = None
        self._here = Belonging()
        self._region_count = 0
        self._contiguous: list[bool] = []
        self._numbers: dict[tuple[str, str], Var] = {}
        self._captured: list[tuple[Any, Var]] = []
        self._used: dict[str, int] = {}
        self._stands_for: dict[int, int] = {}

    # Data nodes ----------------------------------------------------------------------------------

    def add_source(self, name: str, spec: Spec, role: Role) -> Var:
        """Add a data node that the caller supplies."""
        return self._add_data(self.unique(name), spec, role, None, None, True)

    def add_constant(self, value: Any) -> Var:
        """Add a constant source; a number or an array that was met before is not added again."""
        # A copy: the graph must not change when the caller's array does.
        array = np.array(value, order="C")
        spec = Spec(array.shape, array.dtype)
        if array.ndim == 0:
            known = self._numbers.get(number_key(array))
        else:
            known = next((constant for met, constant in self._captured if met is value), None)
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

    def _add_data(
        self,
        name: str,
        spec: Spec,
        role: Role,
        producer: int | None,
        view_of: int | None,
        contiguous: bool,
    ) -> Var:
        nbytes = spec.nbytes if view_of is None else 0
        node = DataNode(len(self.data), name, spec, role, nbytes, producer, view_of)
        self.data.append(node)
        self._contiguous.append(contiguous)
        return Var(node, self)

    def as_var(self, operand: Any, weak: Any = None) -> Var:
        """Return the operand as a Var of this build; arrays and numbers become constants.

        A Python number (not one of NumPy's) takes the dtype ``weak`` of the arrays it meets.
        """
        if isinstance(operand, Var):
            if operand.builder is not self:
                raise GraphError(
                    f"{operand!r} belongs to another build; pass values between functions as "
                    "arguments, not through variables outside of them"
                )
            return self.resolved(operand.node.id) if self._stands_for else operand
        if operand is None or isinstance(operand, str | dict | list | tuple):
            raise GraphError(f"an operand is a {type(operand).__name__}, not an array or a number")
        try:
            if weak is not None and type(operand) in (bool, int, float):
                return self.add_constant(np.asarray(operand, np.result_type(weak, operand)))
            return self.add_constant(operand)
        except OverflowError as error:
            raise GraphError(f"the number {operand} does not fit {weak or 'int64'}") from error

    def var(self, data: int) -> Var:
        """Return a value of this build by its id."""
        return Var(self.data[data], self)

    def stand_in(self, operand: Any) -> Var:
        """Return a source that stands for a value until ``replace_stand_ins``.

        A function that is differentiated inside of another is called with them: what it reads as
        its argument is told from the same value read from outside of itself.
        """
        variable = self.as_var(operand)
        node, contiguous = variable.node, self.is_contiguous(variable)
        return self._add_data(node.name, node.spec, "input", None, None, contiguous)

    def replace_stand_ins(self, values: Mapping[int, int]) -> None:
        """Let operators read the values themselves, by the data ids of their stand-ins."""
        self._stands_for.update(values)
        for node in self.data[min(values, default=len(self.data)) :]:
            if node.view_of is not None and node.view_of in values:
                self.data[node.id] = replace(node, view_of=values[node.view_of])
            if node.id in values and node.label:
                self.relabel(self.resolved(node.id), node.label)
        for operator in self.operators:
            if any(data in values for data in operator.inputs):
                inputs = tuple([values.get(data, data) for data in operator.inputs])
                self.operators[operator.id] = replace(operator, inputs=inputs)

    def resolved(self, data: int) -> Var:
        """Return a value by its id; if that was a stand-in's, what it stood for."""
        while data in self._stands_for:
            data = self._stands_for[data]
        return self.var(data)

    def is_contiguous(self, variable: Var) -> bool:
        """Whether the value is known to be C-contiguous when it is computed."""
        return self._contiguous[variable.node.id]

    def shown_by(self, variable: Var) -> tuple[int, bool]:
        """Return the value in whose memory a value is, and whether it shows all of that once."""
        node, shows_all = self.data[variable.node.id], True
        while node.view_of is not None:
            base = self.data[node.view_of]
            shows_all &= base.spec.size == node.spec.size
            node = base
        return node.id, shows_all

    def _makes_contiguous(self, primitive: Primitive, inputs: Sequence[int]) -> bool:
        """Whether an operator's results are known to be C-contiguous."""
        if primitive.contiguous is None:
            return all(self._contiguous[data] for data in inputs)
        return primitive.contiguous

    # Operators -----------------------------------------------------------------------------------

    def add_operator(
        self, primitive: Primitive, operands: Sequence[Any], attrs: Mapping[str, Any]
    ) -> tuple[Var, ...]:
        """Add one application of the primitive and return its outputs."""
        try:
            weak = weak_dtype(operands)
            inputs = [self.as_var(operand, weak) for operand in operands]
            specs = tuple([variable.node.spec for variable in inputs])
            output_specs = primitive.output_specs(specs, attrs)
            flops = primitive.flops(specs, output_specs, **attrs)
            workspace = primitive.workspace(specs, output_specs, **attrs)
        except (GraphError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            where = f" in scope {self._here.scope}" if self._here.scope else ""
            raise GraphError(f"{primitive.name}{where}: {error}") from error.__cause__
        here = self._here
        name = self.unique(here.name or primitive.name, numbered=here.name is None)
        ids = tuple([variable.node.id for variable in inputs])
        operator_id = len(self.operators)
        role: Role = "activation" if here.phase == "forward" else "cotangent"
        view_of = None if primitive.alias is None else ids[primitive.alias]
        contiguous = self._makes_contiguous(primitive, ids)
        outputs = []
        for position, spec in enumerate(output_specs):
            output_name = name if len(output_specs) == 1 else f"{name}.{position}"
            outputs.append(
                self._add_data(output_name, spec, role, operator_id, view_of, contiguous)
            )
        self.operators.append(
            Operator(
                operator_id, name, primitive.name, ids,
                tuple([variable.node.id for variable in outputs]), here.phase, here.adjoint_of,
                here.scope, flops, workspace, primitive, attrs, here.regions,
            )
        )  # fmt: skip
        return tuple(outputs)

    def unique(self, name: str, numbered: bool = False) -> str:
        """Return the name, with the next free number behind it if it is taken or ``numbered``."""
        count = self._used.get(name, 0)
        self._used[name] = count + 1
        if not numbered and count == 0:
            return name
        numbered_name = f"{name}_{count + 1}"
        return self.unique(numbered_name) if numbered_name in self._used else numbered_name

    def relabel(self, variable: Var, label: str) -> Var:
        """Give a value the label that policies may pick it by."""
        node = replace(self.data[variable.node.id], label=label)
        self.data[node.id] = node
        return Var(node, self)

    def pin(self, variable: Var) -> Var:
        """Let the operator that makes a value be one that may not be evaluated twice."""
        if (index := variable.node.producer) is not None:  # a source is there anyway
            self.operators[index] = replace(self.operators[index], once=True)
        return variable

    # What operators belong to --------------------------------------------------------------------

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the operators that are called inside be added to this graph."""
        token = ACTIVE_BUILDER.set(self)
        try:
            yield
        finally:
            ACTIVE_BUILDER.reset(token)

    @property
    def adjoint_of(self) -> int | None:
        """The operator whose adjoint is being added, or None."""
        return self._here.adjoint_of

    def named(self, name: str) -> Around:
        """Let operators be added under a name, with a number behind it where it is taken."""
        here = self._here
        return Around(self, Belonging(here.phase, here.adjoint_of, name, here.scope, here.regions))

    def scoped(self, name: str) -> Around:
        """Let operators be added in a scope, inside of the one there is."""
        scope = f"{self._here.scope}/{name}" if self._here.scope else name
        return Around(self, replace(self._here, scope=scope))

    def region(self) -> Around:
        """Let operators be added as the inside of one call of a function to be recomputed."""
        number = self._region_count
        self._region_count += 1
        return Around(self, replace(self._here, regions=(*self._here.regions, number)))

    def backward_half(self) -> Around:
        """Let operators be added to the graph's backward half.

        Derivatives that a function takes of its own accord, with ``gradients``, are not: they are
        part of what it computes, and so of the forward half.
        """
        return Around(self, replace(self._here, phase="backward"))

    def adjoint(self, operator: Operator) -> Around:
        """Let operators be added as part of the adjoint of one, in its scope."""
        here, name = self._here, self.adjoint_name(operator.name)
        return Around(self, Belonging(here.phase, operator.id, name, operator.scope, here.regions))

    # From and to a sealed graph ------------------------------------------------------------------

    @classmethod
    def reopen(cls, graph: Graph) -> Builder:
        """Return a builder that goes on where ``seal`` left off."""
        builder = cls(graph.name)
        builder.data = list(graph.data)
        builder.operators = list(graph.operators)
        builder.constants = dict(graph.constants)
        for data, value in graph.constants.items():
            if value.ndim == 0:
                builder._numbers[number_key(value)] = Var(graph.data[data], builder)
        builder._contiguous = [True] * len(graph.data)
        for operator in graph.operators:
            if operator.is_update:
                builder.updated.add(operator.inputs[0])
            if operator.primitive is None:
                raise GraphError(
                    f"{operator.name} is abstract: it has no kernel and no derivative; build the "
                    "graph from a function to differentiate it"
                )
            contiguous = builder._makes_contiguous(operator.primitive, operator.inputs)
            for output in operator.outputs:
                builder._contiguous[output] = contiguous
            stem = f"{operator.kind}_"
            builder._used[operator.name] = 1
            number = operator.name.removeprefix(stem)
            if number.isdigit():
                builder._used[operator.kind] = max(builder._used.get(operator.kind, 0), int(number))
        for node in graph.data:
            builder._used.setdefault(node.name, 1)
        return builder

    def seal(self, arguments: Template, results: Template, gradients: Template = None) -> Graph:
        """Return the graph without the operators that no result depends on."""
        graph = Graph(
            self.graph_name,
            tuple(self.data),
            tuple(self.operators),
            arguments,
            results,
            gradients,
            self.constants,
        )
        return without_unused(graph)


def weak_dtype(operands: Sequence[Any]) -> Any:
    """Return the dtype that Python numbers among the operands take: that of the arrays, or None.

    Floats decide where there are any: the condition of a ``where`` has no say.
    """
    arrays = (Var, np.ndarray, np.generic)
    dtypes = [operand.dtype for operand in operands if isinstance(operand, arrays)]
    if len(dtypes) == len(operands) or not dtypes:
        return None
    floats = [dtype for dtype in dtypes if dtype.kind == "f"]
    return np.result_type(*(floats or dtypes))


def number_key(array: Any) -> tuple[str, str]:
    """Return what makes two numbers the same constant: dtype and every digit, the sign of 0 too."""
    return array.dtype.name, repr(array.item())


# ------------------------------------------------------------------------------------------------
# The handle that a traced function computes with: a shape and a dtype, and no numbers.
#
# Arithmetic on a Var, and NumPy's functions of it, add operators to the graph being built. Whatever
# would need numbers (``if``, ``float``, iteration, writes in place) is refused, with what to write
# instead.


Binary = Callable[[Any, Any], "Var"]


def infix(function: Binary) -> tuple[Binary, Binary]:
    """Return a function of two operands as the methods that Python calls for either of them."""
    return function, lambda self, other: function(other, self)


def numpys(name: str) -> Callable[..., Any]:
    """Return NumPy's function of a name as a method."""
    function = getattr(np, name)

    def method(self: Var, *args: Any, **options: Any) -> Any:
        if isinstance(function, np.ufunc):
            return protocols.call_ufunc(function, "__call__", (self, *args), options)
        return protocols.call_function(function, (self, *args), options)

    method.__name__, method.__doc__ = name, f"Return what ``np.{name}`` of it is."
    return method


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var:
    """A value in the graph being built: a shape and a dtype, with operators, and no numbers."""

    node: DataNode
    builder: Builder

    @property
    def spec(self) -> Spec:
        """Shape and dtype."""
        return self.node.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of all axes."""
        return self.node.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype."""
        return self.node.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.node.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.node.spec.size

    @property
    def T(self) -> Var:  # noqa: N802  # as NumPy calls it
        """The view with its axes reversed."""
        return shape.transpose(self)

    @property
    def mT(self) -> Var:  # noqa: N802  # as NumPy calls it
        """The view with its last two axes exchanged."""
        return arrangement.matrix_transpose(self)

    @property
    def real(self) -> Var:
        """Itself: there are no complex numbers here."""
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of a dense array of this shape and dtype."""
        return self.node.spec.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def reshape(self, *extents: Any, order: str = "C") -> Var:
        """Return a view in another shape; one extent may be -1."""
        if order not in ("C", "A"):
            raise GraphError(f"reshape: order={order!r}; arrays are in C order: transpose first")
        return shape.reshape(self, extents[0] if len(extents) == 1 else extents)

    def transpose(self, *axes: Any) -> Var:
        """Return a view with its axes permuted."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            (axes,) = axes
        return shape.transpose(self, axes or None)

    def astype(self, dtype: Any, *, copy: bool = True) -> Var:
        """Return it in another dtype; whether values that never change are copied is all one."""
        return casting.astype(self, dtype)

    # Methods that NumPy has as functions, too: the same arguments, and the same refusals.
    all, any = numpys("all"), numpys("any")
    argmax, argmin, argsort = numpys("argmax"), numpys("argmin"), numpys("argsort")
    clip, repeat, round = numpys("clip"), numpys("repeat"), numpys("round")
    conj = conjugate = numpys("conjugate")
    copy, ravel, squeeze = numpys("copy"), numpys("ravel"), numpys("squeeze")
    cumprod, cumsum = numpys("cumprod"), numpys("cumsum")
    diagonal, swapaxes, trace = numpys("diagonal"), numpys("swapaxes"), numpys("trace")
    dot, take = numpys("dot"), numpys("take")
    flatten = ravel
    max, min, ptp = numpys("max"), numpys("min"), numpys("ptp")
    mean, std, var = numpys("mean"), numpys("std"), numpys("var")
    prod, sum = numpys("prod"), numpys("sum")

    def __repr__(self) -> str:
        return f"Var({self.node})"

    def __len__(self) -> int:
        if not self.shape:
            raise GraphError(f"{self!r} is a scalar, which has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Var:
        return indexing.getitem(self, key)

    # What stands between two operands, and the same with the array on the right.
    __add__, __radd__ = infix(elementwise.add)
    __sub__, __rsub__ = infix(elementwise.subtract)
    __mul__, __rmul__ = infix(elementwise.multiply)
    __truediv__, __rtruediv__ = infix(elementwise.divide)
    __floordiv__, __rfloordiv__ = infix(rounding.floor_divide)
    __mod__, __rmod__ = infix(rounding.remainder)
    __and__, __rand__ = infix(logic.bitwise_and)
    __or__, __ror__ = infix(logic.bitwise_or)
    __xor__, __rxor__ = infix(logic.bitwise_xor)
    __lshift__, __rlshift__ = infix(logic.left_shift)
    __rshift__, __rrshift__ = infix(logic.right_shift)
    __pow__ = elementwise.power
    __matmul__ = linalg.matmul
    __gt__ = comparison.greater
    __ge__ = comparison.greater_equal
    __lt__ = comparison.less
    __le__ = comparison.less_equal
    __abs__ = elementwise.absolute
    __invert__ = logic.invert
    __round__ = rounding.round

    def __neg__(self) -> Var:  # a function in the open: others' types are found by it
        return elementwise.negative(self)

    def __pos__(self) -> Var:
        return self

    def __divmod__(self, other: Any) -> tuple[Var, Var]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Var, Var]:
        return other // self, other % self

    def __rpow__(self, base: Any) -> Var:
        return elementwise.power(self.builder.as_var(base, self.dtype), self)

    def __rmatmul__(self, other: Any) -> Var:
        return linalg.matmul(self.builder.as_var(other, self.dtype), self)

    def __eq__(self, other: object) -> Var:  # type: ignore[override]  # elementwise, as in NumPy
        return comparison.equal(self, other)

    def __ne__(self, other: object) -> Var:  # type: ignore[override]  # elementwise, as in NumPy
        return comparison.not_equal(self, other)

    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    def _refuse(self, use: str, instead: str) -> NoReturn:
        raise GraphError(
            f"{use} of {self.node.name} ({self.spec}): while a function is traced, its values have "
            f"shapes but no numbers; {instead}"
        )

    def __bool__(self) -> bool:
        self._refuse("the truth value", "use tc.where(condition, x, y) in place of if and while")

    def __float__(self) -> float:
        self._refuse("float()", "keep it a Var, or compute the number outside of the function")

    def __int__(self) -> int:
        self._refuse("int()", "keep it a Var, or compute the number outside of the function")

    __index__ = __int__

    def __iter__(self) -> Iterator[Any]:
        self._refuse("iteration", "loop over range(len(x)) and index, or use tc.split")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse("a write in place", "values never change; build a new one, as with tc.where")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse(
            "conversion to an array",
            "join Vars with tc.stack or tc.concatenate; docs/numpy.md lists what works on a Var",
        )

    def item(self, *args: Any) -> Any:
        """Refuse: a number that is taken out of the graph would stay as it is for ever."""
        self._refuse("item()", "keep it a Var, or return it and take the number from the result")

    def tolist(self) -> Any:
        """Refuse, as ``item``."""
        self._refuse("tolist()", "return it and take the numbers from the result")

    def nonzero(self) -> Any:
        """Refuse: the shape of the result is not known."""
        self._refuse("nonzero()", "use tc.where(x != 0, one, other)")

    def sort(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: NumPy's method works in place."""
        self._refuse("sort() in place", "values never change; use tc.sort")

    def fill(self, value: Any) -> Any:
        """Refuse: a write in place."""
        self._refuse("fill() in place", "values never change; use tc.full_like")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return protocols.call_function(function, args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # An array on the left of an infix operator arrives here, too: array + Var.
        return protocols.call_ufunc(ufunc, method, inputs, kwargs)


# ------------------------------------------------------------------------------------------------
# A call of a function, taken apart: which arguments hold arrays, and which are static.
#
# What a function is traced for depends on the shapes of its arrays and on the static arguments
# themselves: a flag, a number of layers, a name. Those are passed on as they are.


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function, with the arguments that hold arrays told from the others.

    Attributes:
        function: what is called.
        args, named: its arguments by position and by keyword.
        places: which of them hold arrays: positions and keywords.
        static: what the others are, by their names; two calls with other ones are not the same.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    places: tuple[int | str, ...] = ()
    static: tuple[tuple[str, Any], ...] = ()

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments that hold arrays."""
        return tuple([self.args[p] if isinstance(p, int) else self.named[p] for p in self.places])

    @property
    def names(self) -> list[str]:
        """What the function calls the arguments that hold arrays."""
        names = parameter_names(self.function, len(self.args))
        return [names[place] if isinstance(place, int) else place for place in self.places]

    def again(self, arguments: Sequence[Any]) -> Any:
        """Call the function with others in the places of the arguments that hold arrays."""
        args, named = list(self.args), dict(self.named)
        for place, argument in zip(self.places, arguments, strict=True):
            if isinstance(place, int):
                args[place] = argument
            else:
                named[place] = argument
        return self.function(*args, **named)


def call_of(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    static: str | Collection[str],
) -> Call:
    """Take the arguments of a call apart.

    Raises:
        GraphError: if the function has no such parameters, or a static argument is an array or
            cannot be told from another by its hash.
    """
    if not named and not static:
        return Call(function, args, named, tuple(range(len(args))))
    static = (static,) if isinstance(static, str) else static
    if not isinstance(static, Sequence | Set) or not all(isinstance(name, str) for name in static):
        raise GraphError(f"static={static!r}: expected names of arguments, such as ('train',)")
    args, named = bound(function, args, named)
    names = dict(enumerate(parameter_names(function, len(args)))) | {key: key for key in named}
    check_static(function, static, names.values())
    values = dict(enumerate(args)) | dict(named)
    return Call(
        function,
        args,
        named,
        tuple([place for place, name in names.items() if name not in static]),
        tuple(
            [
                (name, told_apart(name, values[place]))
                for place, name in names.items()
                if name in static
            ]
        ),
    )


def bound(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments as the function's parameters take them: by position where they can."""
    signature = signature_of(function)
    if signature is None:
        return args, named
    try:
        found = signature.bind(*args, **named)
    except TypeError as error:
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        taken = inspect.Signature(plain)
        raise GraphError(f"{function_name(function)}{taken}: {error}") from error
    return found.args, found.kwargs


def check_static(function: Callable[..., Any], static: Collection[str], passed: Any) -> None:
    """Raise a GraphError if a static argument is none that the function has."""
    signature = signature_of(function)
    parameters = signature.parameters if signature else {}
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in static:
        if name not in parameters and name not in passed and not anything:
            legal = ", ".join(parameters) or "none that Python knows of"
            raise GraphError(
                f"static: {function_name(function)} has no parameter {name!r}"
                f"{meant(name, parameters)}; it has {legal}"
            )


def told_apart(name: str, value: Any) -> Any:
    """Return a key that two static values share only if a function cannot tell them apart.

    1, 1.0 and True are equal in Python, and so are 0.0 and -0.0; no NaN is equal to itself.
    """
    if isinstance(value, tuple):
        return type(value), tuple([told_apart(f"{name}[{i}]", v) for i, v in enumerate(value)])
    if isinstance(value, frozenset):
        return type(value), frozenset([told_apart(f"an element of {name}", v) for v in value])
    if is_dataclass(value) and not isinstance(value, type):
        held = [(f.name, getattr(value, f.name)) for f in fields(value)]
        return type(value), tuple([told_apart(f"{name}.{own}", v) for own, v in held])
    try:
        hash(value)
    except TypeError as error:
        if hasattr(value, "__array__"):
            message = "an array cannot be static; leave its name out of static="
        else:
            message = (
                f"a static argument must be hashable, and a {type(value).__name__} is not; pass a "
                "tuple, or what it holds one by one"
            )
        raise GraphError(f"{name}: {message}") from error
    inexact = isinstance(value, float | complex | np.inexact)
    return type(value), repr(value) if inexact else value


def parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first positional parameters, as far as the function tells them."""
    signature = signature_of(function)
    parameters = signature.parameters.values() if signature else ()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names[:count] + [f"arg{position}" for position in range(len(names), count)]


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return a function's signature, or None if it has none that Python can tell."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def function_name(function: Callable[..., Any]) -> str:
    """Return what graphs and messages call a function."""
    return str(getattr(function, "__name__", "graph"))


# ------------------------------------------------------------------------------------------------
# Marks: what a function says of the operators that it builds, for pictures and for policies.
#
# They change nothing of what is computed. Where nothing is traced they do nothing: the function
# runs on arrays as it is.


def scope(name: str) -> AbstractContextManager[None]:
    """Group the operators built inside, as in ``with tc.scope("layer3"):``; scopes nest.

    Where nothing is traced it does nothing, as ``name`` and ``checkpoint``: the function runs on
    arrays as it is.
    """
    checked, builder = checked_text("scope", name), ACTIVE_BUILDER.get()
    return nullcontext() if builder is None else builder.scoped(checked)


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function: the policy ``regions`` recomputes what it makes inside.

    Use it as a decorator, or where the function is called: ``h = tc.checkpoint(block)(h)``. Marked
    functions nest. Other policies do not look at the marks.

    >>> import tinyckpt as tc
    >>> block = tc.checkpoint(lambda x: tc.tanh(tc.sin(x)))
    >>> graph = tc.build(lambda x: tc.sum(block(x)), tc.Spec((3,)))
    >>> [operator.regions for operator in graph.operators]
    [(0,), (0,), ()]
    """

    @wraps(function)
    def marked(*args: Any, **options: Any) -> Any:
        builder = ACTIVE_BUILDER.get()
        with nullcontext() if builder is None else builder.region():
            return function(*args, **options)

    return marked


def name(x: Var, label: str) -> Var:
    """Label a value, so that policies can pick it, as JAX's ``checkpoint_name`` does.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.name(tc.tanh(x), "hidden"), tc.Spec((3,)))
    >>> graph.data[1].label
    'hidden'
    """
    checked, builder = checked_text("name", label), ACTIVE_BUILDER.get()
    return x if builder is None else builder.relabel(builder.as_var(x), checked)


def once(x: Var) -> Var:
    """Let the operator that makes a value be evaluated once: every plan keeps what it makes.

    For what cannot be repeated, or would come out otherwise the second time: what reads a clock or
    a stream, draws numbers without a seed. And for a value that is to stay under every policy.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.sin(tc.once(tc.tanh(x))), tc.Spec((3,)))
    >>> [operator.once for operator in graph.operators]
    [True, False]
    """
    builder = ACTIVE_BUILDER.get()
    return x if builder is None else builder.pin(builder.as_var(x))


def checked_text(what: str, text: str) -> str:
    """Return what a user calls something, or raise a GraphError if it is no text."""
    if not isinstance(text, str):
        raise GraphError(f"{what}: expected a string, got a {type(text).__name__}")
    return text


# ------------------------------------------------------------------------------------------------
# The graph without what nobody needs: what a traced function computed and did not return.


def without_unused(graph: Graph) -> Graph:
    """Return the graph without the operators that no result depends on; itself if all are needed.

    Arguments stay, read or not: they are what a caller passes.
    """
    wanted = bytearray(len(graph.data))
    for data in (*graph.outputs, *leaves(graph.arguments)):
        wanted[data] = 1
    kept = bytearray(len(graph.operators))
    for operator in reversed(graph.operators):
        if any(wanted[output] for output in operator.outputs):
            kept[operator.id] = 1
            for data in (*operator.inputs, *operator.outputs):
                wanted[data] = 1
    if all(wanted) and all(kept):
        return graph
    data_ids, operator_ids = numbering(wanted), numbering(kept)
    return replace(
        graph,
        data=tuple(
            renumbered_data(node, data_ids, operator_ids) for node in graph.data if wanted[node.id]
        ),
        operators=tuple(
            renumbered_operator(operator, data_ids, operator_ids)
            for operator in graph.operators
            if kept[operator.id]
        ),
        arguments=map_leaves(data_ids.__getitem__, graph.arguments),
        results=map_leaves(data_ids.__getitem__, graph.results),
        gradients=map_leaves(data_ids.__getitem__, graph.gradients),
        constants={data_ids[i]: value for i, value in graph.constants.items() if wanted[i]},
    )


def numbering(kept: bytearray) -> dict[Any, Any]:
    """Return new consecutive ids for the positions that are kept; None stays None."""
    ids: dict[Any, Any] = {None: None}
    ids.update((old, new) for new, old in enumerate(i for i, keep in enumerate(kept) if keep))
    return ids


def renumbered_data(node: DataNode, data_ids: Any, operator_ids: Any) -> DataNode:
    """Return the node under its new id; the very node if nothing changes."""
    new_id, producer = data_ids[node.id], operator_ids[node.producer]
    view_of = data_ids[node.view_of]
    if new_id == node.id and producer == node.producer and view_of == node.view_of:
        return node
    return DataNode(
        new_id, node.name, node.spec, node.role, node.nbytes, producer, view_of, node.label
    )


def renumbered_operator(operator: Operator, data_ids: Any, operator_ids: Any) -> Operator:
    """Return the operator under its new id; the very operator if nothing changes."""
    new_id = operator_ids[operator.id]
    inputs = tuple([data_ids[i] for i in operator.inputs])
    outputs = tuple([data_ids[i] for i in operator.outputs])
    # The adjoint's forward operator may be gone: a loss whose value nobody asked for.
    adjoint_of = operator_ids.get(operator.adjoint_of)
    if (new_id, inputs, outputs, adjoint_of) == (
        operator.id, operator.inputs, operator.outputs, operator.adjoint_of,
    ):  # fmt: skip
        return operator
    return replace(operator, id=new_id, inputs=inputs, outputs=outputs, adjoint_of=adjoint_of)
