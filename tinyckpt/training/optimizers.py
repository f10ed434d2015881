"""Optimisers: SGD, momentum, Adam, AdamW, gradient clipping, master weights; as pure functions.

As in Optax, an optimiser is a pair of functions: ``init`` makes its state, ``update`` maps
gradients, state and parameters to new parameters and state. It stores nothing itself;
``train_step`` traces it into the graph, where a schedule includes it. It can be pickled if its
learning rate can: a function defined in a module, not a lambda.

>>> import numpy as np, tinyckpt as tc
>>> def loss(params, x):
...     return tc.half_squared_norm(params["w"] - x)
>>> step = tc.train_step(loss, tc.sgd(0.5))
>>> state = step.init({"w": np.zeros(2)})
>>> state, value = step(state, np.array([1.0, 2.0]))
>>> float(value), state["parameters"]["w"].tolist(), int(state["step"])
(2.5, [0.5, 1.0], 1)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from tinyckpt.base.errors import GraphError, OptionError
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import Tree, leaves, leaves_like, map_leaves, tree_map
from tinyckpt.core.tracing import Var, as_var
from tinyckpt.ops.casting import astype
from tinyckpt.ops.elementwise import add, maximum, minimum, multiply, power, sqrt
from tinyckpt.ops.parameter_update import (
    adam_step,
    descend,
    moving_average,
    moving_square,
    moving_sum,
)
from tinyckpt.ops.reduce import sum

# A learning rate: a number, or a function of the number of steps taken so far, an int64 Var.
Rate = float | Callable[["Var"], "Var"]
# From (gradients, state, parameters, step) to (parameters, state).
Update = Callable[[Tree, Tree, Tree, "Var"], tuple[Tree, Tree]]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An update rule of parameters, as two pure functions.

    Attributes:
        name: for pictures and tables.
        init: from the parameters, arrays or specs, to the initial state.
        update: from (gradients, state, parameters, step) to (parameters, state), Vars in the same
            nesting; ``step`` is the number of steps taken so far, int64.
        gradient_dtype: dtype that gradients are cast to first; None for their own dtype, which is
            that of the parameters.

    >>> import tinyckpt as tc
    >>> def sign_update(gradients, state, parameters, step):
    ...     return [p - 0.1 * tc.sign(g) for p, g in zip(parameters, gradients)], state
    >>> signs = tc.Optimizer("sign sgd", lambda parameters: (), sign_update)
    >>> step = tc.train_step(lambda params, x: tc.sum(params[0] * x), signs)
    >>> import numpy as np
    >>> state, _ = step(step.init([np.zeros(2)]), np.array([3.0, -5.0]))
    >>> state["parameters"][0].tolist()
    [-0.1, 0.1]
    """

    name: str
    init: Callable[[Tree], Tree]
    update: Update
    gradient_dtype: str | None = None


def sgd(rate: Rate, momentum: float = 0.0) -> Optimizer:
    """Stochastic gradient descent: ``v = momentum v + g``, ``p = p - rate v``.

    Args:
        rate: the learning rate, or a function of the step.
        momentum: 0 for none; then there is no state.

    Raises:
        OptionError: if a number is out of its range.

    >>> import numpy as np, tinyckpt as tc
    >>> step = tc.train_step(lambda w, x: tc.half_squared_norm(w - x), tc.sgd(0.5))
    >>> state, _ = step(step.init(np.zeros(2)), np.array([1.0, 2.0]))
    >>> state["parameters"].tolist()
    [0.5, 1.0]
    """
    check(rate=(rate, 0, None), momentum=(momentum, 0, 1))
    update = partial(sgd_update, rate, momentum)
    if momentum:
        return Optimizer("momentum", zeros_like, update)
    return Optimizer("sgd", no_state, update)


def no_state(parameters: Tree) -> Tree:
    """Return the empty state."""
    return ()


def sgd_update(
    rate: Rate, momentum: float, gradients: Tree, state: Tree, parameters: Tree, step: Var
) -> tuple[Tree, Tree]:
    """Return parameters and state after a step of gradient descent."""
    check_state("momentum" if momentum else "sgd", gradients if momentum else (), state)
    rates = rates_at(rate, step)
    if momentum:
        state = tree_map(lambda v, g: moving_sum(v, g, momentum), state, gradients)
        gradients = state
    return tree_map(lambda p, g: descend(p, g, rates(p)), parameters, gradients), state


def momentum(rate: Rate, decay: float = 0.9) -> Optimizer:
    """Gradient descent with momentum: ``sgd(rate, decay)``.

    >>> import numpy as np, tinyckpt as tc
    >>> tc.momentum(0.1).init({"w": np.ones(2)})
    {'w': array([0., 0.])}
    """
    return sgd(rate, decay)


def adam(rate: Rate, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Optimizer:
    """Adam: moving averages of gradients and of their squares; two values per parameter element.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", arXiv 1412.6980,
    algorithm 1.

    Raises:
        OptionError: if a number is out of its range.

    >>> import numpy as np, tinyckpt as tc
    >>> sorted(tc.adam(1e-3).init({"w": np.ones(2)}))
    ['mean', 'square']
    """
    return adamw(rate, beta1, beta2, epsilon, weight_decay=0.0)


def adamw(
    rate: Rate,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> Optimizer:
    """AdamW: Adam with decoupled weight decay.

    Source: Loshchilov and Hutter, "Decoupled weight decay regularization", arXiv 1711.05101,
    algorithm 2, with the rate of the schedule as eta times alpha.

    Raises:
        OptionError: if a number is out of its range.

    >>> import tinyckpt as tc
    >>> tc.adamw(1e-3).name, tc.adamw(1e-3, weight_decay=0).name
    ('adamw', 'adam')
    """
    check(
        rate=(rate, 0, None), beta1=(beta1, 0, 1), beta2=(beta2, 0, 1), epsilon=(epsilon, 0, None),
        weight_decay=(weight_decay, 0, None),
    )  # fmt: skip

    update = partial(adam_update, rate, (beta1, beta2), epsilon, weight_decay)
    return Optimizer("adamw" if weight_decay else "adam", zero_moments, update)


def zero_moments(parameters: Tree) -> Tree:
    """Return Adam's state before the first step: both moving averages are 0."""
    return {"mean": zeros_like(parameters), "square": zeros_like(parameters)}


def adam_update(
    rate: Rate,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
    gradients: Tree,
    state: Tree,
    parameters: Tree,
    step: Var,
) -> tuple[Tree, Tree]:
    """Return parameters and state after a step of Adam."""
    name = "adamw" if weight_decay else "adam"
    check_state(name, {"mean": gradients, "square": gradients}, state)
    rates = rates_at(rate, step)
    corrections = [numbers(1.0 - power(beta, astype(step, "float64") + 1.0)) for beta in betas]
    mean = tree_map(lambda m, g: moving_average(m, g, betas[0]), state["mean"], gradients)
    square = tree_map(lambda v, g: moving_square(v, g, betas[1]), state["square"], gradients)

    def moved(p: Var, m: Var, v: Var) -> Var:
        first, second = (correction(p) for correction in corrections)
        return adam_step(p, m, v, rates(p), (first, second), epsilon, weight_decay)

    return tree_map(moved, parameters, mean, square), {"mean": mean, "square": square}


# Transformations of optimisers --------------------------------------------------------------------


def check_optimizer(optimizer: object) -> None:
    """Raise an OptionError unless the value is an optimiser."""
    if not isinstance(optimizer, Optimizer):
        raise OptionError(f"optimizer: expected one such as tc.adamw(1e-3), got {optimizer!r:.80}")


def clipped(optimizer: Optimizer, norm: float) -> Optimizer:
    """Gradient clipping by global norm, before an optimiser's update.

    No parameter can be updated before the last gradient is computed: all are in memory at once.

    Raises:
        OptionError: if the norm is not positive, or for what is no optimiser.

    >>> import numpy as np, tinyckpt as tc
    >>> step = tc.train_step(lambda w, x: tc.sum(w * x), tc.clipped(tc.sgd(1.0), norm=1.0))
    >>> state, _ = step(step.init(np.zeros(2)), np.array([3.0, 4.0]))
    >>> state["parameters"].round(3).tolist()
    [-0.6, -0.8]
    """
    check_optimizer(optimizer)
    check(norm=(norm, 0, None))
    if norm == 0:
        raise OptionError(f"norm={norm!r}; it must be more than 0")

    update = partial(clipped_update, optimizer.update, norm)
    return replace(optimizer, name=f"{optimizer.name}, clipped to {norm:g}", update=update)


def clipped_update(
    own: Update, norm: float, gradients: Tree, state: Tree, parameters: Tree, step: Var
) -> tuple[Tree, Tree]:
    """Return parameters and state after a step with clipped gradients."""
    squares = [astype(sum(multiply(g, g)), "float64") for g in leaves(gradients)]
    if not squares:
        return own(gradients, state, parameters, step)
    scale = minimum(1.0, norm / maximum(sqrt(reduce(add, squares)), 1e-6))
    scales = numbers(scale)
    return own(map_leaves(lambda g: multiply(g, scales(g)), gradients), state, parameters, step)


MASTERS = "float32", "float64"  # more than 16 bits


def with_master_weights(optimizer: Optimizer, dtype: str = "float32") -> Optimizer:
    """Mixed precision: keep a master copy of 16-bit parameters in 32 bits or more, and update that.

    Gradients are cast first: loss unscaling and gradient accumulation happen in the dtype of the
    copy.

    Args:
        optimizer: updates the copy.
        dtype: of the copy: ``float32`` or ``float64``.

    Raises:
        OptionError: for another dtype of the copy, or what is no optimiser.

    Source: Micikevicius et al., "Mixed precision training", arXiv 1710.03740, section 3.1.

    >>> import numpy as np, tinyckpt as tc
    >>> optimizer = tc.with_master_weights(tc.sgd(0.1))
    >>> optimizer.init(np.zeros(2, np.float16))["master"].dtype
    dtype('float32')
    """
    check_optimizer(optimizer)
    if dtype not in MASTERS:
        raise OptionError(f"dtype={dtype!r:.80}; master weights are {' or '.join(MASTERS)}")

    init = partial(with_masters, optimizer.init, dtype)
    update = partial(masters_update, optimizer.update, dtype)
    return Optimizer(f"{optimizer.name} with {dtype} master weights", init, update, dtype)


def with_masters(own: Callable[[Tree], Tree], dtype: str, parameters: Tree) -> Tree:
    """Return the master copy of the parameters, and the state of the optimiser that updates it."""
    master = map_leaves(lambda leaf: as_dtype(leaf, dtype), parameters)
    return {"master": master, "own": own(master)}


def masters_update(
    own: Update, dtype: str, gradients: Tree, state: Tree, parameters: Tree, step: Var
) -> tuple[Tree, Tree]:
    """Return parameters and state after a step of the master copy."""
    kept = state.get("own") if isinstance(state, dict) else None  # of any nesting
    check_state(f"one with {dtype} master weights", {"master": gradients, "own": kept}, state)
    wide = map_leaves(lambda g: astype(g, dtype), gradients)
    master, kept = own(wide, state["own"], state["master"], step)
    narrow = tree_map(lambda m, p: astype(m, p.dtype), master, parameters)
    return narrow, {"master": master, "own": kept}


# Trees and numbers --------------------------------------------------------------------------------


def check_state(name: str, template: Tree, state: Tree) -> None:
    """Raise a GraphError unless the state has the nesting of an optimiser's: it may be another's.

    Args:
        name: of the optimiser.
        template: a tree of the nesting that its ``init`` makes.
        state: the state that a step was given, such as one loaded from a file.
    """
    try:
        list(leaves_like(template, state, "state['optimizer']"))
    except GraphError as error:
        raise GraphError(f"{error}; the state was made for another optimizer than {name}") from None


def zeros_like(tree: Tree) -> Tree:
    """Return C-contiguous zeros in the place of arrays; specs as they are."""
    return map_leaves(lambda x: x if isinstance(x, Spec) else np.zeros_like(x, order="C"), tree)


def as_dtype(leaf: Any, dtype: str) -> Any:
    """Return an array, or a spec, in another dtype; C-contiguous, never the array itself."""
    return Spec(leaf.shape, dtype) if isinstance(leaf, Spec) else np.array(leaf, dtype, order="C")


def numbers(value: Any) -> Callable[[Var], Var]:
    """Return a function that casts a scalar to an array's dtype, memoised by dtype."""
    known: dict[Any, Var] = {}

    def number(like: Var) -> Var:
        if like.dtype not in known:
            known[like.dtype] = astype(value, like.dtype)
        return known[like.dtype]

    return number


def rates_at(rate: Rate, step: Var) -> Callable[[Var], Var]:
    """Return a function that gives the learning rate of a step in the dtype of an array."""
    return numbers(as_var(rate(step) if callable(rate) else np.asarray(float(rate))))


def check(**options: tuple[Any, float, float | None]) -> None:
    """Raise an OptionError unless every number is within its bounds; a rate may be a function."""
    for name, (value, least, most) in options.items():
        if name == "rate" and callable(value):
            continue
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not is_number or not value >= least or not (most is None or value < most):
            below = "" if most is None else f" and below {most}"
            raise OptionError(f"{name}={value!r}; it must be a number of {least} or more{below}")
