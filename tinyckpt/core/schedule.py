"""The schedule: a flat list of steps, each one thing that a machine does.

Steps are read as sentences: "compute operator 4", "free value 7". A schedule says nothing of why;
it is legal or not, and ``replay`` tells which. Two tanh, and nothing kept but what is read next:

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, final

from tinyckpt.base.display import make_printable, mimebundle
from tinyckpt.base.errors import ScheduleError
from tinyckpt.base.units import cost_text, counted, memory_text
from tinyckpt.core.graph import Graph


@final
@dataclass(frozen=True, slots=True)
class Compute:
    """This step is read as: evaluate the operator; its inputs are there, its outputs then too.

    While it runs, inputs, outputs and workspace are all held: the peak is the largest such moment.
    In the example above, step 7 is ``Compute(0)``: operator 0, f1, for the second time. That is
    legal since step 2 gave the first result up; with f1 still there it would be an error.
    """

    operator: int


@final
@dataclass(frozen=True, slots=True)
class Free:
    """This step is read as: give up the value; its memory goes once no view of it is resident.

    In the example above, step 2 is ``Free(1)``: data node 1, the result of f1 (node 0 is the source
    x, which stays with the caller and cannot be freed). Results of the graph are never freed.
    """

    data: int


@final
@dataclass(frozen=True, slots=True)
class Offload:
    """This step is read as: move the value to the host's memory; the device's copy is given up.

    ``Offload(1)`` in place of step 2 above would free the device of f1 as ``Free(1)`` does, and
    keep the numbers: ``Fetch(1)`` in place of step 7 would then bring them back, and save the
    recomputation. What waits on the host is counted by itself, not in the peak.
    """

    data: int


@final
@dataclass(frozen=True, slots=True)
class Fetch:
    """This step is read as: move the value from the host's memory back to the device's.

    It takes memory of its own there, even if the value was a view before it was moved.
    """

    data: int


@final
@dataclass(frozen=True, slots=True)
class Update:
    """This step is read as: evaluate the operator, which writes a new value over a source's old.

    What training does to a parameter: the source keeps its memory, and no later step may read what
    it was before, recomputations included. So ``Update`` of an operator stands once in a schedule,
    after every reader of the old value; a graph has it from ``tc.assign``.
    """

    operator: int


Evaluation = Compute | Update
EVALUATIONS = (Compute, Update)  # to ask with isinstance: a union takes three times as long
Step = Evaluation | Free | Offload | Fetch

# One object for every step there is, so that a long schedule is a list of pointers.
compute = cache(Compute)
free = cache(Free)
update = cache(Update)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of a schedule's cost among all schedules with the same budget.

    Attributes:
        status: ``optimal``; ``optimal in its class``, as ``scope`` says; or ``heuristic``.
        cost: the schedule's cost.
        lower_bound: no schedule of the scope that is within the budget costs less.
        budget: the largest peak allowed.
        unit, memory_unit: what the costs and the budget are counted in.
        scope: the class of schedules that status and bound are about; empty for all of them.
        once: how many operators there are that no schedule may evaluate twice.
    """

    status: Literal["optimal", "optimal in its class", "heuristic"]
    cost: float
    lower_bound: float
    budget: int
    unit: str
    memory_unit: str
    scope: str = ""
    once: int = 0

    @property
    def gap(self) -> float:
        """Return how much dearer it may be than the best; 0.02 means at most 2 %."""
        return self.cost / self.lower_bound - 1 if self.lower_bound > 0 else 0.0

    def __str__(self) -> str:
        once = f"; {counted(self.once, 'operator')} may not be evaluated twice" if self.once else ""
        within = f"within {memory_text(self.budget, self.memory_unit)}"
        cost = cost_text(self.cost, self.unit)
        if self.status == "optimal":
            return f"optimal: no schedule {within} costs less than {cost}{once}"
        if self.status == "optimal in its class":
            return f"optimal {within} among {self.scope}: {cost}{once}"
        return (
            f"heuristic: {cost} {within}, at most {100 * self.gap:.3g} % above the optimum; none "
            f"needs less than {cost_text(self.lower_bound, self.unit)}{once}"
        )


@dataclass(frozen=True, slots=True, repr=False)
class Schedule:
    """Steps that evaluate a graph; each names an operator or a value that the graph has.

    Whether they are legal in this order is what ``replay`` finds out.

    Attributes:
        graph: the graph that the steps are about.
        steps: what to do, in order.
        policy: name of the policy that made it.
        options: the options that the policy was given.
        checkpoints: data ids of the forward values that the policy chose to keep; empty where it
            chose nothing, as when everything is kept anyway.
        note: what the policy did, in one sentence.
        certificate: how far from the optimum it is, if that was asked for.
    """

    graph: Graph
    steps: tuple[Step, ...]
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    checkpoints: tuple[int, ...] = ()
    certificate: Certificate | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        make_printable(self, "policy", "note")
        # A long schedule is checked in bulk, and gone through only to say what is wrong with it.
        operators = [step.operator for step in self.steps if type(step) is Compute]
        others = [step for step in self.steps if type(step) is not Compute]
        if (
            not set(map(type, others)) <= {Free, Offload, Fetch}  # an Update is looked at by itself
            or not within(operators, len(self.graph.operators))
            or not within([step.data for step in others], len(self.graph.data))  # type: ignore[union-attr]
        ):
            self.refuse_first_wrong_step()

    def refuse_first_wrong_step(self) -> None:
        """Raise a ScheduleError about the first step that names nothing the graph has."""
        for position, step in enumerate(self.steps):
            if isinstance(step, EVALUATIONS):
                what, number, count = "operator", step.operator, len(self.graph.operators)
            elif isinstance(step, Free | Offload | Fetch):
                what, number, count = "data node", step.data, len(self.graph.data)
            else:
                raise ScheduleError(f"step {position}: {step!r} is not a step")
            if not 0 <= number < count:
                raise ScheduleError(
                    f"step {position}: {what} {number} does not exist; "
                    f"{self.graph.name} has 0 to {count - 1}"
                )

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"<Schedule {self.policy} of {self.graph.name}, {len(self.steps)} steps>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return how a notebook shows the schedule: as a player, where ``viz`` is imported."""
        from tinyckpt.core.replay import replay

        try:
            return mimebundle(repr(self), lambda: replay(self))
        except ScheduleError as error:
            return {"text/plain": f"{self!r}, illegal: {error}"}

    def __str__(self) -> str:
        """Return one line a step, with what is live at it; and where it is illegal, if it is."""
        # Imported here: the machine stands above its programs, and only this text needs it.
        from tinyckpt.core.replay import replay

        try:
            return str(replay(self))
        except ScheduleError as error:
            lines = [" ".join(step_title(self.graph, step)) for step in self.steps]
            numbered = [f"{position}  {line}" for position, line in enumerate(lines)]
            return "\n".join([*numbered, f"illegal: {error}"])


def recomputations(steps: Iterable[Step]) -> list[bool]:
    """Return for every step whether it evaluates an operator that was evaluated before.

    >>> recomputations([Compute(0), Free(7), Compute(0)])
    [False, False, True]
    """
    seen: set[int] = set()
    again = []
    for step in steps:
        if isinstance(step, EVALUATIONS):
            again.append(step.operator in seen)
            seen.add(step.operator)
        else:
            again.append(False)
    return again


def within(numbers: Sequence[int], count: int) -> bool:
    """Whether all numbers are 0 to ``count`` - 1."""
    return min(numbers, default=0) >= 0 and max(numbers, default=-1) < count


def step_text(graph: Graph, step: Step) -> tuple[str, str]:
    """Return a step's verb and the unique name of what it acts on, for errors and for files."""
    if isinstance(step, EVALUATIONS):
        return type(step).__name__.lower(), graph.operators[step.operator].name
    return type(step).__name__.lower(), graph.data[step.data].name


def step_title(graph: Graph, step: Step) -> tuple[str, str]:
    """Return a step's verb and what people call the thing that it acts on."""
    if isinstance(step, EVALUATIONS):
        return type(step).__name__.lower(), operator_title(graph, step.operator)
    return type(step).__name__.lower(), data_title(graph, step.data)


def data_title(graph: Graph, data: int) -> str:
    """Return what people call a value: its scope and the name that they gave it come first.

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
    """Return what people call an operator: by the names that they gave to what it makes."""
    found = graph.operators[operator]
    labels = [graph.data[data].label for data in found.outputs]
    return titled(found.scope, [label for label in labels if label], found.name)


def titled(scope: str, labels: Sequence[str], name: str) -> str:
    """Return ``scope/label (name)``, without what is not there or would be said twice."""
    title = ", ".join(dict.fromkeys(labels)) or name
    own = "" if title == name else f" ({name})"
    return f"{scope}/{title}{own}" if scope else f"{title}{own}"
