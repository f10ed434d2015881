"""Purity check of ``forward``: refuse models whose computation changes from call to call.

A capture calls the forward once and bakes Python numbers in as constants (constant folding by
tracing). Random numbers drawn from Python's or NumPy's generators would repeat in every step, so
they are refused. If forward changes any other state that it can reach, such as a call counter or a
value kept from the previous step, it is captured again, after a call on copies of all tensors that
differ between steps; unless both graphs compute the same, by value numbering, it is refused. A
cache of values that depend on no argument and no parameter is the same in both.

Not detected: changes at a later call (a warm-up of ten steps), and reads of the clock, of files, or
of attributes of imported modules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import fx, nn

from tinyckpt.base.errors import GraphError
from tinyckpt.interop.torch.capture import (
    attribute_of,
    exported,
    is_random,
    joint_of_export,
    output_node,
)
from tinyckpt.interop.torch.joint import JointGraph
from tinyckpt.interop.torch.pytrees import map_tensors
from tinyckpt.interop.torch.split_joint import ancestors
from tinyckpt.interop.torch.state_rollback import GENERATORS, ObjectState
from tinyckpt.interop.torch.tied_parameters import Tensors
from tinyckpt.interop.torch.validate_model import REGISTERED, value_text

OF_ALL = ("random", "numpy.random")  # modules whose functions share one global generator
NAMED = 6  # the most changes that an error names
BEFORE = "tinyckpt_before"  # node metadata key: the node belongs to the previous call
ATEN = torch.ops.aten
# Their results depend on the shape and dtype of a tensor, not on its data.
SHAPED = {
    ATEN.zeros_like, ATEN.ones_like, ATEN.full_like, ATEN.empty_like, ATEN.rand_like,
    ATEN.randn_like, ATEN.new_zeros, ATEN.new_ones, ATEN.new_full, ATEN.new_empty,
    ATEN.new_empty_strided,
}  # fmt: skip


def joint_of_module(model: nn.Module, args: Sequence[Any]) -> JointGraph:
    """Capture the joint graph of a module whose forward returns a scalar loss.

    Raises:
        GraphError: if PyTorch cannot capture it as one graph, if forward does not return one
            differentiable scalar, if the graph has an unsupported operator, or if the next call of
            forward would compute something else.
    """
    name = type(model).__name__
    graph, whole = exported(model, args)
    assert whole.state is not None  # forward was called
    changes = list(whole.state.changes.values())
    kinds = tuple(GENERATORS)
    drawn = [
        each
        for each in changes
        if isinstance(each[0], kinds) or (type(each[0]) is str and each[0] in OF_ALL)
    ]
    if drawn:
        raise GraphError(
            f"{name}: its forward draws random numbers from {names_of(drawn, whole.state)}, "
            "which would be the same in each step; use those of PyTorch, such as torch.rand"
        )
    joint = joint_of_export(graph, whole, name)
    if changes:
        changed = names_of(changes, whole.state)
        changing = [*joint.gradient_of, *map(joint.inputs.get, joint.mutations)]
        varying = {each[1] for each in changing if each and each[0] != "argument"}
        try:
            again, _ = exported(model, args, partial(call_before, model, varying))
        except GraphError as error:
            raise GraphError(
                f"{name}: its forward changes {changed}, and cannot be captured after it: {error}"
            ) from error
        table: dict[Any, int] = {}
        results = results_text(again, table)
        # Two results that are one tensor (gradients of an LSTM's biases) become two once PyTorch's
        # FakeTensor cache has the operator: a third capture hits that cache, as the second does.
        if results_text(graph, table) != results != results_text(exported(model, args)[0], table):
            raise GraphError(
                f"{name}: its forward changes {changed}, and computes something else when it is "
                "called again, where a step of a plan would repeat the first call; expected a "
                "forward that computes the same at each call, or keeps what differs in buffers. If "
                "it only initialises itself (a flag, a cache), call the model once before"
            )
    return joint


# The previous call -------------------------------------------------------------------------------


def call_before(model: nn.Module, varying: set[str], args: Sequence[Any], now: Tensors) -> None:
    """Simulate the previous training step: call the model on copies of all that varies.

    Parameters and buffers are put back afterwards.

    Args:
        model: the model to call.
        varying: the names of parameters and buffers that differ between steps.
        args: the arguments of forward.
        now: parameters and buffers under all their names.
    """
    copies: dict[int, torch.Tensor] = {}
    with fx.traceback.annotate({BEFORE: True}):
        for name, value in now.items():
            if name in varying and id(value) not in copies:
                copies[id(value)] = value.clone()
        ObjectState(model).replace(copies)
        model(*map_tensors(lambda value: value.clone(), tuple(args)))
    back = {id(copies[id(value)]): value for value in now.values() if id(value) in copies}
    ObjectState(model).replace(back)
    for name, _ in list(model.named_buffers(remove_duplicate=False)):
        path, _, key = name.rpartition(".")
        if name in now:  # forward may have assigned a new tensor
            setattr(model.get_submodule(path), key, now[name])


# Value numbering ---------------------------------------------------------------------------------


class Reference:
    """Stands for a value number in the text of a node's arguments."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def results_text(graph: fx.GraphModule, table: dict[Any, int]) -> str:
    """Return a canonical text of a graph's results, equal for graphs that compute the same.

    Value numbering: nodes that apply the same operator to the same values share a number, in
    whatever order they stand. Random operators are equal if they draw at the same position.

    Args:
        graph: of the step.
        table: the numbers assigned so far, shared by the graphs that are compared.
    """
    numbers: dict[fx.Node, Reference] = {}
    live, drawn = ancestors(output_node(graph).all_input_nodes), 0
    for place, node in enumerate(graph.graph.nodes):
        if node not in live:
            continue
        value: Callable[[fx.Node], Any] = numbers.__getitem__
        if getattr(node.target, "overloadpacket", None) in SHAPED:
            value = shape_of
        key: tuple[Any, ...] = (
            node.op,
            str(node.target),
            repr(fx.node.map_arg(node.args, value)),
            repr(fx.node.map_arg(node.kwargs, value)),
        )
        if node.op == "placeholder":
            key = "placeholder", place
        elif node.op == "get_attr":
            key = "constant", constant_text(attribute_of(graph, node))
        elif is_random(node):
            drawn += 1
            key += drawn, BEFORE in (node.meta.get("custom") or {})
        numbers[node] = Reference(f"%{table.setdefault(key, len(table))}")
    return repr(fx.node.map_arg(output_node(graph).args, numbers.__getitem__))


def shape_of(node: fx.Node) -> Reference:
    """Return a value's dtype, shape, strides and device, without its data."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return Reference(repr(value))
    return Reference(f"{value_text(value)} {value.stride()} {value.device}")


def constant_text(value: Any) -> str:
    """Return a text that is equal for equal constants: tensors by a hash of their bits."""
    if type(value) not in (torch.Tensor, nn.Parameter) or value.layout != torch.strided:
        return f"{type(value)} {id(value)}"
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"{value_text(value)} {hashlib.sha256(data.tobytes()).hexdigest()}"


# Names -------------------------------------------------------------------------------------------


def names_of(changes: Sequence[tuple[Any, Any]], state: ObjectState) -> str:
    """Name the changes of a forward for an error."""
    names = list(dict.fromkeys(name_of(found, what, state) for found, what in changes))
    more = ", and others" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def name_of(found: Any, what: Any, state: ObjectState) -> str:
    """Return the path of a changed object, and of the changed part in it.

    An attribute goes by its module, such as ``blocks.0.calls``, or by its class; a global by its
    Python module; a variable by the function that closes over it.
    """
    if isinstance(found, str):
        return found
    parts = [str(what)]
    if isinstance(found, type):
        parts.append(found.__qualname__)
        found = None
    elif isinstance(found, FunctionType):
        parts.append(found.__module__)
        found = None
    while found is not None:
        origin = state.origins[id(found)]
        if state.origins[id(origin)] is None:  # the pair of the model and its arguments
            parts.append("" if isinstance(found, nn.Module) else "args")
            break
        parts += parts_in(origin, found)
        if isinstance(origin, type | FunctionType):
            break
        found = origin
    return ".".join(part for part in reversed(parts) if part and part not in REGISTERED)


def parts_in(origin: Any, found: Any) -> Iterator[str]:
    """Yield the name by which an object refers to another; then a class's or function's own."""
    if isinstance(origin, FunctionType):
        cells = origin.__closure__ or ()
        for name, cell in zip(origin.__code__.co_freevars, cells, strict=True):
            if cell is found or (cell.cell_contents is found):
                yield name
                yield origin.__qualname__
                return
        yield from (name for name, value in origin.__globals__.items() if value is found)
        yield str(origin.__module__)
    elif isinstance(origin, dict):
        yield from (str(key) for key, value in dict.items(origin) if value is found)
    elif isinstance(origin, list | tuple):
        yield str(next(place for place, each in enumerate(origin) if each is found))
    elif isinstance(origin, type):
        yield from (name for name, value in vars(origin).items() if value is found)
        yield origin.__qualname__
