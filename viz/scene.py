"""Scene model: a trace as frames of plain data (node states, counters, captions), without drawing.

A trace and cells come in; a ``Frame`` per shown step goes out, with the looks that changed since
the frame before. The renderers (``raster``, ``vector``) draw it; a frame can be printed and
compared in a test. The player's ``state.js`` is the same state machine in JavaScript.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tinyckpt.base.units import cost_text, memory_text, size_text
from tinyckpt.core.schedule import EVALUATIONS, Fetch, Free, Offload

from .layout.drawn_nodes import Cell, printable
from .node_memory import LEVELS, CellMemory

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

TITLES = {
    "store_all": "store all",
    "recompute_all": "recompute all",
    "sqrt_n": "√n checkpointing",
    "retain": "hand-picked",
}
MOVES = (Offload, Fetch)
SEEN = (*EVALUATIONS, *MOVES)  # kinds of steps that have a frame of their own


class Fill(StrEnum):
    """Memory state of a node's values."""

    NOT_YET = "not yet"
    DROPPED = "dropped"
    KEPT = "kept"
    RECOMPUTED = "recomputed"
    GRADIENT = "gradient"
    ON_HOST = "on the host"


class Activity(StrEnum):
    """Evaluation state of a node in the current step."""

    NONE = ""
    COMPUTING = "computing"
    RECOMPUTING = "recomputing"


@dataclass(frozen=True, slots=True)
class NodeLook:
    """Visual state of one node: everything that its picture depends on.

    Attributes:
        fill: memory state of its values.
        activity: evaluation state.
        checkpoint: whether it holds a value that the policy chose to save; for a group, whether
            such a value leaves it.
        backward: whether it belongs to the backward pass.
        level: for a group, how many eighths of its bytes are resident: 0 only if nothing is, 8 only
            if everything is. None for an operator.
        kept: for a partly recomputed group, how many of these eighths are not recomputed.
        hosted: for a group, how many eighths of its bytes are in host memory.
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
    """One moment: differences from the frame before, and the counters.

    Attributes:
        step: position in the schedule; -1 before the first step.
        changed: the new look of every cell that looks different than in the frame before.
        evaluations, live, peak: texts of the counters; the peak so far.
        host: text of the counter of host memory.
        active: the cell whose operator is evaluated, if it is among the cells.
        reads: the other cells from which it reads.
        freed: by cell, the bytes freed last, by one step or several consecutive ones; empty at the
            next step.
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
    """Whether a trace offloads values to host memory."""
    return any(isinstance(step, MOVES) for step in trace.steps)


def moved_values(trace: Trace) -> set[int]:
    """Return the values that are offloaded to host memory."""
    return {step.data for step in trace.steps if isinstance(step, Offload)}


def checkpoints_of(trace: Trace) -> list[int]:
    """Return the values that the policy chose to save on the device.

    Offloaded values are drawn as such, and need no ring.
    """
    moved = moved_values(trace)
    return [data for data in trace.schedule.checkpoints if data not in moved]


def title_of(trace: Trace) -> str:
    """Return the policy's name as a heading."""
    return TITLES.get(trace.schedule.policy, trace.schedule.policy.replace("_", " "))


def subtitle_of(trace: Trace) -> str:
    """Return the cost of a schedule in one line, in its longest form."""
    return subtitles_of(trace)[0]


def subtitles_of(trace: Trace) -> list[str]:
    """Return the cost of a schedule in one line: the longest form first, for narrower pictures.

    A schedule that was planned for other costs than evaluations also gives its cost in their unit.
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
    """Return a description of the trained network."""
    name, _, size = trace.graph.name.partition(":")
    return one_line(f"chain of {size} layers" if name == "chain" else trace.graph.name)


def cost_of(trace: Trace) -> str:
    """Return the cost of a schedule, compared with that of store-all."""
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
    """Replace unprintable characters by spaces, and truncate to a length."""
    line = printable(text)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def count_text(count: int) -> str:
    """Format a count with thin spaces between thousands.

    >>> count_text(1234567)
    '1\u2009234\u2009567'
    """
    return f"{count:,}".replace(",", "\u2009")


def counts_nodes(traces: Sequence[Trace]) -> bool:
    """Whether memory is counted in values: all have one size, and none is empty or a view."""
    sizes = {node.nbytes for trace in traces for node in trace.graph.data if not node.is_source}
    return len(sizes) <= 1 and 0 not in sizes and not any(any(trace.workspace) for trace in traces)


def live_of(trace: Trace, in_nodes: bool) -> tuple[int, ...]:
    """Return live memory at every step, in values or in bytes."""
    return trace.nodes if in_nodes else trace.live_bytes


def live_text(amount: int, in_nodes: bool) -> str:
    """Format an amount of memory for a counter."""
    return count_text(amount) if in_nodes else size_text(amount)


def frame_steps(trace: Trace) -> list[int]:
    """Return the steps that have a frame: evaluations, transfers, the last free after each."""
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
    """State machine of all cells' looks over a trace.

    Cells may cover a part of the graph, as in the picture of one group; steps that touch no cell
    then change nothing. A step costs as much as its operator has outputs, however large a cell is.
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
        self.reads: tuple[int, ...] = ()  # the cells that it reads
        self.freed: dict[int, int] = {}  # bytes that were freed last, by cell
        self.shown: dict[int, NodeLook] = {}
        self.touched = self.memory.touched
        self.touched.update(cell.id for cell in cells)

    def cells_with_rings(self) -> set[int]:
        """Return the cells that hold a checkpoint; for groups, those that a checkpoint leaves.

        Nearly every group holds some saved value, which its level shows.
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
        """Apply one step."""
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
        """Free a value, and record the bytes freed by consecutive frees, per cell."""
        if position and not isinstance(self.trace.steps[position - 1], Free):
            self.freed = {}
        self.freed = dict(self.freed)  # copy: the frame before refers to the old one
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
        """Return the current look of a cell."""
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
