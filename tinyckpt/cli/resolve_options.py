"""Resolution of command-line options into the graph, schedules and traces that they name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

from tinyckpt.base.deadline import Clock
from tinyckpt.base.errors import GraphError, ScheduleError, did_you_mean
from tinyckpt.core.costs import Costs
from tinyckpt.core.graph import Graph
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.core.trace import Trace
from tinyckpt.documents.graphs import is_graph
from tinyckpt.documents.measured_memory import Measured, load_measured
from tinyckpt.documents.schedules import load_trace
from tinyckpt.documents.user_functions import function_of_file, user_code
from tinyckpt.networks import network_from_text
from tinyckpt.planner.model import cost_models as cost
from tinyckpt.planner.model.link import MOST_ENGINES, Link
from tinyckpt.planner.offload.simulate import Timeline, timed
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.policies import POLICIES
from tinyckpt.planner.portfolio.resolve_policy import PolicyLike, options_of

COSTS: dict[str, Callable[[Graph], Costs]] = {
    "given": cost.given, "evaluations": cost.evaluations, "flops": cost.flops,
    "traffic": cost.traffic,
}  # fmt: skip
CHARTS, PAGES = (".png", ".svg", ".pdf"), (".html", ".htm")  # suffixes that viz writes
SEARCHING = 6.0  # seconds, unless --time-limit says otherwise
WITHOUT_POLICY = ("order", "improve")  # options of ``plan`` where no policy is named


def wrong_usage(options: Any, reason: str) -> NoReturn:
    """Print the command's usage and the reason; exit with 2."""
    parser: argparse.ArgumentParser = options.parser
    parser.error(reason)


def refuse_given(options: Any, names: Iterable[str], reason: str) -> None:
    """Refuse options that have another value than their default.

    Args:
        options: the command line's.
        names: of the options.
        reason: why they are refused; ``{}`` in it is the name of the first.
    """
    for name in names:
        if getattr(options, name) != options.parser.get_default(name):
            wrong_usage(options, reason.format(name))


def check_output(options: Any, *suffixes: str) -> None:
    """Refuse an output file of an unknown suffix or in a missing folder, before any work."""
    if options.output and not options.output.lower().endswith(suffixes):
        wrong_usage(options, f"-o {options.output}: it must end in {', '.join(suffixes)}")
    folder = Path(options.output or "x").parent
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write {options.output}: there is no folder {folder}")
    if options.output and options.output.lower().endswith(CHARTS):
        from tinyckpt import viz  # noqa: F401 - fails early if a package is missing


def graph_of(options: Any) -> tuple[Graph, Any]:
    """Return the network's graph and specs; an unknown name is wrong usage."""
    try:
        return network_from_text(options.network)
    except GraphError as error:
        wrong_usage(options, str(error))


def policies_of(options: Any, names: Sequence[str]) -> list[PolicyLike]:
    """Return policies by name; those in a user's file are loaded as functions."""
    try:
        return [name if name in POLICIES else policy_of_file(name) for name in names]
    except GraphError as error:
        wrong_usage(options, str(error))


def policy_of_file(text: str) -> Callable[..., Any]:
    """Load the policy ``path/to/file.py:function``; its exceptions carry file and line."""
    path, name = text.rsplit(":", 1)
    policy = function_of_file(path, name)

    @wraps(policy)
    def guarded(*args: Any, **options: Any) -> Any:
        with user_code(path, name):
            return policy(*args, **options)

    return guarded


def has_option(policy: PolicyLike | None, option: str) -> bool:
    """Whether a policy has an option; of a function, any parameter but the graph.

    A plan by the whole portfolio, None, has those of ``WITHOUT_POLICY``; every plan, ``in_place``.
    """
    if policy is None or option == "in_place":
        return option == "in_place" or option in WITHOUT_POLICY
    if isinstance(policy, str):
        return option in options_of(POLICIES[policy])
    parameters = list(signature(policy).parameters.values())[1:] if callable(policy) else []
    return any(p.name == option or p.kind is p.VAR_KEYWORD for p in parameters)


def settings_of(options: Any) -> dict[str, Any]:
    """Return what ``--set`` gives, by name."""
    given: dict[str, Any] = {}
    for text in options.set:
        name, equals, value = text.partition("=")
        if not equals:
            wrong_usage(options, f"--set {text}: expected OPTION=VALUE, such as slots=5")
        if name == "budget":
            wrong_usage(options, f"--set {text}: use --budget {value}")
        given[name] = parsed(value)
    return given


def policy_options(options: Any, policies: Sequence[PolicyLike | None]) -> list[dict[str, Any]]:
    """Return the options of each policy; an option that none of them has is wrong usage."""
    given = settings_of(options)
    for name in ("segments", "keep"):
        if getattr(options, name) is not None:
            given[name] = getattr(options, name)
    for name in given:
        if any(has_option(policy, name) for policy in policies):
            continue
        able = [policy for policy in POLICIES if has_option(policy, name)]
        flag = f"--{name}" if name in ("segments", "keep") else f"--set {name}"
        if name in WITHOUT_POLICY and None not in policies:
            wrong_usage(options, f"{flag} is an option of a plan for a budget without --policy")
        if not able:
            known = {option for policy in POLICIES.values() for option in options_of(policy)}
            known |= {"in_place", *WITHOUT_POLICY}
            wrong_usage(
                options, f"{flag}: no policy has this option{did_you_mean(name, sorted(known))}"
            )
        wrong_usage(options, f"{flag} is an option of {', '.join(able)}, which was not asked for")
    if options.time_limit is not None:
        given.setdefault("time_limit", options.time_limit)
    return [
        {name: value for name, value in given.items() if has_option(policy, name)}
        for policy in policies
    ]


def parsed(text: str) -> Any:
    """Parse an option's value: True, False, a number, a list if it has commas, else text."""
    if "," in text:
        return [parsed(part) for part in text.split(",")]
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def schedules_of(
    graph: Graph,
    policies: Sequence[str],
    options: Any,
    strict: bool = False,
    tell: Callable[[str], None] = lambda policy: None,
    clock: Clock | None = None,
    others: int = 0,
) -> list[Schedule]:
    """Plan by each of the policies; with a budget and no policy, by the whole portfolio.

    Policies that search share a time limit: each has an equal share of the remaining time.

    Args:
        graph: the graph to plan.
        policies: their names, or ``path/to/file.py:function``.
        options: the command line's.
        strict: whether each policy must accept the budget, if there is one.
        tell: called with the name of each policy before it plans.
        clock: of the time limit, if already running.
        others: further equal shares of the time, reserved for later work.
    """
    costs = COSTS[options.cost](graph)
    chosen = policies_of(options, policies)
    # A comparison within a budget has the whole portfolio's plan, too.
    has_best = not chosen or (others > 0 and options.budget is not None)
    own = policy_options(options, [*chosen, None] if has_best else chosen)
    try:
        if options.budget is not None and not chosen:
            return [plan_within_budget(graph, costs, options)]
        found = []
        clock = clock or Clock(time_to_search(options))
        parts = sum("time_limit" in given for given in own) + others
        for name, policy, given in zip(policies, chosen, own, strict=False):
            tell(name)
            if options.time_limit is not None and "time_limit" in given:
                given["time_limit"] = min(given["time_limit"], clock.left() / parts)
                parts -= 1
            budget = budget_for(policy, options, strict)
            found.append(plan(graph, policy, costs=costs, budget=budget, **given))
        return found
    except ScheduleError as error:
        wrong_usage(options, str(error))


def budget_for(policy: PolicyLike, options: Any, strict: bool) -> str | int | float | None:
    """Return the budget, if there is one and the policy accepts it or must."""
    if options.budget is None or not (strict or has_option(policy, "budget")):
        return None
    return number_or_text(options.budget)


def number_or_text(text: str) -> str | int | float:
    """Convert a budget's text for the library: 4096 and 0.5 become numbers."""
    value = parsed(text)
    return text if isinstance(value, list) else value


def time_to_search(options: Any, clock: Clock | None = None) -> float:
    """Return the seconds that a search may take: the rest of the time limit, or the default."""
    if options.time_limit is None:
        return SEARCHING
    return float(options.time_limit) if clock is None else clock.left()


def plan_within_budget(
    graph: Graph, costs: Costs, options: Any, clock: Clock | None = None
) -> Schedule:
    """Plan within the budget by the whole portfolio, with a progress line."""
    given = {name: value for name, value in settings_of(options).items() if has_option(None, name)}
    with progress_line(options.network) as progress:
        return plan(
            graph,
            budget=number_or_text(options.budget),
            costs=costs,
            time_limit=time_to_search(options, clock),
            progress=progress,
            **given,
        )


@contextmanager
def progress_line(what: str) -> Iterator[Callable[[str, int], None]]:
    """Show the policy being tried on a terminal, on a line that is erased afterwards."""
    shown = sys.stderr.isatty()

    def progress(policy: str, points: int) -> None:
        if shown:
            text = f"planning {what}: {policy}, {points} points on the frontier; Ctrl-C stops it"
            print(f"\r{text:.99}\033[K", end="", file=sys.stderr)

    try:
        yield progress
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr)


def requested_policy(options: Any) -> list[str]:
    """Return the requested policy; none if only a budget was given."""
    if options.policy:
        return [options.policy]
    return ["sqrt_n"] if options.budget is None else []


def traces_of(options: Any) -> list[Trace]:
    """Return the traces to draw: a saved one, or those of the requested policies."""
    if options.network.endswith(".json") and not is_graph(options.network):
        reason = "a trace has its policy already; leave --policy and its like out"
        refuse_given(options, ("policy", "segments", "keep", "budget", "set"), reason)
        return [load_trace(options.network)]
    graph, _ = graph_of(options)
    policies = options.policy or (("sqrt_n",) if options.budget is None else ())
    return [replay(schedule) for schedule in schedules_of(graph, policies, options)]


def timed_if_linked(trace: Trace, options: Any) -> Trace | Timeline:
    """Simulate a trace over the link that its policy was given; without one, return the trace."""
    known = trace.schedule.options
    if known.get("bandwidth") is None:
        return trace
    link = Link(known["bandwidth"], known.get("latency", 0), known.get("engines", MOST_ENGINES))
    return timed(trace.schedule, link, COSTS[options.cost](trace.graph))


def measured_of(options: Any) -> Measured | None:
    """Load the measured memory, if ``--measured`` was given."""
    if options.measured is None:
        reason = "--{} is for --measured FILE, which was not given"
        refuse_given(options, ("device", "between", "base"), reason)
        return None
    found = load_measured(options.measured, device=options.device)
    if options.between is not None:
        found = found.between(*options.between)
    return found if options.base == "start" else found.less(options.base)
