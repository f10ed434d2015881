"""The schedule: a straight-line program of compute, free, offload, fetch and update steps.

A step is one action of the machine, read as a sentence: "compute operator 4", "free value 7". A
schedule fixes what is evaluated when, what stays resident and what is recomputed; it does not say
why. Whether it is legal is decided by ``replay``. Example: two tanh layers f1 and f2; l, the
cotangent of f2's value; nothing saved. b2 finds f2 still resident, and f1 is computed again for b1:

>>> import tinyckpt as tc
>>> graph = tc.networks.chain(2)
>>> [operator.name for operator in graph.operators]
['f1', 'f2', 'l', 'b2', 'b1']
>>> print(tc.plan(graph, "recompute_all"))
 0  compute  f1   live 1 node, 512 B
 1  compute  f2   live 2 nodes, 1.0 KiB
 2  free     f1   live 1 node, 512 B
 3  compute  l    live 2 nodes, 1.0 KiB
 4  compute  b2   live 3 nodes, 1.5 KiB
 5  free     f2   live 2 nodes, 1.0 KiB
 6  free     l    live 1 node, 512 B
 7  compute  f1   live 2 nodes, 1.0 KiB
 8  compute  b1   live 3 nodes, 1.5 KiB
 9  free     f1   live 2 nodes, 1.0 KiB
10  free     b2   live 1 node, 512 B
recompute_all on chain:2: 6 evaluations, 1 of them recomputations; peak 3 nodes, 1.5 KiB
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, final

from tinyckpt.base.display import make_printable, notebook_method
from tinyckpt.base.errors import ScheduleError, check_fields
from tinyckpt.base.quantities import as_integer
from tinyckpt.core.graph import Graph


@final
@dataclass(frozen=True, slots=True)
class Compute:
    """This step is read as: evaluate the operator; its inputs are resident, its outputs become so.

    While it runs, inputs, outputs and workspace are all live: most peaks are such moments.
    In the example above, step 7 is ``Compute(0)``: operator 0, f1, for the second time: a
    recomputation. It is legal since step 2 freed the first result; with f1 resident it would be an
    error.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(1)
    >>> print(tc.replay(tc.Schedule(graph, tuple(map(tc.Compute, range(3))), "mine")).summary())
    mine on chain:1: 3 evaluations, 0 of them recomputations; peak 3 nodes, 1.5 KiB
    """

    operator: int


@final
@dataclass(frozen=True, slots=True)
class Free:
    """This step is read as: free the value; its memory is reclaimed once no view of it is resident.

    In the example above, step 2 is ``Free(1)``: data node 1, the result of f1. Node 0 is the source
    x, which belongs to the caller and cannot be freed. At the end all results must be resident.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(2), "recompute_all")
    >>> schedule.steps[2] == tc.Free(1)
    True
    """

    data: int


@final
@dataclass(frozen=True, slots=True)
class Offload:
    """This step is read as: move the value to host memory; the device's copy is freed.

    ``Offload(1)`` in place of step 2 above would free the device memory of f1 as ``Free(1)`` does,
    and preserve its contents: ``Fetch(1)`` in place of step 7 would then bring them back, and save
    the recomputation. Host memory is a column of its own in the trace; it is not part of the peak.

    >>> import tinyckpt as tc
    >>> steps = list(tc.plan(tc.networks.chain(2), "recompute_all").steps)
    >>> steps[2], steps[7] = tc.Offload(1), tc.Fetch(1)
    >>> trace = tc.replay(tc.Schedule(tc.networks.chain(2), tuple(steps), "offload_f1"))
    >>> trace.recomputations, trace.peak_nodes, max(trace.host)
    (0, 3, 512)
    """

    data: int


@final
@dataclass(frozen=True, slots=True)
class Fetch:
    """This step is read as: move the value from host memory back to the device.

    It gets a fresh allocation there, even if the value was a view before it was offloaded.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(4), "offload")
    >>> fetched = [step.data for step in schedule.steps if isinstance(step, tc.Fetch)]
    >>> [schedule.graph.data[data].name for data in fetched]
    ['f3', 'f2', 'f1']
    """

    data: int


@dataclass(frozen=True, slots=True)  # ``codegen.in_place`` derives another kind from it
class Update:
    """This step is read as: evaluate the operator, which overwrites a source in place.

    This is an optimiser's parameter update: the source keeps its memory, and no later step, nor
    any recomputation, may read its old contents. So a schedule contains the ``Update`` of an
    operator once, after every reader of the old value. Graphs get one from ``tc.assign``.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda w, g: tc.assign(w, w - 0.1 * g), tc.Spec(3), tc.Spec(3))
    >>> [type(step).__name__ for step in tc.plan(graph).steps]
    ['Compute', 'Compute', 'Free', 'Update', 'Free']
    """

    operator: int


Evaluation = Compute | Update
EVALUATIONS = (Compute, Update)  # for isinstance: a union would take three times as long
Step = Evaluation | Free | Offload | Fetch

# Steps are interned by these: one object per distinct step, so that a long schedule is pointers.
compute = cache(Compute)
free = cache(Free)
update = cache(Update)


# ``replay``, which imports this file and enters itself here: printing a schedule replays it.
MACHINE: dict[str, Callable[[Schedule], Any]] = {}


@dataclass(frozen=True, slots=True, repr=False)
class Schedule:
    """A straight-line program over a graph; each step names an operator or a value of the graph.

    Kinds and ids of the steps are checked here; ``replay`` checks legality. A further kind of step
    derives from ``Update`` if it evaluates an operator, as in ``codegen.in_place``; if it names a
    value, it is added to ``Step`` and to the two checks here.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(9), "sqrt_n")
    >>> schedule
    <Schedule sqrt_n of chain:9, 45 steps>
    >>> [schedule.graph.data[data].name for data in schedule.checkpoints]
    ['f3', 'f6']

    Attributes:
        graph: the graph that the steps refer to.
        steps: the steps, in execution order.
        policy: name of the policy that made it.
        options: the options that the policy was given.
        checkpoints: data ids of the forward values that the policy chose to save (sqrt_n: those at
            cuts; of a search, those that others are recomputed from); empty if it chose none. A
            value is recomputed nevertheless if another output of its operator is.
        note: a one-sentence description by the policy.
        certificate: proven optimality or gap, if requested: a ``tc.Certificate``.
    """

    graph: Graph
    steps: tuple[Step, ...]
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    checkpoints: tuple[int, ...] = ()
    certificate: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        kinds = {"policy": str, "options": Mapping, "note": str, "checkpoints": Iterable}
        check_fields(ScheduleError, self, graph=Graph, steps=Iterable, **kinds)
        make_printable(self, "policy", "note")
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "options", dict(self.options))
        # A long schedule is checked in bulk; only a bad one is searched for its first bad step.
        operators = [step.operator for step in self.steps if type(step) is Compute]
        others = [step for step in self.steps if type(step) is not Compute]
        if (
            not set(map(type, others)) <= {Free, Offload, Fetch}  # an Update goes to the slow path
            or not within(operators, len(self.graph.operators))
            or not within([step.data for step in others], len(self.graph.data))  # type: ignore[union-attr]
        ):
            self.check_one_by_one()
        kept = [checked_id("checkpoints", "value", data, self.graph) for data in self.checkpoints]
        object.__setattr__(self, "checkpoints", tuple(sorted(kept)))

    def check_one_by_one(self) -> None:
        """Raise a ScheduleError about the first step whose operator or value does not exist."""
        for position, step in enumerate(self.steps):
            if isinstance(step, EVALUATIONS):
                checked_id(f"step {position}", "operator", step.operator, self.graph)
            elif isinstance(step, Free | Offload | Fetch):
                checked_id(f"step {position}", "value", step.data, self.graph)
            else:
                raise ScheduleError(f"step {position}: {step!r} is not a step")

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"<Schedule {self.policy} of {self.graph.name}, {len(self.steps)} steps>"

    _repr_mimebundle_ = notebook_method(lambda self: MACHINE["replay"](self))

    def __str__(self) -> str:
        """Return one line per step with the live memory; or the steps and why they are illegal."""
        try:
            return str(MACHINE["replay"](self))
        except ScheduleError as error:
            lines = [" ".join(step_title(self.graph, step)) for step in self.steps]
            numbered = [f"{position}  {line}" for position, line in enumerate(lines)]
            return "\n".join([*numbered, f"illegal: {error}"])


def recomputations(steps: Iterable[Step]) -> list[bool]:
    """Mark the recomputations: for every step, whether it repeats an earlier evaluation.

    >>> recomputations([Compute(0), Free(7), Compute(0)])
    [False, False, True]
    """
    seen: set[int] = set()
    repeated = []
    for step in steps:
        repeated.append(isinstance(step, EVALUATIONS) and step.operator in seen)
        if isinstance(step, EVALUATIONS):
            seen.add(step.operator)
    return repeated


def checked_id(where: str, what: str, number: Any, graph: Graph) -> int:
    """Return the id of an operator or value as an int, or raise a ScheduleError."""
    count = len(graph.operators if what == "operator" else graph.data)
    if (known := as_integer(number)) is None or not 0 <= known < count:
        legal = f"{graph.name} has 0 to {count - 1}"
        raise ScheduleError(f"{where}: {what} {number!r:.80} does not exist; {legal}")
    return known


def within(numbers: Sequence[int], count: int) -> bool:
    """Whether all numbers are integers of 0 to ``count`` - 1."""
    integers = {*map(type, numbers)} <= {int}
    return integers and min(numbers, default=0) >= 0 and max(numbers, default=-1) < count


def step_text(graph: Graph, step: Step) -> tuple[str, str]:
    """Return a step's verb and the unique name of its operand, for errors and documents."""
    if isinstance(step, EVALUATIONS):
        return type(step).__name__.lower(), graph.operators[step.operator].name
    return type(step).__name__.lower(), graph.data[step.data].name


def step_title(graph: Graph, step: Step) -> tuple[str, str]:
    """Return a step's verb and the display title of its operand, for readers."""
    if isinstance(step, EVALUATIONS):
        return type(step).__name__.lower(), operator_title(graph, step.operator)
    return type(step).__name__.lower(), data_title(graph, step.data)


def data_title(graph: Graph, data: int) -> str:
    """Return a value's display title: scope, label and unique name.

    >>> import tinyckpt as tc
    >>> def model(x):
    ...     with tc.scope("layer1"):
    ...         return tc.name(tc.tanh(tc.sin(x)), "hidden")
    >>> graph = tc.build(model, tc.Spec(3))
    >>> [data_title(graph, node.id) for node in graph.data]
    ['x', 'layer1/sin_1', 'layer1/hidden (tanh_1)']
    """
    node = graph.data[data]
    scope = "" if node.producer is None else graph.operators[node.producer].scope
    return titled(scope, [node.label] if node.label else [], node.name)


def operator_title(graph: Graph, operator: int) -> str:
    """Return an operator's display title: scope, labels of its outputs and unique name."""
    found = graph.operators[operator]
    labels = [graph.data[data].label for data in found.outputs]
    return titled(found.scope, [label for label in labels if label], found.name)


def titled(scope: str, labels: Sequence[str], name: str) -> str:
    """Format ``scope/label (name)``, leaving out parts that are empty or repeated."""
    title = ", ".join(dict.fromkeys(labels)) or name
    own = "" if title == name else f" ({name})"
    return f"{scope}/{title}{own}" if scope else f"{title}{own}"
