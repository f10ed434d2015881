"""Function transformations, as in JAX: ``value_and_grad``, ``grad``, ``jit``; and ``run``.

``run`` executes a schedule on arguments. The transformations trace, differentiate, plan and compile
on the first call for a signature (nesting, shapes, dtypes, static arguments), and cache the
program. Results never alias each other, arguments or constants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from tinyckpt.base.calls import Call, function_name, split_call
from tinyckpt.base.errors import BackendError, GraphError, OptionError, expect
from tinyckpt.base.lru_cache import ProgramCache
from tinyckpt.base.spec import Spec, unmasked, weak_float
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.base.tree import Tree, check_depth, leaves, map_leaves
from tinyckpt.codegen.compiled import Compiled, compile
from tinyckpt.codegen.in_place import computed_anew
from tinyckpt.core.autodiff import differentiate, gradients, loss_of, positions_of
from tinyckpt.core.backend import (
    NUMPY,
    Backend,
    as_contiguous,
    bind_sources,
    get_backend,
    to_backend,
)
from tinyckpt.core.execute import execute, memory_owner
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import Schedule
from tinyckpt.core.trace import Trace
from tinyckpt.core.tracing import ACTIVE_BUILDER, Builder, Var, active_builder, trace
from tinyckpt.ops.nan_check import Watcher, defect_of
from tinyckpt.ops.update_steps import updated_sources
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.resolve_policy import PolicyLike


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of ``run``: value, gradients and trace.

    >>> import tinyckpt as tc
    >>> graph = tc.differentiate(tc.build(lambda x: x * x, tc.Spec(())))
    >>> result = tc.run(tc.plan(graph), 3.0)
    >>> float(result.value), float(result.gradients), result.trace.evaluations
    (9.0, 6.0, 4)

    Attributes:
        value: the function's result; None if the graph was differentiated with ``value=False``.
        gradients: in the nesting of the argument differentiated with respect to; None if the graph
            has no backward pass.
        trace: the measured trace.
    """

    value: Any
    gradients: Any
    trace: Trace


@short_traceback
def run(
    schedule: Schedule,
    *args: Any,
    backend: str | Backend = "numpy",
    timed: bool = False,
    check_nan: bool = True,
) -> RunResult:
    """Execute a schedule on arrays, and measure the memory that is live at every step.

    The trace itself takes about 150 bytes of host memory per step, which it does not count; a
    compiled program has none.

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
        schedule: a schedule from ``plan``.
        args: the arguments of the traced function, in its nesting.
        backend: ``numpy``, ``cupy`` for an NVIDIA GPU, or a ``Backend`` instance.
        timed: whether to measure the seconds of every step, in ``trace.seconds``.
        check_nan: whether to raise on a NaN in the results, or on an infinity in float16, whose
            largest number is 65504. If there is one, a second run locates its origin.

    Raises:
        GraphError: if an argument has another shape or dtype than the graph was built for.
        BackendError: if the backend is not available, a kernel fails, or there is a NaN.
    """
    expect(schedule, Schedule)
    graph = schedule.graph
    library = get_backend(backend)
    given = {data: to_backend(library, array) for data, array in bind_sources(graph, args).items()}
    sources = with_update_copies(graph, given)
    values, trace = execute(schedule, sources, library, timed)
    if (
        check_nan
        and any(map(defect_of, values.values()))
        and (error := first_defect(schedule, with_update_copies(graph, given), library))
    ):
        raise error
    own = partial(owned_result, owner_ids(sources.values(), graph.constants.values()))
    value = map_leaves(lambda data: own(values[data]), graph.results)
    gradients = map_leaves(lambda data: own(values[data]), graph.gradients)
    return RunResult(value, gradients, trace)


def with_update_copies(graph: Graph, sources: Mapping[int, Any]) -> dict[int, Any]:
    """Copy the sources that an update overwrites: the caller's arrays stay unchanged."""
    return {**sources, **{data: sources[data].copy() for data in updated_sources(graph)}}


def owner_ids(*groups: Iterable[Any]) -> set[int]:
    """Return the ``id()`` of the arrays that own the memory of some arrays."""
    return {id(memory_owner(array, type(array))) for group in groups for array in group}


def owned_result(seen: set[int], array: Any) -> Any:
    """Return a result that the caller may write to without affecting anything else.

    It is copied if its memory is already in use (by an argument, a constant, another result), or
    exceeds the array; graphs are built so that few results are such views.
    """
    owner = memory_owner(array, type(array))
    if id(owner) in seen or not (owner.flags.owndata and covers_its_memory(array, owner)):
        return array.copy()
    seen.add(id(owner))
    if not getattr(array.flags, "writeable", True):
        array.flags.writeable = True  # broadcast along axes of length 1
    return array


def covers_its_memory(array: Any, owner: Any) -> bool:
    """Whether an array covers each byte of its memory exactly once, in any order of the axes."""
    expected = array.itemsize
    for stride, extent in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return bool(array.nbytes == owner.nbytes)


def first_defect(
    schedule: Schedule, sources: Mapping[int, Any], library: Backend
) -> BackendError | None:
    """Run again, checking every evaluation, to locate the origin of a NaN; return the error.

    Returns None if there is no defect, such as for an infinity of float16 that was an argument.
    """
    watcher = Watcher(schedule.graph, sources, library.xp)
    with np.errstate(all="ignore"):  # NumPy warned in the first run
        execute(computed_anew(schedule), sources, library, watch=watcher.watch)
    text = watcher.text()
    return BackendError(f"{text} (check_nan=False disables this check)") if text else None


def value_and_grad(
    function: Callable[..., Any],
    policy: PolicyLike | None = None,
    *,
    wrt: int | Sequence[int] = 0,
    backend: str | Backend = "numpy",
    static: str | Collection[str] = (),
    argnums: int | Sequence[int] | None = None,
    has_aux: bool = False,
    arena: bool = False,
    **options: Any,
) -> Callable[..., tuple[Any, Any]]:
    """Transform a function into one that returns its value and gradients, run under a policy.

    It traces, differentiates, plans and compiles on the first call with new shapes or new static
    arguments, and runs straight-line code from then on. Values that the function captures from its
    environment are read in that first call only. An LRU cache keeps the last 128 programs
    (``tinyckpt.base.lru_cache.MOST_PROGRAMS``).

    Called inside a function that is being traced, it adds the loss and its gradients to that graph,
    as ``gradients`` does: transformations compose, and the outermost function's policy applies.

    Args:
        function: returns a scalar loss, or a tuple that begins with it.
        policy: a policy's name, or a policy function; store-all if not given, or with a ``budget``
            the best schedule found.
        wrt: position of the argument to differentiate with respect to, or several positions.
        backend: ``numpy``, ``cupy``, or a ``Backend`` instance.
        static: names of arguments that are not arrays, such as ``("train",)``: the function gets
            them as they are. They must be hashable; programs are specialised to their values.
        argnums: JAX's name for ``wrt``.
        has_aux: as in JAX, whether the function returns ``(loss, more)``. It may without; then a
            function that returns anything else is an error.
        arena: whether programs run in one buffer each, at static addresses, as in ``compile``.
        options: the policy's options, and those of ``plan``, such as ``budget``.

    >>> import tinyckpt as tc
    >>> value, gradient = tc.value_and_grad(lambda x: x**3)(2.0)
    >>> float(value), float(gradient), float(tc.grad(tc.grad(lambda x: x**3))(2.0))
    (8.0, 12.0, 12.0)
    """

    if argnums is not None:
        if wrt != 0:
            raise OptionError(f"wrt={wrt!r} and argnums={argnums!r} are the same option: give one")
        wrt = argnums

    def training_graph(call: Call) -> Graph:
        return differentiate(trace(call), among_arrays(call, wrt))

    evaluate = compiled_on_demand(training_graph, policy, backend, options, arena)

    def step(*args: Any, **named: Any) -> tuple[Any, Any]:
        call = split_call(function, args, named, static)
        traced = ACTIVE_BUILDER.get() is not None
        both = value_and_gradients(call, among_arrays(call, wrt)) if traced else evaluate(call)
        if has_aux and not (isinstance(both[0], tuple) and len(both[0]) == 2):
            name = function_name(function)
            raise GraphError(f"has_aux=True: {name} must return (loss, more), a tuple of two")
        return both

    return wrapped_as(function, step, "value_and_grad_of_")


def grad(
    function: Callable[..., Any], policy: PolicyLike | None = None, **options: Any
) -> Callable[..., Any]:
    """Transform a function into one that returns its gradients; options as in ``value_and_grad``.

    With ``has_aux`` it returns the gradients and what the function returns beside the loss.

    >>> import tinyckpt as tc
    >>> float(tc.grad(lambda x: tc.sin(x))(0.0))
    1.0
    """
    both = value_and_grad(function, policy, **options)

    def gradients_of(*args: Any, **named: Any) -> Any:
        value, found = both(*args, **named)
        return (found, value[1]) if options.get("has_aux") else found

    return wrapped_as(function, gradients_of, "grad_of_")


def jit(
    function: Callable[..., Any],
    policy: PolicyLike | None = None,
    *,
    backend: str | Backend = "numpy",
    static: str | Collection[str] = (),
    arena: bool = False,
    **options: Any,
) -> Callable[..., Any]:
    """Transform a function into a planned and compiled one with the same results on arrays.

    A graph without a backward pass needs each value only until its last use; where derivatives are
    taken inside, a policy has the same choices as in training. Called inside a function that is
    being traced, it is the function itself.

    Args:
        function: ordinary Python over the operators of tinyckpt; returns Vars in any nesting.
        policy, backend, static, arena, options: as in ``value_and_grad``.

    >>> import numpy as np, tinyckpt as tc
    >>> predict = tc.jit(lambda params, x: {"h": tc.tanh(x @ params["w"])})
    >>> predict({"w": np.zeros((2, 2))}, np.ones((1, 2)))["h"].tolist()
    [[0.0, 0.0]]
    """
    evaluate = compiled_on_demand(trace, policy, backend, options, arena)

    def compiled(*args: Any, **named: Any) -> Any:
        if ACTIVE_BUILDER.get() is not None:
            return function(*args, **named)
        return evaluate(split_call(function, args, named, static))[0]

    return wrapped_as(function, compiled, "jit_of_")


def compiled_on_demand(
    make_graph: Callable[[Call], Graph],
    policy: PolicyLike | None,
    backend: str | Backend,
    options: Mapping[str, Any],
    arena: bool = False,
) -> Callable[[Call], tuple[Any, Any]]:
    """Just-in-time compilation: a function of calls, backed by a cache of programs per signature.

    Args:
        make_graph: builds the graph of a call, on a cache miss.
        policy, backend, options, arena: as in ``value_and_grad``.
    """
    library = get_backend(backend)
    programs = ProgramCache[Compiled]()

    def evaluate(call: Call) -> tuple[Any, Any]:
        arrays = map_leaves(as_array, call.arguments)
        if any(type(leaf) is float for leaf in leaves(arrays)):
            weak = weak_float(arrays)
            arrays = map_leaves(lambda x: np.asarray(x, weak) if type(x) is float else x, arrays)
        if library is not NUMPY:
            arrays = map_leaves(partial(to_backend, library), arrays)
        failure = None
        try:
            key = cache_key(arrays), call.places, call.static
        except AttributeError as error:
            failure = error
        if failure is not None:
            trace(call)  # raises, naming the argument that is not an array
            raise failure
        program = programs.get(
            key, lambda: compile(plan(make_graph(call), policy, **options), library, arena)
        )
        value, gradients = program.evaluate(*arrays)
        own = partial(owned_result, owner_ids(leaves(arrays), program.constants))
        return map_leaves(own, value), map_leaves(own, gradients)

    return evaluate


def among_arrays(call: Call, wrt: int | Sequence[int]) -> int | Sequence[int]:
    """Convert positions among all arguments to positions among the array arguments."""
    if not call.static:
        return wrt
    name, arguments = function_name(call.function), [*range(len(call.args)), *call.named]
    places = [arguments[position] for position in positions_of(name, len(arguments), wrt)]
    for place in places:
        if place not in call.places:
            raise GraphError(f"wrt={wrt!r}: {name}'s argument {place} is static, not an array")
    positions = [call.places.index(place) for place in places]
    return positions if isinstance(wrt, Sequence) else positions[0]


def wrapped_as(
    function: Callable[..., Any], made: Callable[..., Any], prefix: str
) -> Callable[..., Any]:
    """Give a transformed function the original's signature, a prefixed name, short tracebacks."""
    made = short_traceback(made)
    update_wrapper(made, function)
    made.__name__ = made.__qualname__ = f"{prefix}{getattr(function, '__name__', 'function')}"
    return made


def as_array(leaf: Any) -> Any:
    """Convert an argument to a plain C-contiguous array; floats and non-arrays stay as they are."""
    if type(leaf) is np.ndarray:
        return as_contiguous(leaf)
    if type(leaf) is float:
        return leaf  # weakly typed: its dtype follows from the arrays among the arguments
    if isinstance(leaf, bool | int | float):
        return np.asarray(leaf)
    if isinstance(leaf, Spec):
        raise GraphError("an argument is a tc.Spec, which has no numbers; pass arrays to run this")
    if isinstance(leaf, np.ndarray):
        leaf = np.asarray(unmasked(leaf))  # subclasses, such as np.matrix, override operators
    if hasattr(leaf, "__array__") and not hasattr(leaf, "flags"):
        return to_backend(NUMPY, leaf)  # another library's array, such as JAX's
    return as_contiguous(leaf) if hasattr(leaf, "flags") else leaf


def cache_key(args: Any) -> Any:
    """Return the cache key of a call's arrays: nesting, shapes and dtypes.

    Raises:
        AttributeError: if a leaf is not an array.
        GraphError: if the tree contains itself, or is nested too deep.
    """
    try:
        return signature_below(args)
    except RecursionError:
        check_depth("an argument", args)
        raise


def signature_below(args: Any) -> Any:
    """Recursive part of ``cache_key``."""
    if isinstance(args, dict):
        return dict, tuple([(key, signature_below(value)) for key, value in args.items()])
    if isinstance(args, list | tuple):
        return type(args), tuple([signature_below(value) for value in args])
    if args is None:
        return None
    return tuple(args.shape), args.dtype


# Derivatives inside of a function that is being traced (nested, higher-order) --------------------


def value_and_gradients(call: Call, wrt: int | Sequence[int]) -> tuple[Tree, Tree]:
    """Call a function and differentiate it, inside a build (a nested derivative).

    The function is called with fresh symbols in place of its arguments (stand-ins), so that the
    derivative is with respect to the arguments alone: if the function also captures the same value
    from an enclosing scope, that use counts as a constant (no perturbation confusion).

    Args:
        call: a call of a function that returns a scalar, or a tuple that begins with one.
        wrt: position of the argument to differentiate with respect to, or several positions.

    Returns:
        The function's result and the gradients.

    Raises:
        GraphError: as in ``gradients``.
    """
    builder = active_builder("a derivative")
    name, arguments = function_name(call.function), list(call.arguments)
    weak = weak_float(call.arguments)  # the dtype of Python floats, as in any call
    values: dict[int, int] = {}
    for position in positions_of(name, len(arguments), wrt):
        own = map_leaves(
            lambda leaf: builder.as_var(leaf, weak if type(leaf) is float else None),
            arguments[position],
        )
        arguments[position] = stand_ins = map_leaves(stand_in, own)
        for symbol, variable in zip(leaves(stand_ins), leaves(own), strict=True):
            values[symbol.node.id] = variable.node.id
    tree = tuple(arguments[i] for i in wrt) if isinstance(wrt, Sequence) else arguments[wrt]
    try:
        result = map_leaves(builder.as_var, call.again(arguments))
        gradient = gradients(loss_of(name, result), tree)
    finally:  # no stand-in outlives the call, even if the caller catches its error
        replace_stand_ins(builder, values)
    return map_leaves(builder.as_var, result), map_leaves(builder.as_var, gradient)


def stand_in(variable: Var) -> Var:
    """Add a source that represents a value until ``replace_stand_ins`` substitutes it back.

    A nested derivative calls its function with stand-ins, so that uses of a value as the argument
    are distinguished from uses of the same value captured from an enclosing scope.
    """
    builder, node = variable.builder, variable.node
    builder.stand_ins[len(builder.data)] = node.id
    return builder.add_data(node.name, node.spec, "input")


def replace_stand_ins(builder: Builder, values: Mapping[int, int]) -> None:
    """Substitute the original values for their stand-ins in all operators, by data ids."""
    builder.replaced.update(values)
    builder.scratch.pop("updates", None)  # which sources are updated: by their ids
    for node in builder.data[min(values, default=len(builder.data)) :]:
        if node.view_of is not None and node.view_of in values:
            builder.data[node.id] = replace(node, view_of=values[node.view_of])
        if node.id in values and node.label:
            builder.relabel(builder.resolved(node.id), node.label)
    for operator in builder.operators:
        if any(data in values for data in operator.inputs):
            inputs = tuple([values.get(data, data) for data in operator.inputs])
            builder.operators[operator.id] = replace(operator, inputs=inputs)
