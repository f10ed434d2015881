"""The worker process: evaluates operators alone, on tensors made up for them, and may die of it.

``isolation`` runs this file as a script, in a process that imports PyTorch and nothing of tinyckpt.
Requests come in as pickles, one operator each, with layouts in place of tensors; replies go out the
same way: bytes and seconds, or the text of an error. Whatever kernels print is dropped.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    sys.path[:] = sys.argv[1:]  # only now: a user's folder may have names of the standard library

import torch
from torch.profiler import ProfilerActivity, profile

REPEATS = 5  # of a timed operator; the shortest counts, since whatever disturbs makes it longer


# What the allocator hands out --------------------------------------------------------------------


@contextmanager
def profiled() -> Iterator[profile]:
    """Record what the CPU's allocator does."""
    # The profiler writes to the terminal when it starts and stops, unless told not to beforehand.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield profiler


def changes_of(profiler: profile) -> list[int]:
    """Return the bytes that the allocator handed out, or took back if less than 0, by time."""
    events = profiler.profiler.kineto_results.events()
    found = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    return [nbytes for _, nbytes in sorted(found, key=lambda change: change[0])]


def peak_and_rest(changes: Iterable[int]) -> tuple[int, int]:
    """Return the most bytes that were held, and those that are held at the end."""
    held = peak = 0
    for nbytes in changes:
        held += nbytes
        peak = max(peak, held)
    return peak, held


def allocated(function: Callable[[], Any], device: str) -> tuple[int, int, Any]:
    """Return the most bytes that a function held, those that it still holds, and its result."""
    if not device.startswith("cuda"):
        with profiled() as profiler:
            result = function()
        return *peak_and_rest(changes_of(profiler)), result
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = function()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return peak - before, torch.cuda.memory_allocated(device) - before, result


# One operator ------------------------------------------------------------------------------------


def evaluated(request: dict[str, Any]) -> tuple[int, tuple[int, ...], float]:
    """Evaluate an operator; return its workspace, the storages of its results, and its seconds.

    Args:
        request: as ``workspace.request_of`` makes it.
    """
    target = operator_of(request["operator"], request["modules"])
    args = mapped(made_up, request["args"])
    kwargs = {name: mapped(made_up, value) for name, value in request["kwargs"].items()}
    if request["forward"]:
        # What a kernel leaves to its backward one has a type and contents that only it knows.
        name, given, handed_on = request["forward"]
        results = operator_of(name)(*mapped(made_up, given))
        args = [results[handed_on[i]] if i in handed_on else x for i, x in enumerate(args)]
    device = request["device"]
    peak, left, result = allocated(lambda: target(*args, **kwargs), device)
    outputs = tuple(
        value.untyped_storage().nbytes() if isinstance(value, torch.Tensor) else 0
        for value in leaves(result)
    )
    del result
    seconds = seconds_of(lambda: target(*args, **kwargs), device) if request["timed"] else 0.0
    return peak - left, outputs, seconds


def seconds_of(function: Callable[[], Any], device: str) -> float:
    """Return the seconds of one evaluation, the shortest of a few."""
    synchronize = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    seconds = []
    for _ in range(REPEATS):
        synchronize()
        start = perf_counter()
        function()
        synchronize()
        seconds.append(perf_counter() - start)
    return min(seconds)


def operator_of(name: str, modules: Sequence[str] = ()) -> Any:
    """Return an operator by its full name, such as ``aten.add.Tensor``.

    Args:
        name: of the operator.
        modules: what to import, until it is registered.

    Raises:
        LookupError: if it is not registered then.
    """
    namespace, packet, overload = name.split(".")
    for module in (None, *modules):
        if module is not None:
            import_module(module)
        try:
            return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        except AttributeError:
            continue
    raise LookupError(f"only the process that registered {name} knows it")


def made_up(value: Any) -> Any:
    """Return a tensor of a layout: numbers from 0 to 1, or zeros; any other value as it is.

    Zeros are legal as indices, and as masks.
    """
    if not isinstance(value, dict):
        return value
    shape, stride, offset = value["shape"], value["stride"], value["offset"]
    last = sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True))
    size = offset + last + 1 if all(shape) else 0
    dtype, device = value["dtype"], value["device"]
    made = torch.zeros(size, dtype=dtype, device=device)
    if dtype.is_floating_point:
        made = torch.rand(size, device=device).to(dtype)
    return made.as_strided(shape, stride, offset if size else 0)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a nesting of lists and tuples with each leaf replaced."""
    if isinstance(value, list):
        return [mapped(function, each) for each in value]
    if isinstance(value, tuple):
        return tuple(mapped(function, each) for each in value)
    return function(value)


def leaves(value: Any) -> list[Any]:
    """Return what is in a nesting of lists and tuples."""
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]


# The process -------------------------------------------------------------------------------------


def set_up(settings: dict[str, Any]) -> None:
    """Compute as the process that asks does: see ``isolation.settings``."""
    torch.set_num_threads(settings["threads"])
    torch.set_default_dtype(settings["dtype"])
    torch.use_deterministic_algorithms(settings["deterministic"], warn_only=settings["warn_only"])
    for path, value in settings["flags"].items():
        owner, _, name = path.rpartition(".")
        setattr(flag_owner(owner), name, value)


def flag_owner(path: str) -> Any:
    """Return an object of PyTorch by its path, such as ``backends.mkldnn``."""
    found = torch
    for name in path.split("."):
        found = getattr(found, name)
    return found


def main() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    keep_no_core()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    reply: Any = "ready"
    while True:
        pickle.dump(reply, replies)
        replies.flush()
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        try:
            # Gradients are enabled, and nothing requires one: some kernels, as of LSTMs, ask.
            reply = None
            if "threads" in request:
                set_up(request)
            else:
                reply = evaluated(request)
        except BaseException as error:  # a kernel in Python may raise SystemExit
            reply = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def keep_no_core() -> None:
    """Let no file be written when this process crashes."""
    try:
        import resource
    except ImportError:  # Windows, which writes none
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    main()
