"""Saving and resuming of pipeline training: gather the state from devices, scatter it to them.

The whole state has the form that ``TrainStep.init`` returns: a tree of parameters, optimiser state
and the number of steps taken. A device has flat arrays, or shards of them. The optimiser state has
any nesting; the parameter that each of its arrays belongs to is found by tracing ``init`` on
parameters of distinct shapes: parameter n has shape (n + 1,), so an array of that shape is its.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import Tree, leaves, leaves_like, map_leaves
from tinyckpt.pipeline.parameter_shards import Parameters, whole_of
from tinyckpt.training.optimizers import Optimizer

STATE = ("parameters", "optimizer", "step")
MOST_STEPS = 2**62  # an int64 counts them


@dataclass(frozen=True, slots=True)
class Slot:
    """The key of one array of an optimiser's state.

    Attributes:
        data: data id of its parameter; NOBODY for a scalar shared by all.
        number: index among the arrays of that parameter.
        dtype: of the array.
    """

    data: int
    number: int
    dtype: Any


NOBODY = -1


def slots_of(optimizer: Optimizer, parameters: Tree, known: Parameters) -> Tree:
    """Return an optimiser's state for parameters, given by data ids, with Slots for its arrays.

    Raises:
        OptionError: if the state has an array that is neither a scalar nor of a parameter's shape.
    """
    ids = leaves(parameters)
    place = {data: number for number, data in enumerate(ids)}
    told = map_leaves(lambda data: Spec((place[data] + 1,), known.spec(data).dtype), parameters)
    counts: dict[int, int] = {}

    def slot(leaf: Any) -> Slot:
        if len(leaf.shape) > 1 or (leaf.shape and not 0 < leaf.shape[0] <= len(ids)):
            raise OptionError(
                f"{optimizer.name}: its state has an array that is not of a parameter's shape; in "
                "a pipeline the state may have arrays of that shape, and scalars"
            )
        data = ids[leaf.shape[0] - 1] if leaf.shape else NOBODY
        counts[data] = counts.get(data, -1) + 1
        return Slot(data, counts[data], np.dtype(leaf.dtype))

    return map_leaves(slot, optimizer.init(told))


class Resumed(NamedTuple):
    """The optimiser state to resume from.

    Attributes:
        arrays: of the optimiser's state, whole, in the shapes of their parameters.
        step: number of steps taken.
    """

    arrays: dict[Slot, Any]
    step: int


def checked_state(state: Any, optimizer: Optimizer | None, known: Parameters) -> Resumed:
    """Validate a training state, and return the optimiser state to resume from.

    Its parameters are validated later, as arguments.

    Raises:
        OptionError: if there is no optimiser, or the state belongs to another one or to other
            parameters.
        GraphError: if the nesting differs.
    """
    if optimizer is None:
        raise OptionError("a state is for an optimizer, which is not given")
    if not isinstance(state, dict) or set(state) != set(STATE):
        got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise OptionError(
            f"the state: expected a dict of {', '.join(STATE)}, as a result's state is; got {got}"
        )
    slots = slots_of(optimizer, known.whole.arguments[0], known)
    arrays: dict[Slot, Any] = {}
    slot: Any
    for slot, path, leaf in leaves_like(slots, state["optimizer"], "state['optimizer']"):
        spec = Spec(known.spec(slot.data).shape if slot.data != NOBODY else (), slot.dtype)
        fits = isinstance(leaf, np.ndarray | np.generic) and leaf.dtype == spec.dtype
        if not fits or tuple(leaf.shape) != spec.shape:
            raise OptionError(f"{path}: expected an array of {spec}, got {leaf!r:.80}")
        arrays[slot] = leaf
    step = state["step"]
    number = np.asarray(step) if isinstance(step, int | np.ndarray | np.integer) else None
    if number is None or number.dtype.kind not in "iu" or number.shape:
        raise OptionError(f"state['step']: expected the number of steps taken, got {step!r:.80}")
    if not 0 <= int(number) < MOST_STEPS:
        raise OptionError(f"state['step'] is {step!r:.80}; it must be from 0 to 2**62 - 1")
    return Resumed(arrays, int(number))


def whole_state(
    optimizer: Optimizer,
    known: Parameters,
    parameters: Tree,
    replicas: Sequence[dict[Slot, Any]],
    step: int,
) -> dict[str, Any]:
    """Assemble the training state from the arrays of the devices.

    Args:
        optimizer: of the state.
        known: the parameters of all stages.
        parameters: after the last step, whole.
        replicas: flat optimiser arrays: the shards of all replicas, in order; or those of one
            replica, where they are not sharded.
        step: number of steps taken.
    """
    slots = slots_of(optimizer, known.whole.arguments[0], known)
    arrays: dict[Slot, Any] = {}
    for slot in leaves(slots):
        parts = [own[slot] for own in replicas]
        if slot.data == NOBODY:
            arrays[slot] = parts[0]
        else:
            flat = np.concatenate(parts) if len(parts) > 1 else parts[0]
            arrays[slot] = whole_of(flat, Spec(known.spec(slot.data).shape, slot.dtype))
    return {
        "parameters": parameters,
        "optimizer": map_leaves(arrays.__getitem__, slots),
        "step": np.array(step, np.int64),
    }
