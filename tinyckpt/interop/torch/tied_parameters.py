"""Tied parameters: parameters, buffers and modules that a model has under several names.

A tied parameter is one input with one gradient, which goes by the first of its names in the order
of ``named_parameters``. ``DeduplicatedModule`` shows PyTorch such a model; checks refuse models
whose ties changed since the trace, parameters that are also arguments, and writes to parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch.joint import JointGraph
from tinyckpt.interop.torch.state_rollback import AttributesReplaced, ObjectState
from tinyckpt.interop.torch.validate_model import value_text

Tensors = dict[str, torch.Tensor]  # parameters and buffers of a model, by name
# Functions of torch and torch.random that set the generator.
SEEDING = ("manual_seed", "seed", "set_rng_state")


class DeduplicatedModule(torch.nn.Module):  # type: ignore[misc]
    """A module that registers each parameter and buffer of a model once, whatever its names.

    PyTorch captures by name: a parameter with two names would be two inputs, each with a part of
    the gradient, and a module with two names would not get its own parameters back. Python
    attributes that forward writes to are rolled back after each call, so that PyTorch's repeated
    calls see the same model; a buffer that forward assigns anew is written to instead, as the
    model's would be.

    Attributes:
        names: for each name registered here, the tensor's first name in the model.
        state: snapshot of the model before its last forward, which knows what that changed.
    """

    names: dict[str, str]
    state: ObjectState | None

    def __init__(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        first: Callable[[Sequence[Any], Tensors], None] | None = None,
    ) -> None:
        """Register the tensors of a model.

        Args:
            model: the model to wrap.
            args: the arguments of forward.
            first: called before each forward, with the arguments and the tensors of the model.
        """
        super().__init__()
        check_no_parameter_passed(model, args)
        self.names, self.state, self.first = {}, None, first
        self.own: dict[int, str] = {}  # by the id of a tensor
        # Not as a submodule: PyTorch would find its parameter names.
        object.__setattr__(self, "model", model)
        parameters = dict(model.named_parameters())
        for name, value in (parameters | dict(model.named_buffers())).items():
            if id(value) not in self.own:
                own = self.own[id(value)] = f"tensor_{len(self.names)}"
                (self._parameters if name in parameters else self._buffers)[own] = value
                self.names[own] = name

    def forward(self, *args: Any) -> Any:
        given = {key: getattr(self, own) for key, own in self.own.items()}
        with ObjectState((self.model, args)).replaced(given) as self.state:
            before = tensors_of(self.model)
            if self.first is not None:
                self.first(args, before)
            with seeding_refused(self.model):
                result = self.model(*args)
            write_assigned(before, self.model)
        return result


@contextmanager
def seeding_refused(model: torch.nn.Module) -> Iterator[None]:
    """Refuse seeding within this context: forward may draw random numbers, not set the generator.

    Seeding is no operator: the graph of a forward draws from whatever state its generator has.

    Raises:
        GraphError: if forward sets the seed or the state of PyTorch's generator.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise GraphError(
            f"{type(model).__name__}: its forward sets the seed or the state of PyTorch's random "
            "generator, which is no operator, so a plan would draw other numbers; do so before "
            "the step"
        )

    refused = {(owner, name): refuse for owner in (torch, torch.random) for name in SEEDING}
    seed = torch.initial_seed()
    with AttributesReplaced(refused):
        yield
    if torch.initial_seed() != seed:
        refuse()


def write_assigned(before: Tensors, model: torch.nn.Module) -> None:
    """Copy into buffers the tensors that a forward assigned to their names.

    Args:
        before: the tensors of the model before the forward.
        model: the model as the forward left it.

    Raises:
        GraphError: if it assigned to a parameter, or a tensor of another dtype or shape than the
            buffer's, or not under all names of a tied buffer.
    """
    after, parameters = tensors_of(model), dict(model.named_parameters(remove_duplicate=False))
    assigned: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
    for name, tensor in before.items():
        value = after.get(name)
        _, first = assigned.setdefault(id(tensor), (tensor, value))
        if value is tensor is first:
            continue
        if value is not first or name in parameters or value_text(value) != value_text(tensor):
            kind = "the parameter" if name in parameters else "the buffer"
            raise GraphError(
                f"{type(model).__name__}: forward assigns {value_text(value)} to {name}, {kind} "
                f"{value_text(tensor)}; expected a tensor of the same dtype and shape, assigned "
                "to a buffer under all of its names"
            )
    with torch.no_grad():
        for tensor, value in assigned.values():
            if value is not None and value is not tensor:
                tensor.copy_(value)


def check_no_parameter_passed(model: torch.nn.Module, args: Sequence[Any]) -> None:
    """Raise a GraphError if a parameter is also an argument: it would have two gradients."""
    parameters = {id(value): name for name, value in model.named_parameters()}
    for position, value in enumerate(args):
        if id(value) in parameters and value.requires_grad:
            raise GraphError(
                f"{type(model).__name__}: args[{position}] is its own parameter "
                f"{parameters[id(value)]}, which would have two gradients; pass it detached, or "
                "read it in forward"
            )


def check_unwritten(joint: JointGraph, model: str) -> None:
    """Raise a GraphError if a forward writes to a parameter that requires a gradient."""
    for node in joint.mutations:
        what = joint.inputs.get(node)
        if what in joint.gradient_of and what is not None and what[0] == "parameter":
            raise GraphError(
                f"{model}: forward writes to its parameter {what[1]}; write to buffers, "
                "and to parameters only between steps (an embedding has max_norm=None)"
            )


def tensors_of(model: torch.nn.Module) -> Tensors:
    """Return a model's parameters and buffers under all their names, parameters first."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return parameters | dict(model.named_buffers(remove_duplicate=False))


def first_names(model: torch.nn.Module) -> dict[str, str]:
    """Map each name of a parameter or buffer to the first name of the same tensor."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(x), name) for name, x in tensors_of(model).items()}


def check_ties(traced: Mapping[str, str], model: torch.nn.Module) -> None:
    """Raise a GraphError unless tensors are tied as they were when the model was traced.

    Args:
        traced: the result of ``first_names`` then.
        model: the model now.
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
    """Describe a name for an error: absent, a tensor of its own, or tied to another name."""
    if first is None:
        return "not there"
    return "a tensor of its own" if first == name else f"the same tensor as {first}"
