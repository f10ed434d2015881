"""The execution trace: live memory, evaluations and time at every step of a schedule's run.

``replay`` and ``execute`` both return a trace, by separate accounting: the first from shapes, the
second from arrays. That the two are equal is the evidence that either is right; tests compare them
(``run`` does not).

**Convention of every number.** At a ``Compute`` or ``Update`` step, live means: while the operator
is being evaluated, with its inputs, its outputs and its workspace all resident. At any other step
it means: after the step. Sources (inputs, parameters, constants) are not counted; outputs (loss,
gradients) are. A view counts as a node and costs no bytes; memory is live while the value that
owns it or any view of it is resident.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tinyckpt.base.display import notebook_method
from tinyckpt.base.units import counted, size_text
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Schedule, Step, step_title

# The columns of a trace, in row order.
COLUMNS = ("nodes", "activation", "cotangent", "output", "workspace", "host", "evaluations_so_far")
ACTIVATION, COTANGENT, OUTPUT = range(3)  # kinds of memory, in the order of their columns


def memory_kinds(graph: Graph) -> list[int]:
    """Classify every value's memory as activation, cotangent or output, by data id."""
    kinds = [COTANGENT if node.role == "cotangent" else ACTIVATION for node in graph.data]
    for data in graph.outputs:
        kinds[data] = OUTPUT
    return kinds


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """The record of a run: columns with one entry per step, and their totals.

    >>> import tinyckpt as tc
    >>> trace = tc.replay(tc.plan(tc.networks.chain(2), "recompute_all"))
    >>> trace.nodes
    (1, 2, 1, 2, 3, 2, 1, 2, 3, 2, 1)
    >>> trace.peak_nodes, trace.peak_step, sorted(trace.resident_at(trace.peak_step))
    (3, 4, [2, 4, 5])

    Attributes:
        schedule: the schedule that ran.
        nodes: live data nodes.
        activation, cotangent, output: live bytes of forward values, of backward values, and of
            results (loss and gradients).
        workspace: scratch bytes of the operator being evaluated, beyond inputs and outputs.
        host: bytes of offloaded values in host memory; not part of the peak.
        evaluations_so_far: operator evaluations up to and including this step.
        seconds: measured time of each step, if requested; not part of equality.
    """

    schedule: Schedule
    nodes: tuple[int, ...]
    activation: tuple[int, ...]
    cotangent: tuple[int, ...]
    output: tuple[int, ...]
    workspace: tuple[int, ...]
    host: tuple[int, ...]
    evaluations_so_far: tuple[int, ...]
    seconds: tuple[float, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return f"<Trace {self.summary()}>"

    _repr_mimebundle_ = notebook_method(lambda self: self)

    @property
    def graph(self) -> Graph:
        """The graph that was evaluated."""
        return self.schedule.graph

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the schedule."""
        return self.schedule.steps

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Live bytes on the device at every step: all kinds and workspace."""
        columns = (self.activation, self.cotangent, self.output, self.workspace)
        return tuple(map(sum, zip(*columns, strict=True)))

    @property
    def evaluations(self) -> int:
        """Total operator evaluations."""
        return self.evaluations_so_far[-1] if self.evaluations_so_far else 0

    @property
    def recomputations(self) -> int:
        """Total recomputations: evaluations of an operator after its first."""
        distinct = {step.operator for step in self.steps if isinstance(step, EVALUATIONS)}
        return self.evaluations - len(distinct)

    @property
    def peak_nodes(self) -> int:
        """Peak number of live data nodes."""
        return max(self.nodes, default=0)

    @property
    def peak_bytes(self) -> int:
        """Peak memory: the largest number of live bytes on the device."""
        return max(self.live_bytes, default=0)

    @property
    def peak_step(self) -> int:
        """First step at which the peak in bytes is reached."""
        return self.live_bytes.index(self.peak_bytes) if self.steps else 0

    @property
    def source_bytes(self) -> int:
        """Bytes of inputs, parameters and constants: always resident, never part of the peak."""
        return self.graph.source_bytes

    def resident_at(self, step: int) -> frozenset[int]:
        """Return the data nodes that are resident at a step, sources not included.

        Raises:
            IndexError: unless ``0 <= step < len(steps)``.
        """
        if not 0 <= step < len(self.steps):
            raise IndexError(f"step {step} is out of range: legal are 0 to {len(self.steps) - 1}")
        resident: set[int] = set()
        for taken in self.steps[: step + 1]:
            if isinstance(taken, EVALUATIONS):
                resident.update(self.graph.operators[taken.operator].outputs)
            elif isinstance(taken, Fetch):
                resident.add(taken.data)
            else:
                resident.discard(taken.data)
        return frozenset(resident)

    def lines(self) -> Iterator[str]:
        """Yield one line per step: ``12  compute  tanh_4   live 5 nodes, 20.0 KiB``."""
        texts = [step_title(self.graph, step) for step in self.steps]
        width = max((len(name) for _, name in texts), default=0)
        digits = len(str(len(texts)))
        for position, ((verb, name), nodes, nbytes) in enumerate(
            zip(texts, self.nodes, self.live_bytes, strict=True)
        ):
            yield (
                f"{position:{digits}}  {verb:7}  {name:{width}}   "
                f"live {counted(nodes, 'node')}, {size_text(nbytes)}"
            )

    def __str__(self) -> str:
        return "\n".join((*self.lines(), self.summary()))

    def summary(self) -> str:
        """Return the totals in one line."""
        return (
            f"{self.schedule.policy} on {self.graph.name}: {self.evaluations} evaluations, "
            f"{self.recomputations} of them recomputations; peak {self.peak_nodes} nodes, "
            f"{size_text(self.peak_bytes)}"
            f"{'; no backward pass' * self.schedule.note.startswith('no backward pass')}"
        )


def trace_of(schedule: Schedule, rows: Sequence[int], seconds: Sequence[float] = ()) -> Trace:
    """Build a trace from its rows, concatenated, each in the order of COLUMNS."""
    width = len(COLUMNS)
    columns = {name: tuple(rows[place::width]) for place, name in enumerate(COLUMNS)}
    return Trace(schedule, **columns, seconds=tuple(seconds))
