"""Compiled training step with state updated in place: ``train_step`` of a loss and an optimiser.

Plans and compiles the step's graph (``step_graph``) once per shape of its arguments, splits batches
for gradient accumulation, checks that the state's memory may be written, and looks for NaNs on
demand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tinyckpt.base.calls import Call, function_name, split_call
from tinyckpt.base.errors import BackendError, GraphError, OptionError
from tinyckpt.base.interrupted_step import (
    MIXED_STATE_ADVICE,
    Writes,
    is_mixed,
    without_parameters,
)
from tinyckpt.base.lru_cache import ProgramCache
from tinyckpt.base.spec import Spec
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.base.tree import Tree, check_depth, leaves, leaves_with_paths, map_leaves, tree_map
from tinyckpt.codegen.compiled import Compiled, compile
from tinyckpt.codegen.in_place import computed_anew
from tinyckpt.core.backend import NUMPY, Backend, bind_sources, get_backend, to_backend
from tinyckpt.core.execute import execute
from tinyckpt.core.graph import TrainingGraph
from tinyckpt.core.schedule import Schedule
from tinyckpt.ops.kernels_parameter_update import WRITES
from tinyckpt.ops.nan_check import Watcher
from tinyckpt.ops.update_steps import updated_sources
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.planner.portfolio.resolve_policy import PolicyLike
from tinyckpt.training.optimizers import (
    Optimizer,
    as_dtype,
    check_optimizer,
    zeros_like,
)
from tinyckpt.training.step_graph import LossScale, Part, Recipe, step_graph
from tinyckpt.training.transformations import as_array, cache_key, owned_result, owner_ids

State = dict[str, Any]
MOST_PARTS = 10**6  # micro-batches of a step: as many calls of a program take a minute or more


def train_step(
    loss: Callable[..., Any],
    optimizer: Optimizer,
    policy: PolicyLike | None = None,
    *,
    gradients: Literal["consumed", "held"] = "consumed",
    micro_batches: int = 1,
    loss_scale: LossScale | None = None,
    carry: bool = False,
    check_nan: bool = False,
    backend: str | Backend = "numpy",
    static: str | Collection[str] = (),
    arena: bool = False,
    **options: Any,
) -> TrainStep:
    """Make a training step: loss, gradients and optimiser in one graph, under one policy.

    ``step.init(parameters)`` gives the initial state; ``state, value = step(state, *batch)`` takes
    a step. Parameters and optimiser state are updated in place: the state returned is the one
    passed in, with new numbers in the same arrays.

    Args:
        loss: takes the parameters, then the batch; returns a scalar, or a tuple that begins with
            it; all of that is the value of the step.
        optimizer: such as ``tc.adamw(1e-3)``.
        policy: name of a policy, or a user-defined one; store-all if not given, or with a
            ``budget`` the best that is found.
        gradients: ``consumed``, each as soon as it is computed, or ``held`` until all are.
        micro_batches: gradient accumulation: number of equal parts that each array of the batch is
            split into along its first axis; they run one after another, and their gradients and
            values are averaged. For a mean over the batch that is the gradient of the whole,
            except where an operator normalises over the batch.
        loss_scale: for gradients of 16 bits: ``tc.LossScale()``.
        carry: whether the loss is ``loss(parameters, carried, *batch)`` and returns ``(loss,
            carried, ...)``: for values that change without a gradient, such as running statistics.
        check_nan: whether to check every value, for an error that names the operator with the
            first NaN, or the first infinity of 16 bits. Slow; for debugging.
        backend, static, arena: as in ``value_and_grad``.
        options: of the policy, and of ``plan``, such as ``budget``.

    Raises:
        OptionError: if an option is not legal.

    >>> import numpy as np, tinyckpt as tc
    >>> def loss(params, x, y):
    ...     return tc.mean((x @ params["w"] - y) ** 2)
    >>> step = tc.train_step(loss, tc.adam(0.1))
    >>> state = step.init({"w": np.zeros(2)})
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([3.0, -2.0])
    >>> for _ in range(200):
    ...     state, value = step(state, x, y)
    >>> state["parameters"]["w"].round(2).tolist(), bool(value < 1e-4)
    ([3.0, -2.0], True)
    """
    if not callable(loss):
        raise OptionError(
            f"loss: expected a function of the parameters and the batch, got a "
            f"{type(loss).__name__}; its parameters go to step.init"
        )
    if gradients not in ("consumed", "held"):
        raise OptionError(f"gradients={gradients!r}; expected 'consumed' or 'held'")
    if type(micro_batches) is not int or not 1 <= micro_batches <= MOST_PARTS:
        raise OptionError(
            f"micro_batches={micro_batches!r:.80}; it must be an integer from 1 to {MOST_PARTS:,}"
        )
    if check_nan and loss_scale is not None:
        raise OptionError("check_nan and loss_scale: overflows are what a loss scale looks for")
    check_optimizer(optimizer)
    if not isinstance(loss_scale, LossScale | None):
        raise OptionError(f"loss_scale={loss_scale!r:.80}; it must be a tc.LossScale or None")
    recipe = Recipe(optimizer, gradients, micro_batches, loss_scale, carry)
    return TrainStep(loss, recipe, policy, get_backend(backend), static, options, check_nan, arena)


class TrainStep:
    """A training step, made by ``train_step``; it caches programs, and stores no state.

    Programs are compiled per shape of the arguments, in an LRU cache, as by ``value_and_grad``. It
    can be pickled if the loss can, without its programs.

    >>> import tinyckpt as tc
    >>> step = tc.train_step(lambda w, x: tc.half_squared_norm(w - x), tc.adam(0.1))
    >>> state = step.init(tc.Spec((3,)))  # specs: a state to plan with, not to run
    >>> sorted(state), tc.replay(step.schedule(state, tc.Spec((3,)))).peak_bytes
    (['optimizer', 'parameters', 'step'], 96)
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        recipe: Recipe,
        policy: PolicyLike | None,
        backend: Backend,
        static: str | Collection[str],
        options: Mapping[str, Any],
        check_nan: bool,
        arena: bool = False,
    ) -> None:
        self.loss, self.recipe, self.policy, self.backend = loss, recipe, policy, backend
        self.static, self.options, self.check_nan = static, options, check_nan
        self.arena = arena
        self._programs = ProgramCache[tuple[Compiled, list[int]]]()

    def __repr__(self) -> str:
        return f"<TrainStep of {function_name(self.loss)} by {self.recipe.optimizer.name}>"

    def init(self, parameters: Tree, carried: Tree = None) -> State:
        """Return the initial state: copies of the parameters, and the optimiser's initial state.

        Args:
            parameters: arrays, or specs for a state that is planned and never run.
            carried: initial carried values, where the step has ``carry``.

        Raises:
            GraphError: if a parameter is not a floating-point array, or a tree contains itself or
                is nested too deep.
        """
        check_depth("parameters", parameters)
        check_depth("carried", carried)
        for path, leaf in leaves_with_paths(parameters, "parameters"):
            kind = getattr(getattr(leaf, "dtype", None), "kind", None)
            if kind not in ("f", "V"):
                raise GraphError(f"{path}: expected a floating-point array, got {leaf!r:.80}")
        if (carried is None) == self.recipe.carry:
            raise GraphError("init takes carried values if and only if the step has carry=True")
        specs = [leaf for leaf in leaves(parameters) if isinstance(leaf, Spec)]
        number = Spec((), "int64") if specs else np.array(0, np.int64)
        state: State = {
            "parameters": map_leaves(own_copy, parameters),
            "optimizer": self.recipe.optimizer.init(parameters),
            "step": number,
        }
        if self.recipe.carry:
            state["carried"] = map_leaves(own_copy, carried)
        if self.recipe.micro_batches > 1:
            dtype = self.recipe.optimizer.gradient_dtype
            wide = map_leaves(lambda p: as_dtype(p, dtype or p.dtype), parameters)
            state["accumulated"] = zeros_like(wide)
        if self.recipe.loss_scale is not None:
            first = np.array(self.recipe.loss_scale.initial, np.float32)
            state["scale"] = Spec((), "float32") if specs else first
            state["good_steps"] = own_copy(number)
        if self.backend is NUMPY or specs:
            return state
        return {
            key: map_leaves(partial(to_backend, self.backend), tree) for key, tree in state.items()
        }

    def graph(self, state: State, *batch: Any, part: Part = "whole", **named: Any) -> TrainingGraph:
        """Return the graph of a step, or of one micro-batch of it.

        Args:
            state: as ``init`` returns it.
            batch, named: the loss's other arguments, arrays or specs; of one micro-batch.
            part: the micro-batch, where there are several: ``first``, ``middle`` or ``last``.
        """
        return step_graph(self.recipe, self.call_with(state, batch, named), state, part)

    def schedule(self, state: State, *batch: Any, part: Part = "whole", **named: Any) -> Schedule:
        """Return the schedule of a step, for inspection; arguments as of ``graph``."""
        return plan(self.graph(state, *batch, part=part, **named), self.policy, **self.options)

    @short_traceback
    def __call__(self, state: State, *batch: Any, **named: Any) -> tuple[State, Any]:
        """Take a step; return the state, updated in place, and the loss's value.

        Raises:
            GraphError: if the step cannot write to the state, or an argument does not fit.
            BackendError: if a kernel fails, or makes a NaN with ``check_nan``.

        If it is interrupted, by one of these or by Ctrl-C, the state may be updated in part. It
        then has an entry ``mixed``: no step accepts it, and ``save_params`` does not save it.
        """
        self.check(state, (*batch, named))
        try:
            return state, self.value_of(state, batch, named)
        except BaseException as error:
            if is_mixed(state):
                error.add_note(f"The state must not be used as it is: {MIXED_STATE_ADVICE}.")
            raise

    def value_of(self, state: State, batch: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Take a step, whole or micro-batch by micro-batch; return the loss's value."""
        count = self.recipe.micro_batches
        if count == 1:
            return self.take(state, batch, named, "whole")
        parts: list[Part] = ["first", *["middle"] * (count - 2), "last"]  # type: ignore[list-item]
        values = [
            self.take(
                state,
                tuple(micro_batch(tree, number, count) for tree in batch),
                {key: micro_batch(tree, number, count) for key, tree in named.items()},
                part,
            )
            for number, part in enumerate(parts)
        ]
        mean = self.backend.xp.asarray
        return tree_map(lambda *group: mean(sum(group) / count), *values)

    def take(
        self, state: State, batch: tuple[Any, ...], named: Mapping[str, Any], part: Part
    ) -> Any:
        """Run the program of one part of a step."""
        call = self.call_with(state, batch, named)
        own = map_leaves(as_array, call.arguments[1 + self.recipe.carry :])
        if self.backend is not NUMPY:
            own = map_leaves(partial(to_backend, self.backend), own)
        arrays = (state["parameters"], without_parameters(state), *own)
        program, written = self.program_for(call, state, arrays, part)
        flat = leaves(arrays)
        writes = Writes(state, {id(flat[place]) for place in written}, part in ("whole", "last"))
        token = WRITES.set(writes)
        overflows = self.recipe.loss_scale is not None
        try:
            with np.errstate(
                over="ignore" if overflows else None, invalid="ignore" if overflows else None
            ):
                if self.check_nan:
                    value = self.watched(program.schedule, arrays)
                else:
                    (_, value), _ = program.evaluate(*arrays)
        finally:
            WRITES.reset(token)
        return map_leaves(partial(owned_result, owner_ids(flat, program.constants)), value)

    def program_for(
        self, call: Call, state: State, arrays: tuple[Any, ...], part: Part
    ) -> tuple[Compiled, list[int]]:
        """Return the program for arrays of these shapes, and the positions of those it updates.

        It is compiled on first use and cached. Gradient accumulators do not count as updated.
        """
        key = cache_key(arrays), call.places, call.static, part

        def made() -> tuple[Compiled, list[int]]:
            graph = step_graph(self.recipe, call, state, part)
            written = updated_sources(graph) - {*leaves(graph.arguments[1].get("accumulated"))}
            places = [n for n, data in enumerate(leaves(graph.arguments)) if data in written]
            schedule = plan(graph, self.policy, **self.options)
            return compile(schedule, self.backend, self.arena), places

        return self._programs.get(key, made)

    def watched(self, schedule: Schedule, arrays: tuple[Any, ...]) -> Any:
        """Run a schedule operator by operator, and fail at the first NaN."""
        graph = schedule.graph
        sources = bind_sources(graph, arrays)
        watcher = Watcher(graph, sources, self.backend.xp)

        def watch(position: int, index: int, results: tuple[Any, ...]) -> None:
            if defect := watcher.defect(index, results):
                operator = graph.operators[index]
                where = f"step {position}: {operator.name}, a {operator.kind}"
                inside = f" in {operator.scope}" if operator.scope else ""
                raise BackendError(f"{where}{inside}, made the first {defect}")

        values, _ = execute(computed_anew(schedule), sources, self.backend, watch=watch)
        return map_leaves(values.__getitem__, graph.results[1])

    def call_with(self, state: State, batch: tuple[Any, ...], named: Mapping[str, Any]) -> Call:
        """Return the call of the loss on a state and a batch."""
        self.check_entries(state)
        carried = (state["carried"],) if self.recipe.carry else ()
        return split_call(self.loss, (state["parameters"], *carried, *batch), named, self.static)

    def check_entries(self, state: State) -> None:
        """Raise a GraphError if the state lacks an entry, such as that of a step without it."""
        given = set(state) if isinstance(state, dict) else set()
        if missing := sorted(self.recipe.entries - given):
            raise GraphError(
                "the state: expected what step.init(parameters) returned, of a step with these "
                f"options; it has no {missing[0]!r}"
            )

    def check(self, state: State, batch: Tree) -> None:
        """Raise a GraphError unless the state's arrays are writable and do not alias each other.

        Nor may the batch alias one: its values would change during the step.
        """
        self.check_entries(state)
        if is_mixed(state):
            raise GraphError(f"the state: {MIXED_STATE_ADVICE}")
        spans = []
        for path, leaf in leaves_with_paths(state, "state"):
            if not isinstance(leaf, self.backend.xp.ndarray) or not leaf.flags.c_contiguous:
                raise GraphError(
                    f"{path}: expected a C-contiguous array of {self.backend.name}, which the step "
                    f"updates in place, got {type(leaf).__name__}"
                )
            if self.backend.xp is np:
                if not leaf.flags.writeable:
                    raise GraphError(
                        f"{path}: the array is read-only; the step updates it in place"
                    )
                spans.append((*byte_bounds(leaf), path))
        spans.sort()
        for (_, end, path), (begin, _, other) in pairwise(spans):
            if begin < end:
                raise GraphError(f"{path} and {other} share memory; each must have its own")
        for path, leaf in leaves_with_paths(batch, "the batch") if spans else ():
            if isinstance(leaf, np.ndarray):
                begin, end = byte_bounds(leaf)
                _, last, other = spans[max(bisect_left(spans, (end,)) - 1, 0)]
                if begin < last and spans[0][0] < end:
                    raise GraphError(
                        f"{path} shares memory with {other}, which the step updates; pass a copy"
                    )


def own_copy(leaf: Any) -> Any:
    """Return a C-contiguous copy of an array; a spec as it is."""
    return leaf if isinstance(leaf, Spec) else np.array(leaf, order="C")


def micro_batch(tree: Tree, number: int, count: int) -> Tree:
    """Return one micro-batch, split along the first axis; scalars are the same in all."""

    def part(leaf: Any) -> Any:
        if getattr(leaf, "ndim", 0) == 0:
            return leaf
        size, remainder = divmod(len(leaf), count)
        if remainder or not size:
            raise GraphError(
                f"a batch of {len(leaf)} cannot be split into {count} micro-batches of equal size"
            )
        return leaf[number * size : (number + 1) * size]

    return map_leaves(part, tree)
