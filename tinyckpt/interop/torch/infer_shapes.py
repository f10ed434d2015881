"""Memoised shape inference: each distinct operator call of a recorded step is inferred once.

The layouts of results follow from the operator and the layouts of its operands, and 32 equal layers
evaluate few distinct calls. FakeTensorMode has such a table too, but to look up an entry takes it
longer than all the rest of a recording. Results are FakeTensors in storages of their own, or, of
views and writes, in those of the same operands. What is more than that goes to FakeTensorMode.
"""

from __future__ import annotations

from types import NoneType
from typing import Any

import torch

from tinyckpt.interop.torch.capture import FakeTensor, address_of
from tinyckpt.interop.torch.known_values import tree_leaves
from tinyckpt.interop.torch.versions import private_attribute

dispatch_disabled = private_attribute("torch.utils._mode_utils:no_dispatch")
dispatch_keys = private_attribute("torch._C:_dispatch_key_set")
DEVICE = torch.ops.prim.device.default  # asked by C++ before most operators
UNKNOWN = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
CONSTANTS = {int, float, bool, str, NoneType, torch.dtype, torch.device, torch.layout,
             torch.memory_format}  # fmt: skip
KNOWN: dict[Any, Any] = {}  # by call, how its results are made; None: by FakeTensorMode


def infer(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Evaluate an operator on FakeTensors: as their FakeTensorMode, above which this is called."""
    if func is DEVICE and type(args[0]) is FakeTensor:
        return args[0].device
    call = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    after, operands = call[:], tree_leaves((args, kwargs))
    if func.namespace != "aten" or not describe(mode, (args, kwargs), call):
        return func(*args, **kwargs)
    entry = KNOWN.get(key := tuple(call))
    if entry is not None:
        return make(mode, entry, operands)
    result = func(*args, **kwargs)
    if key not in KNOWN:
        is_kept = describe(mode, (args, kwargs), after) and after == call  # no operand was reshaped
        is_known = is_kept and not UNKNOWN & set(func.tags)
        KNOWN[key] = entry_of(mode, result, operands) if is_known else None
    return result


def describe(mode: Any, value: Any, call: list[Any]) -> bool:
    """Append operands to a call; return whether results depend on nothing else of them."""
    kind = type(value)
    if kind is FakeTensor:
        layout = value.shape, value.stride(), value.storage_offset(), value.dtype, value.device
        call.append(layout)
        return not (
            value.fake_mode is not mode or mode.shape_env is not None or value.constant is not None
            or value.layout is not torch.strided or value.is_conj() or value.is_neg()
            or value.is_inference() or value.is_quantized
        )  # fmt: skip
    if kind is tuple or kind is list or kind is dict:
        call += kind, len(value)
        parts = [part for item in value.items() for part in item] if kind is dict else value
        return all(describe(mode, part, call) for part in parts)
    call += kind, value  # with 1.0 in place of 1 a result has another dtype
    return kind in CONSTANTS


def entry_of(mode: Any, result: Any, operands: list[Any]) -> Any:
    """Return how results are made, each as an operand, or of its layout; None if otherwise."""
    memory = [address_of(x) if isinstance(x, torch.Tensor) else None for x in operands]
    recipes: list[Any] = []
    for x in result if type(result) in (tuple, list) else [result]:
        layout: list[Any] = []
        if type(x) not in (FakeTensor, NoneType) or not describe(mode, x, layout):
            return None
        of = [] if x is None else [n for n, key in enumerate(memory) if key == address_of(x)]
        if len(of) > 1 or of[:1] >= [len(operands)]:  # of which operand is not known, or of none
            return None
        if x is None or (of and operands[of[0]] is x):
            recipes.append(of[0] if of else None)
        else:
            recipes.append((*layout[0], of[0] if of else -1))
            memory += [] if of else [address_of(x)]
    entry = type(result), recipes
    again = tree_leaves(make(mode, entry, operands))
    pairs = zip(tree_leaves(result), again, strict=True)
    return entry if all(one is other or look(one) == look(other) for one, other in pairs) else None


def look(x: Any) -> tuple[Any, int, bool]:
    """Return what operators go by in a FakeTensor beside its layout."""
    return dispatch_keys(x), x.untyped_storage().nbytes(), x.requires_grad


def make(mode: Any, entry: Any, operands: list[Any]) -> Any:
    """Make the results of a call on its operands."""
    kind, recipes = entry
    results: list[Any] = []
    with dispatch_disabled():
        for recipe in recipes:
            if type(recipe) is not tuple:
                results.append(None if recipe is None else operands[recipe])
                continue
            shape, stride, offset, dtype, device, place = recipe
            if place < 0:
                meta = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            else:
                meta = torch.empty(0, dtype=dtype, device="meta")
                meta.set_(operands[place].untyped_storage(), offset, shape, stride)
            results.append(FakeTensor(mode, meta, device))
    return kind(results) if kind in (tuple, list) else results[0]
