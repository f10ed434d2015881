"""Checkpoint policy search for JAX, where XLA's buffer assignment is the memory model.

In: a function as it is, arguments, a budget. Out: an ``Advice``, the cheapest candidate whose peak
is within the budget. No peak is predicted: each candidate is compiled, not run, and XLA's
``memory_analysis`` says what it allocates. Candidates, by ascending FLOPs: the function unchanged;
the policies of ``jax.checkpoint`` around it, with the names that ``checkpoint_name`` gives in it,
if any; and saved results, chosen by planners on the graphs of the function and its loops. So none
of these policies is better at the same cost or a lower one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from textwrap import indent
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from tinyckpt.base.deadline import DEFAULT_SECONDS, Clock, checked_seconds
from tinyckpt.base.errors import BudgetError, GraphError
from tinyckpt.base.units import size_text
from tinyckpt.core.schedule import Compute
from tinyckpt.interop.jax.capture import bind, read_all, variables
from tinyckpt.interop.jax.checkpointing import checkpointed, levels
from tinyckpt.interop.jax.costs import flops_of_jaxpr
from tinyckpt.interop.jax.memory import Memory, compiled_memory
from tinyckpt.interop.jax.tracing import trace
from tinyckpt.planner.model.budget import budget_in_bytes
from tinyckpt.planner.portfolio.plan import plan

RULES = (
    "everything_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable", "nothing_saveable",
)  # fmt: skip
MOST_NAMES = 3  # all their subsets are compiled, twice; of more names, each alone and all of them
# Budgets of the planners, as shares of store-all's peak on the graph. Twice as many: twice the
# time, and steps half as wide between the peaks that are found.
SHARES = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2)
PLANNER_SECONDS = 3.0  # per share and loop level; planners rarely take more than half a second
# XLA:CPU drops the barriers of jax.checkpoint, merges recomputations with what they repeat, and
# orders operators for concurrency: then checkpointing frees nothing.
CPU_OPTIONS: dict[str, Any] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "xla_disable_hlo_passes": "cse",
}
# Buffers are assigned before code is generated, so code that only is to be measured may be slow.
FAST = {"xla_backend_optimization_level": 0}

UNCHANGED = "the function unchanged"
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """How to checkpoint a function, with the peak and cost that XLA and the jaxpr report.

    Attributes:
        name: of the function.
        title: the candidate that was chosen.
        policy: the one of ``jax.checkpoint_policies``, if it is one of those; otherwise empty.
        peak: bytes of temporaries and results of ``value_and_grad``, by XLA's buffer assignment.
        cost: FLOPs of the jaxpr, as a multiple of those of the function unchanged.
        plain: XLA's memory analysis of the function unchanged, with default options.
        compiler_options: for ``jax.jit``; without them the peak is another.
        compiled: how many programs XLA compiled.
        apply: wraps the function; values and gradients are equal, up to how XLA fuses them.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> def loss(w, x):
    ...     return jnp.tanh(x @ w).sum()
    >>> shape = jax.ShapeDtypeStruct((4, 4), "float32")
    >>> advice = advise(loss, shape, shape, budget="1 MiB")
    >>> advice.title, advice.cost, advice.peak == advice.plain.peak
    ('the function unchanged', 1.0, True)
    """

    name: str
    title: str
    policy: str
    peak: int
    cost: float
    plain: Memory
    compiler_options: Mapping[str, Any]
    compiled: int
    apply: Wrap

    def code(self) -> str:
        """Return lines that wrap the function; without tinyckpt, where it is a policy of JAX."""
        lines = []
        if self.policy:
            lines.append(f"policy = jax.checkpoint_policies.{self.policy}")
            lines.append(f"{self.name} = jax.checkpoint({self.name}, policy=policy)")
        elif self.title != UNCHANGED:
            lines.append(f"{self.name} = advice.apply({self.name})")
        options = dict(self.compiler_options)
        given = f", compiler_options={options}" if options else ""
        lines.append(f"step = jax.jit(jax.value_and_grad({self.name}){given})")
        return "\n".join(lines)

    def __str__(self) -> str:
        return (
            f"{self.name}: {size_text(self.peak)} by XLA's buffer assignment, "
            f"{size_text(self.plain.peak)} unchanged; {self.cost:.4g} times the FLOPs\n"
            f"{self.title}\n"
            f"write:\n{indent(self.code(), '    ')}"
        )


def advise(
    fun: Callable[..., Any],
    *args: Any,
    budget: int | float | str,
    time_limit: float = DEFAULT_SECONDS,
) -> Advice:
    """Find the fewest FLOPs at which ``value_and_grad`` of a function is within a budget.

    Nothing has to be marked in the function, and nothing runs: each candidate is compiled, and XLA
    says what it would allocate. Loops of ``jax.lax.scan`` are checkpointed inside, per iteration.
    On a CPU each candidate is compiled twice, with default options and with those that make XLA
    save memory.

    Args:
        fun, args: as ``trace`` takes them.
        budget: the largest peak: bytes, ``"2 GiB"``, or a share of the peak of the function
            unchanged. Temporaries and results of ``value_and_grad`` count; arguments do if
            ``"total"`` is added.
        time_limit: seconds, checked between compilations; one of them may exceed it.

    Raises:
        BudgetError: if no candidate is within the budget, or none that was compiled in time; says
            the smallest peak found.
        GraphError: as ``trace``.

    >>> import jax
    >>> shape = jax.ShapeDtypeStruct((4, 4), "float32")
    >>> advise(lambda w, x: (x @ w).sum(), shape, shape, budget="1 KiB").cost
    1.0
    """
    clock = Clock(checked_seconds(time_limit))
    name = trace(fun, *args).graph.name  # refuses what has no gradient
    gradient = jax.value_and_grad(fun)
    plain = compiled_memory(jax.jit(gradient).lower(*args), {})
    within, compiled = budget_in_bytes(budget, plain.peak, plain.arguments), 1
    smallest, stored = plain.peak, flops_of_jaxpr(jax.make_jaxpr(gradient)(*args))
    if plain.peak <= within:
        return Advice(name, UNCHANGED, "", plain.peak, 1.0, plain, {}, 1, lambda fun: fun)
    on_cpu = jax.default_backend() == "cpu"
    priced: list[tuple[int, int, str, str, Wrap]] = []
    for title, policy, wrap in candidates(fun, args, clock):
        flops = flops_of_jaxpr(jax.make_jaxpr(jax.value_and_grad(wrap(fun)))(*args))
        priced.append((flops, len(priced), title, policy, wrap))
    for flops, _, title, policy, wrap in sorted(priced):
        lowered = jax.jit(jax.value_and_grad(wrap(fun))).lower(*args)
        for options in ({}, CPU_OPTIONS) if on_cpu else ({},):
            if clock.left() == 0:
                break
            peak = compiled_memory(lowered, options | FAST if on_cpu else {}).peak
            smallest, compiled = min(smallest, peak), compiled + 1
            if peak <= within:
                cost = flops / stored if stored else 1.0
                return Advice(name, title, policy, peak, cost, plain, options, compiled, wrap)
    raise BudgetError(
        f"{name}: no candidate {'that was compiled in time ' if clock.left() == 0 else ''}"
        f"has a peak of at most {size_text(within)} ({compiled} were compiled); the smallest found "
        f"is {size_text(smallest)}",
        smallest,
    )


def candidates(
    fun: Callable[..., Any], args: tuple[Any, ...], clock: Clock
) -> Iterator[tuple[str, str, Wrap]]:
    """Yield candidates: title, policy of JAX if it is one, and what wraps the function."""
    yield UNCHANGED, "", lambda fun: fun
    nested = list(levels(jax.make_jaxpr(fun)(*args)))
    policies = {rule: getattr(jax.checkpoint_policies, rule) for rule in RULES}
    for names in sets_of_names([flat for _, flat in nested]):
        policy = f"save_only_these_names({', '.join(map(repr, names))})"
        policies[policy] = jax.checkpoint_policies.save_only_these_names(*names)
    for policy, rule in policies.items():
        yield f"jax.checkpoint, policy {policy}", policy, partial(jax.checkpoint, policy=rule)
    count, total = len(jax.tree.leaves(args[0])), sum(len(flat.jaxpr.eqns) for _, flat in nested)
    graphs = [level_graph(flat, None if path else count) for path, flat in nested]
    seen = []
    for share in (0.0, *SHARES):
        saved = {
            (*path, at): flat.jaxpr.eqns[at].primitive.name
            for (path, flat), graph in zip(nested, graphs, strict=True)
            for at in (saved_by_planner(graph, share, clock) if share and graph else ())
        }
        if saved not in seen:
            seen.append(saved)
            title = f"{len(saved)} of {total} results saved, the others recomputed"
            yield title, "", partial(checkpointed, saved=saved)


def sets_of_names(flats: list[Any]) -> list[tuple[str, ...]]:
    """Return sets of the names that ``checkpoint_name`` gives in a function and its loops."""
    equations = [equation for flat in flats for equation in flat.jaxpr.eqns]
    found = (equation.params["name"] for equation in equations if equation.primitive.name == "name")
    names = tuple(dict.fromkeys(found))
    sizes = range(1, len(names) + 1) if len(names) <= MOST_NAMES else (1, len(names))
    return [chosen for size in sizes for chosen in combinations(names, size)]


def level_graph(flat: Any, differentiated: int | None) -> Any:
    """Return the training graph of a function or a loop's body; None if it has no derivative.

    The name of each value is its equation's position. The loss is the sum of all real results,
    since the cotangents of a body's results are arguments of its backward pass.

    Args:
        flat: the flattened jaxpr.
        differentiated: how many of its first arguments get a gradient; None for all real ones.
    """
    jaxpr = flat.jaxpr
    wanted = [value for value in jaxpr.invars[:differentiated] if is_real(value)]

    def level(first: list[Any], rest: list[Any]) -> Any:
        values = dict(zip(jaxpr.constvars, flat.consts, strict=True))
        values.update(zip(jaxpr.invars, rest, strict=True))
        values.update(zip(wanted, first, strict=True))
        for at, equation in enumerate(jaxpr.eqns):
            results = bind(equation, read_all(values, equation.invars))
            named = [checkpoint_name(result, str(at)) for result in results]
            values.update(zip(equation.outvars, named, strict=True))
        real = [value for value in variables(jaxpr.outvars) if is_real(value)]
        return sum(jnp.sum(result, dtype="float32") for result in read_all(values, real))

    shapes = {v: jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in jaxpr.invars}
    try:
        return trace(level, [shapes[value] for value in wanted], list(shapes.values())).graph
    except GraphError:
        return None


def is_real(value: Any) -> bool:
    """Whether a variable is of real numbers, not of integers."""
    return bool(jnp.issubdtype(value.aval.dtype, jnp.floating))


def saved_by_planner(graph: Any, share: float, clock: Clock) -> set[int]:
    """Return the equations whose results a plan within a share of store-all's peak saves.

    They are computed once and read in the backward pass, or by a recomputation, which runs in it.
    Of a view its base is saved. Nothing is saved if no plan is within the share.
    """
    try:
        schedule = plan(graph, budget=share, time_limit=min(PLANNER_SECONDS, clock.left() / 8))
    except BudgetError:
        return set()
    evaluations = [0] * len(graph.operators)
    base: list[int] = []  # the data node that owns the memory; a view comes after it
    for node in graph.data:
        base.append(node.id if node.view_of is None else base[node.view_of])
    for step in schedule.steps:
        if isinstance(step, Compute):
            evaluations[step.operator] += 1
    late = [o for o in graph.operators if o.id >= graph.forward_count or evaluations[o.id] > 1]
    saved = {base[data] for operator in late for data in operator.inputs}
    owners = {data: graph.data[data].producer for data in saved}
    once = {data for data, made in owners.items() if made is not None and evaluations[made] == 1}
    labels = ((node.label, base[node.id]) for node in graph.data)
    return {int(label) for label, owner in labels if label is not None and owner in once}
