"""Training step of a model as it is: keyword arguments, a batch as a dict, the loss in its output.

Captures and recordings call ``model(*args)`` and differentiate what that returns. Within
``returning_loss`` any model can be called so: ``forward`` takes its keyword arguments as one more
argument, and returns the loss that it would have returned in a dict, a tuple or a ``ModelOutput``
of transformers, or that a loss function makes of its output and the targets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any

import torch

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch.validate_model import check_model

Loss = Callable[..., Any]
REPLACED = "_forward_without_loss"  # of a model that has a forward of its own, as a wrapped one
LOSS = "_loss_of_step"  # where snapshots of a model find the tensors of a loss function
# Wrappers that pass their arguments on, and communicate; the module in them is called instead.
PARALLEL = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)


def step_arguments(
    model: torch.nn.Module, args: Sequence[Any], named: Mapping[str, Any], targets: Any = ()
) -> tuple[tuple[Any, ...], bool]:
    """Return the arguments of a step in one tuple, and whether it ends with two more.

    These are the keyword arguments and the targets, unless ``targets`` is an argument of forward. A
    batch that is passed as one dict with the names of arguments is passed by these names.

    Raises:
        GraphError: if an argument is given twice.
    """
    batch = args[0] if len(args) == 1 else None
    if isinstance(batch, Mapping) and is_batch(model, batch):
        if twice := [*filter(named.__contains__, batch)]:
            raise GraphError(f"{type(model).__name__}: {twice[0]} is given twice")
        args, named = (), {**batch, **named}
    if "targets" in inspect.signature(model.forward).parameters:
        own = isinstance(targets, tuple) and not targets  # none are given
        named, targets = (named if own else {**named, "targets": targets}), ()
    targets = tuple(targets) if isinstance(targets, list | tuple) else (targets,)
    if named or targets:
        return (*args, dict(named), targets), True
    return tuple(args), False


def is_batch(model: torch.nn.Module, batch: Mapping[Any, Any]) -> bool:
    """Whether the keys of a dict are names of arguments of a model's forward."""
    try:
        inspect.signature(model.forward).bind_partial(**batch)
    except TypeError:
        return False
    return any(name in inspect.signature(model.forward).parameters for name in batch)


@contextmanager
def returning_loss(
    model: torch.nn.Module,
    args: Sequence[Any],
    named: Mapping[str, Any],
    loss: Loss | None = None,
    targets: Any = (),
) -> Iterator[tuple[Any, ...]]:
    """Within this context, ``model(*packed)`` returns the loss; yields the packed arguments.

    Args:
        model: any module; its forward is as before afterwards.
        args, named: the arguments of forward, or a batch as one dict.
        loss: a function of what forward returns, and of the targets; None if forward returns the
            loss: as it is, as ``loss`` of a dict or of a ``ModelOutput``, or in a tuple, first or
            as its only scalar.
        targets: what the loss function takes beside the output: a tensor, or several in a tuple; an
            argument of forward, if that takes one of this name.

    Raises:
        GraphError: if the model is none, or there are targets without a loss function.
    """
    check_model(model)
    if loss is not None and not callable(loss):
        raise GraphError(f"loss={loss!r:.80}; expected a function of what forward returns")
    packed, is_packed = step_arguments(model, args, named, targets)
    if loss is None and is_packed and packed[-1]:
        raise GraphError("targets are given without loss=, the function that takes them")
    own = vars(model).get("forward")

    def forward(self: Any, *given: Any) -> Any:
        # What Dynamo compiles, too.
        call = getattr(self, REPLACED, None) or partial(type(self).forward, self)
        if isinstance(self, PARALLEL):
            call = self.module
        if not is_packed:
            return loss_in(call(*given), loss, ())
        *positional, by_name, wanted = given
        return loss_in(call(*positional, **by_name), loss, wanted)

    if own is not None:
        vars(model)[REPLACED] = own
    vars(model)[LOSS] = loss
    vars(model)["forward"] = MethodType(forward, model)
    try:
        yield packed
    finally:
        del vars(model)["forward"], vars(model)[LOSS]
        if vars(model).pop(REPLACED, None) is not None:
            vars(model)["forward"] = own


def loss_in(output: Any, loss: Loss | None, targets: Sequence[Any]) -> Any:
    """Return the loss in, or of, what a forward returned; that itself, if there is none in it."""
    if loss is not None:
        return loss(output, *targets)
    if isinstance(output, Mapping):
        found = output.get("loss")
    elif isinstance(output, list | tuple) and not hasattr(output, "loss"):
        scalars = [part for part in output if is_scalar(part)]
        is_clear = len(scalars) == 1 or (scalars and scalars[0] is output[0])
        found = scalars[0] if is_clear else None
    else:
        found = getattr(output, "loss", None)
    return output if found is None else found


def is_scalar(value: Any) -> bool:
    """Whether a value is a tensor of one floating-point number, which can be differentiated."""
    return isinstance(value, torch.Tensor) and value.ndim == 0 and value.requires_grad
