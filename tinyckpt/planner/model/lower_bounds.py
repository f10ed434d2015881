"""Lower bounds on schedule cost within a memory budget: Lagrangian relaxation and a minimum cut.

Any graph, no solver. Consider the first evaluation of an operator u. All its ancestors have been
evaluated; none of its descendants has. Every value that an ancestor computed and a descendant reads
is at this moment either resident, in addition to the working set of u, or recomputed later; and so
on recursively, from the resident values. With a Lagrange multiplier p, the price of memory,
recomputation costs at least

    min over resident sets of  (cost of recomputing the rest) + p (memory of the set - room)

for every p >= 0. For fixed p the minimum is a minimum cut: each value is either resident, for p
times its memory, or recomputed by its operator, whose inputs are then required in turn. By weak
duality any flow through that network is at most the cut, so a flow that is not maximum still gives
a valid bound; here it is pushed from the last operators to the first without augmenting paths. The
price is chosen by golden-section search, the operator u by sampling and hill climbing.

The output of a non-recomputable operator is certainly resident if a descendant reads it;
recomputing it has an infinite price.

The bound is over all schedules on one device: any order, any number of recomputations, nothing
offloaded to the host. Its source is this project; the argument at the first evaluation of the loss
gradient is the usual one for chains. Uniform chains have a sharper closed form, ``binomial_bound``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import ceil, exp, inf, log

from tinyckpt.base.deadline import NO_DEADLINE, Clock, OutOfTimeError
from tinyckpt.core.graph import Graph
from tinyckpt.planner.model.binomial_bound import fewest_evaluations, uniform_chain
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.non_recomputable import PinnedLiveness

# Operators u for which the bound is evaluated: more may give a higher bound, in proportional time.
MOMENTS = 48
# Operators u times operators of the graph: caps MOMENTS in large graphs, to keep to seconds.
# Larger: higher bounds for large graphs, more slowly.
WORK = 40_000
# Iterations of the golden-section search for the price: each narrows the logarithm of the price to
# 0.618 of its range; more give a slightly higher bound, in proportional time.
PRICE_STEPS = 24


def cost_bound(problem: Problem, budget: int, deadline: Clock = NO_DEADLINE) -> float:
    """Return a lower bound on the cost of every schedule whose peak is within the budget.

    Args:
        problem: any graph; integral costs give an integral bound.
        budget: in the memory unit of the costs. If it is below ``smallest_budget``, the bound is
            infinite.
        deadline: of the search; the best bound found by then is valid.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(8)
    >>> costs = tc.cost.in_nodes(tc.cost.evaluations(graph))
    >>> [cost_bound(Problem(graph, costs), budget) for budget in (2, 3, 6, 10)]
    [inf, 45, 21, 17]
    """
    graph, costs = problem.graph, problem.costs
    chain = uniform_chain(graph, costs, once=True)
    if chain is None:
        return flow_bound(problem, budget, deadline)
    n, size = chain
    room = budget // size
    least = fewest_evaluations(n, room) * costs.operators[0] if room >= 3 else inf
    return max(least, flow_bound(problem, budget, deadline)) if graph.once else least


def flow_bound(problem: Problem, budget: int, deadline: Clock = NO_DEADLINE) -> float:
    """Return the Lagrangian min-cut bound, on chains too, where the closed form is sharper."""
    graph, costs = problem.graph, problem.costs
    needed = needed_operators(graph)
    base = sum(costs.operators[index] for index in needed)
    if smallest_budget(problem) > budget:
        return inf
    if problem.peak(range(len(graph.operators))) <= budget and len(needed) == len(graph.operators):
        return base
    try:
        known = DependenceGraph(problem, needed, deadline)
    except OutOfTimeError:
        return base
    best = best_bound(known, budget, deadline)
    whole = all(float(costs.operators[index]).is_integer() for index in needed)
    # Rounding of floating-point sums must not raise the bound above the true value.
    total = base + best * (1 - 1e-9)
    return float(ceil(total - 1e-6)) if whole else total


def best_bound(known: DependenceGraph, budget: int, deadline: Clock) -> float:
    """Maximise the bound over operators u, by sampling and hill climbing; each bound is valid.

    Tried are: the operators at the turn from the forward to the backward pass, where memory usually
    peaks; an even sample of all, and a finer one around its best; then hill climbing from the best
    of these, with steps that are halved.
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


def needed_operators(graph: Graph) -> list[int]:
    """Return the operators on which the graph's results depend: all but dead code.

    >>> import tinyckpt as tc
    >>> graph = tc.build(lambda x: (tc.sin(x), tc.tanh(x))[1], tc.Spec(3))
    >>> [graph.operators[index].name for index in needed_operators(graph)]
    ['tanh_1']
    """
    wanted = set(graph.outputs)
    found = []
    for operator in reversed(graph.operators):
        if not wanted.isdisjoint(operator.outputs):
            found.append(operator.id)
            wanted.update(operator.inputs)
    return found[::-1]


def smallest_budget(problem: Problem) -> int:
    """Return a lower bound on the peak of every schedule: the largest working set or all results.

    The working set of an operator is its inputs, outputs and workspace, in addition to the
    non-recomputable values that must be resident; at the end, all results are resident.

    >>> import tinyckpt as tc
    >>> graph = tc.networks.chain(8)
    >>> smallest_budget(Problem(graph, tc.cost.evaluations(graph))) // 512
    3
    """
    needed = needed_operators(problem.graph)
    results = {problem.root[data] for data in problem.graph.outputs}
    at_end = int(sum(problem.size[data] for data in results))
    return max(at_end, PinnedLiveness(problem, needed).largest_need(needed))


class DependenceGraph:
    """Dependence graph of storages and operators, for bounds at different operators u.

    A view is merged with its base and costs nothing to compute, which only lowers the bound.
    """

    def __init__(self, problem: Problem, needed: list[int], deadline: Clock = NO_DEADLINE) -> None:
        """Build the dependence graph.

        Args:
            problem: the graph with costs and sizes.
            needed: the operators on which its results depend.
            deadline: of the search.

        Raises:
            OutOfTimeError: if the deadline has passed.
        """
        deadline.check()
        graph = problem.graph
        self.problem, self.operators = problem, needed
        self.size = problem.size.tolist()
        self.cost = problem.cost.tolist()
        for index in graph.once:
            self.cost[index] = inf
        self.pinned = PinnedLiveness(problem, needed)
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
        self.producer = problem.flat.producer[root].tolist()

    def moments(self) -> list[int]:
        """Return the candidate operators u: those with both ancestors and descendants."""
        return [
            index
            for index in self.operators
            if self.inputs[index] and any(self.readers.get(data) for data in self.outputs[index])
        ]

    def ancestors(self, moment: int) -> set[int]:
        """Return the ancestors of an operator, which are evaluated before it in every order."""
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
        """Return the descendants of an operator, which cannot be evaluated before it."""
        found: set[int] = set()
        todo = [moment]
        while todo:
            for data in self.outputs[todo.pop()]:
                for reader in self.readers.get(data, ()):
                    if reader not in found:
                        found.add(reader)
                        todo.append(reader)
        return found

    def bound(self, moment: int, budget: int, deadline: Clock = NO_DEADLINE) -> float:
        """Return a lower bound on the recomputation cost after the first evaluation of ``moment``.

        Raises:
            OutOfTimeError: if the deadline has passed before any bound is known.
        """
        before = self.ancestors(moment)
        deadline.check()
        after = self.descendants(moment)
        deadline.check()
        resident = {*self.inputs[moment], *self.pinned.during(moment)}
        room = budget - self.pinned.need(moment)
        wanted = {
            data
            for index in before
            for data in self.outputs[index]
            if data not in resident
            and any(reader in after for reader in self.readers.get(data, ()))
        }
        if sum(self.size[data] for data in wanted) <= room:
            return 0.0
        deadline.check()
        order = sorted(before, reverse=True)
        # The bound is concave in the price, so it is unimodal in the logarithm of the price too.
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
            return self.flow(order, wanted, resident, price) - price * room

        deadline.check()
        return golden_section_max(
            value_at, log(min(ratios) / len(order)), log(max(ratios) * len(order)), deadline
        )

    def flow(self, order: list[int], wanted: set[int], resident: set[int], price: float) -> float:
        """Push a flow from the required values to the costs of recomputing them; return its value.

        Args:
            order: the ancestors of the moment, in reverse topological order.
            wanted: values that must be resident or recomputed.
            resident: values that are resident in any case.
            price: cost per unit of memory.
        """
        arriving: dict[int, float] = {}
        total = 0.0
        for index in order:
            supply = 0.0
            for data in self.outputs[index]:
                if data in resident:
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
                if data in wanted or data in resident:
                    continue  # the edge is saturated, or the value costs nothing
                passed = min(supply, price * self.size[data] - arriving.get(data, 0.0))
                if passed > 0.0:
                    arriving[data] = arriving.get(data, 0.0) + passed
                    supply -= passed
        return total


def golden_section_max(
    value_at: Callable[[float], float], low: float, high: float, deadline: Clock = NO_DEADLINE
) -> float:
    """Maximise a unimodal function by golden-section search, clipped at 0 from below.

    Returns the largest value that was evaluated by the deadline, so that the result is a value of
    the function (or 0) even if the function is not unimodal or the search is cut short.

    >>> round(golden_section_max(lambda x: 1 - (x - 0.25) ** 2, -1.0, 2.0), 6)
    1.0
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
