"""State machine of node looks: over a trace, the visual state of every drawn node.

A trace and cells come in, steps are applied one after the other, and the looks that changed come
out. The player's ``state.js`` is the same state machine in JavaScript.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tinyckpt.core.schedule import EVALUATIONS, Compute, Free, Offload

from .node_memory import LEVELS, CellMemory

if TYPE_CHECKING:
    from tinyckpt.core.trace import Trace

    from .layout.drawn_nodes import Cell


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
        results: of gradients, how many of these eighths are results; LEVELS if all resident ones
            are, as for an operator. The text of a look leaves it out.
    """

    fill: Fill
    activity: Activity = Activity.NONE
    checkpoint: bool = False
    backward: bool = False
    level: int | None = None
    kept: int = 0
    hosted: int = 0
    results: int = 0

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


def moved_values(trace: Trace) -> set[int]:
    """Return the values that are offloaded to host memory."""
    return {step.data for step in trace.steps if isinstance(step, Offload)}


def checkpoints_of(trace: Trace) -> list[int]:
    """Return the values that the policy chose to save on the device.

    Offloaded values are drawn as such, and need no ring.
    """
    moved = moved_values(trace)
    return [data for data in trace.schedule.checkpoints if data not in moved]


def names_checkpoints(trace: Trace) -> bool:
    """Whether a schedule says what was chosen to be saved, which an order of evaluations does not.

    If no checkpoint is named, a recomputation that reads a value from its first evaluation tells.
    """
    if trace.schedule.checkpoints or not trace.recomputations:
        return True
    graph, times = trace.graph, Counter[int | None]()
    for step in trace.steps:
        if isinstance(step, Compute):
            inputs = graph.operators[step.operator].inputs
            if times[step.operator] and any(times[graph.data[i].producer] == 1 for i in inputs):
                return False
            times[step.operator] += 1
    return True


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
        results = memory.result_level(cell, level) if fill is Fill.GRADIENT else 0
        ringed = cell.id in self.ringed
        return NodeLook(fill, activity, ringed, cell.backward, level, kept, hosted, results)
