"""The user's side: run a schedule, or let one call do everything from function to gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from tinyckpt.base.errors import BackendError, GraphError
from tinyckpt.base.lru_cache import Programs
from tinyckpt.base.tree import check_depth, leaves, map_leaves
from tinyckpt.codegen.numpy_source import Compiled, compile
from tinyckpt.core.autodiff import differentiate, positions_of, value_and_gradients
from tinyckpt.core.backend import NUMPY, Backend, dense, get_backend, moved, sources_of
from tinyckpt.core.execute import execute, memory_owner
from tinyckpt.core.graph import Graph, Spec, updated_sources
from tinyckpt.core.primitive import ACTIVE_BUILDER
from tinyckpt.core.schedule import Schedule
from tinyckpt.core.trace import Trace
from tinyckpt.core.tracing import Call, call_of, function_name, trace, weak_float
from tinyckpt.nan_check import Watcher, defect_of
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.resolve_policy import PolicyLike


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


def run(
    schedule: Schedule,
    *args: Any,
    backend: str | Backend = "numpy",
    timed: bool = False,
    check_nan: bool = True,
) -> RunResult:
    """Execute a schedule on arrays, and measure what it holds.

    Its record of the steps takes about 150 bytes of the host's memory a step, which the trace does
    not count; a compiled program has none.

    >>> import numpy as np, tinyckpt as tc
    >>> x = np.arange(3.0)
    >>> graph = tc.differentiate(tc.build(lambda x: tc.sum(x * x), x))
    >>> schedule = tc.plan(graph)
    >>> result = tc.run(schedule, x)
    >>> result.value, result.gradients
    (array(5.), array([0., 2., 4.]))
    >>> result.trace == tc.replay(schedule)  # counted from arrays, and from shapes
    True

    Args:
        schedule: what ``plan`` returned.
        args: the arguments of the function that was built, in its nesting.
        backend: ``numpy``, ``cupy`` for an NVIDIA GPU, or a ``Backend`` of your own.
        timed: whether to measure the seconds of every step, in ``trace.seconds``.
        check_nan: whether a NaN in the results is an error, or an infinity in float16, whose
            largest number is 65504. It costs a second run to find where it came from, and only if
            there is one.

    Raises:
        GraphError: if an argument has another shape or dtype than the graph was built for.
        BackendError: if the backend is not there, a kernel fails, or there is a NaN.
    """
    graph = schedule.graph
    library = get_backend(backend)
    given = {data: moved(library, array) for data, array in sources_of(graph, args).items()}
    sources = with_own(graph, given)
    values, trace = execute(schedule, sources, library, timed)
    if (
        check_nan
        and any(map(defect_of, values.values()))
        and (error := first_defect(schedule, with_own(graph, given), library))
    ):
        raise error
    own = partial(writable, ids_of(sources.values(), graph.constants.values()))
    value = map_leaves(lambda data: own(values[data]), graph.results)
    gradients = map_leaves(lambda data: own(values[data]), graph.gradients)
    return RunResult(value, gradients, trace)


def with_own(graph: Graph, sources: Mapping[int, Any]) -> dict[int, Any]:
    """Return the sources, with copies of those that are updated: the caller's stay as they are."""
    return {**sources, **{data: sources[data].copy() for data in updated_sources(graph)}}


def ids_of(*groups: Iterable[Any]) -> set[int]:
    """Return the identities of arrays whose memory is not the caller's to write to."""
    return {id(memory_owner(array, type(array))) for group in groups for array in group}


def writable(met: set[int], array: Any) -> Any:
    """Return a result that the caller may write to, no matter what else was returned.

    There is a copy where its memory was met before (of an argument, of a constant, of another
    result), or is not all shown once; graphs are built so that few results are such views.
    """
    owner = memory_owner(array, type(array))
    if id(owner) in met or not (owner.flags.owndata and shows_all(array, owner)):
        return array.copy()
    met.add(id(owner))
    if not getattr(array.flags, "writeable", True):
        array.flags.writeable = True  # broadcast along axes of length 1
    return array


def shows_all(array: Any, owner: Any) -> bool:
    """Whether an array shows each byte of its memory once, in whatever order of the axes."""
    expected = array.itemsize
    for stride, extent in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return bool(array.nbytes == owner.nbytes)


def first_defect(
    schedule: Schedule, sources: Mapping[int, Any], library: Backend
) -> BackendError | None:
    """Run again to find where a NaN came from; return the error that says so.

    None if there is nothing to say: an infinity of float16 that was an argument, say.
    """
    watcher = Watcher(schedule.graph, sources, library.xp)
    with np.errstate(all="ignore"):  # NumPy warned the first time
        execute(schedule, sources, library, watch=watcher.watch)
    text = watcher.text()
    return BackendError(f"{text} (check_nan=False lets it pass)") if text else None


def value_and_grad(
    function: Callable[..., Any],
    policy: PolicyLike | None = None,
    *,
    wrt: int | Sequence[int] = 0,
    backend: str | Backend = "numpy",
    static: str | Collection[str] = (),
    **options: Any,
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that computes the loss and its gradients under a policy.

    It builds, differentiates, plans and compiles on the first call with new shapes or new static
    arguments, and runs straight-line code from then on. What the function takes from outside of
    its arguments is looked at in that first call only. The 128 programs that were used last are
    kept (``tinyckpt.base.lru_cache.MOST_PROGRAMS``).

    Called by a function that is being traced, it adds the loss and its gradients to that graph,
    as ``gradients`` does: derivatives of derivatives are written as they are thought of, and the
    policy is that of the outermost function.

    Args:
        function: returns a scalar loss, or a tuple that begins with it.
        policy: name of a policy, or a policy of your own; store-all if not given, or with a
            ``budget`` the best that is found.
        wrt: position of the argument to differentiate with respect to, or several positions.
        backend: ``numpy``, ``cupy``, or a ``Backend`` of your own.
        static: names of arguments that are no arrays, such as ``("train",)``: the function gets
            them as they are. They must be hashable, and each has programs of its own.
        options: the policy's own, and those of ``plan``, such as ``budget``.

    >>> import tinyckpt as tc
    >>> value, gradient = tc.value_and_grad(lambda x: x**3)(2.0)
    >>> float(value), float(gradient), float(tc.grad(tc.grad(lambda x: x**3))(2.0))
    (8.0, 12.0, 12.0)
    """

    def training_graph(call: Call) -> Graph:
        return differentiate(trace(call), without_static(call, wrt))

    evaluate = compiled_when_called(training_graph, policy, backend, options)

    def step(*args: Any, **named: Any) -> tuple[Any, Any]:
        call = call_of(function, args, named, static)
        if ACTIVE_BUILDER.get() is not None:
            return value_and_gradients(call, without_static(call, wrt))
        return evaluate(call)

    return named_like(function, step, "value_and_grad_of_")


def grad(
    function: Callable[..., Any], policy: PolicyLike | None = None, **options: Any
) -> Callable[..., Any]:
    """Return a function that computes the gradients alone; see ``value_and_grad``."""
    both = value_and_grad(function, policy, **options)
    return named_like(function, lambda *args, **named: both(*args, **named)[1], "grad_of_")


def jit(
    function: Callable[..., Any],
    policy: PolicyLike | None = None,
    *,
    backend: str | Backend = "numpy",
    static: str | Collection[str] = (),
    **options: Any,
) -> Callable[..., Any]:
    """Return a function that computes the same on arrays: planned and compiled, no gradients.

    A graph without a backward half holds each value only until it was read for the last time;
    where derivatives are taken inside, a policy has as much to choose as in training. Called by a
    function that is being traced, it is the function itself.

    Args:
        function: ordinary Python over the operators of tinyckpt; returns Vars in any nesting.
        policy, backend, static, options: as in ``value_and_grad``.

    >>> import numpy as np, tinyckpt as tc
    >>> predict = tc.jit(lambda params, x: {"h": tc.tanh(x @ params["w"])})
    >>> predict({"w": np.zeros((2, 2))}, np.ones((1, 2)))["h"].tolist()
    [[0.0, 0.0]]
    """
    evaluate = compiled_when_called(trace, policy, backend, options)

    def compiled(*args: Any, **named: Any) -> Any:
        if ACTIVE_BUILDER.get() is not None:
            return function(*args, **named)
        return evaluate(call_of(function, args, named, static))[0]

    return named_like(function, compiled, "jit_of_")


def compiled_when_called(
    make_graph: Callable[[Call], Graph],
    policy: PolicyLike | None,
    backend: str | Backend,
    options: Mapping[str, Any],
) -> Callable[[Call], tuple[Any, Any]]:
    """Return what evaluates a call, by a program for its shapes and static arguments.

    Args:
        make_graph: builds the graph of a call, the first time that its like is met.
        policy, backend, options: as in ``value_and_grad``.
    """
    library = get_backend(backend)
    programs = Programs[Compiled]()

    def evaluate(call: Call) -> tuple[Any, Any]:
        arrays = map_leaves(as_array, call.arguments)
        if any(type(leaf) is float for leaf in leaves(arrays)):
            weak = weak_float(arrays)
            arrays = map_leaves(lambda x: np.asarray(x, weak) if type(x) is float else x, arrays)
        if library is not NUMPY:
            arrays = map_leaves(partial(moved, library), arrays)
        try:
            key = signature(arrays), call.places, call.static
        except AttributeError:
            trace(call)  # says which argument is no array
            raise
        program = programs.get(
            key, lambda: compile(plan(make_graph(call), policy, **options), library)
        )
        value, gradients = program.evaluate(*arrays)
        own = partial(writable, ids_of(leaves(arrays), program.constants))
        return map_leaves(own, value), map_leaves(own, gradients)

    return evaluate


def without_static(call: Call, wrt: int | Sequence[int]) -> int | Sequence[int]:
    """Return positions among a call's arguments as positions among those that hold arrays."""
    if not call.static:
        return wrt
    name, every = function_name(call.function), [*range(len(call.args)), *call.named]
    places = [every[position] for position in positions_of(name, len(every), wrt)]
    for place in places:
        if place not in call.places:
            raise GraphError(f"wrt={wrt!r}: {name}'s argument {place} is static, and no array")
    found = [call.places.index(place) for place in places]
    return found if isinstance(wrt, Sequence) else found[0]


def named_like(
    function: Callable[..., Any], made: Callable[..., Any], prefix: str
) -> Callable[..., Any]:
    """Return what was made of a function, with its signature and a name that says so."""
    update_wrapper(made, function)
    made.__name__ = made.__qualname__ = f"{prefix}{getattr(function, '__name__', 'function')}"
    return made


def as_array(leaf: Any) -> Any:
    """Return an argument as a plain and C-contiguous array; what is none, or a float, as it is."""
    if type(leaf) is np.ndarray:
        return dense(leaf)
    if type(leaf) is float:
        return leaf  # its dtype is that of the arrays beside it
    if isinstance(leaf, bool | int | float):
        return np.asarray(leaf)
    if isinstance(leaf, Spec):
        raise GraphError("an argument is a tc.Spec, which has no numbers; pass arrays to run this")
    if isinstance(leaf, np.ndarray):
        leaf = np.asarray(leaf)  # subclasses, such as np.matrix, have rules of their own
    if hasattr(leaf, "__array__") and not hasattr(leaf, "flags"):
        return moved(NUMPY, leaf)  # another library's, such as JAX's
    return dense(leaf) if hasattr(leaf, "flags") else leaf


def signature(args: Any) -> Any:
    """Return what a program depends on: nesting, shapes and dtypes.

    Raises:
        AttributeError: if a leaf is no array.
        GraphError: if the tree contains itself, or is nested too deep.
    """
    try:
        return signature_below(args)
    except RecursionError:
        check_depth("an argument", args)
        raise


def signature_below(args: Any) -> Any:
    """Return what ``signature`` does."""
    if isinstance(args, dict):
        return dict, tuple([(key, signature_below(value)) for key, value in args.items()])
    if isinstance(args, list | tuple):
        return type(args), tuple([signature_below(value) for value in args])
    if args is None:
        return None
    return tuple(args.shape), args.dtype
