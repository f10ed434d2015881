"""Incremental memory accounting per drawn node (cell): resident, recomputed and offloaded bytes.

Steps come in one after the other, counters per cell are kept up to date. A value that is computed
allocates a block, and a view lies in that of its base; a block is live while any value in it is
resident, as in every number of a trace. In place, a block ends with the value that is overwritten,
and one of the same memory begins. Summed over cells that cover the whole graph, and with the
workspace, the counters are the trace's live bytes.

Outputs of any evaluation of an operator but its first are *recomputed*, all others are *kept*
(saved): values, and the blocks allocated for them. This is the one place where that is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tinyckpt.codegen.in_place import InPlace
from tinyckpt.core.schedule import EVALUATIONS, Evaluation, Fetch, Offload

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.schedule import Step

    from .layout.drawn_nodes import Cell

LABEL_BAND = 0.46  # of a group's height: the band in the middle that its label takes
NOWHERE = -1
LEVELS = 8  # of a group's fill: few, so that sprites can be cached and do not flicker


def result_gradients(graph: Graph) -> set[int]:
    """Return the gradients that are results, such as weight gradients, and their memory's owners.

    All other values of the backward pass are cotangents, on their way back.
    """
    found: set[int] = set()
    for output in graph.outputs:
        root = output
        while (base := graph.data[root].view_of) is not None:
            root = base
        producer = graph.data[root].producer
        if producer is not None and producer >= graph.forward_count:
            found |= {output, root}
    return found


def shown_share(share: float) -> float:
    """Return the fraction of a group's height that is filled for a share of its bytes.

    The surface never crosses the label, which it would seem to strike out: it passes below or
    above, whichever is nearer.
    """
    if abs(share - 0.5) >= LABEL_BAND / 2:
        return share
    return 0.5 + (LABEL_BAND / 2 if share > 0.5 else -LABEL_BAND / 2)


class CellMemory:
    """Resident and offloaded memory of every cell.

    Attributes:
        values: resident values.
        recomputed: resident values whose operator was evaluated more than once.
        bytes: resident bytes.
        bytes_again: resident bytes that were allocated by a recomputation.
        results, bytes_results: resident values, and bytes, of gradients that are results.
        all_values, all_bytes: the totals if everything was resident.
        waiting, waiting_bytes: values in host memory, and their bytes.
        touched: the cells that may look different, until the caller clears it.
    """

    def __init__(self, graph: Graph, home: Mapping[int, int], cells: int) -> None:
        self.graph = graph
        self.home = [NOWHERE] * len(graph.data)  # the cell that a value is in
        self.touched: set[int] = set()
        self.resident = bytearray(len(graph.data))  # 2 for values that were recomputed
        self.block = [NOWHERE] * len(graph.data)  # the block of each value; sources have none
        self.times = [0] * len(graph.operators)  # evaluations so far
        self.owner: list[int] = []  # by block, the value that it was allocated for
        self.again: list[bool] = []  # by block, whether a recomputation allocated it
        self.holders: list[int] = []  # by block, resident values in it
        self.values, self.recomputed = [0] * cells, [0] * cells
        self.bytes, self.bytes_again = [0] * cells, [0] * cells
        self.results, self.bytes_results = [0] * cells, [0] * cells
        self.is_result = bytearray(len(graph.data))
        for data in result_gradients(graph):
            self.is_result[data] = 1
        self.all_values, self.all_bytes = [0] * cells, [0] * cells
        self.waiting, self.waiting_bytes = [0] * cells, [0] * cells
        for data, cell in home.items():
            self.home[data] = cell
            self.all_values[cell] += 1
            self.all_bytes[cell] += graph.data[data].nbytes

    def take(self, step: Step) -> None:
        """Apply a step."""
        if isinstance(step, EVALUATIONS):
            self.times[step.operator] += 1
            again = self.is_again(step)
            for data in self.graph.operators[step.operator].outputs:
                self.hold(data, again)
            if isinstance(step, InPlace):
                self.let_go(step.data)
        elif isinstance(step, Fetch):
            # No operator is evaluated again while an output of it is in host memory.
            producer = self.graph.data[step.data].producer
            again = producer is not None and self.times[producer] > 1
            self.hold(step.data, again, fetched=True)
            self.count_on_host(step.data, -1)
        else:
            self.release(step.data)
            if isinstance(step, Offload):
                self.count_on_host(step.data, 1)

    def is_again(self, step: Evaluation) -> bool:
        """Whether the evaluation applied last was a recomputation."""
        return self.times[step.operator] > 1

    def hold(self, data: int, recomputed: bool, fetched: bool = False) -> None:
        """Mark a value as resident.

        A fetched value has memory of its own, even if it is a view.
        """
        if not self.resident[data]:
            base = self.graph.data[data].view_of
            if base is None or fetched:
                self.block[data] = self.allocate(data, recomputed)
            else:
                self.block[data] = self.block[base]
            if self.block[data] != NOWHERE:
                self.holders[self.block[data]] += 1
        self.become(data, 2 if recomputed else 1)

    def release(self, data: int) -> int | None:
        """Mark a value as not resident; its block is freed with the last value in it.

        Returns:
            The value for which the freed block was allocated, or None if no block is freed.
        """
        owner = self.let_go(data) if self.resident[data] else None
        self.become(data, 0)
        return owner

    def let_go(self, data: int) -> int | None:
        """Take a value out of its block; return the block's owner if that is freed, else None."""
        block, self.block[data] = self.block[data], NOWHERE
        if block == NOWHERE:
            return None
        self.holders[block] -= 1
        if self.holders[block]:
            return None
        self.count_bytes(block, -1)
        return self.owner[block]

    def allocate(self, data: int, recomputed: bool) -> int:
        """Return a new block for a value."""
        block = len(self.owner)
        self.owner.append(data)
        self.again.append(recomputed)
        self.holders.append(0)
        self.count_bytes(block, 1)
        return block

    def become(self, data: int, now: int) -> None:
        """Update a value's state in its cell's counters: 0 not resident, 1 kept, 2 recomputed."""
        before = self.resident[data]
        self.resident[data] = now
        cell = self.home[data]
        if cell != NOWHERE:
            self.values[cell] += (now > 0) - (before > 0)
            self.recomputed[cell] += (now == 2) - (before == 2)
            self.results[cell] += self.is_result[data] * ((now > 0) - (before > 0))
            self.touched.add(cell)

    def count_bytes(self, block: int, sign: int) -> None:
        """Add the bytes of a block to its owner's cell, or subtract them."""
        owner = self.owner[block]
        cell = self.home[owner]
        if cell != NOWHERE:
            nbytes = sign * self.graph.data[owner].spec.nbytes
            self.bytes[cell] += nbytes
            self.bytes_again[cell] += nbytes if self.again[block] else 0
            self.bytes_results[cell] += nbytes if self.is_result[owner] else 0
            self.touched.add(cell)

    def count_on_host(self, data: int, sign: int) -> None:
        """Add a value to its cell's counters of host memory, or subtract it."""
        cell = self.home[data]
        if cell != NOWHERE:
            self.waiting[cell] += sign
            self.waiting_bytes[cell] += sign * self.graph.data[data].spec.nbytes

    def level(self, cell: Cell) -> int:
        """Return the resident share of a cell's bytes, rounded to LEVELS parts.

        0 only if nothing is resident, and LEVELS only if everything is. Where all values are views,
        they are counted instead.
        """
        values, every = self.values[cell.id], self.all_values[cell.id]
        held, total = self.bytes[cell.id], self.all_bytes[cell.id]
        if not values and not held:
            return 0
        if held >= total and (total or values == every):
            return LEVELS
        share = held / total if total else values / every
        return max(1, min(LEVELS - 1, round(LEVELS * share)))

    def hosted_level(self, cell: Cell) -> int:
        """Return the share of a cell's bytes in host memory, rounded to LEVELS parts.

        0 only if nothing is there, and LEVELS only if as many bytes as everything has are: a view
        takes memory of its own there. Values without any bytes are counted instead, as in
        ``level``.
        """
        waiting, total = self.waiting_bytes[cell.id], self.all_bytes[cell.id]
        if not self.waiting[cell.id]:
            return 0
        if not total:
            waiting, total = self.waiting[cell.id], self.all_values[cell.id]
        if waiting >= total:
            return LEVELS
        return max(1, min(LEVELS - 1, round(LEVELS * waiting / total)))

    def is_recomputed(self, cell: Cell) -> bool:
        """Whether any resident memory of a cell is recomputed: bytes of a group, if it has any."""
        if cell.group and self.bytes[cell.id]:
            return self.bytes_again[cell.id] > 0
        return self.recomputed[cell.id] > 0

    def kept_level(self, cell: Cell, level: int) -> int:
        """Return how many of the ``level`` resident parts of a partly recomputed cell were kept."""
        return self.part_of(cell, level, self.bytes[cell.id] - self.bytes_again[cell.id])

    def result_level(self, cell: Cell, level: int | None) -> int:
        """Return how much of a cell of the backward pass is result gradients.

        LEVELS if all that is resident is: bytes of a group, values of an operator. Else how many of
        the ``level`` resident parts of a group are.
        """
        if cell.group and self.bytes[cell.id]:
            results, every = self.bytes_results[cell.id], self.bytes[cell.id]
        else:
            results, every = self.results[cell.id], self.values[cell.id]
        if results == every:
            return LEVELS
        return self.part_of(cell, level or 0, self.bytes_results[cell.id])

    def part_of(self, cell: Cell, level: int, nbytes: int) -> int:
        """Return how many of the ``level`` resident parts of a cell some of its bytes are."""
        if not nbytes or not level:
            return 0
        return min(level - 1, max(1, round(LEVELS * nbytes / self.all_bytes[cell.id])))
