"""Checkpoint policy search for JAX: which ``checkpoint_name`` values to save within a budget.

In: a function whose values are named by ``jax.ad_checkpoint.checkpoint_name``, arguments, a budget.
Out: an ``Advice``, the names for ``save_only_these_names``. Up to ``MOST_TRIED_OUT`` names the
search is exhaustive; beyond that it is greedy backward elimination by bytes freed per FLOP. All
other values are recomputed: nothing is reordered and no schedule is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import inf
from textwrap import indent
from typing import Any

import jax

from tinyckpt.base.deadline import DEFAULT_SECONDS, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError, OptionError
from tinyckpt.base.units import size_text
from tinyckpt.core.cuts import retaining_order
from tinyckpt.interop.jax.tracing import Traced, trace
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.model.cost_models import given
from tinyckpt.planner.model.liveness import Problem

MOST_TRIED_OUT = 8  # names: the search of 2**8 subsets is exhaustive; of more, greedy


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """Names to save under ``jax.checkpoint``, with the predicted peak and cost.

    Attributes:
        names: the names to save, in the order in which the function assigns them.
        others: the names that are recomputed.
        peak: predicted peak in bytes, results included.
        cost: FLOPs of all evaluations, as a multiple of those without recomputation.
        traced: the trace that the prediction is made on.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from jax.ad_checkpoint import checkpoint_name
    >>> def loss(w, x):
    ...     return jnp.tanh(checkpoint_name(x @ w, "h")).sum()
    >>> shape = jax.ShapeDtypeStruct((4, 4), "float32")
    >>> advice = advise(loss, shape, shape, budget="1 MiB")
    >>> advice.names, advice.others
    (('h',), ())
    >>> checkpointed = advice.apply(loss)
    """

    names: tuple[str, ...]
    others: tuple[str, ...]
    peak: int
    cost: float
    traced: Traced

    @property
    def policy(self) -> Callable[..., bool]:
        """JAX's policy ``save_only_these_names`` for these names."""
        found: Callable[..., bool] = jax.checkpoint_policies.save_only_these_names(*self.names)
        return found

    def apply(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function in ``jax.checkpoint`` with that policy; gradients are equal."""
        wrapped: Callable[..., Any] = jax.checkpoint(fun, policy=self.policy)
        return wrapped

    def code(self) -> str:
        """Return lines that wrap the function, without tinyckpt."""
        name, names = self.traced.graph.name, ", ".join(map(repr, self.names))
        return (
            f"policy = jax.checkpoint_policies.save_only_these_names({names})\n"
            f"{name} = jax.checkpoint({name}, policy=policy)"
        )

    def __str__(self) -> str:
        name, lines = self.traced.graph.name, indent(self.code(), "    ")
        others = f"; recomputed: {', '.join(self.others)}" if self.others else ""
        return (
            f"{name}: predicted peak {size_text(self.peak)}, {self.cost:.4g} times the FLOPs\n"
            f"save: {', '.join(self.names) or 'nothing'}{others}\n"
            f"write:\n{lines}\n"
            "XLA decides in the end: compare tinyckpt.interop.jax.memory of both."
        )


def advise(
    fun: Callable[..., Any],
    *args: Any,
    budget: int | float | str,
    names: Collection[str] | None = None,
    time_limit: float = DEFAULT_SECONDS,
) -> Advice:
    """Choose the names that ``jax.checkpoint`` saves, at the fewest FLOPs within a budget.

    The function is modelled as ``jax.checkpoint(fun, policy=save_only_these_names(...))``: a value
    that is neither saved nor an argument is recomputed, once, when the backward pass first reads
    it. Up to eight names, every subset is evaluated. For more names: every second one, every third
    one and so on, and then greedy elimination, dropping the name that frees the most bytes per
    FLOP, one at a time.

    Args:
        fun, args: as ``trace`` takes them.
        budget: the largest predicted peak: bytes, ``"2 GiB"``, or a share of the peak of a run
            without recomputation.
        names: the candidates; by default all names that ``checkpoint_name`` assigns.
        time_limit: seconds for the search, after which the best choice so far is returned.

    Raises:
        OptionError: if the function names no value, or one of ``names`` does not occur in it.
        BudgetError: if no choice is within the budget; says the smallest peak found.
        GraphError: as ``trace``.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from jax.ad_checkpoint import checkpoint_name
    >>> def loss(w, x):
    ...     return jnp.tanh(checkpoint_name(x @ w, "h")).sum()
    >>> shape = jax.ShapeDtypeStruct((4, 4), "float32")
    >>> advise(loss, shape, shape, budget="1 MiB").names
    ('h',)
    """
    clock = Clock(checked_seconds(time_limit))
    traced = trace(fun, *args)
    graph = traced.graph
    known = values_by_checkpoint_name(traced)
    if isinstance(names, str) or not isinstance(names, Collection | None):
        raise OptionError(f"names={names!r:.80}; give a list of names")
    chosen = list(known) if names is None else [name for name in known if name in set(names)]
    missing = [name for name in names or () if name not in known]
    if missing or not known:
        there = f"it names {listed(list(known))}" if known else "it names no value"
        raise OptionError(
            f"{graph.name}: {there}"
            + (f", not {', '.join(map(repr, missing))}" if missing else "")
            + "; jax.ad_checkpoint.checkpoint_name(x, name) names a value"
        )
    within, problem = parse_budget(graph, given(graph), budget)
    if problem.costs.memory_unit != "bytes":
        raise BudgetError(f"budget {budget!r:.80}; expected bytes, such as '2 GiB', or a share")
    once = range(len(graph.operators))
    stored, smallest = problem.cost_of(once), problem.peak(once)
    best: tuple[float, int, frozenset[str]] | None = None
    for choice in choices(chosen, known, problem, clock):
        order = order_of(problem, known, choice)
        peak, cost = problem.peak(order), problem.cost_of(order)
        smallest = min(smallest, peak)
        if peak <= within and (best is None or (cost, peak) < best[:2]):
            best = cost, peak, choice
        if clock.left() == 0:
            break
    if best is None:
        all_seen = len(chosen) <= MOST_TRIED_OUT and clock.left() > 0
        raise BudgetError(
            f"{graph.name}: no choice among {listed(chosen)} "
            f"{'has' if all_seen else 'that was evaluated has'} a peak of at most "
            f"{size_text(within)}; the smallest found is {size_text(smallest)}",
            smallest,
        )
    cost, peak, choice = best
    return Advice(
        tuple(name for name in chosen if name in choice),
        tuple(name for name in known if name not in choice),
        peak,
        cost / stored if stored else 1.0,
        traced,
    )


def values_by_checkpoint_name(traced: Traced) -> dict[str, list[int]]:
    """Return the forward values of each checkpoint name, in order of evaluation."""
    found: dict[str, list[int]] = {}
    for operator in traced.graph.operators[: traced.graph.forward_count]:
        for data in operator.outputs:
            label = traced.graph.data[data].label
            if label is not None:
                found.setdefault(label, []).append(data)
    return found


def order_of(problem: Problem, known: dict[str, list[int]], names: Collection[str]) -> list[int]:
    """Return the evaluation order under the policy that saves some names."""
    return retaining_order(problem.graph, [d for n in names for d in known[n]], reuse=True)


def choices(
    names: list[str], known: dict[str, list[int]], problem: Problem, clock: Clock
) -> Iterator[frozenset[str]]:
    """Yield sets of names to save: all subsets of a few names, greedy elimination of many.

    Few are at most ``MOST_TRIED_OUT``. Otherwise strided subsets and the empty set come first, then
    ever smaller sets, each without the name of the largest ``bytes_per_flop``.
    """
    if len(names) <= MOST_TRIED_OUT:
        for count in range(len(names), -1, -1):
            yield from map(frozenset, combinations(names, count))
        return
    for stride in range(1, len(names) + 1):
        yield frozenset(names[stride - 1 :: stride])
    yield frozenset()
    left = frozenset(names)
    while left:
        before = peak_and_cost(problem, known, left)
        best = -inf, left
        for name in filter(left.__contains__, names):
            if clock.left() == 0:
                return
            rest = left - {name}
            best = max(
                best,
                (bytes_per_flop(before, peak_and_cost(problem, known, rest)), rest),
                key=lambda one: one[0],
            )
        left = best[1]
        yield left


def peak_and_cost(
    problem: Problem, known: dict[str, list[int]], names: Collection[str]
) -> tuple[int, float]:
    """Return peak and cost of saving some names."""
    order = order_of(problem, known, names)
    return problem.peak(order), problem.cost_of(order)


def listed(names: list[str]) -> str:
    """Return a few names for an error message."""
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def bytes_per_flop(before: tuple[int, float], after: tuple[int, float]) -> float:
    """Return the bytes that a change frees per FLOP that it adds."""
    return (before[0] - after[0]) / max(after[1] - before[1], 1.0)
