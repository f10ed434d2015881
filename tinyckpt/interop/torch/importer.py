"""Graph import from PyTorch: a joint FX graph becomes data nodes and abstract operators.

Values that share a storage are one allocation: the operator that allocates it owns it, and the
others are views. Between forward and backward pass stands an operator of its own, which reads the
forward results and makes the cotangents that the backward pass starts from; PyTorch has
placeholders in their place. Random operators read an explicit generator state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import fx

from tinyckpt.base.errors import GraphError, OptionError, did_you_mean
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import Template
from tinyckpt.core.graph import DataNode, Graph, Operator, Phase, Role, TrainingGraph
from tinyckpt.documents.verifier import check_graph
from tinyckpt.interop.importer_checks import spec_of
from tinyckpt.interop.torch.capture import fake_state, is_random, kind_of, operator_name, storage_of
from tinyckpt.interop.torch.costs import call_of, flops_of, roofline_seconds
from tinyckpt.interop.torch.fusing import Fused, inlined_by_consumer
from tinyckpt.interop.torch.joint import JointGraph, is_getitem
from tinyckpt.interop.torch.match_forward import forward_by_sequence_number, sequence_number
from tinyckpt.interop.torch.scopes import scope_of
from tinyckpt.interop.torch.split_joint import split_forward_backward
from tinyckpt.interop.torch.workspace import UNMEASURED, MeasuredOperator, measure

Cost = Literal["flops", "roofline", "measured"]
BEGIN = "backward_begins"  # the operator between forward and backward pass
STATE = "generator_state"  # the operator before one that draws random numbers
DRAWN = "drawn"  # the operator after one whose random numbers nothing reads
# Inductor draws all seeds of a step at once, and its random operators are functions of a seed.
SEEDS = "prims.inductor_seeds.default"
ROLES: dict[str, Role] = {"parameter": "parameter", "buffer": "constant", "argument": "input"}
MADE_IN: dict[Phase, Role] = {"forward": "activation", "backward": "cotangent"}


def check_cost(cost: Any) -> None:
    """Raise an OptionError unless a cost is one of ``Cost``."""
    known = get_args(Cost)
    if cost not in known:
        raise OptionError(
            f"cost {cost!r:.80}; expected one of {', '.join(known)}{did_you_mean(cost, known)}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """An imported joint graph, and the FX node of each operator.

    Attributes:
        graph: the training graph.
        joint: the joint graph that it was built from.
        calls: the FX node of every operator, by operator id; None for the operator between the
            passes, and for generator states.
        values: the data nodes of each FX node's results; of one that takes a result out of a tuple,
            that result's.
        pieces: for an FX node with several results, the nodes that take one out of them.
        fused: for an FX node, the nodes that its operator evaluates before it, in order.
        begin: the id of the operator between the passes.
    """

    graph: TrainingGraph
    joint: JointGraph
    calls: tuple[fx.Node | None, ...]
    values: Mapping[fx.Node, tuple[int, ...]]
    pieces: Mapping[fx.Node, tuple[fx.Node, ...]]
    fused: Fused
    begin: int


def graph_of(
    joint: JointGraph,
    name: str,
    cost: Cost,
    workspace: bool,
    fuses: bool = False,
    splits: bool = False,
) -> Imported:
    """Build the training graph of a joint graph; ``cost`` and ``workspace`` as in ``trace``.

    If the compiler ``fuses``, operators whose values need no memory are merged into their
    consumers. If it ``splits`` the step, inputs that forward writes to are overwritten between the
    two programs: what would need copies of its own size is not recomputed.
    """
    forward, backward = split_forward_backward(joint)
    unread = unread_draws([*forward, *backward])
    fused = inlined_by_consumer(joint.values, forward, backward) if fuses else {}
    builder = FxGraphBuilder(joint, forward, fused)
    if splits:
        builder.overwritten = {storage_of(joint.values[node]) for node in joint.mutations}
    if fuses:
        forward, backward = ([n for n in half if n in fused] for half in (forward, backward))
    nodes = [*forward, *backward]
    seen = dict.fromkeys(nodes, UNMEASURED)
    if workspace or cost == "measured":
        every = {node: call_of(joint.values, node) for node in nodes}
        seen = measure(every, timed=cost == "measured")
    for source in joint.sources:
        builder.add_source(source)
    for position, node in enumerate(nodes):
        if position == len(forward):
            builder.add_begin()
        together = (*fused.get(node, ()), node)
        flops = sum(flops_of(call_of(joint.values, each)) for each in together)
        evaluation = {
            "flops": flops,
            "roofline": roofline_seconds(joint.values, node, builder.sources_of(node), flops),
            "measured": seen[node].seconds,
        }[cost]
        measured = seen[node] if workspace else UNMEASURED
        phase: Phase = "forward" if position < len(forward) else "backward"
        builder.add_call(node, flops, evaluation, measured, phase)
        if node in unread:
            builder.add_drawn(node, phase)
    if not backward:
        builder.add_begin()
    graph, calls = builder.graph(name), tuple(builder.calls)
    return Imported(graph, joint, calls, builder.values, builder.pieces, fused, builder.begin)


# The graph ---------------------------------------------------------------------------------------


def unread_draws(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Find the random operators among some whose results none of them reads, nor the caller."""
    kept = set(nodes)

    def is_read(node: fx.Node) -> bool:
        return any(
            user in kept or user.op == "output" or (is_getitem(user) and is_read(user))
            for user in node.users
        )

    return {node for node in nodes if is_random(node) and not is_read(node)}


class FxGraphBuilder:
    """A training graph under construction.

    Attributes:
        joint: the joint graph that it is built from.
        fused: for an FX node, the nodes that its operator evaluates before it.
        data, operators: added so far.
        values: the data nodes of each FX node's results.
        pieces: for an FX node with several results, the nodes that take one out of them.
        calls: the FX node of each operator.
        begin: the operator between the passes, once it is added.
        forward_of: the forward FX node of each autograd sequence number, which its vjps share.
    """

    def __init__(self, joint: JointGraph, forward: Sequence[fx.Node], fused: Fused) -> None:
        self.joint, self.fused = joint, fused
        self.forward_of = forward_by_sequence_number(joint, forward)
        self.calls: list[fx.Node | None] = []
        self.begin = -1
        self.data: list[DataNode] = []
        self.operators: list[Operator] = []
        self.values: dict[fx.Node, tuple[int, ...]] = {}
        self.pieces: dict[fx.Node, tuple[fx.Node, ...]] = {}
        self.names: set[str] = set()
        self.storage: dict[int, int] = {}  # the storage of every data node
        self.owned: set[int] = set()  # storages already charged to a data node
        self.number: dict[fx.Node, int] = {}  # the operator id of a node
        self.overwritten: set[Any] = set()  # storages of inputs that forward writes to
        self.drawn: list[int] = []  # markers of unread draws, for the next draw to read
        for node in joint.module.graph.nodes:
            if is_getitem(node):
                made = node.args[0]
                self.pieces[made] = (*self.pieces.get(made, ()), node)

    def sources_of(self, node: fx.Node) -> list[fx.Node]:
        """Return the operands of a node's operator, inlined nodes included."""
        within = self.fused.get(node, ())
        read = [source for each in (*within, node) for source in each.all_input_nodes]
        return [source for source in dict.fromkeys(read) if source not in within]

    def only_once(self, node: fx.Node, outputs: Iterable[int]) -> bool:
        """Whether a node reads overwritten inputs that are as large as what it makes.

        A recomputation would need a copy of them instead. The running averages of a batch norm are
        far smaller than its result; a moving average of parameters is not.
        """
        read = {storage_of(self.joint.values[source]) for source in self.sources_of(node)}
        copied = sum(found[1] for found in read & self.overwritten if found is not None)
        return copied > 0 and copied >= sum(self.data[data].nbytes for data in outputs)

    def add_source(self, node: fx.Node) -> None:
        """Add a source: a parameter, buffer, argument or constant."""
        what, value = self.joint.inputs.get(node, ("", node.name)), self.joint.values[node]
        role: Role = "constant" if node.op == "get_attr" else ROLES.get(what[0], "input")
        self.values[node] = (self.add_value(name_of(what), value, role, None, ()),)

    def add_begin(self) -> None:
        """Add the operator between the passes: from the forward results to their cotangents."""
        results = [d for n in self.joint.forward if isinstance(n, fx.Node) for d in self.values[n]]
        inputs = dict.fromkeys(data for data in results if not self.data[data].is_source)
        inputs |= dict.fromkeys(self.drawn)
        self.drawn = []
        number = len(self.operators)
        outputs = []
        for node in self.joint.tangents:
            value = self.joint.values[node]
            outputs.append(self.add_value(node.name, value, "cotangent", number, ()))
            self.values[node] = (outputs[-1],)
        if not outputs:
            raise GraphError("the joint graph has no backward pass: nothing requires a gradient")
        self.begin = number
        self.calls.append(None)
        self.operators.append(
            Operator(
                number, BEGIN, BEGIN, tuple(inputs), tuple(outputs), "backward", cost=0.0, once=True
            )
        )

    def add_state(self, node: fx.Node, phase: Phase) -> int:
        """Add the generator state that lets a recomputed random operator draw the same numbers.

        It is made once, before the first draw; every later draw reads it.
        """
        name, value = f"{node.name}.state", fake_state(self.joint.values, node)
        after, self.drawn = tuple(self.drawn), []
        return self.add_marker(name, STATE, after, value, node, phase)

    def add_drawn(self, node: fx.Node, phase: Phase) -> None:
        """Add an empty value that the next draw reads: whoever plans leaves no draw out.

        The last layer of an encoder of which one token is used draws for all; without that draw,
        later ones would be of other numbers.
        """
        made = self.values[node]
        self.drawn = [self.add_marker(f"{node.name}.drawn", DRAWN, made, None, node, phase)]

    def add_marker(
        self, name: str, kind: str, inputs: tuple[int, ...], value: Any, node: fx.Node, phase: Phase
    ) -> int:
        """Add an operator without a call, evaluated once at no cost; return its result."""
        number, scope = len(self.operators), scope_of(node)
        made = self.add_value(name, value, MADE_IN[phase], number, ())
        self.calls.append(None)
        self.operators.append(
            Operator(number, name, kind, inputs, (made,), phase, None, scope, cost=0.0, once=True)
        )
        return made

    def add_call(
        self, node: fx.Node, flops: int, cost: float, measured: MeasuredOperator, phase: Phase
    ) -> None:
        """Add a node's operator, with its results."""
        inputs = [data for source in self.sources_of(node) for data in self.values[source]]
        is_seeds, workspace = operator_name(node.target) == SEEDS, measured.workspace
        if is_random(node) and not is_seeds:
            inputs.append(self.add_state(node, phase))
            # A recomputation saves the generator's current state meanwhile, as workspace.
            workspace += self.data[inputs[-1]].nbytes
        number = len(self.operators)
        made = self.joint.values[node]
        several = isinstance(made, list | tuple)
        outputs: dict[int, int] = {}
        for index, value in enumerate(made if several else [made]):
            if isinstance(value, list | tuple):
                raise GraphError(f"{node.name}, {node.target}, returns nested tensors")
            if value is not None:
                name = f"{node.name}.{index}" if several else node.name
                seen = measured.outputs[index] if measured.outputs else 0
                outputs[index] = self.add_value(name, value, MADE_IN[phase], number, inputs, seen)
        self.values[node] = tuple(outputs.values())
        for piece in self.pieces.get(node, ()):
            index = piece.args[1]
            self.values[piece] = (outputs[index],) if index in outputs else ()
        for each in (node, *self.fused.get(node, ())):
            self.number.setdefault(each, number)
        vjp_of = None if phase == "forward" else self.forward_of.get(sequence_number(node))
        self.calls.append(node)
        self.operators.append(
            Operator(
                number,
                node.name,
                kind_of(node.target),
                tuple(dict.fromkeys(inputs)),
                self.values[node],
                phase,
                None if vjp_of is None else self.number[vjp_of],
                scope_of(node),
                flops,
                workspace,
                cost=cost,
                once=is_seeds or self.only_once(node, self.values[node]),
            )
        )

    def add_value(
        self,
        name: str,
        value: Any,
        role: Role,
        producer: int | None,
        inputs: Sequence[int],
        seen: int = 0,
    ) -> int:
        """Add a data node; a view of an input, if it shares that input's storage.

        A storage is charged once, to the first data node in it, at the measured bytes if they
        exceed the declared ones.
        """
        found, number = storage_of(value), len(self.data)
        view_of, nbytes = None, 0
        if found is not None:
            key, nbytes = found[0], max(found[1], seen)
            view_of = next((data for data in inputs if self.storage.get(data) == key), None)
            self.storage[number] = key
            if producer is None and key in self.owned:
                nbytes = 0
            self.owned.add(key)
        spec = spec_of_value(value, None if view_of is not None else nbytes)
        storage_bytes = spec.nbytes if view_of is None else 0
        while name in self.names:
            name += "_"
        self.names.add(name)
        self.data.append(DataNode(number, name, spec, role, storage_bytes, producer, view_of))
        return number

    def graph(self, name: str) -> TrainingGraph:
        """Return the checked training graph."""
        joint, value_of = self.joint, self.values
        written = {
            self.data[value_of[to][0]].name: value_of[new][0] for to, new in joint.mutations.items()
        }
        new_values = set(joint.mutations.values())
        returned = [
            value_of[node][0]
            for node in joint.forward
            if isinstance(node, fx.Node) and node not in new_values
        ]
        results: Template = returned[0] if len(returned) == 1 else returned
        gradients = {
            name_of(what) if what else f"gradient[{position}]": value_of[node][0]
            for position, (node, what) in enumerate(
                zip(joint.gradients, joint.gradient_of, strict=True)
            )
            if isinstance(node, fx.Node)
        }
        arguments = tuple([value_of[source][0] for source in joint.sources])
        graph = Graph(
            name,
            tuple(self.data),
            tuple(self.operators),
            arguments,
            (results, written) if written else results,
            gradients,
        )
        check_graph(graph)
        return TrainingGraph(graph)


def name_of(what: tuple[str, Any]) -> str:
    """Return the name of an input: a parameter's path, or ``args[position]``."""
    kind, which = what
    return f"args[{which}]" if kind == "argument" else str(which)


def spec_of_value(value: Any, nbytes: int | None) -> Spec:
    """Return the Spec of a value.

    Args:
        value: a FakeTensor, or a number, which takes no memory.
        nbytes: of the storage that it owns; None if it is a view.
    """
    if not isinstance(value, torch.Tensor):
        return Spec((0,), "uint8")
    dtype = str(value.dtype).removeprefix("torch.")
    return spec_of(value.shape, dtype, value.numel() * value.element_size(), nbytes)
