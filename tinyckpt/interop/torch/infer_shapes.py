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

from tinyckpt.interop.torch.capture import FakeTensor, address_of, tree_leaves
from tinyckpt.interop.torch.versions import private_attribute

dispatch_disabled = private_attribute("torch.utils._mode_utils:no_dispatch")
dispatch_keys = private_attribute("torch._C:_dispatch_key_set")
DEVICE = torch.ops.prim.device.default  # asked by C++ before most operators
UNKNOWN = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
CONSTANTS = {int, float, bool, str, NoneType, torch.dtype, torch.device, torch.layout,
             torch.memory_format}  # fmt: skip
MOST = 1 << 16  # entries, some 100 MiB: then the table begins anew
KNOWN: dict[Any, Any] = {}  # by call, how its results are made; None: by FakeTensorMode


def infer(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Evaluate an operator on FakeTensors: as their FakeTensorMode, above which this is called."""
    if func is DEVICE and type(args[0]) is FakeTensor:
        return args[0].device
    key = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    if func.namespace != "aten" or not describe(mode, (args, kwargs), key):
        return func(*args, **kwargs)
    call, after = tuple(key), key[:3]
    entry = KNOWN.get(call)
    if entry is not None:
        return make(mode, entry, tree_leaves((args, kwargs)))
    result = func(*args, **kwargs)
    if call not in KNOWN:
        if len(KNOWN) >= MOST:
            KNOWN.clear()
        is_kept = describe(mode, (args, kwargs), after) and after == key  # no operand was reshaped
        operands = tree_leaves((args, kwargs))
        KNOWN[call] = entry_of(mode, func, result, operands) if is_kept else None
    return result


def describe(mode: Any, value: Any, key: list[Any]) -> bool:
    """Append operands to the key of a call; return whether results depend on nothing else."""
    kind = type(value)
    if kind is FakeTensor:
        key.append((value.dtype, value.shape, value.stride(), value.storage_offset(), value.device))
        return is_plain(mode, value)
    if kind is tuple or kind is list or kind is dict:
        key += kind, len(value)
        parts = [part for item in value.items() for part in item] if kind is dict else value
        return all(describe(mode, part, key) for part in parts)
    key += kind, value  # with 1.0 in place of 1 a result has another dtype
    return kind in CONSTANTS


def is_plain(mode: Any, value: Any) -> bool:
    """Whether a layout says all of a FakeTensor: it has no known value, no conjugate bit, …"""
    return not (
        value.fake_mode is not mode or mode.shape_env is not None or value.constant is not None
        or value.layout is not torch.strided or value.is_conj() or value.is_neg()
        or value.is_inference() or value.is_quantized
    )  # fmt: skip


def entry_of(mode: Any, func: Any, result: Any, operands: list[Any]) -> Any:
    """Return how results are made, each as an operand, or of its layout; None if otherwise."""
    parts = result if type(result) in (tuple, list) else [result]
    tensors = [x for x in parts if x is not None]
    is_known = all(
        type(x) is FakeTensor and is_plain(mode, x) and not x.requires_grad for x in tensors
    )
    if UNKNOWN & set(func.tags) or not is_known:
        return None
    places: dict[int, list[int]] = {}
    for place, x in enumerate(operands):
        if isinstance(x, torch.Tensor):
            places.setdefault(address_of(x), []).append(place)
    owned = [places.get(address_of(x), []) for x in tensors]
    fresh = [address_of(x) for x, of in zip(tensors, owned, strict=True) if not of]
    if max(map(len, owned), default=0) > 1 or len(set(fresh)) < len(fresh):
        return None  # they alias each other, or one of several operands
    recipes: list[Any] = []
    for x in parts:
        place = None if x is None else next(iter(places.get(address_of(x), [])), -1)
        if x is not None and (place == -1 or operands[place] is not x):
            layout = tuple(x.shape), x.stride(), x.dtype, x.device
            recipes.append((*layout, place, x.storage_offset()))
        else:
            recipes.append(place)
    entry = type(result), recipes
    again = [x for x in tree_leaves(make(mode, entry, operands)) if x is not None]
    return entry if all(map(is_alike, tensors, again)) else None


def is_alike(one: Any, other: Any) -> bool:
    """Whether operators run alike on two FakeTensors of a layout, in storages of the same size."""
    sizes = [x.untyped_storage().nbytes() for x in (one, other)]
    return bool(dispatch_keys(one) == dispatch_keys(other) and sizes[0] == sizes[1])


def make(mode: Any, entry: Any, operands: list[Any]) -> Any:
    """Make the results of a call on its operands."""
    kind, recipes = entry
    results: list[Any] = []
    with dispatch_disabled():
        for recipe in recipes:
            if type(recipe) is not tuple:
                results.append(None if recipe is None else operands[recipe])
                continue
            shape, stride, dtype, device, place, offset = recipe
            if place < 0:
                meta = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            else:
                meta = torch.empty(0, dtype=dtype, device="meta")
                meta.set_(operands[place].untyped_storage(), offset, shape, stride)
            results.append(FakeTensor(mode, meta, device))
    return kind(results) if kind in (tuple, list) else results[0]
