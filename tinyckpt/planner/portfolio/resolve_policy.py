"""Policy dispatch: resolve a name, a Policy or the caller's own function, and run it.

Options are checked against the policy's signature; an order that a user function returns is lowered
to a schedule, a schedule is replayed to prove it legal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from inspect import Parameter, Signature, signature
from typing import Any

from tinyckpt.base.deadline import DEFAULT_SECONDS, OutOfTimeError, listed_order
from tinyckpt.base.errors import BudgetError, PolicyOptionError, ScheduleError, did_you_mean
from tinyckpt.base.quantities import as_integer
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.lowering import from_order
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.planner.model.vectorised_lowering import checkpoints_of_order
from tinyckpt.planner.portfolio.policies import POLICIES, Policy

# A function of (graph), or (graph, costs), and options by keyword. It returns the order in which
# operators are evaluated, by their ids or names, or a Schedule.
PolicyFunction = Callable[..., Schedule | Iterable[int | str]]
PolicyLike = str | Policy | PolicyFunction


def run_policy(
    graph: Graph,
    policy: PolicyLike,
    costs: Costs,
    options: Mapping[str, Any],
    seconds: float | None = None,
) -> Schedule:
    """Run one policy and return its schedule.

    Args:
        graph, policy, costs, options: as given to ``plan``.
        seconds: the caller's time limit, if the policy's own is only a part of it.

    Raises:
        PolicyOptionError: if there is no such policy, or it has no such option.
        BudgetError: if nothing was found in time, or in the memory.
        ScheduleError: if the function has another signature, or returns something illegal.
    """
    own = resolved(policy)
    if not isinstance(own, Policy):
        return run_function(own, graph, costs, options)
    legal = options_of(own)
    check_options(own.name, options, legal)
    try:
        return own.plan(graph, costs, **options)
    except OutOfTimeError as error:
        if seconds is None:
            seconds = options.get("time_limit", legal.get("time_limit", DEFAULT_SECONDS))
        why = str(error) or f"found nothing in {seconds:g} s"
        raise BudgetError(f"{own.name} {why}; give it more (time_limit=...)") from None


def check_options(name: str, options: Iterable[str], legal: Collection[str]) -> None:
    """Raise a PolicyOptionError unless all options are legal."""
    for option in options:
        if option not in legal:
            raise PolicyOptionError(
                f"{name} has no option {option!r}; it has {', '.join(legal) or 'none'}"
                f"{did_you_mean(option, legal)}"
            )


def resolved(policy: PolicyLike) -> Policy | PolicyFunction:
    """Look up a policy by name; pass a Policy or a function through."""
    if isinstance(policy, Policy) or callable(policy):
        return policy
    if not isinstance(policy, str) or policy not in POLICIES:
        raise PolicyOptionError(
            f"unknown policy {policy!r:.80}; known are {', '.join(POLICIES)}, or a function of "
            f"(graph) or (graph, costs){did_you_mean(policy, POLICIES)}"
        )
    return POLICIES[policy]


def name_of(policy: Policy | PolicyFunction) -> str:
    """Return the name of a policy in messages."""
    if isinstance(policy, Policy):
        return policy.name
    return str(getattr(policy, "__name__", type(policy).__name__))


def options_of(policy: Policy) -> dict[str, Any]:
    """Return the options of a policy with their defaults."""
    return policy.plan.__kwdefaults__ or {}


def takes(policy: Policy | PolicyFunction, option: str) -> bool:
    """Whether a policy accepts an option."""
    if isinstance(policy, Policy):
        return option in options_of(policy)
    parameters = signature_of(policy).parameters.values()
    return any(p.name == option or p.kind == p.VAR_KEYWORD for p in parameters)


# A function written in C may have no signature: it is called with graph and costs.
ANY_SIGNATURE = Signature([
    Parameter("arguments", Parameter.VAR_POSITIONAL), Parameter("options", Parameter.VAR_KEYWORD)
])  # fmt: skip


def signature_of(function: PolicyFunction) -> Signature:
    """Return the signature of a function."""
    try:
        return signature(function)
    except ValueError:
        return ANY_SIGNATURE


def run_function(
    function: PolicyFunction, graph: Graph, costs: Costs, options: Mapping[str, Any]
) -> Schedule:
    """Run the caller's own policy function and return its schedule."""
    name = name_of(function)
    result = function(*arguments_for(function, name, graph, costs, options), **options)
    if isinstance(result, Schedule):
        if result.graph is not graph:
            raise ScheduleError(f"{name} returned a schedule of another graph")
        replay(result)
        return result
    try:
        order = ids_of(result, graph, name)
        schedule = from_order(graph, order, name, options)
    except ScheduleError as error:
        raise ScheduleError(f"the policy {name}: {error}") from error
    # After the order has been checked: its checkpoints are counted in arrays of 64-bit ids.
    return replace(schedule, checkpoints=tuple(checkpoints_of_order(graph, order)))


def arguments_for(
    function: PolicyFunction, name: str, graph: Graph, costs: Costs, options: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the positional arguments of a policy function: the graph, and perhaps the costs.

    A second parameter takes the costs if it is named so, or if it has no other value.
    """
    own = signature_of(function)
    parameters = list(own.parameters.values())
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    second = places[1] if len(places) > 1 else None
    both = any(p.kind == p.VAR_POSITIONAL for p in parameters) or (
        second is not None
        and (second.name == "costs" or second.default is Parameter.empty)
        and second.name not in options
    )
    arguments = (graph, costs) if both else (graph,)
    try:
        own.bind(*arguments, **options)
    except TypeError as error:
        given = "".join(f", {option}=..." for option in options)
        raise ScheduleError(
            f"the policy {name}{own} cannot be called as {name}(graph{given}) or "
            f"{name}(graph, costs{given}): {error}"
        ) from None
    return arguments


def ids_of(order: object, graph: Graph, name: str) -> list[int]:
    """Return the operator ids of an order of ids and names.

    Raises:
        ScheduleError: if it is no order, or names an unknown operator.
    """
    if isinstance(order, str | bytes | Mapping) or not isinstance(order, Iterable):
        raise ScheduleError(
            f"it returned a {type(order).__name__}; return the order in which operators are "
            "evaluated, by their ids or names, or a Schedule"
        )
    numbers = {operator.name: operator.id for operator in graph.operators}
    found = []
    for place, item in enumerate(listed_order(order)):
        if isinstance(item, str):
            if item not in numbers:
                raise ScheduleError(
                    f"order[{place}] is {item!r:.80}, which is not an operator of {graph.name}"
                    f"{did_you_mean(item, numbers)}"
                )
            found.append(numbers[item])
            continue
        if (index := as_integer(item)) is None:
            raise ScheduleError(
                f"order[{place}] is a {type(item).__name__}; operators are given by id or name"
            )
        found.append(index)
    return found
