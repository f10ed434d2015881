"""The state of training as a whole, and what devices hold of it.

As a whole it is what ``TrainStep.init`` returns: parameters, the optimiser's state and the number
of steps taken, each in its nesting. A device has flat arrays, or shares of them. An optimiser's
state has any nesting; which parameter each array of it belongs to is found by giving parameters
shapes that tell them apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.base.tree import Template, Tree, fill, leaves, leaves_like, map_leaves
from tinyckpt.core.graph import Spec
from tinyckpt.pipeline.shares import Parameters, whole_of
from tinyckpt.training.optimizers import Optimizer

STATE = ("parameters", "optimizer", "step")
MOST_STEPS = 2**62  # an int64 counts them


class Slot(NamedTuple):
    """One array of an optimiser's state.

    Attributes:
        data: its parameter's id; NOBODY for a number that is about all of them.
        number: which of the parameter's.
        dtype: of the array.
    """

    data: int
    number: int
    dtype: Any


NOBODY = -1


@dataclass(frozen=True, slots=True)
class Slots:
    """The arrays of an optimiser's state for some parameters: their nesting, and what each is."""

    template: Template
    every: tuple[Slot, ...]

    def known(self, state: Tree) -> dict[Slot, Any]:
        """Return the arrays of a state of this nesting."""
        return {
            self.every[index]: leaf for index, _, leaf in leaves_like(self.template, state, "state")
        }

    def tree(self, arrays: dict[Slot, Any]) -> Tree:
        """Return arrays in this nesting."""
        return fill(self.template, [arrays[slot] for slot in self.every])


def slots_of(optimizer: Optimizer, parameters: Tree, known: Parameters) -> Slots:
    """Return what an optimiser keeps for parameters, given by their ids.

    Raises:
        OptionError: if it keeps an array that is not as large as a parameter.
    """
    ids = leaves(parameters)
    place = {data: number for number, data in enumerate(ids)}
    told = map_leaves(lambda data: Spec((place[data] + 1,), known.spec(data).dtype), parameters)
    counts: dict[int, int] = {}
    found: list[Slot] = []

    def slot(leaf: Any) -> int:
        if len(leaf.shape) > 1 or (leaf.shape and not 0 < leaf.shape[0] <= len(ids)):
            raise OptionError(
                f"{optimizer.name}: it keeps an array that is not as large as a parameter; in a "
                "pipeline an optimiser keeps such, and single numbers"
            )
        data = ids[leaf.shape[0] - 1] if leaf.shape else NOBODY
        counts[data] = counts.get(data, 0) + 1
        found.append(Slot(data, counts[data] - 1, np.dtype(leaf.dtype)))
        return len(found) - 1

    template = map_leaves(slot, optimizer.init(told))
    return Slots(template, tuple(found))


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where training goes on.

    Attributes:
        arrays: of the optimiser's state, whole, in the shapes of their parameters.
        step: how many were taken.
    """

    arrays: dict[Slot, Any]
    step: int


def resumed(state: Any, optimizer: Optimizer | None, known: Parameters) -> Resumed:
    """Return where a state of training goes on, checked against what it is a state of.

    Its parameters are checked as arguments are.

    Raises:
        OptionError: if there is no optimiser, or the state is not its, or of other parameters.
        GraphError: if the nesting is another one.
    """
    if optimizer is None:
        raise OptionError("a state is for an optimizer, which is not given")
    if not isinstance(state, dict) or set(state) != set(STATE):
        got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise OptionError(
            f"the state: expected a dict of {', '.join(STATE)}, as a result's state is; got {got}"
        )
    slots = slots_of(optimizer, known.whole.arguments[0], known)
    arrays = {}
    for index, path, leaf in leaves_like(slots.template, state["optimizer"], "state['optimizer']"):
        slot = slots.every[index]
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


class WithParameters(Sequence[Any]):
    """Batches that hold no parameters, each with those of a state in front."""

    def __init__(self, parameters: Tree, batches: Sequence[Any]) -> None:
        self.parameters, self.batches = parameters, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: Any) -> Any:
        return (self.parameters, *self.batches[number])


def whole_state(
    optimizer: Optimizer,
    known: Parameters,
    parameters: Tree,
    replicas: Sequence[dict[Slot, Any]],
    step: int,
) -> dict[str, Any]:
    """Return the state of training from what devices hold of it.

    Args:
        optimizer: whose state it is.
        known: who has which parameters.
        parameters: after the last step, whole.
        replicas: the flat arrays of each, in order, where they are shares; else of one.
        step: how many were taken.
    """
    slots = slots_of(optimizer, known.whole.arguments[0], known)
    arrays = {}
    for slot in slots.every:
        parts = [own[slot] for own in replicas]
        if slot.data == NOBODY:
            arrays[slot] = parts[0]
        else:
            flat = np.concatenate(parts) if len(parts) > 1 else parts[0]
            arrays[slot] = whole_of(flat, Spec(known.spec(slot.data).shape, slot.dtype))
    return {
        "parameters": parameters,
        "optimizer": slots.tree(arrays),
        "step": np.array(step, np.int64),
    }


def own_slots(optimizer: Optimizer, known: Parameters, stages: Collection[int]) -> dict[int, Slots]:
    """Return what an optimiser keeps for the parameters that each of some stages updates."""
    return {
        stage: slots_of(optimizer, [data for data, _ in known.updates[stage]], known)
        for stage in stages
    }
