"""Oracle: a machine that ticks: event times, found by waiting for the next operation to end.

It shares nothing with the simulator but the vocabulary: no maximum of times is taken anywhere.
Moved values own their memory and have no views.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import tinyckpt as tc

Step = tc.Compute | tc.Update | tc.Free | tc.Offload | tc.Fetch


@dataclass
class Queue:
    """Steps that run one after another: computation, or one copy engine."""

    steps: list[int]
    ends: Fraction | None = None  # when the one at the head, which has begun, will have ended


@dataclass
class Ticking:
    """One run of the event machine.

    Attributes:
        trace: of ``replay``: the live values at each step.
        ticks: the duration of each step.
        engines: 1 or 2.
        budget: in bytes, or None.
    """

    trace: tc.Trace
    ticks: list[Fraction]
    engines: int
    budget: int | None
    begun: dict[int, Fraction] = field(default_factory=dict)
    done: dict[int, Fraction] = field(default_factory=dict)

    def run(self) -> None:
        """Tick until all steps have ended."""
        steps = self.trace.steps
        cores = [p for p, s in enumerate(steps) if isinstance(s, tc.Compute | tc.Update)]
        out = [p for p, s in enumerate(steps) if isinstance(s, tc.Offload)]
        back = [p for p, s in enumerate(steps) if isinstance(s, tc.Fetch)]
        lines = [out, back] if self.engines == 2 else [sorted(out + back)]
        queues = [Queue(cores), *map(Queue, lines)]
        now = Fraction(0)
        while any(queue.steps for queue in queues):
            moved = True
            while moved:  # what takes no time may let others begin in the same tick
                moved = False
                for queue in queues:
                    moved |= self.advance(queue, now)
            now = min((queue.ends for queue in queues if queue.ends is not None), default=now)

    def advance(self, queue: Queue, now: Fraction) -> bool:
        """End or begin the step at the head of a queue; return whether either was done."""
        if not queue.steps:
            return False
        head = queue.steps[0]
        if queue.ends == now:
            self.done[head], queue.ends = now, None
            del queue.steps[0]
            return True
        if queue.ends is None and self.may_begin(head):
            self.begun[head], queue.ends = now, now + self.ticks[head]
            return True
        return False

    def may_begin(self, position: int) -> bool:
        """Whether all dependencies of a step have ended."""
        steps = self.trace.steps
        step = steps[position]
        if isinstance(step, tc.Compute | tc.Update):
            reads = set(self.trace.graph.operators[step.operator].inputs)
            waits = [self.last_fetch(data, position) for data in reads]
        else:
            reads = {step.data}
            waits = [p for p in range(position) if isinstance(steps[p], tc.Compute | tc.Update)]
            if isinstance(step, tc.Offload):
                waits.append(self.last_fetch(step.data, position))
            else:
                waits += [p for p in range(position) if steps[p] == tc.Offload(step.data)]
        return all(p is None or p in self.done for p in waits) and self.has_room(position)

    def last_fetch(self, data: int, position: int) -> int | None:
        """Return the fetch that brought a value, if one did and nothing recomputed it since."""
        graph = self.trace.graph
        for earlier in range(position - 1, -1, -1):
            step = self.trace.steps[earlier]
            if isinstance(step, tc.Fetch) and step.data == data:
                return earlier
            if (
                isinstance(step, tc.Compute | tc.Update)
                and data in graph.operators[step.operator].outputs
            ):
                return None
        return None

    def has_room(self, position: int) -> bool:
        """Whether live values and copies in flight are within the budget."""
        steps = self.trace.steps
        if self.budget is None or isinstance(steps[position], tc.Offload):
            return True
        return self.trace.live_bytes[position] + self.on_its_way(position) <= self.budget

    def on_its_way(self, position: int) -> int:
        """Return the bytes held by copies in flight of values that earlier steps have freed."""
        total = 0
        for earlier, step in enumerate(self.trace.steps[:position]):
            held = isinstance(step, tc.Offload) and earlier not in self.done
            if isinstance(step, tc.Free):
                fetched = self.last_fetch(step.data, earlier)
                held = fetched is not None and fetched not in self.done
            if held:
                total += self.trace.graph.data[step.data].spec.nbytes
        return total
