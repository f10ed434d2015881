"""FX code generation: lower a schedule to FX programs that PyTorch runs.

Each evaluation in the schedule is a copy of the operator's node; reads refer to the latest copy.
``Free`` needs no code: FX programs release a value after its last use, as schedules do. A step is
one program (``program_of``) or a forward and a backward program for AOTAutograd
(``forward_and_backward_programs``).

A random operator that is recomputed saves its generator's state at the first evaluation, 5 kB on a
CPU, and restores it for the second; the state is a value of the graph with a lifetime of its own.
First evaluations must still draw in the order of the traced step, since each advances the generator
for the next (``check_random``).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.schedule import Compute, Schedule, Step
from tinyckpt.interop.importer_checks import check_schedule
from tinyckpt.interop.torch.capture import (
    fake_state,
    is_random,
    output_node,
    storage_of,
)
from tinyckpt.interop.torch.importer import Imported
from tinyckpt.interop.torch.versions import DESCRIPTORS, private_attribute

SavedForBackwardsAOTOutput = private_attribute(f"{DESCRIPTORS}:SavedForBackwardsAOTOutput")
run_and_save_rng_state = private_attribute("torch._prims.rng_prims:run_and_save_rng_state")
run_with_rng_state = private_attribute("torch._prims.rng_prims:run_with_rng_state")
# Node metadata key: AOTAutograd requires saved values with it to come last.
NO_VERSION_CHECK = "saved_tensor_with_no_vc_check"


def program_of(schedule: Schedule, imported: Imported) -> fx.GraphModule:
    """Lower a whole schedule to one program, with the inputs and outputs of the joint graph.

    Raises:
        ScheduleError: if the schedule is not legal, is of another graph, offloads values, or
            reorders random operators.
    """
    check_schedule(schedule, imported.graph, "PyTorch")
    check_random(schedule, imported)
    joint = imported.joint
    program = ProgramBuilder(imported, recomputed_operators(schedule))
    for node in joint.module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            program.copy(node)
    program.emit(schedule.steps)
    program.graph.output(program.current((*joint.forward, *joint.gradients)))
    return fx.GraphModule(joint.module, program.graph)


def forward_and_backward_programs(
    schedule: Schedule, imported: Imported
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Lower a schedule to a forward and a backward program, in AOTAutograd's calling convention.

    The schedule is split where the backward pass begins. The forward program returns its results,
    then the saved values that the backward program reads; that takes the saved values, then the
    cotangents.

    Raises:
        ScheduleError: as ``program_of``.
    """
    check_schedule(schedule, imported.graph, "PyTorch")
    check_random(schedule, imported)
    joint, again = imported.joint, recomputed_operators(schedule)
    steps = schedule.steps
    cut = steps.index(Compute(imported.begin))
    first = ProgramBuilder(imported, again)
    for node in joint.sources:
        first.copy(node)
    first.emit(steps[:cut])
    second = ProgramBuilder(imported, again)
    given = second.add_saved_placeholders(first)
    for node in joint.tangents:
        second.copy(node)
    second.emit(steps[cut:])
    second.graph.output(second.current(joint.gradients))
    second.graph.output_node().meta["desc"] = descriptors_of(imported, backward=True)
    for placeholder in list(given):
        if not placeholder.users:
            second.graph.erase_node(placeholder)
            del given[placeholder]
    saved = first.saved_values(given)
    for node in joint.writes:
        first.copy(node)
    first.graph.output((*first.current(joint.forward), *saved))
    first.graph.output_node().meta["desc"] = [
        *descriptors_of(imported, backward=False),
        *map(SavedForBackwardsAOTOutput, range(len(saved))),
    ]
    for node in second.graph.nodes:
        node.meta["autograd_backward"] = True
    module = joint.module
    return fx.GraphModule(module, first.graph), fx.GraphModule(module, second.graph)


class ProgramBuilder:
    """An FX program under construction: the forward pass, the backward pass, or the whole step.

    Attributes:
        imported: the graph, and the nodes of its operators.
        again: the operators that are evaluated more than once.
        graph: the program.
        copies: for each node of the joint graph, its latest copy in the program.
        states: for each recomputed random node, the generator state before its first draw.
    """

    def __init__(self, imported: Imported, again: set[int]) -> None:
        self.imported, self.again = imported, again
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}
        self.states: dict[fx.Node, fx.Node] = {}

    def copy(self, node: fx.Node) -> None:
        """Emit a copy of a node, its operands being the latest copies."""
        self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def current(self, nodes: Iterable[Any]) -> tuple[Any, ...]:
        """Return the latest copies of nodes; other values unchanged."""
        return tuple(self.copies[n] if isinstance(n, fx.Node) else n for n in nodes)

    def emit(self, steps: Iterable[Step]) -> None:
        """Emit the evaluations of a schedule."""
        for step in steps:
            if not isinstance(step, Compute):
                continue
            node = self.imported.calls[step.operator]
            if node is None:
                continue
            for each in self.imported.fused.get(node, ()):
                self.copy(each)
            if step.operator in self.again and is_random(node):
                self.copies[node] = self.emit_random(node)
            else:
                self.copy(node)
            for piece in self.imported.pieces.get(node, ()):
                self.copy(piece)

    def emit_random(self, node: fx.Node) -> fx.Node:
        """Emit a recomputed random operator, so that every evaluation draws the same numbers."""
        args = fx.node.map_arg(node.args, self.copies.__getitem__)
        kwargs = fx.node.map_arg(dict(node.kwargs), self.copies.__getitem__)
        if node in self.states:
            made = self.graph.call_function(
                run_with_rng_state, (self.states[node], node.target, *args), kwargs
            )
        else:
            both = self.graph.call_function(run_and_save_rng_state, (node.target, *args), kwargs)
            self.states[node] = self.graph.call_function(operator.getitem, (both, 0))
            self.states[node].meta["val"] = fake_state(self.imported.joint.values, node)
            made = self.graph.call_function(operator.getitem, (both, 1))
        made.meta = dict(node.meta)
        return made

    def add_saved_placeholders(self, other: ProgramBuilder) -> dict[fx.Node, fx.Node]:
        """Add placeholders for the forward program's values; map each to its value."""
        given = {}
        pairs = other.copies.items()
        for node, copy in sorted(pairs, key=lambda pair: pair[0].meta.get(NO_VERSION_CHECK, False)):
            if node.op == "get_attr":
                self.copy(node)
                continue
            if isinstance(self.imported.joint.values[node], torch.Tensor):
                placeholder = self.placeholder(copy, dict(node.meta))
                self.copies[node], given[placeholder] = placeholder, copy
        for node, state in other.states.items():
            self.states[node] = self.placeholder(state, dict(state.meta))
            given[self.states[node]] = state
        return given

    def placeholder(self, copy: fx.Node, meta: dict[str, Any]) -> fx.Node:
        """Add a placeholder for a value of the forward program."""
        placeholder = self.graph.placeholder(copy.name)
        placeholder.meta = meta
        return placeholder

    def saved_values(self, given: dict[fx.Node, fx.Node]) -> list[fx.Node]:
        """Return the saved values that the backward program reads, in its placeholders' order.

        An input that the caller overwrites between the two programs is saved as a clone.
        """
        joint = self.imported.joint
        written = {storage_of(joint.values[node]) for node in joint.mutations}
        shown = {
            copy for node, copy in self.copies.items() if storage_of(joint.values[node]) in written
        }
        return [clone_of(self.graph, node) if node in shown else node for node in given.values()]


def descriptors_of(imported: Imported, backward: bool) -> list[Any]:
    """Return the output descriptors of the forward or backward program, from the joint graph."""
    joint = imported.joint
    count = len(joint.forward)
    found = output_node(joint.module).meta.get("desc")
    descriptors = list(found or [None] * (count + len(joint.gradients)))
    return descriptors[count:] if backward else descriptors[:count]


def clone_of(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Emit a clone of a value; return its node."""
    clone = graph.call_function(torch.ops.aten.clone.default, (node,))
    clone.meta = dict(node.meta)
    clone.meta.pop("desc", None)
    return clone


# Checking ----------------------------------------------------------------------------------------


def recomputed_operators(schedule: Schedule) -> set[int]:
    """Return the operators that a schedule evaluates more than once."""
    times = Counter(step.operator for step in schedule.steps if isinstance(step, Compute))
    return {index for index, count in times.items() if count > 1}


def check_random(schedule: Schedule, imported: Imported) -> None:
    """Raise a ScheduleError unless all random operators first draw as in the traced step."""
    graph = imported.graph
    last = -1
    seen: set[int] = set()
    for position, step in enumerate(schedule.steps):
        if not isinstance(step, Compute):
            continue
        index = step.operator
        node = imported.calls[index]
        if node is None or index in seen or not is_random(node):
            continue
        if index < last:
            raise ScheduleError(
                f"step {position}: compute {graph.operators[index].name}, which draws random "
                f"numbers, comes after {graph.operators[last].name}, which drew later in the "
                "traced step: both would draw other numbers; expected the order of the trace"
            )
        seen.add(index)
        last = index
    for index, node in enumerate(imported.calls):
        if node is not None and index not in seen and is_random(node):
            raise ScheduleError(
                f"the schedule leaves out {graph.operators[index].name}, which draws random "
                "numbers: later draws would be others; expected every draw of the traced step"
            )
