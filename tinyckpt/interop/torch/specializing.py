"""Shape specialisation of joint graphs: symbolic shapes replaced by those of the current call.

Dynamo compiles a function with static shapes first, and with symbolic ones when it is called with
others, such as the last and smaller batch of an epoch. A plan needs bytes, so each symbol is
replaced by its value here. Reading the value adds a guard: a call with another one is compiled, and
planned, anew.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tinyckpt.interop.torch.capture import storage_of, values_of
from tinyckpt.interop.torch.pytrees import tree_leaves, tree_map
from tinyckpt.interop.torch.validate_model import is_symbolic
from tinyckpt.interop.torch.versions import private_attribute

SYMBOLS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def specialize(graph: fx.GraphModule) -> None:
    """Replace the symbols of a joint graph by their values, in place.

    Data-dependent (unbacked) symbols have none; then the graph is left unchanged.
    """
    nodes = list(graph.graph.nodes)
    found = [x for node in nodes for x in tree_leaves(node.meta.get("val")) if is_symbolic(x)]
    if not found or any(map(is_unbacked, found)):
        return
    numbers = {
        node: number_of(node.meta["val"]) for node in nodes if type(node.meta.get("val")) in SYMBOLS
    }
    storages: dict[Any, torch.Tensor] = {}
    for node in nodes:
        node.args = fx.node.map_arg(node.args, lambda each: numbers.get(each, each))
        node.kwargs = fx.node.map_arg(node.kwargs, lambda each: numbers.get(each, each))
        if node.op == "placeholder":
            node.meta["val"] = tree_map(lambda x: specialized(x, storages), node.meta.get("val"))
    for node in numbers:
        if node.op != "placeholder":
            graph.graph.erase_node(node)
    for node, value in values_of(graph).items():
        node.meta["val"] = value
    graph.recompile()


def is_unbacked(value: Any) -> bool:
    """Whether a symbol or shape is unbacked or a nested tensor's length: unknown in this call."""
    if isinstance(value, torch.Tensor):
        return any(map(is_unbacked, value.shape))
    if isinstance(value, torch.SymInt) and value.node.is_nested_int():
        return True
    module = "torch.fx.experimental.symbolic_shapes"  # it imports SymPy
    return bool(private_attribute(f"{module}:has_free_unbacked_symbols")(value))


def number_of(symbol: Any) -> Any:
    """Return the value of a symbol in this call, adding a guard on it."""
    return SYMBOLS[type(symbol)](symbol)


def specialized(value: Any, storages: dict[Any, torch.Tensor]) -> Any:
    """Return a symbol's value, or a FakeTensor with static shape in place of a symbolic one.

    Args:
        value: of a placeholder.
        storages: the storages of earlier placeholders, with which it may share memory.
    """
    if type(value) in SYMBOLS:
        return number_of(value)
    if not is_symbolic(value):
        return value
    shape, strides, offset = map(int, value.shape), map(int, value.stride()), value.storage_offset()
    key, nbytes = storage_of(value) or (0, 0)
    with value.fake_mode, torch.no_grad():
        if (key, value.dtype) not in storages:
            size = int(nbytes) // value.element_size()
            storages[key, value.dtype] = torch.empty(size, dtype=value.dtype, device=value.device)
        return storages[key, value.dtype].as_strided(tuple(shape), tuple(strides), int(offset))
