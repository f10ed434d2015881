"""From a trace to frames as plain data: which node is in which state, counters, the curve.

No drawing here, and no pixels: a frame can be printed and compared in a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tinyckpt.base.units import cost_text, memory_text, size_text
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Free, Offload

from .layout.cells import Cell, printable
from .memory import LEVELS, CellMemory

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

TITLES = {
    "store_all": "store all",
    "recompute_all": "recompute all",
    "sqrt_n": "√n checkpointing",
    "retain": "hand-picked",
}
MOVES = (Offload, Fetch)
SEEN = (*EVALUATIONS, *MOVES)  # steps that each have a frame of their own


class Fill(StrEnum):
    """What a node shows of its values' memory."""

    NOT_YET = "not yet"
    DROPPED = "dropped"
    KEPT = "kept"
    RECOMPUTED = "recomputed"
    GRADIENT = "gradient"
    ON_HOST = "on the host"


class Activity(StrEnum):
    """What happens to a node in this very step."""

    NONE = ""
    COMPUTING = "computing"
    RECOMPUTING = "recomputing"


@dataclass(frozen=True, slots=True)
class NodeLook:
    """How one node looks: everything that its picture depends on.

    Attributes:
        fill: what it shows of its values' memory.
        activity: what happens to it.
        checkpoint: whether it holds a value that the policy chose to keep; of a group, whether one
            that leaves it is.
        backward: whether it stands in the backward half.
        level: for a group, how many eighths of its bytes are resident: 0 only if nothing is, 8 only
            if everything is. None for an operator.
        kept: for a group of which some is recomputed, how many of these eighths are not.
        hosted: for a group, how many eighths of its bytes wait in the host's memory.
    """

    fill: Fill
    activity: Activity = Activity.NONE
    checkpoint: bool = False
    backward: bool = False
    level: int | None = None
    kept: int = 0
    hosted: int = 0

    def __str__(self) -> str:
        level = f" {self.level}/{LEVELS}" if self.level else ""
        level += f", {self.kept}/{LEVELS} kept" if self.kept else ""
        if self.hosted:
            alone = self.fill is Fill.ON_HOST
            level += (
                f" {self.hosted}/{LEVELS}" if alone else f", {self.hosted}/{LEVELS} on the host"
            )
        ring = "*" if self.checkpoint else ""
        now = f" {self.activity.value}" if self.activity.value else ""
        return f"{self.fill.value}{level}{ring}{now}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment: what differs from the moment before, and the counters.

    Attributes:
        step: position in the schedule; -1 before the first step.
        changed: the new look of every cell that looks different than in the frame before.
        evaluations, live, peak: the counters' texts; peak is so far.
        host: that of what is in the host's memory.
        active: the cell whose operator is evaluated, if one of these.
        reads: the other cells out of which it reads.
        freed: by cell, the bytes that were freed last, by one step or several in a row; nothing at
            the next step.
    """

    step: int
    changed: dict[int, NodeLook]
    evaluations: str
    live: str
    peak: str
    host: str
    active: int | None = None
    reads: tuple[int, ...] = ()
    freed: Mapping[int, int] = field(default_factory=dict)


def moves(trace: Trace) -> bool:
    """Whether values move between the memory of the device and that of the host."""
    return any(isinstance(step, MOVES) for step in trace.steps)


def moved_values(trace: Trace) -> set[int]:
    """Return the values that wait in the host's memory for a while."""
    return {step.data for step in trace.steps if isinstance(step, Offload)}


def checkpoints_of(trace: Trace) -> list[int]:
    """Return the values that the policy chose to keep where they are made.

    What is moved to the host is shown as that, and needs no ring to be told apart.
    """
    moved = moved_values(trace)
    return [data for data in trace.schedule.checkpoints if data not in moved]


def title_of(trace: Trace) -> str:
    """Return the name of the policy as a heading."""
    return TITLES.get(trace.schedule.policy, trace.schedule.policy.replace("_", " "))


def subtitle_of(trace: Trace) -> str:
    """Return what the policy costs, in one line, with all that is to be said."""
    return subtitles_of(trace)[0]


def subtitles_of(trace: Trace) -> list[str]:
    """Return what the policy costs, in one line: the longest first, for where there is less room.

    A schedule that was planned for other costs than evaluations says what it costs in their unit.
    """
    certificate = trace.schedule.certificate
    what, cost = what_of(trace), cost_of(trace)
    rings, moved = len(checkpoints_of(trace)), len(moved_values(trace))
    rings_text = f"{rings} {'checkpoint' if rings == 1 else 'checkpoints'}"
    if moved:
        rings_text = f"{moved} on the host"
    parts = [[what, rings_text, cost], [what, cost], [cost]]
    if certificate is not None:
        within = f"within {memory_text(certificate.budget, certificate.memory_unit)}"
        parts = [[*parts[0], within], [what, cost, within], *parts]
    return [" · ".join(some) for some in parts]


def what_of(trace: Trace) -> str:
    """Return what is trained."""
    name, _, size = trace.graph.name.partition(":")
    return one_line(f"chain of {size} layers" if name == "chain" else trace.graph.name)


def cost_of(trace: Trace) -> str:
    """Return what a schedule costs, beside what it costs to keep everything."""
    certificate = trace.schedule.certificate
    once = trace.evaluations - trace.recomputations
    ratio = trace.evaluations / max(once, 1)
    word = "evaluation" if trace.evaluations == 1 else "evaluations"
    cost = (
        f"{count_text(trace.evaluations)} {word} "
        f"= {ratio:.2f}× store-all"  # noqa: RUF001  # the sign of multiplication
    )
    if certificate is not None and certificate.unit != "evaluations":
        own = cost_text(certificate.cost, certificate.unit)
        cost = f"{own} in {count_text(trace.evaluations)} evaluations"
    return cost


def one_line(text: str, longest: int = 40) -> str:
    """Return text with everything unprintable as spaces, cut to a length."""
    line = printable(text)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def count_text(count: int) -> str:
    """Return a count with thin spaces between thousands.

    >>> count_text(1234567)
    '1\u2009234\u2009567'
    """
    return f"{count:,}".replace(",", "\u2009")


def counts_nodes(traces: Sequence[Trace]) -> bool:
    """Whether memory reads best in values: all have one size, and none is empty or a view."""
    sizes = {node.nbytes for trace in traces for node in trace.graph.data if not node.is_source}
    return len(sizes) <= 1 and 0 not in sizes and not any(any(trace.workspace) for trace in traces)


def live_of(trace: Trace, in_nodes: bool) -> tuple[int, ...]:
    """Return live memory at every step, in values or in bytes."""
    return trace.nodes if in_nodes else trace.live_bytes


def live_text(amount: int, in_nodes: bool) -> str:
    """Return an amount of memory as a counter shows it."""
    return count_text(amount) if in_nodes else size_text(amount)


def frame_steps(trace: Trace) -> list[int]:
    """Return the steps that get a frame: each evaluation, each move, the last frees behind it."""
    last = len(trace.steps) - 1
    return [
        position
        for position, step in enumerate(trace.steps)
        if isinstance(step, SEEN) or position == last or isinstance(trace.steps[position + 1], SEEN)
    ]


def frames(
    trace: Trace, cells: Sequence[Cell], steps: Sequence[int], in_nodes: bool
) -> Iterator[Frame]:
    """Yield the frame before the first step, then one for each of ``steps``, ascending."""
    state = CellLooks(trace, cells)
    live = live_of(trace, in_nodes)
    nothing = live_text(0, in_nodes)
    yield Frame(-1, state.changes(), "0", nothing, nothing, size_text(0))
    peak = done = 0
    for step in steps:
        while done <= step:
            state.take(done)
            peak = max(peak, live[done])
            done += 1
        evaluations = count_text(trace.evaluations_so_far[step])
        now, most = live_text(live[step], in_nodes), live_text(peak, in_nodes)
        host, changed = size_text(trace.host[step]), state.changes()
        doing = (state.active, state.reads, state.freed)
        yield Frame(step, changed, evaluations, now, most, host, *doing)


class CellLooks:
    """The looks of all cells at one moment of a trace.

    Cells may be a part of the graph, as in the picture of one group; steps that touch no cell
    change nothing then. A step costs as much as its operator has outputs, however large a cell is.
    """

    def __init__(self, trace: Trace, cells: Sequence[Cell]) -> None:
        graph = trace.graph
        self.trace, self.cells = trace, cells
        self.home = {data: cell.id for cell in cells for data in cell.data}
        self.cell_of_operator = {index: cell.id for cell in cells for index in cell.operators}
        self.ringed = self.cells_with_rings()
        self.memory = CellMemory(graph, self.home, len(cells))
        self.evaluated = [False] * len(cells)
        self.active: int | None = None  # the cell whose operator is being evaluated
        self.again = False  # whether that is a recomputation
        self.reads: tuple[int, ...] = ()  # the cells out of which it reads
        self.freed: dict[int, int] = {}  # bytes that were freed last, by cell
        self.shown: dict[int, NodeLook] = {}
        self.touched = self.memory.touched
        self.touched.update(cell.id for cell in cells)

    def cells_with_rings(self) -> set[int]:
        """Return the cells that hold a checkpoint; of groups, those out of which one leads.

        Nearly every group holds some value that is kept, which its level says.
        """
        graph, ringed = self.trace.graph, set()
        for data in checkpoints_of(self.trace):
            cell = self.home.get(data)
            if cell is None:
                continue
            forward = [index for index in graph.consumers[data] if index < graph.forward_count]
            if not self.cells[cell].group or any(
                self.cell_of_operator.get(index) != cell for index in forward
            ):
                ringed.add(cell)
        return ringed

    def take(self, position: int) -> None:
        """Do one step."""
        step = self.trace.steps[position]
        if self.active is not None:
            self.touched.add(self.active)
            self.active, self.reads = None, ()
        if isinstance(step, Free):
            self.free(position, step.data)
            return
        self.memory.take(step)
        self.freed = {}
        if isinstance(step, EVALUATIONS):
            self.active = self.cell_of_operator.get(step.operator)
            self.again = self.memory.is_again(step)
            if self.active is not None:
                self.evaluated[self.active] = True
                self.touched.add(self.active)
                read = (self.home.get(i) for i in self.trace.graph.operators[step.operator].inputs)
                self.reads = tuple(i for i in dict.fromkeys(read) if i not in (None, self.active))

    def free(self, position: int, data: int) -> None:
        """Free a value, and note whose bytes that gives back: of several in a row, of all."""
        if position and not isinstance(self.trace.steps[position - 1], Free):
            self.freed = {}
        self.freed = dict(self.freed)  # a frame has the one before
        owner = self.memory.release(data)
        if data in self.home:
            self.freed.setdefault(self.home[data], 0)
        if owner is not None and owner in self.home:
            cell, nbytes = self.home[owner], self.trace.graph.data[owner].spec.nbytes
            self.freed[cell] = self.freed.get(cell, 0) + nbytes

    def changes(self) -> dict[int, NodeLook]:
        """Return the looks that differ from those returned before."""
        changed = {}
        for index in sorted(self.touched):
            look = self.look(self.cells[index])
            if self.shown.get(index) != look:
                self.shown[index] = changed[index] = look
        self.touched.clear()
        return changed

    def look(self, cell: Cell) -> NodeLook:
        """Return how a cell looks now."""
        memory = self.memory
        if memory.values[cell.id] or (cell.group and memory.bytes[cell.id]):
            again = memory.is_recomputed(cell)
            fill = Fill.GRADIENT if cell.backward else Fill.RECOMPUTED if again else Fill.KEPT
        elif memory.waiting[cell.id]:
            fill = Fill.ON_HOST
        else:
            fill = Fill.DROPPED if self.evaluated[cell.id] else Fill.NOT_YET
        activity = Activity.NONE
        if self.active == cell.id:
            activity = Activity.RECOMPUTING if self.again else Activity.COMPUTING
        level = memory.level(cell) if cell.group else None
        kept = memory.kept_level(cell, level or 0) if fill is Fill.RECOMPUTED else 0
        hosted = memory.hosted_level(cell) if cell.group else 0
        return NodeLook(fill, activity, cell.id in self.ringed, cell.backward, level, kept, hosted)
