"""The user's side: plan a schedule, run it, or let one call do everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyckpt.arguments import sources_of
from tinyckpt.backend import Backend, get_backend
from tinyckpt.build import build, spec_of
from tinyckpt.compile import Compiled, compile
from tinyckpt.cost import Costs, evaluations
from tinyckpt.differentiate import differentiate
from tinyckpt.errors import BackendError, ScheduleError
from tinyckpt.execute import execute
from tinyckpt.graph import Graph
from tinyckpt.policies import POLICIES
from tinyckpt.replay import replay
from tinyckpt.schedule import Schedule
from tinyckpt.trace import Trace
from tinyckpt.tree import fill, leaves_with_paths

PolicyLike = str | Callable[..., Schedule]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run returns.

    Attributes:
        value: the function's result; None if the graph was asked for gradients only.
        gradients: in the nesting of the argument differentiated with respect to; None if the graph
            has no backward half.
        trace: what happened, as measured from the arrays.
    """

    value: Any
    gradients: Any
    trace: Trace


def plan(
    graph: Graph, policy: PolicyLike = "store_all", *, costs: Costs | None = None, **options: Any
) -> Schedule:
    """Return the schedule that a policy makes of a graph.

    Args:
        graph: what ``differentiate`` returned; a graph without a backward half is evaluated once.
        policy: a name of ``POLICIES``, or your own ``policy(graph, costs, **options)`` -> Schedule.
        costs: what evaluations cost and values weigh; one an evaluation, and bytes, if not given.
        options: the policy's own, such as ``keep=...`` for ``retain``.

    Raises:
        ScheduleError: if the policy is unknown, refuses its options, or returns something illegal.
    """
    if callable(policy):
        schedule = policy(graph, costs or evaluations(graph), **options)
        if not isinstance(schedule, Schedule):
            raise ScheduleError(
                f"the policy returned a {type(schedule).__name__}; return a Schedule, such as "
                "tc.from_order(graph, [operator ids])"
            )
        replay(schedule)
        return schedule
    if policy not in POLICIES:
        raise ScheduleError(f"unknown policy {policy!r}; known are {', '.join(POLICIES)}")
    planner = POLICIES[policy].plan
    legal = planner.__kwdefaults__ or {}
    for option in options:
        if option not in legal:
            raise ScheduleError(
                f"{policy} has no option {option!r}; it has {', '.join(legal) or 'none'}"
            )
    return planner(graph, costs or evaluations(graph), **options)


def run(
    schedule: Schedule,
    *args: Any,
    backend: str = "numpy",
    timed: bool = False,
    check_nan: bool = True,
) -> RunResult:
    """Execute a schedule on arrays, and measure what it holds.

    Args:
        schedule: what ``plan`` returned.
        args: the arguments of the function that was built, in its nesting.
        backend: ``numpy``, or ``cupy`` for an NVIDIA GPU.
        timed: whether to measure the seconds of every step, in ``trace.seconds``.
        check_nan: whether a NaN in the results is an error. It costs a second run to find where
            the NaN came from, and only if there is one.

    Raises:
        GraphError: if an argument has another shape or dtype than the graph was built for.
        BackendError: if the backend is not there, a kernel fails, or there is a NaN.
    """
    graph = schedule.graph
    library = get_backend(backend)
    sources = {data: dense(library, array) for data, array in sources_of(graph, args).items()}
    values, trace = execute(schedule, sources, library, timed)
    if check_nan and any(has_nan(array) for array in values.values()):
        raise nan_error(schedule, sources, library)
    value = None if graph.results is None else fill(graph.results, ByLeaf(values))
    gradients = None if graph.gradients is None else fill(graph.gradients, ByLeaf(values))
    return RunResult(value, gradients, trace)


def dense(library: Backend, array: Any) -> Any:
    """Return the array on the backend's device and C-contiguous, as the graph's views assume."""
    moved = library.to_device(array)
    return moved if moved.flags.c_contiguous else library.xp.array(moved, order="C")


class ByLeaf(Sequence[Any]):
    """Arrays by data id, for ``fill``."""

    def __init__(self, values: Mapping[int, Any]) -> None:
        self.values = values

    def __getitem__(self, data: Any) -> Any:
        return self.values[data]

    def __len__(self) -> int:
        return len(self.values)


def has_nan(array: Any) -> bool:
    """Whether a floating-point array holds a NaN."""
    if array.dtype.kind != "f":
        return False
    # The sum of squares is NaN if and only if an element is: infinities add up to infinity.
    flat = array.ravel()
    total = flat @ flat
    return bool(total != total)


def nan_error(schedule: Schedule, sources: Mapping[int, Any], library: Backend) -> BackendError:
    """Run again to find where a NaN came from; return the error that says so."""
    graph = schedule.graph
    for data, array in sources.items():
        if has_nan(array):
            return BackendError(
                f"{graph.data[data].name} holds NaN in {int((array != array).sum())} of "
                f"{array.size} elements; pass finite numbers, or run with check_nan=False"
            )
    found: list[str] = []

    def watch(position: int, index: int, results: tuple[Any, ...]) -> None:
        if not found and any(has_nan(library.xp.asarray(array)) for array in results):
            operator = graph.operators[index]
            reads = ", ".join(graph.data[data].name for data in operator.inputs)
            found.append(f"step {position}: {operator.name}, a {operator.kind} of {reads}")

    with np.errstate(all="ignore"):  # NumPy warned the first time
        execute(schedule, sources, library, watch=watch)
    return BackendError(
        f"NaN, first from {found[0]}; look at what it reads (a log or root of a negative number, "
        "0/0, inf - inf), or run with check_nan=False"
    )


def value_and_grad(
    function: Callable[..., Any],
    policy: PolicyLike = "store_all",
    *,
    wrt: int | Sequence[int] = 0,
    backend: str = "numpy",
    **options: Any,
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that computes the loss and its gradients under a policy.

    It builds, differentiates, plans and compiles on the first call with new shapes, and runs
    straight-line code from then on.

    Args:
        function: returns a scalar loss, or a tuple that begins with it.
        policy: name of a policy, or a policy of your own.
        wrt: position of the argument to differentiate with respect to, or several positions.
        backend: ``numpy`` or ``cupy``.
        options: the policy's own.
    """
    programs: dict[Any, Compiled] = {}

    def step(*args: Any) -> tuple[Any, Any]:
        key = signature(args)
        if key not in programs:
            graph = differentiate(build(function, *args), wrt)
            programs[key] = compile(plan(graph, policy, **options), backend)
        result: tuple[Any, Any] = programs[key].function(*args)
        return result

    step.__name__ = f"value_and_grad_of_{getattr(function, '__name__', 'function')}"
    return step


def grad(
    function: Callable[..., Any], policy: PolicyLike = "store_all", **options: Any
) -> Callable[..., Any]:
    """Return a function that computes the gradients alone; see ``value_and_grad``."""
    both = value_and_grad(function, policy, **options)
    return lambda *args: both(*args)[1]


def signature(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a program depends on: nesting, shapes and dtypes."""
    try:
        return tuple([(p, a.shape, a.dtype) for p, a in leaves_with_paths(args, "")])
    except AttributeError:  # plain numbers among the arguments
        return tuple((path, str(spec_of(path, leaf))) for path, leaf in leaves_with_paths(args, ""))
