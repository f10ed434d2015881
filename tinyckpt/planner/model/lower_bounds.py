"""Lower bounds: what no schedule within a budget can cost less than. No solver, any graph.

Take one operator u, at its first evaluation. All its ancestors have been evaluated; none of its
descendants has. What the descendants read and the ancestors made must be there at this moment,
beside what u itself takes, or be made again later; and so on, from whatever is there. With a price
p on memory, making things again costs at least

    min over what is there of  (cost of making the rest again) + p (memory of what is there - room)

for every p >= 0 (Lagrange). For fixed p the minimum is a minimum cut: each value is either there,
for p times its memory, or made again by its operator, whose inputs are then wanted in turn. Any
flow through that network is at most the cut, so a flow that is not quite the largest still gives a
true bound; here it is pushed from the last operators to the first without going back on itself.

What an operator made that may not be evaluated twice is there for certain if a descendant reads it;
to make it again for others has no price.

The bound is over all schedules on one device: any order, any number of recomputations, nothing
moved to the host. Its source is this project; the moment of the first evaluation of the loss
gradient is the usual argument for chains.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import ceil, exp, inf, log

from tinyckpt.base.deadline import ENDLESS, Clock, OutOfTimeError
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.non_recomputable import NonRecomputable

MOMENTS = 48  # operators u that are tried; fewer in large graphs, to keep to seconds
WORK = 40_000  # moments times operators
PRICE_STEPS = 24  # steps of the search for the best price


def cost_bound(graph: Graph, costs: Costs, budget: int, deadline: Clock = ENDLESS) -> float:
    """Return a cost that no schedule with a peak within the budget is below.

    Args:
        graph: any graph.
        costs: what evaluations cost and values weigh; whole-numbered costs give a whole number.
        budget: in the memory unit of the costs. If no schedule can be within it, as far as is
            known here, the bound is infinite.
        deadline: of the search; the best bound by then is as true.
    """
    chain = uniform_chain(graph, costs, once=True)
    if chain is None:
        return flow_bound(graph, costs, budget, deadline)
    n, size = chain
    room = budget // size
    least = fewest_evaluations(n, room) * costs.operators[0] if room >= 3 else inf
    return max(least, flow_bound(graph, costs, budget, deadline)) if graph.once else least


def flow_bound(graph: Graph, costs: Costs, budget: int, deadline: Clock = ENDLESS) -> float:
    """Return the bound by flows, as above; on chains too, where a closed form is sharper."""
    problem = Problem(graph, costs)
    needed = necessary(graph)
    base = sum(costs.operators[index] for index in needed)
    if smallest_budget(problem, needed) > budget:
        return inf
    if problem.peak(range(len(graph.operators))) <= budget and len(needed) == len(graph.operators):
        return base
    try:
        known = Dependencies(problem, needed, deadline)
    except OutOfTimeError:
        return base
    best = highest_moment(known, budget, deadline)
    whole = all(float(costs.operators[index]).is_integer() for index in needed)
    # Sums of floats may come out a little high.
    total = base + best * (1 - 1e-9)
    return float(ceil(total - 1e-6)) if whole else total


def highest_moment(known: Dependencies, budget: int, deadline: Clock) -> float:
    """Return the highest bound of the moments that are tried; any of them is true.

    Those at the turn from the forward to the backward half, where most is held as a rule; a sample
    of all, and a finer one around its best; then up the hill from the best of these, by steps that
    get smaller.
    """
    moments = known.moments()
    found: dict[int, float] = {}

    def tried(places: Iterable[int]) -> None:
        for place in places:
            if 0 <= place < len(moments) and place not in found and deadline.left():
                with suppress(OutOfTimeError):
                    found[place] = known.bound(moments[place], budget, deadline)

    most = max(2, min(MOMENTS, WORK // max(len(known.operators), 1)))
    step = max(1, len(moments) // most)
    turn = bisect_left(moments, known.problem.graph.forward_count)
    tried([turn, turn - 1])
    tried(range(0, len(moments), step))
    if not found or max(found.values()) <= 0:
        return 0.0
    best = max(found, key=found.__getitem__)
    nearby = range(max(0, best - step + 1), min(len(moments), best + step))
    tried(nearby[:: max(1, len(nearby) // most)])
    while step > 1 and deadline.left():
        step //= 2
        best = max(found, key=found.__getitem__)
        tried([best - step, best + step])
    return max(found.values())


def necessary(graph: Graph) -> list[int]:
    """Return the operators that the graph's results depend on."""
    wanted = set(graph.outputs)
    found = []
    for operator in reversed(graph.operators):
        if not wanted.isdisjoint(operator.outputs):
            found.append(operator.id)
            wanted.update(operator.inputs)
    return found[::-1]


def smallest_budget(problem: Problem, operators: Iterable[int]) -> int:
    """Return a budget below which no schedule is legal: what one operator takes, or all results.

    An operator takes its inputs, its outputs and its workspace at once, beside what must be there
    since it cannot be made again; at the end, the results are all there.

    Args:
        problem: any graph.
        operators: those that are to be evaluated, ascending.
    """
    graph = problem.graph
    operators = list(operators)
    pinned = NonRecomputable(problem, operators)
    results = {problem.root[data] for data in graph.outputs}
    at_end = int(sum(problem.size[data] for data in results))
    return max(at_end, pinned.largest_need(operators))


class Dependencies:
    """The values and operators of a graph, for bounds at different moments.

    A view counts as what it is a view of, and is free to make: less than it costs, at most.
    """

    def __init__(self, problem: Problem, needed: list[int], deadline: Clock = ENDLESS) -> None:
        """Look at a graph.

        Args:
            problem: the graph, and what its values weigh.
            needed: the operators that its results depend on.
            deadline: of the search.

        Raises:
            OutOfTimeError: if the time is up.
        """
        deadline.check()
        graph = problem.graph
        self.problem, self.operators = problem, needed
        self.size = problem.size.tolist()
        self.cost = problem.cost.tolist()
        for index in graph.once:
            self.cost[index] = inf
        self.pinned = NonRecomputable(problem, needed)
        root = problem.root
        is_view = [root[node.id] != node.id for node in graph.data]
        produced = [node.producer is not None for node in graph.data]
        self.outputs: dict[int, list[int]] = {}
        self.inputs: dict[int, list[int]] = {}
        for index in needed:
            deadline.check()
            operator = graph.operators[index]
            self.outputs[index] = [data for data in operator.outputs if not is_view[data]]
            read = dict.fromkeys(root[data] for data in operator.inputs)
            self.inputs[index] = [data for data in read if produced[data]]
        self.readers: dict[int, list[int]] = {}
        for index in needed:
            if self.outputs[index]:
                for data in self.inputs[index]:
                    self.readers.setdefault(data, []).append(index)
        self.producer = [
            -1 if graph.data[root[i]].producer is None else int(graph.data[root[i]].producer or 0)
            for i in range(len(root))
        ]

    def moments(self) -> list[int]:
        """Return the operators to try: those that something follows and something precedes."""
        return [
            index
            for index in self.operators
            if self.inputs[index] and any(self.readers.get(data) for data in self.outputs[index])
        ]

    def ancestors(self, moment: int) -> set[int]:
        """Return the operators that must have been evaluated before one."""
        found: set[int] = set()
        todo = [moment]
        while todo:
            for data in self.inputs[todo.pop()]:
                producer = self.producer[data]
                if producer not in found:
                    found.add(producer)
                    todo.append(producer)
        return found

    def descendants(self, moment: int) -> set[int]:
        """Return the operators that cannot have been evaluated before one."""
        found: set[int] = set()
        todo = [moment]
        while todo:
            for data in self.outputs[todo.pop()]:
                for reader in self.readers.get(data, ()):
                    if reader not in found:
                        found.add(reader)
                        todo.append(reader)
        return found

    def bound(self, moment: int, budget: int, deadline: Clock = ENDLESS) -> float:
        """Return the least cost of what must be made again after a moment; 0 at worst.

        Raises:
            OutOfTimeError: if the deadline has passed before anything is known.
        """
        before = self.ancestors(moment)
        deadline.check()
        after = self.descendants(moment)
        deadline.check()
        held = {*self.inputs[moment], *self.pinned.during(moment)}
        room = budget - self.pinned.need(moment)
        wanted = {
            data
            for index in before
            for data in self.outputs[index]
            if data not in held and any(reader in after for reader in self.readers.get(data, ()))
        }
        if sum(self.size[data] for data in wanted) <= room:
            return 0.0
        deadline.check()
        order = sorted(before, reverse=True)
        # The bound is concave in the price, so it rises and then falls in its logarithm too.
        ratios = [
            self.cost[index] / self.size[data]
            for index in order
            for data in self.outputs[index]
            if inf > self.cost[index] / max(self.size[data], 1) > 0 < self.size[data]
        ]
        if not ratios:
            return 0.0

        def value_at(logarithm: float) -> float:
            price = exp(logarithm)
            return self.flow(order, wanted, held, price) - price * room

        deadline.check()
        return golden_section_max(
            value_at, log(min(ratios) / len(order)), log(max(ratios) * len(order)), deadline
        )

    def flow(self, order: list[int], wanted: set[int], held: set[int], price: float) -> float:
        """Return a flow from the wanted values to what it costs to make them again.

        Args:
            order: the operators before the moment, the last one first.
            wanted: values that must be there or be made again.
            held: values that are there in any case.
            price: of a unit of memory.
        """
        arriving: dict[int, float] = {}
        total = 0.0
        for index in order:
            supply = 0.0
            for data in self.outputs[index]:
                if data in held:
                    continue
                room = price * self.size[data]
                supply += room if data in wanted else min(arriving.get(data, 0.0), room)
            if supply <= 0.0:
                continue
            paid = min(supply, self.cost[index])
            total += paid
            supply -= paid
            for data in self.inputs[index]:
                if supply <= 0.0:
                    break
                if data in wanted or data in held:
                    continue  # full, or free
                passed = min(supply, price * self.size[data] - arriving.get(data, 0.0))
                if passed > 0.0:
                    arriving[data] = arriving.get(data, 0.0) + passed
                    supply -= passed
        return total


def golden_section_max(
    value_at: Callable[[float], float], low: float, high: float, deadline: Clock = ENDLESS
) -> float:
    """Return the largest value of a function that rises and then falls, by golden sections.

    It is a true value of the function in any case, the best by the time limit, and 0 if that is
    larger.
    """
    golden = (5**0.5 - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left = value_at(left)
    if not deadline.left():
        return max(0.0, at_left)
    at_right = value_at(right)
    best = max(0.0, at_left, at_right)
    for _ in range(PRICE_STEPS):
        if not deadline.left():
            break
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = value_at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = value_at(right)
        best = max(best, at_left, at_right)
    return best
