"""Constant propagation beside a recorded step: control flow that reads integer tensors is followed.

A forward such as that of transformers' decoders asks whether positions are consecutive, or a mask
is all ones, before it chooses an attention. FakeTensors have no data to answer with. So a function
mode evaluates, on small real tensors beside them, what depends on nothing but constants and the
integers passed in; when forward reads such a value, it gets the real one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

from tinyckpt.interop.torch.pytrees import map_tensors, tensor_leaves, tree_leaves
from tinyckpt.interop.torch.validate_model import BY_RANDOM, is_meta
from tinyckpt.interop.torch.versions import private_attribute

FakeTensor = private_attribute("torch._subclasses:FakeTensor")
WeakTensorKeyDictionary = private_attribute("torch.utils.weak:WeakTensorKeyDictionary")
modes_disabled = private_attribute("torch.utils._python_dispatch:_disable_current_modes")

MOST_ELEMENTS = 1 << 18  # of a tensor that is evaluated; larger: longer masks, more time and memory
# Functions without tensor arguments whose results are constants.
CONSTANT = {
    torch.arange, torch.zeros, torch.ones, torch.full, torch.eye, torch.tensor, torch.as_tensor,
    torch.scalar_tensor, torch.linspace, torch.tril_indices, torch.triu_indices,
}  # fmt: skip
# Functions whose results depend on the layout of their first argument, and not on its values.
LIKE = {
    torch.zeros_like, torch.ones_like, torch.full_like, torch.Tensor.new_zeros,
    torch.Tensor.new_ones, torch.Tensor.new_full, torch.Tensor.new_tensor,
}  # fmt: skip
# Beginnings of names of functions whose results are random, or uninitialised memory.
UNKNOWN = (
    "rand", "new_empty", "empty", "bernoulli", "multinomial", "normal", "log_normal", "uniform",
    "exponential", "geometric", "cauchy", "poisson", "dropout",
)  # fmt: skip
READS = {
    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__bool__, torch.Tensor.__int__,
    torch.Tensor.__float__, torch.Tensor.__index__, torch.Tensor.__contains__, torch.equal,
    torch.allclose, torch.is_nonzero, torch.Tensor.is_nonzero, torch.Tensor.equal,
}  # fmt: skip
# What a single number of torch.rand is taken to be, where forward decides by it: at its most,
# LayerDrop skips no layer, whatever its rate.
NEXT_TO_ONE = 1 - 2**-24
ASSERTED = "_is_all_true"  # name of what checks of torch.distributions raise on, unless it is true
# Functions that return as many elements as a mask has true ones, or write to them.
SELECTS = {
    torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.masked_select,
    torch.Tensor.masked_select,
}  # fmt: skip
COUNT = "_true_elements"  # attribute of a FakeTensor: how many elements of a mask are true
OPERATIONS = "add|sub|mul|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift"
WRITES = re.compile(rf".*[^_]_|__(set|setitem|i({OPERATIONS}))__")  # names of functions that write
# What a function may raise on values where it does not on FakeTensors, such as an index out of
# range. Its result is not known then, and a forward that reads it is refused.
FAILURES = (RuntimeError, TypeError, ValueError, IndexError)


class Unread(float):
    """Number of an unknown tensor, which a forward may log but not decide by.

    It is a float, also for integers: no size or index can be one.
    """

    error: RuntimeError

    def __new__(cls, error: RuntimeError) -> Self:
        made = super().__new__(cls, 1.0)
        made.error = error.with_traceback(None)  # its frames refer to tensors
        return made

    def decided(self, *others: Any) -> Any:
        raise self.error.with_traceback(None)

    def combined(self, *others: Any) -> Unread:
        return Unread(self.error)

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = decided
    __index__ = __int__ = __float__ = __trunc__ = __round__ = __floor__ = __ceil__ = decided
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = combined
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = combined
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = combined
    __hash__ = float.__hash__


class KnownValues(TorchFunctionMode):  # type: ignore[misc]
    """Function mode that knows the values of some tensors.

    Transformers asks ``is_fake_tensor`` before it reads a mask. Within this mode the answer is yes
    only for tensors whose values are unknown; then it does what is right for every mask.

    Args:
        given: the arguments of the recorded forward; none for a plan, which is executed with other
            arguments than it was traced with.
        real: the same with their data; those of integers or truth values are copied.
        counters: buffers of one element, such as a count of steps, a pointer into a queue or a
            flag, and what stands for each.

    Attributes:
        known: real tensors, by the tensors that stand for them in the recorded step.
        is_recording: whether a step is recorded, not planned: a plan would have the constant.
        whole: whether all integers that forward may read are known, as they are in a plain step.
        random: tensors that are computed of single random numbers.
        decides_by_random: whether forward read one of these.
        unread: the last number of an unknown tensor that forward asked for.
    """

    def __init__(
        self,
        given: Iterable[Any] | None = None,
        real: Iterable[Any] = (),
        counters: Iterable[tuple[Any, Any]] = (),
    ) -> None:
        super().__init__()
        self.known = WeakTensorKeyDictionary()
        discrete = [
            (tensor, value)
            for tensor, value in zip(given or (), real, strict=True)
            if isinstance(value, torch.Tensor) and is_discrete(value)
        ]
        counters = [(tensor, value) for tensor, value in counters if is_discrete(value)]
        for tensor, value in (*discrete, *counters):
            if not isinstance(value, FakeTensor) and not is_meta(value) and is_small(value):
                with modes_disabled():
                    self.known[tensor] = value.detach().clone()
        self.is_recording = given is not None
        self.random = WeakTensorKeyDictionary()
        self.decides_by_random = False
        self.unread: Unread | None = None
        self.whole = given is not None and all(tensor in self.known for tensor, _ in discrete)

    def __enter__(self) -> Self:
        self.asked = sys.modules.get("transformers.utils.import_utils")
        self.before = getattr(self.asked, "is_fake_tensor", None)
        if self.before is not None:
            vars(self.asked)["is_fake_tensor"] = lambda x: not (self.whole or x in self.known)
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        super().__exit__(kind, error, traceback)
        if self.before is not None:
            vars(self.asked)["is_fake_tensor"] = self.before
        if self.unread is not None and isinstance(error, TypeError | IndexError):
            # It was to be a size or an index. The error is of a parser, and tells something else.
            raise self.unread.error.with_traceback(traceback) from error

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operands = tensor_leaves((args, kwargs))
        values = [self.known.get(x) for x in operands]
        if func is torch.nn.functional.ctc_loss and self.is_recording:
            return ctc_loss(self.listed, *args, **kwargs)
        if func in SELECTS and self.is_recording:
            for operand, value in zip(operands, values, strict=True):
                if operand.dtype is torch.bool:
                    with modes_disabled():
                        with_count(operand, None if value is None else int(value.sum()))
        needed = values[1:] if func in LIKE else values
        is_known = all(x is not None for x in needed) and bool(values or func in CONSTANT)
        is_random = func is torch.rand or any(x in self.random for x in operands)
        if is_known and func in READS:
            self.decides_by_random |= is_random
            return self.evaluated(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if is_known:
                return self.made(func, args, kwargs, error)
            if func is torch.Tensor.item and self.is_recording and is_real_number(args[0]):
                self.unread = Unread(error)
                return self.unread
            if is_random and func in READS:
                raise RuntimeError(BY_RANDOM) from error
            raise
        leaves, writes = tree_leaves(result), writes_to_argument(func, kwargs)
        if not (writes or any(isinstance(x, torch.Tensor) for x in leaves)):
            return result
        made, name = None, getattr(func, "__name__", "")
        if is_known and not name.startswith(UNKNOWN) and all(map(is_small, leaves)):
            with suppress(*FAILURES):
                made = tree_leaves(self.evaluated(func, args, kwargs))
        if func is torch.rand and self.is_recording and result.numel() == 1:
            with modes_disabled():
                made = [torch.full(result.shape, NEXT_TO_ONE, dtype=torch.float32).to(result.dtype)]
        if is_random:
            self.random.update((x, True) for x in tensor_leaves(result) if x.numel() == 1)
        if made is not None:
            for tensor, value in zip(leaves, made, strict=True):
                if isinstance(value, torch.Tensor) and not is_meta(value):
                    self.known[tensor] = value
        elif name == ASSERTED:  # no step goes on where it is false
            with modes_disabled():
                self.known[result] = torch.ones((), dtype=torch.bool)
        elif writes:
            self.forget(map(self.known.get, tensor_leaves((args[:1], kwargs.get("out")))))
        return result

    def made(self, func: Any, args: Any, kwargs: Any, error: RuntimeError) -> Any:
        """Return what a function returns whose result has a shape that depends on known values.

        Such as the edges of a graph that a mask selects: FakeTensors alone have no such shape.

        Raises:
            RuntimeError: the error, if the values do not say it either.
        """
        try:
            value = self.evaluated(func, args, kwargs)
        except FAILURES:
            raise error from None

        def stand_in(x: torch.Tensor) -> torch.Tensor:
            made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
            self.known[made] = x
            return made

        return map_tensors(stand_in, value)

    def listed(self, lengths: Any) -> list[int]:
        """Return lengths as a list.

        Raises:
            RuntimeError: if they are a tensor whose values are not known.
        """
        if not isinstance(lengths, torch.Tensor):
            return list(lengths)
        if lengths not in self.known:
            return [int(each) for each in lengths]  # an error that names the line
        with modes_disabled():
            found: list[int] = self.known[lengths].reshape(-1).tolist()
        return found

    def evaluated(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what a function returns on the known values; a write changes them too."""
        with modes_disabled(), torch.no_grad():
            args, kwargs = map_tensors(self.value_of, (args, kwargs))
            return func(*args, **kwargs)

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a known tensor; of one that only its layout is read of, any of its layout."""
        known: torch.Tensor | None = self.known.get(tensor)
        return torch.empty((), dtype=tensor.dtype).expand(tensor.shape) if known is None else known

    def forget(self, values: Iterable[torch.Tensor | None]) -> None:
        """Forget tensors that share memory with those of some values: they were written to."""
        written = {storage_key(value) for value in values if value is not None}
        for tensor, value in list(self.known.items()):
            if storage_key(value) in written:
                del self.known[tensor]


def ctc_loss(
    listed: Callable[[Any], list[int]],
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Evaluate the operators of ``torch.nn.functional.ctc_loss``, with lengths as lists.

    Its mean makes a tensor of them in C++, to which no FakeTensor can be an answer.

    Args:
        listed: returns lengths as a list: the kernel's memory depends on them.
        log_probs, targets, ...: as there.
    """
    lengths = [listed(each) for each in (input_lengths, target_lengths)]
    unreduced = 0
    loss = torch.ctc_loss(log_probs, targets, *lengths, blank, unreduced, zero_infinity)
    if reduction == "mean":
        return (loss / loss.new_tensor(lengths[1]).clamp_min(1)).mean()
    return loss.sum() if reduction == "sum" else loss


def true_elements(mask: torch.Tensor) -> int | None:
    """Return how many elements of a FakeTensor are true, if it is a mask that is known."""
    found: int | None = getattr(mask, COUNT, None)
    return found


def with_count(mask: Any, count: int | None) -> Any:
    """Note how many elements of a FakeTensor are true; return it."""
    if count is not None or hasattr(mask, COUNT):
        setattr(mask, COUNT, count)
    return mask


def storage_key(value: torch.Tensor) -> int:
    """Return what tensors that share memory have in common."""
    return int(value.untyped_storage().data_ptr())


def is_discrete(value: torch.Tensor) -> bool:
    """Whether a tensor has integers or truth values."""
    return not (value.is_floating_point() or value.is_complex())


def is_real_number(value: torch.Tensor) -> bool:
    """Whether a tensor is one number, and no truth value, which is read to decide by it."""
    return value.numel() == 1 and not value.is_complex() and value.dtype is not torch.bool


def is_small(value: Any) -> bool:
    """Whether a value is small enough to be evaluated on the side."""
    return not isinstance(value, torch.Tensor) or value.numel() <= MOST_ELEMENTS


def writes_to_argument(func: Any, kwargs: Any) -> bool:
    """Whether a function of PyTorch writes to one of its arguments."""
    return "out" in kwargs or bool(WRITES.fullmatch(getattr(func, "__name__", "")))
