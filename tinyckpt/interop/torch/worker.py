"""Worker process of operator measurement: evaluates single operators on synthetic tensors.

``isolated_worker`` runs this file as a script, in a process that imports PyTorch and nothing of
tinyckpt, since an operator may crash it. Requests are pickles, one operator each, with layouts in
place of tensors; replies are pickles of bytes and seconds, or the text of an error. Output of
kernels is discarded.
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
    sys.path[:] = sys.argv[1:]  # after the standard library: a user's folder may shadow it

import torch
from torch.profiler import ProfilerActivity, profile

REPEATS = 5  # of a timed operator; the minimum counts, since noise only adds time


# Allocator ---------------------------------------------------------------------------------------


@contextmanager
def profiled() -> Iterator[profile]:
    """Profile the CPU allocator."""
    # The profiler writes to the terminal when it starts and stops, unless told not to beforehand.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield profiler


def changes_of(profiler: profile) -> list[int]:
    """Return the bytes that the allocator handed out, or took back if negative, by time."""
    events = profiler.profiler.kineto_results.events()
    found = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    return [nbytes for _, nbytes in sorted(found, key=lambda change: change[0])]


def peak_and_rest(changes: Iterable[int]) -> tuple[int, int]:
    """Return the peak of live bytes, and the live bytes at the end."""
    live = peak = 0
    for nbytes in changes:
        live += nbytes
        peak = max(peak, live)
    return peak, live


def allocated(function: Callable[[], Any], device: str) -> tuple[int, int, Any]:
    """Run a function; return its peak bytes, the bytes still live after it, and its result."""
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
    args = mapped(tensor_of_layout, request["args"])
    kwargs = {name: mapped(tensor_of_layout, value) for name, value in request["kwargs"].items()}
    if request["forward"]:
        # Residuals of a forward kernel have dtypes and contents that only it can make.
        name, given, handed_on = request["forward"]
        results = operator_of(name)(*mapped(tensor_of_layout, given))
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
    """Return the seconds of one evaluation, the minimum of ``REPEATS``."""
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
    """Look up an operator by its full name, such as ``aten.add.Tensor``.

    Args:
        name: of the operator.
        modules: imported one by one until it is registered.

    Raises:
        LookupError: if none of them registers it.
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


def tensor_of_layout(value: Any) -> Any:
    """Return a tensor of a layout: uniform random numbers or zeros; any other value unchanged.

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
    """Map a function over the leaves of nested lists and tuples."""
    if isinstance(value, list):
        return [mapped(function, each) for each in value]
    if isinstance(value, tuple):
        return tuple(mapped(function, each) for each in value)
    return function(value)


def leaves(value: Any) -> list[Any]:
    """Flatten nested lists and tuples."""
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]


# The process -------------------------------------------------------------------------------------


def set_up(settings: dict[str, Any]) -> None:
    """Apply the caller's global settings: see ``isolated_worker.settings``."""
    torch.set_num_threads(settings["threads"])
    torch.set_default_dtype(settings["dtype"])
    torch.use_deterministic_algorithms(settings["deterministic"], warn_only=settings["warn_only"])
    for path, value in settings["flags"].items():
        owner, _, name = path.rpartition(".")
        setattr(flag_owner(owner), name, value)


def flag_owner(path: str) -> Any:
    """Look up an object of PyTorch by its path, such as ``backends.mkldnn``."""
    found = torch
    for name in path.split("."):
        found = getattr(found, name)
    return found


def main() -> None:
    """Serve requests until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    disable_core_dumps()
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
            # Grad mode is on, but no tensor requires a gradient: some kernels (LSTMs) check it.
            reply = None
            if "threads" in request:
                set_up(request)
            else:
                reply = evaluated(request)
        except BaseException as error:  # a kernel in Python may raise SystemExit
            reply = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def disable_core_dumps() -> None:
    """Disable core dumps of this process."""
    try:
        import resource
    except ImportError:  # Windows, which writes none
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    main()
