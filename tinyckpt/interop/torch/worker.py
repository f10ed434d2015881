"""Worker process of operator measurement: evaluates single operators on synthetic tensors.

``isolated_worker`` runs this file as a script, in a process that imports PyTorch and nothing of
tinyckpt, since an operator may crash it. Requests are pickles of some operators, with layouts in
place of tensors; replies are pickles of bytes and seconds, or the text of an error, for each. They
share one session of the profiler: to start one takes as long as many small kernels. Output of
kernels is discarded.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from operator import attrgetter
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    sys.path[:] = sys.argv[1:]  # after the standard library: a user's folder may shadow it

import torch

# torch.profiler imports torch.compile, which takes seconds, when its first session starts.
from torch.autograd.profiler import profile, record_function

REPEATS = 5  # of a timed operator; the minimum counts, since noise only adds time
DRAWN = 2**16  # random numbers in a tensor of more; of 2**20, drawing takes longer than repeating
MARK = "tinyckpt operator "  # in the profiler, before an operator's place


# Allocator ---------------------------------------------------------------------------------------


@contextmanager
def profiled() -> Iterator[profile]:
    """Profile the CPU allocator."""
    # The profiler writes to the terminal when it starts and stops, unless told not to beforehand.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(profile_memory=True) as profiler:
        yield profiler


def changes_of(profiler: profile) -> list[tuple[int, int]]:
    """Return when the allocator handed out bytes, or took them back, and how many (negative)."""
    events = profiler.kineto_results.events()
    found = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    return sorted(found, key=lambda change: change[0])


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
        return *peak_and_rest(nbytes for _, nbytes in changes_of(profiler)), result
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = function()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return peak - before, torch.cuda.memory_allocated(device) - before, result


# Operators ---------------------------------------------------------------------------------------


def evaluated(requests: Sequence[dict[str, Any]]) -> list[Any]:
    """Evaluate operators; return of each its workspace, the storages of its results, its seconds.

    For one that fails, the text of its error.

    Args:
        requests: as ``workspace.request_of`` makes them.
    """
    on_cpu = any(not request["device"].startswith("cuda") for request in requests)
    with profiled() if on_cpu else nullcontext() as profiler:
        replies = [
            attempted(partial(measured, request, f"{MARK}{place}"))
            for place, request in enumerate(requests)
        ]
    found = {} if profiler is None else marked_workspaces(profiler)
    for place, request in enumerate(requests):
        if isinstance(replies[place], str):
            continue
        workspace, outputs = replies[place]
        # Not under the profiler, which takes time of its own.
        seconds = attempted(partial(seconds_of, request)) if request["timed"] else 0.0
        reply = (found.get(place, 0) if workspace is None else workspace), outputs, seconds
        replies[place] = seconds if isinstance(seconds, str) else reply
    return replies


def attempted(function: Callable[[], Any]) -> Any:
    """Return a function's result, or the text of its error."""
    try:
        return function()
    except BaseException as error:  # a kernel in Python may raise SystemExit
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def measured(request: dict[str, Any], mark: str) -> tuple[int | None, tuple[int, ...]]:
    """Evaluate an operator, marked in the profiler; return workspace and storages of its results.

    On a CPU the workspace is None: the profiler tells it when its session has ended.
    """
    call, device, workspace = prepared(request), request["device"], None
    if device.startswith("cuda"):
        peak, left, result = allocated(call, device)
        workspace = peak - left
    else:
        with record_function(mark):
            result = call()
    outputs = tuple(
        value.untyped_storage().nbytes() if isinstance(value, torch.Tensor) else 0
        for value in leaves(result)
    )
    return workspace, outputs


def prepared(request: dict[str, Any]) -> Callable[[], Any]:
    """Make the operands of an operator; return what evaluates it, or its derivative."""
    target = operator_of(request["operator"], request["modules"])
    args = mapped(tensor_of_layout, request["args"])
    kwargs = {name: mapped(tensor_of_layout, value) for name, value in request["kwargs"].items()}
    if request["forward"]:
        # Residuals of a forward kernel have dtypes and contents that only it can make.
        name, given, handed_on = request["forward"]
        results = operator_of(name)(*mapped(tensor_of_layout, given))
        args = [results[handed_on[i]] if i in handed_on else x for i, x in enumerate(args)]
    if request["by"]:
        given = [x for x in leaves([args, [*kwargs.values()]]) if isinstance(x, torch.Tensor)]
        for mask in (x for x in given if x.dtype is torch.bool):
            mask.untyped_storage().fill_(1)  # the more it selects, the more masked_fill's takes
        operands = [given[place].requires_grad_() for place in request["by"]]
        made = [x for x in leaves(target(*args, **kwargs)) if x.requires_grad]
        ones = [torch.ones_like(x) for x in made]
        # Saved tensors, which are no part of it, would be freed.
        return partial(torch.autograd.grad, made, operands, ones, retain_graph=True)
    return lambda: target(*args, **kwargs)


def marked_workspaces(profiler: profile) -> dict[int, int]:
    """Return the workspace of each marked operator: its peak of live bytes, less those after it."""
    changes, found = changes_of(profiler), {}
    times = [time for time, _ in changes]
    for event in profiler.kineto_results.events():
        if event.name().startswith(MARK):
            begin = bisect_left(times, event.start_ns())
            end = bisect_right(times, event.end_ns())
            peak, rest = peak_and_rest(nbytes for _, nbytes in changes[begin:end])
            found[int(event.name().removeprefix(MARK))] = peak - rest
    return found


def seconds_of(request: dict[str, Any]) -> float:
    """Return the seconds of one evaluation, the minimum of ``REPEATS``."""
    function = prepared(request)
    synchronize = torch.cuda.synchronize if request["device"].startswith("cuda") else lambda: None
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
    for module in (None, *modules):
        if module is not None:
            import_module(module)
        try:
            return attrgetter(name)(torch.ops)
        except AttributeError:
            continue
    raise LookupError(f"only the process that registered {name} knows it")


def tensor_of_layout(value: Any) -> Any:
    """Return a tensor of a layout: random numbers, or zeros; any other value unchanged.

    Random numbers are uniform in (0, 1], and repeat after ``DRAWN``. Zeros are legal as indices,
    and as masks.
    """
    if not isinstance(value, dict):
        return value
    shape, stride, offset = value["shape"], value["stride"], value["offset"]
    last = sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True))
    size = offset + last + 1 if all(shape) else 0
    dtype, device = value["dtype"], value["device"]
    if dtype.is_floating_point:  # to draw every number would take longer than most kernels
        drawn = (1 - torch.rand(min(size, DRAWN), device=device)).to(dtype)
        made = drawn.repeat(-(-size // DRAWN))[:size]
    else:
        made = torch.zeros(size, dtype=dtype, device=device)
    made = made.as_strided(shape, stride, offset if size else 0)
    if value.get("conj"):
        made = made.conj()
    if value.get("true"):  # a mask that selects so many elements
        made = made.clone()
        made[torch.unravel_index(torch.arange(value["true"], device=device), shape)] = True
    return made


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
    wanted = settings["deterministic"], settings["warn_only"]
    known = torch.are_deterministic_algorithms_enabled()
    if wanted != (known, torch.is_deterministic_algorithms_warn_only_enabled()):
        # It imports torch.compile, which takes seconds.
        torch.use_deterministic_algorithms(wanted[0], warn_only=wanted[1])
    for path, value in settings["flags"].items():
        owner, _, name = path.rpartition(".")
        setattr(attrgetter(owner)(torch), name, value)


def main() -> None:
    """Serve requests until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    disable_core_dumps()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        # Grad mode is on, but no tensor requires a gradient: some kernels (LSTMs) check it.
        serve = set_up if isinstance(request, dict) else evaluated
        pickle.dump(attempted(partial(serve, request)), replies)
        replies.flush()


def disable_core_dumps() -> None:
    """Disable core dumps of this process."""
    try:
        import resource
    except ImportError:  # Windows, which writes none
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    main()
