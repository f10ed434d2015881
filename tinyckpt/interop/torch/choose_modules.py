"""Subset search over modules to checkpoint: exhaustive if few, else greedy and local search.

Minimises FLOPs subject to a memory budget. Above ``MOST_ENUMERATED`` modules, two greedy passes
run: one adds wrappings until the budget is met, one removes them (backward elimination) while it
is. Local search then improves the better result by swapping a wrapped module for an unwrapped one.
Out: the best ``ModuleChoice``; peaks and costs come from a callback.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

# Modules: 4,096 choices, which are seconds even where a step has 10,000 events.
MOST_ENUMERATED = 12


@dataclass(frozen=True, slots=True, order=True)
class ModuleChoice:
    """A choice of modules, ordered by FLOPs of the step, number of modules, peak bytes.

    Of equal ones, the first has earlier modules: ``places`` are theirs among the candidates.
    """

    flops: int
    count: int
    peak: int
    places: tuple[int, ...]
    names: tuple[str, ...]


class ModuleSearch:
    """A memoised search over subsets of modules.

    Attributes:
        names: of all candidate modules.
        evaluate: returns peak bytes and FLOPs of a subset.
        exact: whether the search is exhaustive.
        seen: the subsets evaluated so far.
    """

    def __init__(
        self, names: Sequence[str], evaluate: Callable[[Collection[str]], tuple[int, int]]
    ) -> None:
        self.names, self.evaluate = tuple(names), evaluate
        self.exact = len(names) <= MOST_ENUMERATED
        self.seen: dict[frozenset[str], ModuleChoice] = {}

    def choice(self, names: Iterable[str]) -> ModuleChoice:
        """Evaluate a subset of modules, memoised."""
        key = frozenset(names)
        if key not in self.seen:
            places = tuple(place for place, name in enumerate(self.names) if name in key)
            ordered = tuple(self.names[place] for place in places)
            peak, flops = self.evaluate(ordered)
            self.seen[key] = ModuleChoice(flops, len(key), peak, places, ordered)
        return self.seen[key]

    def smallest(self) -> ModuleChoice:
        """Return the evaluated choice with the smallest peak."""
        return min(self.seen.values(), key=lambda choice: (choice.peak, choice))

    def cheapest(self, budget: int) -> ModuleChoice | None:
        """Return the cheapest evaluated choice within a budget; None if there is none."""
        return min((c for c in self.seen.values() if c.peak <= budget), default=None)

    def search(self, budget: int) -> ModuleChoice | None:
        """Search for the cheapest choice within a budget in bytes; None if none was found."""
        if self.exact:
            for count in range(len(self.names) + 1):
                for names in combinations(self.names, count):
                    self.choice(names)
            return self.cheapest(budget)
        self.choice(())
        self.wrap_greedily(budget)
        every = self.choice(self.names)
        self.unwrap_greedily(every if every.peak <= budget else self.smallest(), budget)
        best = self.cheapest(budget)
        while best is not None:
            self.swap_modules(best, budget)
            better = self.cheapest(budget)
            if better == best:
                break
            best = better
        return best

    def wrap_greedily(self, budget: int) -> None:
        """Greedy forward selection: wrap the module of most bytes per FLOP, until it fits."""
        current = self.choice(())
        while current.peak > budget and current.count < len(self.names):
            trials = [
                self.choice((*current.names, name))
                for name in self.names
                if name not in current.names
            ]
            fitting = [trial for trial in trials if trial.peak <= budget]
            start = current
            current = min(fitting, default=None) or max(
                trials, key=lambda t: (start.peak - t.peak) / max(t.flops - start.flops, 1)
            )

    def unwrap_greedily(self, current: ModuleChoice, budget: int) -> None:
        """Greedy backward elimination: unwrap the most expensive module while the budget holds."""
        while current.peak <= budget:
            trials = [self.choice(modules_without(current, name)) for name in current.names]
            fitting = [trial for trial in trials if trial.peak <= budget]
            if not fitting:
                return
            current = min(fitting)

    def swap_modules(self, current: ModuleChoice, budget: int) -> None:
        """Evaluate every swap of a wrapped module for an unwrapped one; continue from the best."""
        trials = [
            self.choice((*modules_without(current, off), on))
            for off in current.names
            for on in self.names
            if on not in current.names
        ]
        fitting = [trial for trial in trials if trial.peak <= budget]
        if fitting:
            self.unwrap_greedily(min(fitting), budget)


def modules_without(choice: ModuleChoice, name: str) -> tuple[str, ...]:
    """Return the modules of a choice, one excepted."""
    return tuple(other for other in choice.names if other != name)
