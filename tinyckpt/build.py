"""From an ordinary Python function to a Graph: the function is called once, with shapes.

``build`` hands the function one ``Var`` for every array of its arguments. A Var has a shape and a
dtype but no numbers; arithmetic on it adds operators to the graph being built. Nothing is evaluated
here: what is evaluated, when and how often is the schedule's business alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from tinyckpt.errors import GraphError
from tinyckpt.graph import DataNode, Graph, Operator, Phase, Role, Spec
from tinyckpt.ops import elementwise, linalg, reduce, shape
from tinyckpt.ops.primitive import ACTIVE_BUILDER, Primitive, active_builder
from tinyckpt.tree import Template, fill, leaves, leaves_with_paths, map_leaves

UFUNC_METHODS = {
    "add": "__add__",
    "subtract": "__sub__",
    "multiply": "__mul__",
    "divide": "__truediv__",
    "power": "__pow__",
    "matmul": "__matmul__",
    "greater": "__gt__",
    "greater_equal": "__ge__",
    "less": "__lt__",
    "less_equal": "__le__",
    "equal": "__eq__",
    "not_equal": "__ne__",
}


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

    def reshape(self, *extents: Any) -> Var:
        """Return a view in another shape; one extent may be -1."""
        return shape.reshape(self, extents[0] if len(extents) == 1 else extents)

    def transpose(self, *axes: Any) -> Var:
        """Return a view with its axes permuted."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            (axes,) = axes
        return shape.transpose(self, axes or None)

    def astype(self, dtype: Any) -> Var:
        """Return it in another dtype."""
        return elementwise.astype(self, dtype)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Var:
        """Return the sum over axes."""
        return reduce.sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Var:
        """Return the mean over axes."""
        return reduce.mean(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Var:
        """Return the maximum over axes."""
        return reduce.max(self, axis, keepdims)

    def __repr__(self) -> str:
        return f"Var({self.node})"

    def __len__(self) -> int:
        if not self.shape:
            raise GraphError(f"{self!r} is a scalar, which has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Var:
        return shape.index(self, key)

    def __add__(self, other: Any) -> Var:
        return elementwise.add(self, other)

    def __radd__(self, other: Any) -> Var:
        return elementwise.add(other, self)

    def __sub__(self, other: Any) -> Var:
        return elementwise.subtract(self, other)

    def __rsub__(self, other: Any) -> Var:
        return elementwise.subtract(other, self)

    def __mul__(self, other: Any) -> Var:
        return elementwise.multiply(self, other)

    def __rmul__(self, other: Any) -> Var:
        return elementwise.multiply(other, self)

    def __truediv__(self, other: Any) -> Var:
        return elementwise.divide(self, other)

    def __rtruediv__(self, other: Any) -> Var:
        return elementwise.divide(other, self)

    def __pow__(self, exponent: Any) -> Var:
        return elementwise.power(self, exponent)

    def __rpow__(self, base: Any) -> Var:
        return elementwise.power(self.builder.as_var(base, self.dtype), self)

    def __matmul__(self, other: Any) -> Var:
        return linalg.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Var:
        return linalg.matmul(self.builder.as_var(other, self.dtype), self)

    def __neg__(self) -> Var:
        return elementwise.negative(self)

    def __abs__(self) -> Var:
        return elementwise.absolute(self)

    def __gt__(self, other: Any) -> Var:
        return elementwise.greater(self, other)

    def __ge__(self, other: Any) -> Var:
        return elementwise.greater_equal(self, other)

    def __lt__(self, other: Any) -> Var:
        return elementwise.less(self, other)

    def __le__(self, other: Any) -> Var:
        return elementwise.less_equal(self, other)

    def __eq__(self, other: object) -> Var:  # type: ignore[override]  # elementwise, as in NumPy
        return elementwise.equal(self, other)

    def __ne__(self, other: object) -> Var:  # type: ignore[override]  # elementwise, as in NumPy
        return elementwise.not_equal(self, other)

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
        self._refuse("conversion to an array", "use the operators of tinyckpt, such as tc.tanh")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        self._refuse(
            f"np.{function.__name__}", f"use tc.{function.__name__} or another operator of tinyckpt"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # An array on the left of an infix operator arrives here: array + Var.
        name = UFUNC_METHODS.get(ufunc.__name__)
        if name is None or method != "__call__" or kwargs:
            self._refuse(f"np.{ufunc.__name__}", f"use tc.{ufunc.__name__}, if there is one")
        left, right = inputs
        return getattr(self.builder.as_var(left, self.dtype), name)(right)


class Builder:
    """The graph under construction; ``build`` and ``differentiate`` fill it, ``seal`` ends it."""

    def __init__(self, graph_name: str) -> None:
        self.graph_name = graph_name
        self.data: list[DataNode] = []
        self.operators: list[Operator] = []
        self.constants: dict[int, Any] = {}
        self.phase: Phase = "forward"
        # Whether the derivatives being added are the graph's backward half. Those that a function
        # takes of its own accord, with ``gradients``, are part of its forward half.
        self.outermost = False
        self.adjoint_of: int | None = None
        self.stem: str | None = None
        self.adjoint_name: Callable[[str], str] = "{}_vjp".format
        self.scope = ""
        self._contiguous: list[bool] = []
        self._numbers: dict[tuple[str, str], Var] = {}
        self._captured: list[tuple[Any, Var]] = []
        self._used: dict[str, int] = {}

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

        A Python number takes the dtype ``weak`` of the arrays it meets, as in NumPy.
        """
        if isinstance(operand, Var):
            if operand.builder is not self:
                raise GraphError(
                    f"{operand!r} belongs to another build; pass values between functions as "
                    "arguments, not through variables outside of them"
                )
            return operand
        if operand is None or isinstance(operand, str | dict | list | tuple):
            raise GraphError(f"an operand is a {type(operand).__name__}, not an array or a number")
        try:
            if weak is not None and isinstance(operand, bool | int | float):
                return self.add_constant(np.asarray(operand, np.result_type(weak, operand)))
            return self.add_constant(operand)
        except OverflowError as error:
            raise GraphError(f"the number {operand} does not fit {weak or 'int64'}") from error

    def is_contiguous(self, variable: Var) -> bool:
        """Whether the value is known to be C-contiguous when it is computed."""
        return self._contiguous[variable.node.id]

    # Operators -----------------------------------------------------------------------------------

    def add_operator(
        self, primitive: Primitive, operands: Sequence[Any], attrs: Mapping[str, Any]
    ) -> tuple[Var, ...]:
        """Add one application of the primitive and return its outputs."""
        try:
            weak = weak_dtype(operands)
            inputs = [self.as_var(operand, weak) for operand in operands]
            specs = tuple([variable.node.spec for variable in inputs])
            output_specs = primitive.infer(*specs, **attrs)
            flops = primitive.flops(specs, output_specs, **attrs)
            workspace = primitive.workspace(specs, output_specs, **attrs)
        except (GraphError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            where = f" in scope {self.scope}" if self.scope else ""
            raise GraphError(f"{primitive.name}{where}: {error}") from error.__cause__
        name = self.unique(self.stem or primitive.name, numbered=self.stem is None)
        ids = tuple([variable.node.id for variable in inputs])
        operator_id = len(self.operators)
        role: Role = "activation" if self.phase == "forward" else "cotangent"
        view_of = None if primitive.alias is None else ids[primitive.alias]
        contiguous = primitive.contiguous
        if contiguous is None:
            contiguous = all(self._contiguous[i] for i in ids)
        outputs = []
        for position, spec in enumerate(output_specs):
            output_name = name if len(output_specs) == 1 else f"{name}.{position}"
            outputs.append(
                self._add_data(output_name, spec, role, operator_id, view_of, contiguous)
            )
        self.operators.append(
            Operator(
                operator_id,
                name,
                primitive.name,
                ids,
                tuple([variable.node.id for variable in outputs]),
                self.phase,
                self.adjoint_of,
                self.scope,
                flops,
                workspace,
                primitive,
                attrs,
            )
        )
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

    @contextmanager
    def backward_of(self, operator: Operator | None) -> Iterator[None]:
        """Let operators be added as part of the backward half, as the adjoint of one operator."""
        saved = self.phase, self.adjoint_of, self.stem, self.scope
        if self.outermost:
            self.phase = "backward"
        if operator is not None:
            self.adjoint_of, self.scope = operator.id, operator.scope
            self.stem = self.adjoint_name(operator.name)
        try:
            yield
        finally:
            self.phase, self.adjoint_of, self.stem, self.scope = saved

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
            if operator.primitive is None:
                raise GraphError(
                    f"{operator.name} is abstract: it has no kernel and no derivative; build the "
                    "graph from a function to differentiate it"
                )
            contiguous = operator.primitive.contiguous
            if contiguous is None:
                contiguous = all(builder._contiguous[i] for i in operator.inputs)
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
        wanted = bytearray(len(self.data))
        for data in leaves(results) + leaves(gradients) + leaves(arguments):
            wanted[data] = 1
        kept = bytearray(len(self.operators))
        for operator in reversed(self.operators):
            if any(wanted[output] for output in operator.outputs):
                kept[operator.id] = 1
                for data in (*operator.inputs, *operator.outputs):
                    wanted[data] = 1
        if all(wanted) and all(kept):
            data, operators = tuple(self.data), tuple(self.operators)
            return Graph(
                self.graph_name, data, operators, arguments, results, gradients, self.constants
            )
        data_ids = numbering(wanted)
        operator_ids = numbering(kept)
        data = tuple(
            renumbered_data(node, data_ids, operator_ids) for node in self.data if wanted[node.id]
        )
        operators = tuple(
            renumbered_operator(operator, data_ids, operator_ids)
            for operator in self.operators
            if kept[operator.id]
        )
        return Graph(
            self.graph_name,
            data,
            operators,
            map_leaves(data_ids.__getitem__, arguments),
            map_leaves(data_ids.__getitem__, results),
            map_leaves(data_ids.__getitem__, gradients),
            {data_ids[i]: value for i, value in self.constants.items() if wanted[i]},
        )


def weak_dtype(operands: Sequence[Any]) -> Any:
    """Return the dtype that Python numbers among the operands take: that of the Vars, or None.

    Floats decide where there are any: the condition of a ``where`` has no say.
    """
    dtypes = [operand.dtype for operand in operands if isinstance(operand, Var)]
    if len(dtypes) == len(operands) or not dtypes:
        return None
    floats = [dtype for dtype in dtypes if dtype.kind == "f"]
    return np.result_type(*(floats or dtypes))


def number_key(array: Any) -> tuple[str, str]:
    """Return what makes two numbers the same constant: dtype and every digit, the sign of 0 too."""
    return array.dtype.name, repr(array.item())


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
    return Operator(
        new_id,
        operator.name,
        operator.kind,
        inputs,
        outputs,
        operator.phase,
        adjoint_of,
        operator.scope,
        operator.flops,
        operator.workspace,
        operator.primitive,
        operator.attrs,
    )


def build(function: Callable[..., Any], *args: Any, graph_name: str | None = None) -> Graph:
    """Trace a function into its forward graph by calling it once with shapes.

    Args:
        function: ordinary Python over the operators of tinyckpt; returns a Var, or Vars nested in
            dicts, lists and tuples.
        args: its positional arguments: arrays, numbers or ``Spec(shape, dtype)``, nested in dicts,
            lists and tuples. Only shapes and dtypes are looked at.
        graph_name: what pictures call the graph; the function's name if not given.

    Raises:
        GraphError: if the function does with a Var what only numbers can do, if shapes or dtypes
            do not fit, or if it returns something else than Vars.

    >>> import tinyckpt as tc
    >>> print(tc.build(lambda x: tc.tanh(x) * 2.0, tc.Spec((3,)), graph_name="double"))
    double: 2 operators, 4 data nodes
      tanh_1 = tanh(x)   float64[3]
      multiply_1 = multiply(tanh_1, 2.0)   float64[3]
    """
    builder = Builder(graph_name or str(getattr(function, "__name__", "graph")))
    names = parameter_names(function, len(args))
    variables = []
    for name, argument in zip(names, args, strict=True):
        variables.append(named_sources(builder, name, argument))
    token = ACTIVE_BUILDER.set(builder)
    try:
        result = function(*variables)
    finally:
        ACTIVE_BUILDER.reset(token)
    arguments = tuple(map_leaves(lambda variable: variable.node.id, tree) for tree in variables)
    results = map_leaves(lambda leaf: returned_id(builder, leaf), result)
    if not leaves(results):
        raise GraphError(f"{builder.graph_name} returned nothing; return the Var to be computed")
    return builder.seal(arguments, results)


def named_sources(builder: Builder, name: str, argument: Any) -> Any:
    """Return the argument with a source in the place of every array."""
    pairs = list(leaves_with_paths(argument, name))
    created = [builder.add_source(path, spec_of(path, leaf), "input") for path, leaf in pairs]
    positions = iter(range(len(created)))
    return fill(map_leaves(lambda leaf: next(positions), argument), created)


def spec_of(path: str, leaf: Any) -> Spec:
    """Return the spec of one argument, or raise a GraphError that names it."""
    if isinstance(leaf, Spec):
        return leaf
    if isinstance(leaf, Var):
        raise GraphError(f"{path}: a Var of another build; pass an array or a tc.Spec")
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        if not isinstance(leaf, bool | int | float | np.generic):
            raise GraphError(
                f"{path}: expected an array, a number or a tc.Spec, got a {type(leaf).__name__}"
            )
        leaf = np.asarray(leaf)
    try:
        return Spec(tuple(leaf.shape), leaf.dtype)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def returned_id(builder: Builder, leaf: Any) -> int:
    """Return the data id of something the function returned; a plain number becomes a constant."""
    if isinstance(leaf, Var | bool | int | float | np.ndarray | np.generic):
        return builder.as_var(leaf).node.id
    raise GraphError(
        f"{builder.graph_name} returned a {type(leaf).__name__}; return Vars, nested in dicts, "
        "lists and tuples"
    )


def parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first positional parameters, as far as the function tells them."""
    code = getattr(function, "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    if names and hasattr(function, "__self__"):
        names = names[1:]
    return names[:count] + [f"arg{position}" for position in range(len(names), count)]


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Group the operators built inside, as in ``with tc.scope("layer3"):``; scopes nest."""
    builder = active_builder("scope")
    outer = builder.scope
    builder.scope = f"{outer}/{name}" if outer else name
    try:
        yield
    finally:
        builder.scope = outer


def name(x: Var, label: str) -> Var:
    """Label a value, so that policies can pick it, as JAX's ``checkpoint_name`` does.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.name(tc.tanh(x), "hidden"), tc.Spec((3,)))
    >>> graph.data[1].label
    'hidden'
    """
    return active_builder("name").relabel(active_builder("name").as_var(x), label)
