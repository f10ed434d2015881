"""What of each cell's memory is held, as values come and go: counts, kept up to date.

The bytes of a value that owns its memory are held while it or any view of it is resident, as in
every number of a trace. Added up over cells that hold the whole graph, and with the workspace, they
are the trace's live bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinyckpt.graph import Graph
    from viz.dot import Cell

LEVELS = 8  # of a group's fill: few, so that pictures of them can be kept and do not flicker


def owners_of(graph: Graph) -> list[int]:
    """Return for every value the one in whose memory it is: itself, unless it is a view."""
    owners = list(range(len(graph.data)))
    for node in graph.data:
        if node.view_of is not None:
            owners[node.id] = owners[node.view_of]
    return owners


class Memory:
    """What is held of every cell.

    Attributes:
        values: resident values.
        recomputed: those of them whose operator was evaluated more than once.
        bytes: bytes held.
        all_values, all_bytes: what there would be if everything was.
    """

    def __init__(self, graph: Graph, home: Mapping[int, int], cells: int) -> None:
        self.graph, self.home = graph, home
        self.owner = owners_of(graph)
        self.resident = bytearray(len(graph.data))  # 2 for values that were recomputed
        self.holders = [0] * len(graph.data)  # resident values in the memory of an owner
        self.values, self.recomputed, self.bytes = [0] * cells, [0] * cells, [0] * cells
        self.all_values, self.all_bytes = [0] * cells, [0] * cells
        for data, cell in home.items():
            self.all_values[cell] += 1
            self.all_bytes[cell] += graph.data[data].nbytes

    def hold(self, data: int, recomputed: bool) -> list[int]:
        """Note that a value is resident now; return the cells that this may change."""
        before, now = self.resident[data], 1 + recomputed
        self.resident[data] = now
        if not before:
            self.count_bytes(self.owner[data], 1)
        return self.count(data, (now > 0) - (before > 0), (now == 2) - (before == 2))

    def release(self, data: int) -> list[int]:
        """Note that a value is not resident any more; return the cells that this may change."""
        before = self.resident[data]
        self.resident[data] = 0
        if before:
            self.count_bytes(self.owner[data], -1)
        return self.count(data, -(before > 0), -(before == 2))

    def count(self, data: int, values: int, recomputed: int) -> list[int]:
        """Add to the counts of a value's cell; return it and the cell that owns the memory."""
        cell, owner = self.home.get(data), self.home.get(self.owner[data])
        if cell is not None:
            self.values[cell] += values
            self.recomputed[cell] += recomputed
        return [index for index in (cell, owner) if index is not None]

    def count_bytes(self, owner: int, holders: int) -> None:
        """Add to the values in an owner's memory; the first takes it, the last gives it back."""
        before = self.holders[owner]
        self.holders[owner] += holders
        cell = self.home.get(owner)
        if cell is not None:
            held = (self.holders[owner] > 0) - (before > 0)
            self.bytes[cell] += held * self.graph.data[owner].nbytes

    def level(self, cell: Cell) -> int:
        """Return how many of LEVELS parts of a cell's bytes are held, rounded.

        0 only if nothing is resident, and LEVELS only if everything is. Where all values are
        views, they are counted instead.
        """
        values, every = self.values[cell.id], self.all_values[cell.id]
        held, total = self.bytes[cell.id], self.all_bytes[cell.id]
        if not values and not held:
            return 0
        if held == total and (total or values == every):
            return LEVELS
        share = held / total if total else values / every
        return max(1, min(LEVELS - 1, round(LEVELS * share)))
