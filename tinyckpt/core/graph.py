"""The computation graph (dataflow IR): data nodes and operators as frozen dataclasses.

The graph is bipartite and acyclic. A *data node*, or value, is one tensor; an *operator* is one
application of a primitive, which reads data nodes and produces data nodes. Ids are consecutive
integers in build order, hence a topological order: an operator reads only sources and outputs of
operators with smaller ids. The backward pass is part of the same graph, after the forward pass.

There is no arithmetic here, and no array but the constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NewType

from tinyckpt.base.display import make_printable, notebook_method
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import Template, leaves
from tinyckpt.core.primitive import Primitive

Phase = Literal["forward", "backward"]
Role = Literal["input", "parameter", "constant", "activation", "cotangent"]
SOURCES: tuple[Role, ...] = ("input", "parameter", "constant")
UPDATE = "update"  # the kind of an operator that overwrites a source in place


@dataclass(frozen=True, slots=True)
class DataNode:
    """One tensor value of the graph.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: tc.tanh(x), tc.Spec((3,)))
    >>> str(graph.data[1]), graph.data[1].producer, graph.data[1].nbytes
    ('tanh_1: float64[3]', 0, 24)

    Attributes:
        id: position in ``Graph.data``.
        name: unique and readable, such as ``tanh_3`` or ``params[0]['w']``.
        spec: shape and dtype.
        role: input, parameter or constant (the sources); activation; or cotangent.
        nbytes: bytes of memory that the value owns; 0 for a view.
        producer: the operator that computes it, or None for a source.
        view_of: the data node whose memory it shares, or None if it owns its memory.
        label: the user's name for it, from ``name(x, label)``, by which policies can select it.
    """

    id: int
    name: str
    spec: Spec
    role: Role
    nbytes: int
    producer: int | None = None
    view_of: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if not self.name.isprintable() or not (self.label or "").isprintable():
            make_printable(self, "name", "label")

    @property
    def is_source(self) -> bool:
        """Whether no operator computes it: always resident, never charged to a schedule."""
        return self.producer is None

    def __str__(self) -> str:
        return f"{self.name}: {self.spec}"


@dataclass(frozen=True, slots=True)
class Operator:
    """One application of a primitive.

    >>> import tinyckpt as tc
    >>> operator = tc.networks.chain(2).operators[3]
    >>> operator.name, operator.kind, operator.phase, operator.inputs, operator.outputs
    ('b2', 'tanh_vjp', 'backward', (2, 4), (5,))

    Attributes:
        id: position in ``Graph.operators``.
        name: unique and readable, such as ``matmul_3`` or ``matmul_3_vjp``.
        kind: the primitive's name.
        inputs: data nodes it reads, in argument order; a node may occur twice.
        outputs: data nodes it produces.
        phase: forward, or backward.
        adjoint_of: the forward operator whose adjoint (vjp) it is part of, or None.
        scope: the ``scope`` it was built in, such as ``layer3/attention``; empty outside of any.
        flops: floating-point operations of one evaluation.
        workspace: scratch bytes in use during one evaluation, beyond inputs and outputs.
        primitive: kernel and rules; None for an abstract operator, which can be planned, replayed
            and drawn but not executed.
        attrs: static attributes of the primitive, such as axes.
        regions: the enclosing calls of ``checkpoint``-marked functions, outermost first.
        cost: measured cost of one evaluation, if the graph's author supplied it; else None.
        once: whether it is non-recomputable: its outputs stay resident until their last reader.
    """

    id: int
    name: str
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    phase: Phase = "forward"
    adjoint_of: int | None = None
    scope: str = ""
    flops: int = 0
    workspace: int = 0
    primitive: Primitive | None = field(default=None, compare=False, repr=False)
    attrs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    regions: tuple[int, ...] = ()
    cost: float | None = None
    once: bool = False

    @property
    def is_update(self) -> bool:
        """Whether it overwrites a source (its first input) with its second input, in place."""
        return self.kind == UPDATE

    def __post_init__(self) -> None:
        if not (self.name.isprintable() and self.kind.isprintable() and self.scope.isprintable()):
            make_printable(self, "name", "kind", "scope")


@dataclass(frozen=True, slots=True, repr=False)
class Graph:
    """The computation graph: data nodes and operators in build order, arguments and results.

    >>> import tinyckpt as tc
    >>> print(tc.build(lambda x: tc.sum(tc.tanh(x)), tc.Spec((3,)), graph_name="loss"))
    loss: 2 operators, 3 data nodes
      tanh_1 = tanh(x)   float64[3]
      sum_1 = sum(tanh_1)   float64[]

    Attributes:
        name: title of the graph in pictures and tables.
        data, operators: all nodes; ``data[i].id == i`` and ``operators[i].id == i``.
        arguments: template of the function's positional arguments: their nesting, of data ids.
        results: template of the function's results.
        gradients: template of the gradients, or None if the graph has no backward pass.
        constants: the values of the constant sources, by data id.
        consumers: the operators that read each data node (use lists), ascending; derived.
        outputs: data ids of results and gradients, in order, without duplicates; derived.
        forward_count: number of operators before the first backward one; derived.
        updates: the operators that overwrite a source; derived.
        once: the non-recomputable operators; derived.
    """

    name: str
    data: tuple[DataNode, ...]
    operators: tuple[Operator, ...]
    arguments: Template = ()
    results: Template = None
    gradients: Template = None
    constants: Mapping[int, Any] = field(default_factory=dict, compare=False, repr=False)
    consumers: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    outputs: tuple[int, ...] = field(init=False, repr=False, compare=False)
    forward_count: int = field(init=False, repr=False, compare=False)
    updates: tuple[int, ...] = field(init=False, repr=False, compare=False)
    once: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        make_printable(self, "name")
        readers: list[list[int]] = [[] for _ in self.data]
        for operator in self.operators:
            for data in dict.fromkeys(operator.inputs):
                readers[data].append(operator.id)
        outputs = dict.fromkeys(leaves(self.results) + leaves(self.gradients))
        object.__setattr__(self, "consumers", tuple(map(tuple, readers)))
        object.__setattr__(self, "outputs", tuple(outputs))
        backward = (operator.id for operator in self.operators if operator.phase == "backward")
        object.__setattr__(self, "forward_count", next(backward, len(self.operators)))
        updates = [operator.id for operator in self.operators if operator.kind == UPDATE]
        object.__setattr__(self, "updates", tuple(updates))
        once = [operator.id for operator in self.operators if operator.once]
        object.__setattr__(self, "once", tuple(once))

    @property
    def source_bytes(self) -> int:
        """Bytes of the sources: reported, never charged to a schedule."""
        return sum(node.nbytes for node in self.data if node.is_source)

    def __repr__(self) -> str:
        return f"<Graph {self.name}, {len(self.operators)} operators>"

    _repr_mimebundle_ = notebook_method(lambda self: self)

    def __str__(self) -> str:
        """Return one line per operator: ``tanh_1 = tanh(add_1)   float64[8,8]``."""
        lines = [f"{self.name}: {len(self.operators)} operators, {len(self.data)} data nodes"]
        for operator in self.operators:
            if operator.id == self.forward_count:
                lines.append("backward:")
            results = ", ".join(self.data[i].name for i in operator.outputs)
            arguments = ", ".join(self.data[i].name for i in operator.inputs)
            specs = ", ".join(str(self.data[i].spec) for i in operator.outputs)
            lines.append(f"  {results} = {operator.kind}({arguments})   {specs}")
        return "\n".join(lines)


def producer_of(graph: Graph, data: int) -> int:
    """Return the operator that produces a value; the value must not be a source."""
    producer = graph.data[data].producer
    assert producer is not None
    return producer


# A Graph with a backward pass, as ``differentiate`` returns it. Policies take any Graph.
TrainingGraph = NewType("TrainingGraph", Graph)
