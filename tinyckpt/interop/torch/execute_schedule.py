"""Schedule execution in PyTorch: a traced training step as a function that needs no autograd.

In: a schedule and the trace it was planned on. Out: a function of the arguments that returns loss
and gradients. Arguments, parameters and ties are checked against the trace before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx

from tinyckpt.base.errors import GraphError
from tinyckpt.core.schedule import Schedule
from tinyckpt.interop.importer_checks import check_traced
from tinyckpt.interop.torch.call_with_loss import step_arguments
from tinyckpt.interop.torch.capture import (
    apply_gradient_hooks,
    has_post_accumulate_hooks,
)
from tinyckpt.interop.torch.codegen_fx import program_of
from tinyckpt.interop.torch.importer import name_of
from tinyckpt.interop.torch.pytrees import tree_flatten
from tinyckpt.interop.torch.tied_parameters import check_ties
from tinyckpt.interop.torch.tracing import Traced
from tinyckpt.interop.torch.validate_model import value_text
from tinyckpt.interop.torch.versions import check_calls


def step(schedule: Schedule, traced: Traced) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Return a function that runs a schedule of a traced model in PyTorch.

    It takes the arguments of ``trace``, its ``targets`` too, with the same shapes, and returns the
    loss and the gradients, by the names of ``named_parameters()``: one for each parameter, however
    many names it has in the model, and none for a frozen or unused one. An argument that requires a
    gradient is ``args[0]``. Its peak is that of ``replay``, and there is no autograd tape.
    Parameters are those that the model has at the call, and its buffers are updated once, as by a
    call of the model.
    Other side effects of forward, such as a count of its calls, do not happen. Hooks on gradients
    of parameters are called. Autocast is that of the trace, whichever is active in the step.
    ``.grad`` is left unchanged::

        loss, gradients = step(x, y)
        for name, parameter in model.named_parameters():
            parameter.grad = gradients.get(name)
        optimizer.step()

    Loss and gradients are bitwise those of plain PyTorch, where that evaluates the same kernels. On
    a CPU plain PyTorch draws other numbers for dropout; then they are those of store-all.

    Args:
        schedule: of ``traced.graph``.
        traced: the result of ``trace``.

    Raises:
        ScheduleError: if the schedule is none, is not legal, is of another graph, or offloads
            values; or if ``traced`` is not the result of ``trace``. When called, a GraphError if
            arguments or parameters differ from the traced ones, are tied otherwise, or have hooks
            on ``.grad``, before anything runs.

    >>> import tinyckpt as tc
    >>> import torch
    >>> from tinyckpt.interop import torch as tct
    >>> class Loss(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).sum()
    >>> traced = tct.trace(Loss(4, 1, bias=False), torch.ones(8, 4), workspace=False)
    >>> step = tct.step(tc.plan(traced.graph, "store_all"), traced)
    >>> loss, gradients = step(torch.ones(8, 4))
    >>> gradients["weight"].tolist()
    [[8.0, 8.0, 8.0, 8.0]]
    """
    check_calls("step")
    check_traced(traced, Traced)
    joint = traced.imported.joint
    program = program_of(schedule, traced.imported)
    inputs = [node for node in joint.module.graph.nodes if node.op == "placeholder"]
    devices = {x.device.type for x in joint.values.values() if isinstance(x, torch.Tensor)}

    def run(*args: Any, targets: Any = (), **named: Any) -> tuple[Any, dict[str, Any]]:
        given_args, _ = step_arguments(traced.model, args, named, targets)
        leaves = checked_arguments(traced, given_args)
        check_ties(traced.names, traced.model)
        given = [source_of(traced, node, leaves) for node in inputs]
        sources = {joint.inputs.get(node): value for node, value in zip(inputs, given, strict=True)}
        for what in filter(None, joint.gradient_of):
            check_hooks(sources[what], name_of(what))
        # Grad mode is on, since kernels of recurrent networks save residuals only then; but no
        # tensor requires a gradient, so there is no tape.
        with torch.enable_grad(), ExitStack() as stack:
            for device in devices:  # casts are operators of the program
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
                name_of(what): apply_gradient_hooks(sources[what], gradient)
                for what, gradient in zip(joint.gradient_of, results[count:], strict=True)
                if gradient is not None
            }
            (loss,) = made.values()
            # Last, so that an exception or interrupt before has written none of them.
            for buffer, value in written:
                buffer.copy_(value)
        return loss, gradients

    return run


def check_hooks(source: Any, name: str) -> None:
    """Raise a GraphError if a tensor has hooks on its ``.grad``, which a step does not write."""
    if has_post_accumulate_hooks(source):
        raise GraphError(
            f"{name} has a hook on its .grad (register_post_accumulate_grad_hook), which step does "
            "not write; use hooks on gradients (register_hook)"
        )


def source_of(traced: Traced, node: fx.Node, leaves: list[Any]) -> Any:
    """Return the value to pass for a placeholder, checked against the trace.

    Raises:
        GraphError: gives its layout now and when traced.
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
    """Return the leaves of arguments, checked against the traced nesting and layouts.

    Raises:
        GraphError: names the first that differs.
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
    """Raise a GraphError unless a tensor has the traced layout, or a number the traced value."""
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
    """Return dtype, shape, strides and device, on which a program is specialised."""
    return value.dtype, tuple(value.shape), value.stride(), value.device


def layout_text(value: Any) -> str:
    """Format dtype, shape, device and strides for errors."""
    return f"{value_text(value)} on {value.device} with strides {tuple(value.stride())}"
