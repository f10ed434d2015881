"""Parameters, buffers and modules that stand in a model under several names.

A parameter is one, with one gradient, which goes by the first of its names, as
``named_parameters`` has it, whichever of them was assigned first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch.checks import value_text
from tinyckpt.interop.torch.joint import Joint
from tinyckpt.interop.torch.preserving import ObjectState, replaced

Tensors = dict[str, torch.Tensor]  # parameters and buffers of a model, by name
SEEDING = ("manual_seed", "seed", "set_rng_state")  # functions of torch and torch.random


class Whole(torch.nn.Module):  # type: ignore[misc]
    """A model with each parameter and buffer once, under however many names it has them.

    PyTorch goes by names: a parameter with two would be two inputs, with a part of the gradient
    each, and a module with two would not get its own parameters back. Whatever forward writes to
    attributes is taken back after each call, so that PyTorch, which calls it again and again, sees
    the same one; but a buffer that it assigns anew is written to, as the model's would be.

    Attributes:
        names: by the name of a parameter or buffer here the first one that it has in the model.
        state: of the model before its last forward, which says what that changed.
    """

    names: dict[str, str]
    state: ObjectState | None

    def __init__(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        first: Callable[[Sequence[Any], Tensors], None] | None = None,
    ) -> None:
        """Make one.

        Args:
            model: of which it is.
            args: what forward takes.
            first: is called before each forward, with the arguments and the tensors of the model.
        """
        super().__init__()
        check_apart(model, args)
        self.names, self.state, self.first = {}, None, first
        self.own: dict[int, str] = {}  # by the id of a tensor
        object.__setattr__(self, "model", model)  # a module in it would show PyTorch its names
        parameters = dict(model.named_parameters())
        for name, value in (parameters | dict(model.named_buffers())).items():
            if id(value) not in self.own:
                own = self.own[id(value)] = f"tensor_{len(self.names)}"
                (self._parameters if name in parameters else self._buffers)[own] = value
                self.names[own] = name

    def forward(self, *args: Any) -> Any:
        given = {key: getattr(self, own) for key, own in self.own.items()}
        with replaced((self.model, args), given) as self.state:
            before = tensors_of(self.model)
            if self.first is not None:
                self.first(args, before)
            with unseeded(self.model):
                result = self.model(*args)
            write_assigned(before, self.model)
        return result


@contextmanager
def unseeded(model: torch.nn.Module) -> Iterator[None]:
    """While this is active, a forward may draw PyTorch's random numbers, and not choose which.

    A seed is no operator: a graph of the forward draws on from wherever its generator is.

    Raises:
        GraphError: if it sets the seed or the state of the generator.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise GraphError(
            f"{type(model).__name__}: its forward sets the seed or the state of PyTorch's random "
            "numbers, which no operator does, so a plan would draw others; legal is to do so "
            "before the step"
        )

    places = [(place, name) for place in (torch, torch.random) for name in SEEDING]
    before = [getattr(place, name) for place, name in places]
    seed = torch.initial_seed()
    try:
        for place, name in places:
            setattr(place, name, refuse)
        yield
    finally:
        for (place, name), own in zip(places, before, strict=True):
            setattr(place, name, own)
    if torch.initial_seed() != seed:
        refuse()


def write_assigned(before: Tensors, model: torch.nn.Module) -> None:
    """Write to buffers what a forward assigned to their names.

    Args:
        before: the tensors of the model before the forward.
        model: as the forward left it.

    Raises:
        GraphError: if it assigned to a parameter, or a tensor unlike the buffer, or not the same
            under all names of a buffer.
    """
    after, parameters = tensors_of(model), dict(model.named_parameters(remove_duplicate=False))
    assigned: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
    for name, tensor in before.items():
        value = after.get(name)
        _, first = assigned.setdefault(id(tensor), (tensor, value))
        if value is tensor is first:
            continue
        if value is not first or name in parameters or value_text(value) != value_text(tensor):
            raise GraphError(
                f"{type(model).__name__}: forward assigns {value_text(value)} to {name}, which is "
                f"{value_text(tensor)}; legal is to assign a tensor of the same dtype and shape "
                "to a buffer, under all of its names"
            )
    with torch.no_grad():
        for tensor, value in assigned.values():
            if value is not None and value is not tensor:
                tensor.copy_(value)


def check_apart(model: torch.nn.Module, args: Sequence[Any]) -> None:
    """Raise a GraphError if a parameter is an argument, too: it would have two gradients."""
    parameters = {id(value): name for name, value in model.named_parameters()}
    for position, value in enumerate(args):
        if id(value) in parameters and value.requires_grad:
            raise GraphError(
                f"{type(model).__name__}: args[{position}] is its own parameter "
                f"{parameters[id(value)]}, which would have two gradients; legal is to pass it "
                "detached, or to read it in forward"
            )


def check_unwritten(joint: Joint, model: str) -> None:
    """Raise a GraphError if a forward writes to a parameter that it has a gradient of."""
    for node in joint.mutations:
        what = joint.inputs.get(node)
        if what in joint.gradient_of and what is not None and what[0] == "parameter":
            raise GraphError(
                f"{model}: forward writes to its parameter {what[1]}; legal is to write to "
                "buffers, and to parameters between steps (an embedding has max_norm=None)"
            )


def tensors_of(model: torch.nn.Module) -> Tensors:
    """Return a model's parameters and buffers under each of their names, parameters first."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def first_names(model: torch.nn.Module) -> dict[str, str]:
    """Return for each name of a parameter or buffer the first one that the same tensor has."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(x), name) for name, x in tensors_of(model).items()}


def check_names(traced: Mapping[str, str], model: torch.nn.Module) -> None:
    """Raise a GraphError unless names are of the same tensors as when a model was traced.

    Args:
        traced: what ``first_names`` was then.
        model: as it is now.
    """
    now = first_names(model)
    for name in {**traced, **now}:
        before, after = traced.get(name), now.get(name)
        if before != after and (before is not None or after in traced):
            raise GraphError(
                f"{type(model).__name__}: {name} is {tie_text(name, after)}; when the model was "
                f"traced it was {tie_text(name, before)}: trace it again"
            )


def tie_text(name: str, first: str | None) -> str:
    """Return what a name is of: a tensor, another name's, or none."""
    if first is None:
        return "not there"
    return "a tensor of its own" if first == name else f"the same tensor as {first}"
