"""Graph partitioning for pipeline parallelism: cut a training graph into one graph per stage.

Between its forward and its backward pass, a stage has one more operator, its *exchange*: its inputs
are sent to the next stage, its outputs are the cotangents received from there. So a stage's
schedule is an ordinary one: policies plan it, ``replay`` checks it and counts its bytes; and the
exchange is the point where a device leaves it, to run other actions.

A value made in one stage and read in another that is not its neighbour (a skip connection) passes
through the stages in between, as a value that each of them receives and sends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tinyckpt.base.tree import leaves
from tinyckpt.core.graph import DataNode, Graph, Operator, Role, TrainingGraph
from tinyckpt.pipeline.partition import stage_of_operators

EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its graph, and its interface within the whole graph.

    Attributes:
        graph: its operators, with the exchange between forward and backward if it has one.
        whole: the graph that it was cut from.
        local: for the values of the whole graph that the stage has, their ids in its own graph.
        takes, gives: values received from the previous stage, and sent to the next one, in the
            forward pass; by data ids of the whole graph.
        takes_back, gives_back: values received from the next stage, and sent to the previous one,
            in the backward pass.
        outputs: results and gradients of the whole graph that it computes.
        exchange: the operator's id; None if nothing is received in the backward pass.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(8)
    >>> first, last = stages_of(graph, [4])
    >>> first.gives == last.takes, first.takes_back == last.gives_back
    (True, True)
    >>> first.nbytes(first.gives), last.exchange is None
    (512, True)
    """

    graph: Graph
    whole: TrainingGraph = field(repr=False)
    local: Mapping[int, int] = field(repr=False)
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    takes_back: tuple[int, ...]
    gives_back: tuple[int, ...]
    outputs: tuple[int, ...]
    exchange: int | None

    def ids(self, values: Iterable[int]) -> list[int]:
        """Return the stage's own ids of values of the whole graph."""
        return [self.local[data] for data in values]

    def nbytes(self, values: Iterable[int]) -> int:
        """Return the bytes of values when sent: each counts in full, views included."""
        return sum(self.whole.data[data].spec.nbytes for data in values)


def stages_of(graph: TrainingGraph, cuts: Sequence[int], halves: bool = False) -> tuple[Stage, ...]:
    """Cut a training graph into stages.

    Args:
        graph: loss and gradients of one micro-batch.
        cuts: for every stage but the first its first forward operator, as ``partition`` returns.
        halves: whether a stage's backward operators are ordered with those first that the previous
            stage waits for, as for pipelines with split backwards (``Pipeline.halves``).

    >>> import tinyckpt as tc
    >>> [len(stage.graph.operators) for stage in stages_of(tc.networks.chain(8), [3, 6])]
    [7, 7, 5]
    """
    place = stage_of_operators(graph, cuts)
    bundles = Bundles(graph, place, len(cuts) + 1)
    operators: list[list[int]] = [[] for _ in range(len(cuts) + 1)]
    for operator in graph.operators:
        operators[place[operator.id]].append(operator.id)
    stages = []
    for number, own in enumerate(operators):
        # Nothing crosses after the last stage; nor before the first, for which -1 is the last.
        if halves:
            own = awaited_first(graph, own, bundles.back[number - 1])
        cutter = Cutter(graph, f"{graph.name}, stage {number}")
        stages.append(
            cutter.stage(
                own,
                takes=bundles.forth[number - 1],
                gives=bundles.forth[number],
                takes_back=bundles.back[number],
                gives_back=bundles.back[number - 1],
                outputs=tuple(data for data in graph.outputs if bundles.home[data] == number),
            )
        )
    return tuple(stages)


class Bundles:
    """The values that cross from each stage to the next, and back in the backward pass.

    Attributes:
        home: for every value the stage that computes it; for a source the first that reads it.
        forth, back: for every stage the values that it exchanges with the next one, in either
            pass, by id; none for the last.
    """

    def __init__(self, graph: Graph, place: Sequence[int], stages: int) -> None:
        self.home = [0] * len(graph.data)
        forth: list[list[int]] = [[] for _ in range(stages)]
        back: list[list[int]] = [[] for _ in range(stages)]
        for node in graph.data:
            readers = [place[reader] for reader in graph.consumers[node.id]]
            if node.producer is None:
                self.home[node.id] = min(readers, default=0)
                continue
            own = self.home[node.id] = place[node.producer]
            for cut in range(own, max(readers, default=own)):
                forth[cut].append(node.id)
            for cut in range(min(readers, default=own), own):
                back[cut].append(node.id)
        self.forth, self.back = list(map(tuple, forth)), list(map(tuple, back))


def awaited_first(graph: Graph, operators: Sequence[int], awaited: Iterable[int]) -> list[int]:
    """Order operators so that backward operators that some awaited values depend on come first."""
    needed = set(awaited)
    first = set()
    for index in reversed(operators):
        operator = graph.operators[index]
        if operator.phase == "forward" or not needed.isdisjoint(operator.outputs):
            first.add(index)
            if operator.phase == "backward":
                needed.update(operator.inputs)
    return sorted(operators, key=lambda index: (index not in first, index))


class Cutter:
    """Builder of one stage's graph: copies operators and renumbers their values."""

    def __init__(self, whole: TrainingGraph, name: str) -> None:
        self.whole, self.name = whole, name
        self.data: list[DataNode] = []
        self.operators: list[Operator] = []
        self.local: dict[int, int] = {}
        self.new_operator: dict[int, int] = {}

    def stage(
        self,
        operators: Sequence[int],
        takes: tuple[int, ...],
        gives: tuple[int, ...],
        takes_back: tuple[int, ...],
        gives_back: tuple[int, ...],
        outputs: tuple[int, ...],
    ) -> Stage:
        """Build the stage with the given operators; the other arguments are as in a Stage."""
        whole = self.whole
        read = {data for index in operators for data in whole.operators[index].inputs}
        read.update(outputs)
        sources = [data for data in sorted(read) if whole.data[data].is_source]
        for data in sources:
            self.add(data, whole.data[data].role)
        for data in takes:
            self.add(data, "input")
        for index in operators:
            if whole.operators[index].phase == "forward":
                self.copy(index)
        exchange = self.add_exchange(gives, takes_back) if takes_back else None
        for index in operators:
            if whole.operators[index].phase == "backward":
                self.copy(index)
        # The stage's own gradients: one of a later stage may pass through, and is a result here.
        gradients = set(leaves(whole.gradients)) & set(outputs)
        # Without an exchange, no operator reads the values to send: they are results.
        last = () if exchange is not None else gives
        given = [data for data in (*outputs, *gives_back, *last) if data not in gradients]
        arguments = [data for data in sources if whole.data[data].role != "constant"]
        graph = Graph(
            self.name,
            tuple(self.data),
            tuple(self.operators),
            arguments=tuple(self.local[data] for data in (*arguments, *takes)),
            results=[self.local[data] for data in dict.fromkeys(given)],
            gradients=[self.local[data] for data in outputs if data in gradients],
            constants={
                self.local[data]: whole.constants[data]
                for data in sources
                if whole.data[data].role == "constant" and data in whole.constants
            },
        )
        return Stage(
            graph, whole, self.local, takes, gives, takes_back, gives_back, outputs, exchange
        )

    def add(
        self, data: int, role: Role, producer: int | None = None, base: int | None = None
    ) -> int:
        """Copy a value of the whole graph; return its id in the stage.

        Args:
            data: its id in the whole graph.
            role: its role in the stage.
            producer: its operator in the stage, if any.
            base: the value of the whole graph that it is a view of. A received value is none: it
                has memory of its own.
        """
        node = self.whole.data[data]
        view = None if base is None else self.local.get(base)
        new = replace(
            node,
            id=len(self.data),
            role=role,
            producer=producer,
            view_of=view,
            nbytes=node.spec.nbytes if view is None else 0,
        )
        self.data.append(new)
        self.local[data] = new.id
        return new.id

    def copy(self, index: int) -> None:
        """Copy an operator of the whole graph, with its outputs."""
        operator = self.whole.operators[index]
        number = self.new_operator[index] = len(self.operators)
        inputs = tuple([self.local[data] for data in operator.inputs])
        made = [self.whole.data[data] for data in operator.outputs]
        outputs = tuple([self.add(node.id, node.role, number, node.view_of) for node in made])
        mirror = operator.adjoint_of
        self.operators.append(
            replace(
                operator,
                id=number,
                inputs=inputs,
                outputs=outputs,
                adjoint_of=None if mirror is None else self.new_operator.get(mirror),
            )
        )

    def add_exchange(self, gives: Sequence[int], takes_back: Sequence[int]) -> int:
        """Add the operator that stands for all later stages; it is evaluated exactly once."""
        number = len(self.operators)
        inputs = tuple([self.local[data] for data in gives])
        outputs = tuple([self.add(data, self.whole.data[data].role, number) for data in takes_back])
        # With a cost of 0, a stage of a profiled graph has a cost for every operator.
        made = Operator(number, EXCHANGE, EXCHANGE, inputs, outputs, once=True, cost=0)
        self.operators.append(made)
        return number


def arrays_of(stage: Stage, sources: Mapping[int, Any]) -> dict[int, Any]:
    """Return the sources that a stage reads, and its constants, by its own data ids."""
    found = {stage.local[data]: array for data, array in sources.items() if data in stage.local}
    return {**found, **stage.graph.constants}
