"""Which modules to wrap: the cheapest choice within a budget, of all choices if they are few.

Of more, two searches are made: one takes wrappings off as long as the budget holds, one puts them
on until it does. The better result is improved by exchanges of one module for another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

FEW = 12  # modules: 4,096 choices, which are seconds even where a step has 10,000 events


@dataclass(frozen=True, slots=True, order=True)
class ModuleChoice:
    """A choice of modules: first the FLOPs of the step, then how many modules, then the peak."""

    flops: int
    count: int
    peak: int
    names: tuple[str, ...]


class Choosing:
    """A search.

    Attributes:
        names: of all modules that may be wrapped.
        evaluate: returns peak and FLOPs of a choice.
        exact: whether all choices are looked at.
        seen: the choices that were.
    """

    def __init__(
        self, names: Sequence[str], evaluate: Callable[[Collection[str]], tuple[int, int]]
    ) -> None:
        self.names, self.evaluate = tuple(names), evaluate
        self.exact = len(names) <= FEW
        self.seen: dict[frozenset[str], ModuleChoice] = {}

    def choice(self, names: Iterable[str]) -> ModuleChoice:
        """Return a choice of modules, evaluated."""
        key = frozenset(names)
        if key not in self.seen:
            ordered = tuple(name for name in self.names if name in key)
            peak, flops = self.evaluate(ordered)
            self.seen[key] = ModuleChoice(flops, len(key), peak, ordered)
        return self.seen[key]

    def smallest(self) -> ModuleChoice:
        """Return the choice with the smallest peak that was seen."""
        return min(self.seen.values(), key=lambda choice: (choice.peak, choice))

    def cheapest(self, budget: int) -> ModuleChoice | None:
        """Return the cheapest choice that was seen within a budget; None if there is none."""
        return min((c for c in self.seen.values() if c.peak <= budget), default=None)

    def search(self, budget: int) -> ModuleChoice | None:
        """Return the cheapest choice within a budget, in bytes; None if none was found."""
        if self.exact:
            for count in range(len(self.names) + 1):
                for names in combinations(self.names, count):
                    self.choice(names)
            return self.cheapest(budget)
        self.choice(())
        self.put_on(budget)
        every = self.choice(self.names)
        self.take_off(every if every.peak <= budget else self.smallest(), budget)
        best = self.cheapest(budget)
        while best is not None:
            self.exchange(best, budget)
            better = self.cheapest(budget)
            if better == best:
                break
            best = better
        return best

    def put_on(self, budget: int) -> None:
        """Wrap one module more, the one that saves most bytes for its FLOPs, until it is enough."""
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

    def take_off(self, current: ModuleChoice, budget: int) -> None:
        """Wrap one module less, the dearest first, as long as the budget holds."""
        while current.peak <= budget:
            trials = [self.choice(with_one_module_less(current, name)) for name in current.names]
            fitting = [trial for trial in trials if trial.peak <= budget]
            if not fitting:
                return
            current = min(fitting)

    def exchange(self, current: ModuleChoice, budget: int) -> None:
        """Try every exchange of a wrapped module for another, and go on from the best."""
        trials = [
            self.choice((*with_one_module_less(current, off), on))
            for off in current.names
            for on in self.names
            if on not in current.names
        ]
        fitting = [trial for trial in trials if trial.peak <= budget]
        if fitting:
            self.take_off(min(fitting), budget)


def with_one_module_less(choice: ModuleChoice, name: str) -> tuple[str, ...]:
    """Return the modules of a choice but one."""
    return tuple(other for other in choice.names if other != name)
