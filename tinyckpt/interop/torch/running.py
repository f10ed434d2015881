"""A schedule as a training step: ``step``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx

from tinyckpt.base.errors import GraphError
from tinyckpt.core.schedule import Schedule
from tinyckpt.interop.frameworks import check_traced
from tinyckpt.interop.torch.aliases import check_names
from tinyckpt.interop.torch.capture import has_late_hooks, hooked, tree_flatten
from tinyckpt.interop.torch.checks import value_text
from tinyckpt.interop.torch.codegen_fx import program_of
from tinyckpt.interop.torch.importer import name_of
from tinyckpt.interop.torch.tracing import Traced
from tinyckpt.interop.torch.versions import check_calls


def step(schedule: Schedule, traced: Traced) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Return a function that runs a schedule of a traced model in PyTorch.

    It takes what ``trace`` was given, with the same shapes, and returns the loss and the gradients,
    by the names that ``named_parameters()`` gives: one for each parameter, however many names that
    has in the model, and none for one that is frozen or of no use. An argument that requires a
    gradient is ``args[0]``. It holds what ``replay`` of the schedule says, and no autograd tape.
    Parameters are those that the model has when it is called, and its buffers are written to as by
    a call of the model, once. What else forward writes, such as a count of its calls, is not
    written. Hooks on gradients of parameters are called. Autocast is that of the trace, whichever
    is active in the step. ``.grad`` is left as it is::

        loss, gradients = step(x, y)
        for name, parameter in model.named_parameters():
            parameter.grad = gradients.get(name)
        optimizer.step()

    Loss and gradients are those of plain PyTorch to the last bit, where that evaluates the same
    kernels. On a CPU it draws other numbers for dropout; then they are those of store-all.

    Args:
        schedule: of ``traced.graph``.
        traced: what ``trace`` returned.

    Raises:
        ScheduleError: if the schedule is none, is not legal, is of another graph, or moves values
            to the host; or if the second is not what ``trace`` returned. When called, a GraphError
            if arguments or parameters are not as they were traced, tied otherwise, or have hooks
            on ``.grad``, before anything runs.
    """
    check_calls("step")
    check_traced(traced, Traced)
    joint = traced.imported.joint
    program = program_of(schedule, traced.imported)
    inputs = [node for node in joint.module.graph.nodes if node.op == "placeholder"]
    devices = {x.device.type for x in joint.values.values() if isinstance(x, torch.Tensor)}

    def run(*args: Any) -> tuple[Any, dict[str, Any]]:
        leaves = checked_arguments(traced, args)
        check_names(traced.names, traced.model)
        given = [source_of(traced, node, leaves) for node in inputs]
        sources = {joint.inputs.get(node): value for node, value in zip(inputs, given, strict=True)}
        for what in filter(None, joint.gradient_of):
            check_hooks(sources[what], name_of(what))
        # Enabled, since kernels of recurrent networks keep what their backward reads only then; but
        # nothing requires a gradient, so there is no tape.
        with torch.enable_grad(), ExitStack() as stack:
            for device in devices:  # casts are in the program
                stack.enter_context(torch.autocast(device, enabled=False))
            results = program(*[x.detach() if isinstance(x, torch.Tensor) else x for x in given])
        with torch.no_grad():
            count = len(joint.forward)
            made = dict(zip(joint.forward, results[:count], strict=True))
            written = [
                (given[inputs.index(buffer)], made.pop(value))
                for buffer, value in joint.mutations.items()
            ]
            gradients = {
                name_of(what): hooked(sources[what], gradient)
                for what, gradient in zip(joint.gradient_of, results[count:], strict=True)
                if gradient is not None
            }
            (loss,) = made.values()
            # Last: what raises or is interrupted before has written none of them.
            for buffer, value in written:
                buffer.copy_(value)
        return loss, gradients

    return run


def check_hooks(source: Any, name: str) -> None:
    """Raise a GraphError if a tensor has hooks on its ``.grad``, which a step leaves alone."""
    if has_late_hooks(source):
        raise GraphError(
            f"{name} has a hook on its .grad (register_post_accumulate_grad_hook), which step does "
            "not write; legal are hooks on gradients (register_hook)"
        )


def source_of(traced: Traced, node: fx.Node, leaves: list[Any]) -> Any:
    """Return what to pass for a placeholder, after checking that it is as it was traced.

    Raises:
        GraphError: says what it is and what it was.
    """
    joint, model = traced.imported.joint, traced.model
    expected = joint.values[node]
    if node in joint.tangents:
        return torch.ones((), dtype=expected.dtype, device=expected.device)
    kind, which = joint.inputs[node]
    if kind == "argument":
        return leaves[which]
    value = model.get_parameter(which) if kind == "parameter" else model.get_buffer(which)
    check_like(value, expected, f"the {kind} {which}")
    return value


def checked_arguments(traced: Traced, args: tuple[Any, ...]) -> list[Any]:
    """Return the leaves of arguments that are as they were traced.

    Raises:
        GraphError: names the first that is not.
    """
    nesting, expected = traced.arguments
    leaves, found = tree_flatten(args)
    if found != nesting:
        raise GraphError(
            f"{traced.graph.name}: {len(args)} arguments in the nesting {found}; it was traced "
            f"with {nesting}"
        )
    for index, (leaf, like) in enumerate(zip(leaves, expected, strict=True)):
        check_like(leaf, like, f"args[{index}]")
    return list(leaves)


def check_like(value: Any, expected: Any, what: str) -> None:
    """Raise a GraphError unless a value has the layout that was traced; a number, that value."""
    if not isinstance(expected, torch.Tensor):
        if value is expected or (type(value) is type(expected) and value == expected):
            return
        raise GraphError(f"{what} is {value!r:.80}; it was traced as {expected!r:.80}, a constant")
    if isinstance(value, torch.Tensor) and layout(value) == layout(expected):
        return
    found = layout_text(value) if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
    raise GraphError(
        f"{what} is {found}; it was traced as {layout_text(expected)}: trace the model with such "
        "arguments"
    )


def layout(value: Any) -> tuple[Any, ...]:
    """Return what a program depends on."""
    return value.dtype, tuple(value.shape), value.stride(), value.device


def layout_text(value: Any) -> str:
    """Return shape, dtype, strides and device as errors say them."""
    return f"{value_text(value)} on {value.device} with strides {tuple(value.stride())}"
