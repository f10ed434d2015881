"""Oracle: the least makespan of tiny graphs with a host, by exhaustive search over schedules."""

import heapq
from fractions import Fraction
from math import inf
from typing import Any

import tinyckpt as tc
from tinyckpt.core.costs import Costs


def exhaustive(
    graph: tc.Graph,
    costs: Costs,
    link: tc.Link,
    budget: int,
    host: float,
    most: Any = inf,
    in_class: bool = False,
) -> Any:
    """Return the least makespan of all schedules, or None: every legal step, in every order.

    None, too, if it is above ``most``: copies can be handed over without end.

    A state is the placement of all values and, from the end of the last evaluation on, the time
    that each engine's queue and each copy still takes. Nothing is pruned, and only equal states are
    merged. With ``in_class``, for the class of the A* search, the state also has the operators that
    must not be evaluated again.
    """
    size = [node.spec.nbytes for node in graph.data]
    made = {d for o in graph.operators for d in o.outputs}
    if in_class:
        first = graph.operators[: graph.forward_count]
        made = {d for o in first for d in o.outputs} - set(graph.outputs)
    lasts = {d: link.duration(size[d]) for d in made} if link.bandwidth else {}
    goal = set(graph.outputs)
    zero = Fraction(0)
    nothing: frozenset[Any] = frozenset()
    start = (nothing, nothing, zero, zero, nothing, nothing, nothing)
    best: dict[Any, Fraction] = {start: zero}
    heap: list[Any] = [(zero, 0, start)]

    def room(begin: Fraction, held: int, leaving: Any) -> Fraction | None:
        for moment in sorted({begin, *(end for _, end in leaving if end > begin)}):
            if held + sum(size[d] for d, end in leaving if end > moment) <= budget:
                return moment
        return None

    def after(now: Fraction, state: Any) -> None:
        if now + max(state[2], state[3]) <= most and now < best.get(state, inf):
            best[state] = now
            heapq.heappush(heap, (now, len(best), state))

    while heap:
        now, _, state = heapq.heappop(heap)
        if now > best[state]:
            continue
        device, waiting, out, back, leaving, arriving, spent = state
        ends = dict(arriving)
        if goal <= device:
            late = max((ends.get(d, zero) for d in goal), default=zero)
            if not late:
                return now
            after(now + late, (device, waiting, out, back, leaving, nothing, spent))
        held = sum(size[d] for d in device)
        for data in device:
            if data not in ends:
                after(now, (device - {data}, waiting, out, back, leaving, arriving, spent))
            may_leave = data in lasts and data not in ends and data not in dict(leaving)
            if may_leave and sum(size[d] for d in waiting) + size[data] <= host:
                end = out + lasts[data]
                line = end if link.engines == 1 else back
                gone = leaving | {(data, end)} if end else leaving
                after(now, (device - {data}, waiting | {data}, end, line, gone, arriving, spent))
        for data in waiting:
            begin = room(max(back, dict(leaving).get(data, zero)), held + size[data], leaving)
            if begin is not None:
                end = begin + lasts[data]
                line = end if link.engines == 1 else out
                come = arriving | {(data, end)} if end else arriving
                after(now, (device | {data}, waiting - {data}, line, end, leaving, come, spent))
        for operator in graph.operators:
            reads = {d for d in operator.inputs if not graph.data[d].is_source}
            makes = set(operator.outputs)
            if not reads <= device or makes & (device | waiting) or operator.id in spent:
                continue
            arrived = max([zero, *(ends[d] for d in reads if d in ends)])
            taken = operator.workspace + sum(size[d] for d in makes)
            begin = room(arrived, held + taken, leaving)
            if begin is None:
                continue
            over = begin + Fraction(costs.operators[operator.id])
            rest = [
                frozenset((d, end - over) for d, end in copies if end > over)
                for copies in (leaving, arriving)
            ]
            lines = [max(zero, line - over) for line in (out, back)]
            is_once = in_class and operator.id >= graph.forward_count
            again = spent | {operator.id} if is_once else spent
            after(now + over, (device | makes, waiting, *lines, *rest, again))
    return None
