"""Memoised shape inference: each distinct operator call of a recorded step is inferred once.

The layouts of results follow from the operator and the layouts of its operands, and 32 equal layers
evaluate few distinct calls. FakeTensorMode has such a table too, but to look up an entry takes it
longer than all the rest of a recording. Results are FakeTensors in storages of their own, or, of
views and writes, in those of the same operands. A call that is new is evaluated by its meta kernel.
FakeTensorMode evaluates what has none, and what depends on more than layouts: operands with known
values, symbolic sizes or a conjugate bit, and convolutions, whose layout follows from the kernel
that they would choose.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from inspect import currentframe
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from tinyckpt.interop.torch.capture import (
    CTC_LOSS,
    CTC_LOSS_BACKWARD,
    FAKE_IMPLEMENTATIONS,
    ITEM,
    UNSAFE_VIEW,
    FakeTensor,
    address_of,
    is_mutable,
    returns_operands,
    takes_device,
)
from tinyckpt.interop.torch.known_values import true_elements, with_count
from tinyckpt.interop.torch.pytrees import map_tensors, tree_leaves
from tinyckpt.interop.torch.versions import private_attribute

dispatch_disabled = private_attribute("torch.utils._mode_utils:no_dispatch")
dispatch_keys = private_attribute("torch._C:_dispatch_key_set")
mode_stack = private_attribute("torch.utils._python_dispatch:_get_current_dispatch_mode_stack")
on_meta = private_attribute("torch._subclasses.fake_tensor:in_kernel_invocation_manager")
CPU = torch.device("cpu")
DEVICE = torch.ops.prim.device.default  # queried by C++ before most operators
DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape,
             torch.Tag.inplace_view}  # fmt: skip
CONSTANTS = {int, float, bool, str, NoneType, torch.dtype, torch.device, torch.layout,
             torch.memory_format}  # fmt: skip
aten = torch.ops.aten
# Views whose place in a storage follows from that of their operand.
RELATIVE = {aten.alias, aten.detach, aten.expand, aten.permute, aten.select, aten.slice, aten.split,
            aten.split_with_sizes, aten.squeeze, aten.t, aten.transpose, aten.unbind,
            aten.unsqueeze, aten.view, UNSAFE_VIEW}  # fmt: skip
# Operators whose meta kernel knows their shapes, though they are marked as dependent on data.
INDEPENDENT = {CTC_LOSS}
# Reads of a tensor's value, and what is read of a check that passes.
READS = {ITEM, aten.equal.default}
PASSED = {aten.all: True, aten.ge: True, aten.any: False, aten.lt: False, aten.le: False}
PASSES = "tinyckpt_passes"  # attribute of a FakeTensor: what is read of it, if it is such a check
PYTORCH, HERE = (str(Path(file).parent) for file in (torch.__file__, __file__))
# What PyTorch wraps a dispatch mode's method in: files and folders.
WRAPPERS = tuple(str(Path(PYTORCH, name)) for name in ("_compile.py", "_dynamo"))
# What raises where all or any of a tensor's elements are something. Other files decide by it, such
# as whether a mask is causal.
CHECKING = tuple(str(Path(PYTORCH, name)) for name in ("nn/functional.py", "distributions"))
MOST_KNOWN = 1 << 15  # entries, some 50 MiB: then the table begins anew
KNOWN: dict[Any, Any] = {}  # by call, how its results are made; None: by FakeTensorMode


def infer(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Evaluate an operator on FakeTensors as their mode does, for a dispatch mode entered later.

    Except that checks of PyTorch's own pass.
    """
    if func in READS and (passed := read_of_check(func, args)) is not None:
        return passed
    result = inferred(mode, func, args, kwargs)
    if (passed := PASSED.get(func.overloadpacket)) is not None and type(result) is FakeTensor:
        setattr(result, PASSES, passed)
    return result


def inferred(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Evaluate an operator on FakeTensors, if it has not been evaluated on such ones before."""
    if func is DEVICE and type(args[0]) is FakeTensor:
        return args[0].device
    call = [func, torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(),
            torch.is_inference_mode_enabled()]  # fmt: skip
    after, operands = call[:], tree_leaves((args, kwargs))
    is_plain = func.namespace == "aten" and "convolution" not in str(func)
    is_watched = any(each is not mode for each in mode_stack())  # by another mode, on the way
    placed = depends_on_places(func)
    if is_watched or not is_plain or not describe(mode, (args, kwargs), call, placed):
        return each_its_own(func(*args, **kwargs))
    entry = KNOWN.get(key := tuple(call))
    if entry is not None:
        return make(mode, entry, operands)
    result = each_its_own(evaluate(mode, func, args, kwargs))
    if key not in KNOWN:
        if len(KNOWN) >= MOST_KNOWN:
            KNOWN.clear()
        # Unless an operand was reshaped.
        is_kept = describe(mode, (args, kwargs), after, placed) and after == call
        is_known = is_kept and not DEPENDENT & set(func.tags)
        KNOWN[key] = entry_of(mode, result, operands) if is_known else None
    return result


def read_of_check(func: Any, args: Any) -> bool | None:
    """Return what a check of PyTorch's own reads of a tensor without data; None if it is no check.

    No step goes on where a check raises: that not all weights are positive, or any is negative.
    """
    value = args[0]
    if type(value) is not FakeTensor or value.constant is not None:
        return None
    if func is aten.equal.default:  # in C++, to a truth value
        is_check = args[1].dtype is torch.bool and args[1].dim() == 0
        return getattr(value, PASSES, None) if is_check else None
    frame = currentframe()
    while frame is not None and frame.f_code.co_filename.startswith((HERE, *WRAPPERS)):
        frame = frame.f_back
    is_check = frame is not None and frame.f_code.co_filename.startswith(CHECKING)
    return getattr(value, PASSES, None) if is_check else None


def evaluate(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Evaluate an operator on FakeTensors: by its meta kernel alone, if their mode adds nothing.

    The mode takes five times as long, and most of that in decompositions, for each of whose
    operators it is called again.
    """
    if func is CTC_LOSS_BACKWARD:  # which has no meta kernel
        return torch.empty_like(args[1], memory_format=torch.contiguous_format)
    devices = {x.device.type for x in tree_leaves((args, kwargs)) if type(x) is FakeTensor}
    if devices == {"cpu"} and is_inferred_by_meta_kernel(func):
        with suppress(RuntimeError, TypeError, ValueError, IndexError):
            with on_meta(mode):
                result = func(*args, **kwargs)
            made: dict[int, FakeTensor] = {}  # by id: a result may be returned twice
            return map_tensors(lambda x: made.setdefault(id(x), FakeTensor(mode, x, CPU)), result)
    return func(*args, **kwargs)  # whose errors are those that PyTorch's own users know


def is_inferred_by_meta_kernel(func: Any) -> bool:
    """Whether FakeTensorMode has no rule of its own for an operator on tensors of one device."""
    return func in INDEPENDENT or not (
        is_mutable(func)
        or DEPENDENT & set(func.tags)
        or takes_device(func)
        or (func in FAKE_IMPLEMENTATIONS and func.overloadpacket not in RELATIVE)
    )


def each_its_own(result: Any) -> Any:
    """Return an operator's results, with memory of its own for one that is returned twice.

    The gradients of the two biases of an LSTM are equal: the kernel returns one and a copy of it,
    its shape function one tensor twice, and FakeTensorMode's own table two tensors thereafter.
    """
    if type(result) not in (tuple, list):
        return result
    first: dict[int, int] = {}  # place of each result, by its id
    return type(result)(
        torch.empty_like(x) if type(x) is FakeTensor and first.setdefault(id(x), n) != n else x
        for n, x in enumerate(result)
    )


@cache
def depends_on_places(func: Any) -> bool:
    """Whether results may depend on where in their storages the operands begin.

    Results in new memory do not. Steps of a recurrent network differ in nothing else.
    """
    is_relative = func.overloadpacket in RELATIVE and func is not aten.view.dtype
    return returns_operands(func) and not is_relative


def describe(mode: Any, value: Any, call: list[Any], placed: bool = True) -> bool:
    """Append operands to a call; return whether results depend on nothing else of them.

    ``placed``: with the place in its storage where each begins.
    """
    kind = type(value)
    if kind is FakeTensor:
        if value.layout is not torch.strided:  # it has no storage
            return False
        begin = value.storage_offset() if placed else 0
        layout = value.shape, value.stride(), begin, value.dtype, value.device
        call.append((*layout, value.requires_grad, value.untyped_storage().nbytes()))
        return not (
            value.fake_mode is not mode or mode.shape_env is not None or value.constant is not None
            or value.is_conj() or value.is_neg() or value.is_inference() or value.is_quantized
        )  # fmt: skip
    if kind is tuple or kind is list or kind is dict:
        call += kind, len(value)
        parts = [part for item in value.items() for part in item] if kind is dict else value
        return all(describe(mode, part, call, placed) for part in parts)
    call += kind, value  # with 1.0 in place of 1 a result has another dtype
    # A device without an index is the current one, which may change.
    return kind in CONSTANTS and (kind is not torch.device or value.type in ("cpu", "meta"))


def entry_of(mode: Any, result: Any, operands: list[Any]) -> Any:
    """Return how results are made, each as an operand, or of its layout; None if otherwise."""
    memory = [address_of(x) if isinstance(x, torch.Tensor) else None for x in operands]
    recipes: list[Any] = []
    for x in result if type(result) in (tuple, list) else [result]:
        layout: list[Any] = []
        if type(x) not in (FakeTensor, NoneType) or not describe(mode, x, layout):
            return None
        of = [] if x is None else [n for n, key in enumerate(memory) if key == address_of(x)]
        if len(of) > 1 or (of and of[0] >= len(operands)):
            return None  # in the memory of several operands, or of another result
        if x is None or (of and operands[of[0]] is x):
            recipes.append(of[0] if of else None)
        else:
            shape, stride, begin, *kind = layout[0][:5]
            begin -= operands[of[0]].storage_offset() if of else 0
            recipes.append((shape, stride, begin, *kind, of[0] if of else -1))
            memory += [] if of else [address_of(x)]
    entry = type(result), recipes
    again = tree_leaves(make(mode, entry, operands))
    pairs = zip(tree_leaves(result), again, strict=True)
    are_alike = all(one is other or traits(one) == traits(other) for one, other in pairs)
    return entry if are_alike else None


def traits(x: Any) -> tuple[Any, int, bool]:
    """Return what operators read of a FakeTensor in addition to its layout."""
    return dispatch_keys(x), x.untyped_storage().nbytes(), x.requires_grad


def stand_in(mode: Any, value: Any) -> Any:
    """Return a FakeTensor with the layout of a tensor, in a storage of its own of the same size."""
    size = value.untyped_storage().nbytes() // max(value.element_size(), 1)
    with dispatch_disabled():
        flat = torch.empty(size, dtype=value.dtype, device="meta")
        meta = flat.as_strided(value.shape, value.stride(), value.storage_offset())
        if value.is_conj():  # some kernels copy such an operand
            meta = meta.conj()
        return with_count(FakeTensor(mode, meta, value.device), true_elements(value))


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
                base = operands[place]
                begin = base.storage_offset() + offset
                meta.set_(base.untyped_storage(), begin, shape, stride)
            results.append(FakeTensor(mode, meta, device))
    return kind(results) if kind in (tuple, list) else results[0]
