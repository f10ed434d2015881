"""Reduced problem for exact search: without dead operators and sources, sets as bit masks.

Operators that no result depends on are dropped, and so are sources. The others are numbered from 0
in build order, values likewise; a set of them is an integer used as a bit set: bit i is member i.
Costs and sizes are integers here, so that a solver can add them without error.

A view and its root, the value that owns the storage, share memory. Here the root counts as resident
whenever a view of it is. Where the root is its operator's only output, that loses nothing: its
memory is taken anyway, and while it is, there is no reason to evaluate that operator. Where there
are several outputs, the operator may be wanted again for another of them while a view keeps the old
memory alive: two copies, of which one is counted here. So this is a relaxation then: bounds stay
bounds, and peaks must be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.model.lower_bounds import needed_operators

# Largest total of costs, and of sizes, that is kept exactly: sums stay below 2^53. Ten times as
# large, floats would round them.
LARGEST_TOTAL = 10**15


@dataclass(frozen=True, slots=True)
class Scale:
    """How costs were scaled to integers.

    Attributes:
        base: the exact cost of every needed operator once.
        whole_base: the same in integers.
        unit: the cost that the integer 1 stands for.
        exact: whether nothing was rounded; else costs were rounded down.
    """

    base: Fraction
    whole_base: int
    unit: Fraction
    exact: bool

    def bound(self, whole: int) -> Fraction:
        """Convert a lower bound in integers to a lower bound on costs.

        Every needed operator is evaluated once at its true cost; only the rest was rounded down.
        """
        return self.base + self.unit * max(0, whole - self.whole_base)

    def whole_bound(self, bound: float) -> int:
        """Convert a lower bound on costs to one in integers; 0 if costs were rounded."""
        if not self.exact:
            return 0
        ratio = Fraction(bound) * (1 - Fraction(1, 10**12)) / self.unit
        return -(-ratio.numerator // ratio.denominator)


@dataclass(frozen=True, slots=True)
class Reduced:
    """The input of an exact search: reduced operators and values by index, sets as integers.

    Attributes:
        operators, data: original ids.
        reads: values that each operator reads, and the roots of views among them.
        makes: values that it makes.
        reads_set, makes_set: the same as sets.
        producer, readers: of every value.
        cost, size, workspace, budget: integers; sizes rounded down, if at all.
        outputs: values that must be resident at the end, roots of views included.
        root: for every view the value that owns its storage.
        views: for every root the set of its views.
        ancestors, descendants: of every operator, itself not among them.
        once: the operators that may not be evaluated twice.
    """

    operators: list[int]
    data: list[int]
    reads: list[list[int]]
    makes: list[list[int]]
    reads_set: list[int]
    makes_set: list[int]
    producer: list[int]
    readers: list[list[int]]
    cost: list[int]
    size: list[int]
    workspace: list[int]
    budget: int
    outputs: int
    root: dict[int, int]
    views: dict[int, int]
    ancestors: list[int]
    descendants: list[int]
    once: int

    def weight(self, values: int) -> int:
        """Return the memory of a set of values."""
        return sum(self.size[data] for data in members(values))

    def original(self, order: Iterable[int]) -> list[int]:
        """Return an order of the reduced operators as an order of the graph's."""
        return [self.operators[operator] for operator in order]

    def legal(self, order: Iterable[int]) -> list[int]:
        """Return an order without the illegal second evaluations of ``once`` operators."""
        found: list[int] = []
        spent = 0
        for operator in order:
            if not spent >> operator & 1:
                found.append(operator)
            spent |= 1 << operator & self.once
        return found

    def own(self, order: Iterable[int]) -> list[int]:
        """Return an order of the graph's operators as an order of the reduced ones."""
        number = {original: index for index, original in enumerate(self.operators)}
        return [number[original] for original in order if original in number]


def members(values: int) -> list[int]:
    """Return the members of a bit set, ascending.

    >>> members(0b1101)
    [0, 2, 3]
    """
    found = []
    while values:
        lowest = values & -values
        found.append(lowest.bit_length() - 1)
        values ^= lowest
    return found


def as_set(items: Iterable[int]) -> int:
    """Return the bit set of some numbers.

    >>> as_set([0, 2, 3])
    13
    """
    result = 0
    for item in items:
        result |= 1 << item
    return result


def reduce_problem(
    problem: Problem, budget: int, largest: int = LARGEST_TOTAL
) -> tuple[Reduced, Scale]:
    """Reduce a problem for an exact search within a budget; return it with the scale of its costs.

    Args:
        problem: any graph and costs.
        budget: in the memory unit of the costs.
        largest: total of the costs up to which they are not rounded.
    """
    graph = problem.graph
    operators = needed_operators(graph)
    data = [index for operator in operators for index in graph.operators[operator].outputs]
    at = {original: index for index, original in enumerate(data)}
    root = {at[d]: at[problem.root[d]] for d in data if problem.root[d] != d}
    makes = [[at[d] for d in graph.operators[operator].outputs] for operator in operators]
    reads = []
    for operator in operators:
        own = {at[d] for d in graph.operators[operator].inputs if d in at}
        reads.append(sorted(own | {root[d] for d in own if d in root}))
    readers: list[list[int]] = [[] for _ in data]
    for index, values in enumerate(reads):
        for value in values:
            readers[value].append(index)
    producer = [index for index, values in enumerate(makes) for _ in values]
    ancestors = ancestor_sets(reads, producer)
    results = {at[d] for d in graph.outputs if d in at}
    cost, scale = integer_costs(
        [problem.costs.operators[operator] for operator in operators], largest
    )
    sizes, room = integer_sizes(
        [int(problem.size[d]) for d in data],
        [int(problem.workspace[operator]) for operator in operators],
        budget,
    )
    return Reduced(
        operators=operators,
        data=data,
        reads=reads,
        makes=makes,
        reads_set=[as_set(values) for values in reads],
        makes_set=[as_set(values) for values in makes],
        producer=producer,
        readers=readers,
        cost=cost,
        size=sizes[: len(data)],
        workspace=sizes[len(data) :],
        budget=room,
        outputs=as_set(results | {root[d] for d in results if d in root}),
        root=root,
        views={base: as_set(v for v in root if root[v] == base) for base in root.values()},
        ancestors=ancestors,
        descendants=descendant_sets(makes, readers),
        once=as_set(i for i, operator in enumerate(operators) if graph.operators[operator].once),
    ), scale  # fmt: skip


def ancestor_sets(reads: Sequence[Sequence[int]], producer: Sequence[int]) -> list[int]:
    """Return the set of the ancestors of every operator (transitive closure)."""
    ancestors: list[int] = []
    for values in reads:
        found = 0
        for value in values:
            found |= ancestors[producer[value]] | 1 << producer[value]
        ancestors.append(found)
    return ancestors


def descendant_sets(makes: Sequence[Sequence[int]], readers: Sequence[Sequence[int]]) -> list[int]:
    """Return the set of the descendants of every operator (transitive closure)."""
    descendants = [0] * len(makes)
    for index in range(len(makes) - 1, -1, -1):
        found = 0
        for value in makes[index]:
            for reader in readers[value]:
                found |= descendants[reader] | 1 << reader
        descendants[index] = found
    return descendants


def integer_costs(costs: Sequence[float], largest: int) -> tuple[list[int], Scale]:
    """Scale costs to integers: exactly if their total is not too large, else rounded down.

    >>> integer_costs([0.5, 1.0, 3.0], 100)[0], integer_costs([2e9, 6e9], 100)[0]
    ([1, 2, 6], [1, 3])
    >>> integer_costs([7.0, 1000.0], 100)[0]
    [0, 99]
    """
    exact = [Fraction(float(cost)) for cost in costs]
    # Floats are integer multiples of a power of two.
    denominator = max((cost.denominator for cost in exact), default=1)
    unit = Fraction(gcd(*(int(cost * denominator) for cost in exact)) or 1, denominator)
    total = sum(exact, Fraction(0))
    is_exact = total <= unit * largest
    if not is_exact:
        unit = total / largest
    whole = [cost // unit for cost in exact]
    return whole, Scale(total, sum(whole), unit, is_exact)


def integer_sizes(
    sizes: Sequence[int], workspace: Sequence[int], budget: int
) -> tuple[list[int], int]:
    """Divide sizes, workspaces and the budget by the greatest common divisor of all but the budget.

    Where that leaves totals too large to add, a coarser unit is taken and sizes are rounded down:
    whatever fitted fits still, so that bounds stay bounds.
    """
    both = [*sizes, *workspace]
    unit = gcd(*both) or 1
    unit *= max(1, -(-sum(both) // (unit * LARGEST_TOTAL)))
    return [size // unit for size in both], min(budget, sum(both)) // unit
