"""Widget of a notebook, by anywidget: Python reads and sets its step, budget and kept tiles.

The traits are synchronised with ``assets/notebook.js``. Keeping other tiles plans anew: the
schedule that saves what they pass on, of which the trace is replayed and shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from tinyckpt.core.cuts import retaining_order
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay

from ..explainer.story import kept_of, story_of, tiles_of
from .data import MOST_SCHEDULES, traces_of, widget_data
from .element_script import element_script

if TYPE_CHECKING:
    from tinyckpt.core.graph import Graph
    from tinyckpt.core.trace import Trace

    from .data import Shown

BY_HAND = "by hand"  # the policy of a schedule whose kept tiles were chosen
MODULE = element_script("notebook") + "export default { render: renderWidget };\n"


class Widget(anywidget.AnyWidget):
    """Live widget of a notebook; ``viz.widget`` makes it.

    Attributes:
        step: of the trace that is shown; set it to go there.
        budget: chooses the cheapest schedule within it: ``"9"`` values, ``"50 %"`` of store-all's
            peak, ``"1.5 GiB"``; None for the policy's.
        kept: numbers of the tiles, from 1, whose values the schedule saves. Click a tile, or set
            them: a schedule that saves those is planned and shown.
        policy: of the schedule that is shown where no budget is given.
        row: the place of that schedule in ``traces``.
        traces: all of them, store-all first.
    """

    _esm = MODULE
    data = traitlets.Dict().tag(sync=True)
    attributes = traitlets.Dict().tag(sync=True)
    step = traitlets.Int(-1).tag(sync=True)
    budget = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    policy = traitlets.Unicode("").tag(sync=True)
    row = traitlets.Int(0).tag(sync=True)
    kept = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(self, traces: Shown, attributes: dict[str, str]) -> None:
        self.traces = traces_of(traces)
        policies = [trace.schedule.policy for trace in self.traces]
        asked = attributes.get("policy", "")
        row = policies.index(asked) if asked in policies else min(1, len(policies) - 1)
        story = story_of([self.traces[0], self.traces[row]])
        moment = story.moments[story.at(attributes.get("stop", "recomputation"))]
        budget = attributes.get("budget")
        super().__init__(
            data=widget_data(self.traces, steps=True),
            attributes={name: attributes[name] for name in attributes if name != "budget"},
            step=moment.rows[-1].step,
            budget=budget,
            policy=policies[row],
            row=row,
            kept=kept_tiles(self.traces[row]),
        )
        self.observe(self._take_row, "row")
        self.observe(self._take_kept, "kept")

    @property
    def trace(self) -> Trace:
        """The trace that is shown."""
        return self.traces[self.row]

    @traitlets.validate("kept")
    def _check_kept(self, proposal: Any) -> list[int]:
        """Refuse numbers that no tile has."""
        count = len(self.data["tiles"])
        if wrong := [tile for tile in proposal["value"] if not 1 <= tile <= count]:
            raise traitlets.TraitError(f"kept {wrong}: expected tiles from 1 to {count}")
        return sorted(set(proposal["value"]))

    def _take_row(self, change: Any) -> None:
        """Say what another schedule keeps."""
        self.kept = kept_tiles(self.trace)

    def _take_kept(self, change: Any) -> None:
        """Plan for other kept tiles, unless the schedule that is shown keeps them."""
        if self.kept == kept_tiles(self.trace):
            return
        made = replay(schedule_keeping(self.trace.graph, self.kept))
        others = [trace for trace in self.traces if trace.schedule.policy != BY_HAND]
        self.traces = [*others[: MOST_SCHEDULES - 1], made]
        with self.hold_trait_notifications(), self.hold_sync():
            self.budget, self.policy = None, BY_HAND
            self.data = widget_data(self.traces, steps=True)
            self.row = len(self.traces) - 1


def kept_tiles(trace: Trace) -> list[int]:
    """Return the numbers of the tiles whose values a schedule saves; all, if it recomputes none."""
    tiles, _ = tiles_of(trace.graph)
    kept = kept_of(trace, tiles)
    return [place + 1 for place in (range(len(tiles)) if kept is None else kept)]


def schedule_keeping(graph: Graph, tiles: list[int]) -> Any:
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
    return from_order(graph, order, BY_HAND, {"tiles": tiles}, note, kept)
