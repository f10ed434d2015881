"""The graph under construction: the one mutable thing here, gone once the graph is sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError
from tinyckpt.base.tree import Template
from tinyckpt.core.belonging import ACTIVE_BUILDER, Around, Belonging
from tinyckpt.core.graph import DataNode, Graph, Operator, Role, Spec
from tinyckpt.core.primitive import Primitive
from tinyckpt.core.unused import without_unused
from tinyckpt.core.var import Var


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
