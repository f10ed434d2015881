"""From a schedule to FX programs that run it in PyTorch.

Here and in ``capture`` alone stand calls that PyTorch does not promise to keep. Each evaluation of
the schedule is a copy of the operator's node; reads go to the latest copy. ``Free`` needs nothing:
FX's programs let go of a value after its last reader, which is what schedules do.

A random operator that is evaluated again saves the generator's state the first time, 5 kB on a CPU,
and draws from it again; in the graph the state is a value of its own, which is there only for as
long. What draws first still has to do so in the order of the traced step, for the generator itself
goes on from one to the next.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.schedule import Compute, Schedule, Step
from tinyckpt.interop.frameworks import check_schedule
from tinyckpt.interop.torch.capture import (
    copied,
    fake_state,
    is_random,
    joint_of_graph,
    output_node,
    storage_of,
)
from tinyckpt.interop.torch.importer import Imported
from tinyckpt.interop.torch.joint import Joint
from tinyckpt.interop.torch.versions import DESCRIPTORS, taken

SavedForBackwardsAOTOutput = taken(f"{DESCRIPTORS}:SavedForBackwardsAOTOutput")
run_and_save_rng_state = taken("torch._prims.rng_prims:run_and_save_rng_state")
run_with_rng_state = taken("torch._prims.rng_prims:run_with_rng_state")
NO_VERSION_CHECK = "saved_tensor_with_no_vc_check"  # AOTAutograd wants values with it last


def program_of(schedule: Schedule, imported: Imported) -> fx.GraphModule:
    """Return a whole schedule as one program, with the inputs and outputs of the joint graph.

    Raises:
        ScheduleError: if the schedule is not legal, is of another graph, moves values to the host,
            or lets random operators draw in another order.
    """
    check_schedule(schedule, imported.graph, "PyTorch")
    check_random(schedule, imported)
    joint = imported.joint
    program = Half(imported, again_of(schedule, imported))
    for node in joint.module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            program.copy(node)
    program.emit(schedule.steps)
    program.graph.output(program.current((*joint.forward, *joint.gradients)))
    return fx.GraphModule(joint.module, program.graph)


def halves_of(schedule: Schedule, imported: Imported) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Return a schedule as a forward and a backward program, as AOTAutograd wants them.

    The schedule is cut where the backward half begins. The forward program returns, after its
    results, what the backward one reads, and that takes cotangents after it.

    Raises:
        ScheduleError: as ``program_of``.
    """
    check_schedule(schedule, imported.graph, "PyTorch")
    check_random(schedule, imported)
    joint, again = imported.joint, again_of(schedule, imported)
    steps = schedule.steps
    cut = steps.index(Compute(imported.begin))
    first = Half(imported, again)
    for node in joint.sources:
        first.copy(node)
    first.emit(steps[:cut])
    second = Half(imported, again)
    given = second.take_over(first)
    for node in joint.tangents:
        second.copy(node)
    second.emit(steps[cut:])
    second.graph.output(second.current(joint.gradients))
    second.graph.output_node().meta["desc"] = descriptors_of(imported, backward=True)
    for placeholder in list(given):
        if not placeholder.users:
            second.graph.erase_node(placeholder)
            del given[placeholder]
    saved = first.kept(given)
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


class Half:
    """A program in the making: either half of a step, or all of it.

    Attributes:
        imported: the graph, and the nodes of its operators.
        again: the operators that are evaluated more than once.
        graph: the program.
        copies: for each node of the joint graph its latest copy in the program.
        states: for each random node that is evaluated again, the state before it drew first.
    """

    def __init__(self, imported: Imported, again: set[int]) -> None:
        self.imported, self.again = imported, again
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}
        self.states: dict[fx.Node, fx.Node] = {}

    def copy(self, node: fx.Node) -> None:
        """Add a copy of a node that reads the latest copies."""
        self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def current(self, nodes: Iterable[Any]) -> tuple[Any, ...]:
        """Return the latest copies of nodes; what is no node as it is."""
        return tuple(self.copies[n] if isinstance(n, fx.Node) else n for n in nodes)

    def emit(self, steps: Iterable[Step]) -> None:
        """Add the evaluations of a schedule."""
        for step in steps:
            if not isinstance(step, Compute):
                continue
            node = self.imported.calls[step.operator]
            if node is None:
                continue
            for each in self.imported.fused.get(node, ()):
                self.copy(each)
            if step.operator in self.again and is_random(node):
                self.copies[node] = self.drawn(node)
            else:
                self.copy(node)
            for piece in self.imported.pieces.get(node, ()):
                self.copy(piece)

    def drawn(self, node: fx.Node) -> fx.Node:
        """Add an evaluation of a random operator that draws the same numbers each time."""
        args = fx.node.map_arg(node.args, self.copies.__getitem__)
        kwargs = fx.node.map_arg(dict(node.kwargs), self.copies.__getitem__)
        if node in self.states:
            made = self.graph.call_function(
                run_with_rng_state, (self.states[node], node.target, *args), kwargs
            )
        else:
            both = self.graph.call_function(run_and_save_rng_state, (node.target, *args), kwargs)
            self.states[node] = self.graph.call_function(operator.getitem, (both, 0))
            self.states[node].meta["val"] = fake_state(self.imported.joint, node)
            made = self.graph.call_function(operator.getitem, (both, 1))
        made.meta = dict(node.meta)
        return made

    def take_over(self, other: Half) -> dict[fx.Node, fx.Node]:
        """Add placeholders for all that another half has; return which each stands for."""
        given = {}
        for node, copy in sorted(other.copies.items(), key=without_version_check):
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
        """Add a placeholder for a value of the other half."""
        placeholder = self.graph.placeholder(copy.name)
        placeholder.meta = meta
        return placeholder

    def kept(self, given: dict[fx.Node, fx.Node]) -> list[fx.Node]:
        """Return what the other half is given, each in the place of its placeholder.

        An input that the caller writes to between the halves is given as a copy of what it was.
        """
        joint = self.imported.joint
        written = {storage_of(joint.values[node]) for node in joint.mutations}
        shown = {
            copy for node, copy in self.copies.items() if storage_of(joint.values[node]) in written
        }
        return [clone_of(self.graph, node) if node in shown else node for node in given.values()]


def without_version_check(pair: tuple[fx.Node, fx.Node]) -> bool:
    """Return a key that sorts last what autograd saves without a check of its version."""
    return bool(pair[0].meta.get(NO_VERSION_CHECK, False))


def descriptors_of(imported: Imported, backward: bool) -> list[Any]:
    """Return what the outputs of either half are, as the joint graph says it."""
    joint = imported.joint
    count = len(joint.forward)
    found = output_node(joint.module).meta.get("desc")
    descriptors = list(found or [None] * (count + len(joint.gradients)))
    return descriptors[count:] if backward else descriptors[:count]


def eager_backend(partition: Callable[..., Any]) -> Callable[..., Any]:
    """Return a backend of ``torch.compile`` that runs the halves of a partition function as is."""
    # Imported here, since all of Dynamo comes with it.
    aot_autograd = taken("torch._dynamo.backends.common:aot_autograd")
    boxed_nop = taken("torch._dynamo.backends.debugging:boxed_nop")

    made: Callable[..., Any] = aot_autograd(
        fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partition
    )
    return made


def last_of_limit() -> int:
    """Return Dynamo's limit of programs for one code if it compiles the last one now, else 0."""
    compiled = taken("torch._guards:CompileContext.current_compile_id")()
    if compiled is None or compiled.frame_compile_id is None:
        return 0  # AOTAutograd without Dynamo
    limit: int = taken("torch._dynamo.config:recompile_limit")
    return limit if compiled.frame_compile_id + 1 == limit else 0


@contextmanager
def min_cut_backend(
    budget: float, on_halves: Callable[[fx.GraphModule, int, Sequence[fx.GraphModule]], None]
) -> Iterator[Callable[..., Any]]:
    """Set PyTorch's ``activation_memory_budget``; yield a backend with its own partitioner.

    Saved values in the memory of a buffer that the step writes to, such as BatchNorm's running
    averages, are saved as copies: PyTorch saves the buffer itself, and its backward pass raises.
    Inductor is spared that by its decompositions, which without its fusion use more memory.

    Args:
        budget: from 0 to 1.
        on_halves: is called with the joint graph as it was, how many of its outputs belong to the
            forward half, and the two graphs that PyTorch makes of it.
    """
    with min_cut(budget) as cut:

        def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
            before, results = copied(joint), options["num_fwd_outputs"]
            forward, backward = cut(joint, inputs, **options)
            on_halves(before, results, (copied(forward), backward))
            save_copies_of_written(joint_of_graph(before, results, "compiled"), forward)
            return forward, backward

        yield eager_backend(partition)


def save_copies_of_written(joint: Joint, forward: fx.GraphModule) -> None:
    """Save copies of values in the memory of an input that the step writes to.

    Args:
        joint: the joint graph.
        forward: the forward graph that PyTorch made of it, whose nodes have the same names.
    """
    written = {storage_of(joint.values[node]) for node in joint.mutations}
    names = {node.name for node, value in joint.values.items() if storage_of(value) in written}
    end = output_node(forward)
    results = list(end.args[0])
    for place in range(len(joint.forward), len(results)):
        node = results[place]
        if isinstance(node, fx.Node) and node.name in names:
            with forward.graph.inserting_before(end):
                results[place] = clone_of(forward.graph, node)
    end.args = (tuple(results),)
    forward.recompile()


def clone_of(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Add a copy of a value to a graph; return it."""
    clone = graph.call_function(torch.ops.aten.clone.default, (node,))
    clone.meta = dict(node.meta)
    clone.meta.pop("desc", None)
    return clone


@contextmanager
def min_cut(budget: float) -> Iterator[Callable[..., Any]]:
    """Set PyTorch's ``activation_memory_budget``; yield the partitioner that reads it.

    It writes to the graph that it is given.
    """
    # Imported here, since parts of Inductor come with it.
    from torch._functorch import config

    cut = taken("torch._functorch.partitioners:min_cut_rematerialization_partition")
    with config.patch(activation_memory_budget=budget, enable_autograd_cache=False):
        yield cut


def inductor_pass(partition: Callable[..., Any]) -> Any:
    """Return a partition function as Inductor takes it; what it makes is never cached."""
    # Imported here, since all of Inductor comes with it.
    partitioner: Any = taken("torch._inductor.custom_graph_pass:CustomPartitionerFn")

    class Planned(partitioner):  # type: ignore[misc]
        def __call__(self, gm: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
            return partition(gm, joint_inputs, **kwargs)

        def uuid(self) -> None:
            return None

    return Planned()


# Checking ----------------------------------------------------------------------------------------


def again_of(schedule: Schedule, imported: Imported) -> set[int]:
    """Return the operators that a schedule evaluates more than once."""
    times = Counter(step.operator for step in schedule.steps if isinstance(step, Compute))
    return {index for index, count in times.items() if count > 1}


def check_random(schedule: Schedule, imported: Imported) -> None:
    """Raise a ScheduleError unless random operators draw first in the order of the traced step."""
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
                "traced step: both would draw others; legal is the order of the trace"
            )
        seen.add(index)
        last = index
