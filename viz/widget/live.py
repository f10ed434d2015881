"""Widget of a notebook, by anywidget: Python reads and sets its step, budget and kept tiles.

The traits are synchronised with ``assets/notebook.js``. Keeping other tiles plans anew: the
schedule that saves what they pass on, of which the trace is replayed and shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from tinyckpt.base.errors import OptionError
from tinyckpt.core.cuts import retaining_order
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay

from ..explainer.story import kept_of, story_of, tiles_of
from .data import MOST_SCHEDULES, row_shown, widget_data
from .element_script import element_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tinyckpt.core.graph import Graph
    from tinyckpt.core.schedule import Schedule
    from tinyckpt.core.trace import Trace

HAND_PICKED = "hand-picked"  # the policy of a schedule whose kept tiles were chosen
MODULE = element_script("notebook") + "export default { render: renderWidget };\n"


class Widget(anywidget.AnyWidget):
    """Live widget of a notebook; ``viz.widget`` makes it.

    Attributes:
        step: of the trace that is shown; set it to go there.
        budget: chooses the cheapest schedule within it: ``"9"`` values, ``"50 %"`` of store-all's
            peak, ``"1.5 GiB"``; None where it was chosen otherwise.
        kept: numbers of the tiles, from 1, whose values the schedule saves. Click a tile, or set
            them: a schedule that saves those is planned and shown.
        row: the place in ``traces`` of the schedule that is shown; set it to show another.
        traces: all of them, store-all first.
    """

    _esm = MODULE
    data = traitlets.Dict().tag(sync=True)
    attributes = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(-1).tag(sync=True)
    budget = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    row = traitlets.Int(0).tag(sync=True)
    kept = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(
        self, traces: Sequence[Trace], data: dict[str, Any], attributes: dict[str, str]
    ) -> None:
        self.traces = [*traces]
        budget = attributes.get("budget")
        row = row_shown(data, attributes.get("policy"), budget)
        story = story_of([self.traces[0], self.traces[row]])
        moment = story.moments[story.at(attributes.get("stop", "first recomputation"))]
        super().__init__(
            data=data,
            attributes={name: attributes[name] for name in attributes if name != "budget"},
            step=moment.rows[-1].step,
            budget=budget,
            row=row,
            kept=kept_tiles(self.traces[row]),
        )
        self.observe(self._take_budget, "budget")
        self.observe(self._take_row, "row")
        self.observe(self._take_kept, "kept")

    @property
    def trace(self) -> Trace:
        """The trace that is shown."""
        return self.traces[self.row]

    @property
    def policy(self) -> str:
        """Its policy; ``hand-picked`` if kept tiles were chosen."""
        return self.trace.schedule.policy

    @traitlets.validate("kept")
    def _check_kept(self, proposal: Any) -> list[int]:
        """Refuse numbers that no tile has."""
        count = self.data["tiles"]
        if wrong := [tile for tile in proposal["value"] if not 1 <= tile <= count]:
            raise traitlets.TraitError(f"kept {wrong}: expected tiles from 1 to {count}")
        return sorted(set(proposal["value"]))

    @traitlets.validate("row")
    def _check_row(self, proposal: Any) -> int:
        """Refuse a place where no trace is."""
        row, count = int(proposal["value"]), len(self.traces)
        if not 0 <= row < count:
            raise traitlets.TraitError(f"row {row}: expected one from 0 to {count - 1}")
        return row

    @traitlets.validate("budget")
    def _check_budget(self, proposal: Any) -> str | None:
        """Refuse what is no budget, or within which there is nothing."""
        budget: str | None = proposal["value"]
        if budget is not None:
            try:
                row_shown(self.data, None, budget)
            except OptionError as error:
                raise traitlets.TraitError(str(error)) from None
        return budget

    def _take_budget(self, change: Any) -> None:
        """Show the schedule that the budget chooses."""
        if self.budget is not None:
            self.row = row_shown(self.data, None, self.budget)

    def _take_row(self, change: Any) -> None:
        """Say what another schedule keeps; a budget that chooses another is none any more."""
        if self.budget is not None and self.row != row_shown(self.data, None, self.budget):
            self.budget = None
        self.kept = kept_tiles(self.trace)

    def _take_kept(self, change: Any) -> None:
        """Plan for other kept tiles, unless the schedule that is shown keeps them."""
        if self.kept == kept_tiles(self.trace):
            return
        made = replay(schedule_keeping(self.trace.graph, self.kept))
        others = [trace for trace in self.traces if trace.schedule.policy != HAND_PICKED]
        self.traces = [*others[: MOST_SCHEDULES - 1], made]
        with self.hold_trait_notifications(), self.hold_sync():
            self.budget = None
            self.data = widget_data(self.traces, steps=True)
            self.row = len(self.traces) - 1


def kept_tiles(trace: Trace) -> list[int]:
    """Return the numbers of the tiles whose values a schedule saves; all, if it recomputes none."""
    tiles, _ = tiles_of(trace.graph)
    kept = kept_of(trace, tiles)
    return [place + 1 for place in (range(len(tiles)) if kept is None else kept)]


def schedule_keeping(graph: Graph, tiles: list[int]) -> Schedule:
    """Return the schedule that saves what some tiles, numbered from 1, pass on to later ones."""
    places, _ = tiles_of(graph)
    last_reader = {
        data: operator.id
        for operator in graph.operators[: graph.forward_count]
        for data in operator.inputs
    }
    kept = [
        data
        for tile in (places[number - 1] for number in tiles)
        for operator in graph.operators[tile.start : tile.stop]
        for data in operator.outputs
        if last_reader.get(data, 0) >= tile.stop
    ]
    order = retaining_order(graph, kept, reuse=True)
    note = f"kept by hand: {', '.join(map(str, tiles)) or 'nothing'}"
    return from_order(graph, order, HAND_PICKED, {"tiles": tiles}, note, kept)
