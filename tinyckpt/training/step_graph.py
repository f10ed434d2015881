"""Graph of a whole training step: loss, gradients, loss scaling, accumulation, optimiser updates.

Three phases. The loss is traced and differentiated like any other. The optimiser's operators are
appended to the backward pass, with an update for each value of the state that changes. Then they
move to where their inputs are complete, so that a gradient is freed as soon as its parameter has
been updated (a fused optimiser, or optimiser in the backward pass; see ``optimizer_in_backward``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np

from tinyckpt.base.calls import Call, function_name
from tinyckpt.base.errors import GraphError, OptionError
from tinyckpt.base.interrupted_step import STATE_ENTRIES, without_parameters
from tinyckpt.base.tree import Tree, leaves, leaves_like, map_leaves, tree_map
from tinyckpt.core.autodiff import add_backward_pass, loss_of
from tinyckpt.core.graph import Graph, TrainingGraph
from tinyckpt.core.tracing import Builder, Var, apply, as_var, trace
from tinyckpt.ops.casting import astype
from tinyckpt.ops.elementwise import add, maximum, minimum, multiply, where
from tinyckpt.ops.logic import isfinite, logical_and
from tinyckpt.ops.parameter_update import assign
from tinyckpt.ops.reduce import max, min
from tinyckpt.ops.shape import CONTIGUOUS
from tinyckpt.planner.heuristics.backward_order import renumber_operators
from tinyckpt.training.optimizer_in_backward import SCOPE, beside, is_of_optimizer, placed
from tinyckpt.training.optimizers import Optimizer, numbers

# Gradient accumulation: the first micro-batch stores its gradients, those in the middle add theirs,
# the last one adds its own and passes the sum to the optimiser.
Part = Literal["whole", "first", "middle", "last"]


@dataclass(frozen=True, slots=True)
class LossScale:
    """Dynamic loss scaling against underflow of 16-bit gradients; steps that overflow are skipped.

    Gradients are unscaled in the optimiser's gradient dtype: with ``with_master_weights`` in
    float32, otherwise in their own 16 bits, where they underflow after all.

    Attributes:
        initial: the initial scale.
        growth_interval: steps without an overflow after which the scale doubles.
        largest: upper bound of the scale. By default 2**24, which lifts gradients down to 2**-48
            into the range of float16; at most 2**126, whose inverse float32 can represent.
        smallest: lower bound of the scale. By default 1, which is no scaling: an overflow there is
            not caused by the scale. Without a bound, some 160 steps with a NaN make it 0, and
            nothing is ever finite again (PyTorch's GradScaler has no such bound; DeepSpeed and
            Megatron-LM have this one).

    After an overflow the scale halves, and nothing else of the state changes, except carried values
    of the micro-batches before it.

    Raises:
        OptionError: if a number is out of its range.

    Source: Micikevicius et al., "Mixed precision training", arXiv 1710.03740, section 3.2.

    >>> import numpy as np, tinyckpt as tc
    >>> step = tc.train_step(lambda w, x: tc.sum(w * x), tc.sgd(0.1), loss_scale=tc.LossScale(8.0))
    >>> state, _ = step(step.init(np.ones(1, np.float32)), np.array([np.inf], np.float32))
    >>> float(state["scale"]), state["parameters"].tolist()  # overflow: halved, step skipped
    (4.0, [1.0])
    """

    initial: float = 2.0**15
    growth_interval: int = 2000
    largest: float = 2.0**24
    smallest: float = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.largest, int | float) and 0 < self.largest <= 2.0**126):
            raise OptionError(f"largest={self.largest!r}; it must be above 0 and at most 2**126")
        if not (isinstance(self.smallest, int | float) and 0 < self.smallest <= self.largest):
            raise OptionError(
                f"smallest={self.smallest!r}; it must be a number above 0, and at most the largest "
                f"scale, {self.largest!r}"
            )
        known = isinstance(self.initial, int | float)
        if not (known and self.smallest <= self.initial <= self.largest):
            raise OptionError(
                f"initial={self.initial!r}; it must be a number from the smallest scale, "
                f"{self.smallest!r}, to the largest, {self.largest!r}"
            )
        if type(self.growth_interval) is not int or self.growth_interval < 1:
            raise OptionError(
                f"growth_interval={self.growth_interval!r}; it must be an integer of 1 or more"
            )


@dataclass(frozen=True, slots=True)
class Recipe:
    """The configuration of a training step.

    Attributes:
        optimizer: maps gradients to new parameters.
        gradients: ``consumed`` each as soon as it is computed, or ``held`` until all are.
        micro_batches: number of micro-batches of a batch.
        loss_scale: dynamic factor of the loss; None for 1.
        carry: whether the loss takes and returns a tree of values next to the parameters.
    """

    optimizer: Optimizer
    gradients: Literal["consumed", "held"] = "consumed"
    micro_batches: int = 1
    loss_scale: LossScale | None = None
    carry: bool = False

    @property
    def entries(self) -> set[str]:
        """Entries of the state, as ``TrainStep.init`` makes it."""
        optional = {
            "carried": self.carry,
            "accumulated": self.micro_batches > 1,
            "scale": self.loss_scale is not None,
            "good_steps": self.loss_scale is not None,
        }
        return {*STATE_ENTRIES, *(entry for entry, used in optional.items() if used)}


def step_graph(recipe: Recipe, call: Call, state: Mapping[str, Tree], part: Part) -> TrainingGraph:
    """Build the graph of a training step; its results are (updates, value).

    Its arguments are the parameters, the rest of the state, and the batch.

    Args:
        recipe: configuration of the step.
        call: of the loss; its arguments begin with the parameters and the carried values.
        state: as ``TrainStep.init`` makes it.
        part: the micro-batch that it is for.

    Raises:
        GraphError: if the loss cannot be traced or differentiated, or does not return what the
            recipe says.
    """
    traced = whole_call(recipe, call, state)
    graph = add_backward_pass(trace(traced, function_name(call.function)), owned=False)
    if any(map(is_of_optimizer, graph.operators)):
        raise GraphError(
            f"{graph.name}: the scope {SCOPE!r} is for what train_step adds; rename it"
        )
    builder = Builder.reopen(graph)
    with builder.active(), builder.backward_half(), builder.scoped(SCOPE):
        writer = UpdateWriter(recipe, builder, graph, part)
        updates = writer.updates()
    ids = map_leaves(lambda variable: variable.node.id, (updates, writer.value))
    sealed = beside(builder.seal(graph.arguments, ids))
    return TrainingGraph(renumber_operators(sealed, placed(sealed, recipe.gradients == "held")))


def whole_call(recipe: Recipe, call: Call, state: Mapping[str, Tree]) -> Call:
    """Return the call to be traced: the loss, with the whole state among its arguments."""
    carried = 1 + recipe.carry
    parameters, batch = call.arguments[0], call.arguments[carried:]

    def function(parameters: Tree, state: Tree, *batch: Tree) -> Tree:
        own = (parameters, state["carried"]) if recipe.carry else (parameters,)
        result = call.again([*own, *batch])
        loss = loss_of(function_name(call.function), result)
        if recipe.loss_scale is not None:
            loss = multiply(loss, astype(state["scale"], loss.dtype))
        return loss, result

    names = [call.names[0], "state", *call.names[carried:]]
    if len(set(names)) == len(names) and all(map(str.isidentifier, names)):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in names]
        )
    arguments = (parameters, without_parameters(state), *batch)
    return Call(function, arguments, {}, tuple(range(len(arguments))))


class UpdateWriter:
    """Builder of the optimiser's operators, after those of a loss and its gradients."""

    def __init__(self, recipe: Recipe, builder: Builder, graph: Graph, part: Part) -> None:
        self.recipe, self.part = recipe, part
        parameters, rest = map_leaves(builder.var, graph.arguments[:2])
        self.state = {**rest, "parameters": parameters}
        self.gradients = map_leaves(builder.var, graph.gradients)
        result = map_leaves(builder.var, graph.results[1])
        self.value, self.carried = result, None
        if recipe.carry:
            if not isinstance(result, tuple) or len(result) < 2:
                raise GraphError(
                    f"{graph.name} must return a tuple (loss, carried, ...) with carry=True, and "
                    "returned none"
                )
            self.carried = result[1]
            self.value = (result[0], *result[2:]) if len(result) > 2 else result[0]

    def updates(self) -> Tree:
        """Add the operators of this part of a step; return the new values of the state."""
        changed: dict[str, Tree] = {}
        if self.recipe.carry:
            changed["carried"] = self.carried
        is_part = self.recipe.micro_batches > 1
        gradients = self.summed() if is_part else self.gradients
        finite = None if self.recipe.loss_scale is None else all_finite(gradients)
        if self.part in ("first", "middle"):
            changed = changed if finite is None else self.where_finite(finite, changed)
            changed["accumulated"] = gradients
        else:
            own = self.recipe.optimizer
            step = self.state["step"]
            if finite is not None:
                # This makes the optimiser wait for the flag: the gradients themselves stay in
                # memory until then, and not values derived from them.
                gradients = map_leaves(lambda g: where(finite, g, 0), gradients)
            if not is_part:
                gradients = self.unscaled(gradients)
            pair = own.update(gradients, self.state["optimizer"], self.state["parameters"], step)
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise GraphError(
                    f"{own.name}: update must return (parameters, state), not {pair!r:.80}"
                )
            changed["parameters"], changed["optimizer"] = pair
            changed["step"] = step + 1
            if self.recipe.loss_scale is not None:
                changed = self.where_finite(finite, changed)
                changed.update(self.next_scale(finite, self.recipe.loss_scale))
        return self.with_old(self.assigned, changed)

    def unscaled(self, gradients: Tree) -> Tree:
        """Cast gradients to the optimiser's gradient dtype, and divide by the loss scale.

        The cast comes first: unscaled gradients may underflow in 16 bits.
        """
        if (dtype := self.recipe.optimizer.gradient_dtype) is not None:
            gradients = map_leaves(lambda g: astype(g, dtype), gradients)
        if self.recipe.loss_scale is not None:
            inverse = numbers(1.0 / self.state["scale"])
            gradients = map_leaves(lambda g: multiply(g, inverse(g)), gradients)
        return gradients

    def summed(self) -> Tree:
        """Accumulate gradients: 1/M of this micro-batch's, plus those of the ones before it."""
        share = 1.0 / self.recipe.micro_batches
        gradients = map_leaves(lambda g: multiply(g, share), self.unscaled(self.gradients))
        if self.part in ("middle", "last"):
            gradients = tree_map(add, self.state["accumulated"], gradients)
        return gradients

    def with_old(
        self, function: Callable[[Var, Var], Var], changed: dict[str, Tree]
    ) -> dict[str, Tree]:
        """Map a function over old and new values of the state, in the nesting of the old.

        Raises:
            GraphError: names the entry whose new values have another nesting.
        """
        found = {}
        for key, tree in changed.items():
            try:
                list(leaves_like(self.state[key], tree, key))
            except GraphError as error:
                why = "the new state must have the nesting of the old"
                raise GraphError(f"{error}: {why}") from None
            found[key] = tree_map(function, self.state[key], tree)
        return found

    def where_finite(self, finite: Any, changed: dict[str, Tree]) -> dict[str, Tree]:
        """Select new values if all gradients are finite, else the old ones."""
        return self.with_old(lambda was, new: where(finite, new, was), changed)

    def next_scale(self, finite: Any, scale: LossScale) -> dict[str, Tree]:
        """Return the next scale: halved after an overflow, doubled after a growth interval."""
        good = self.state["good_steps"] + 1
        grows = good >= scale.growth_interval
        factor = where(finite, where(grows, 2.0, 1.0), 0.5)
        changed = self.state["scale"] * astype(factor, self.state["scale"].dtype)
        return {
            "scale": maximum(minimum(changed, scale.largest), scale.smallest),
            "good_steps": where(logical_and(finite, good < scale.growth_interval), good, 0),
        }

    def assigned(self, was: Var, now: Var) -> Var:
        """Assign a new value of the state to the memory of the old one."""
        return was if now is was else assign(was, self.own_memory(now))

    def own_memory(self, variable: Var) -> Var:
        """Copy a value that is a view of an argument, whose memory may be overwritten first.

        For example, a loss may swap two carried values.
        """
        node = variable.node
        while node.view_of is not None:
            node = variable.builder.data[node.view_of]
        return apply(CONTIGUOUS, variable) if node.is_source else variable


def all_finite(gradients: Tree) -> Any:
    """Return whether every element of the gradients is finite, which it is if there are none."""
    # The largest and the smallest are not finite if any element is not.
    ends = [end(g) for g in leaves(gradients) for end in (max, min)]
    return reduce(logical_and, map(isfinite, ends)) if ends else as_var(np.asarray(True))
