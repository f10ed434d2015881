"""Benchmark: GPU training steps: predicted peak against CuPy's memory pool, and run time.

Loss, gradients and AdamW of ResNet-50 and of GPT-2, under store_all, sqrt_n and half of store-all's
peak. A hook records the pool's allocations, relative to the bytes before the step; the pool rounds
every array up to 512 bytes. With one buffer, which is allocated in the first step, they are what
later steps allocate beside it. ``--backend numpy --small`` runs the same on a CPU, with tracemalloc
instead of the pool, to test the script; it writes nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from time import perf_counter
from typing import Any

import table

import tinyckpt as tc
from tinyckpt.core.backend import Backend, get_backend, to_backend
from tinyckpt.networks import Network, gpt2, random_arrays, resnet

WATCHED = 3  # steps, before the clock runs
ROUNDS = 7
PLANS: dict[str, dict[str, Any]] = {
    "store_all": {"policy": "store_all"},
    "sqrt_n": {"policy": "sqrt_n"},
    "budget 50 %": {"budget": "50 %"},
    "sqrt_n, one buffer": {"policy": "sqrt_n", "arena": True},
}


def networks(small: bool) -> Iterator[Network]:
    """Yield what is trained."""
    yield resnet(50, batch=32, size=32, width=16, classes=10) if small else resnet(50, batch=64)
    if small:
        yield gpt2(2, 64, 4, 64, 16, 100, positions=64)
    else:
        yield gpt2(batch=8, length=512)


class Peak:
    """Peak of allocated bytes, relative to those at the start."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def add(self, nbytes: int) -> None:
        """Record an allocation, or a free as negative bytes."""
        self.now += nbytes
        self.most = max(self.most, self.now)


@contextmanager
def watched(backend: Backend) -> Iterator[Peak]:
    """Yield the peak of the backend's allocations inside the block."""
    peak = Peak()
    if backend.name == "cupy":
        hook = pool_hook(peak)
        with hook:
            yield peak
        return
    tracemalloc.start()
    try:
        yield peak
        peak.most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def pool_hook(peak: Peak) -> Any:
    """Return a hook on CuPy's pool that records allocations and frees."""
    import cupy

    class Noting(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "tinyckpt"

        def malloc_postprocess(self, **kwargs: Any) -> None:
            peak.add(kwargs["mem_size"])

        def free_postprocess(self, **kwargs: Any) -> None:
            peak.add(-kwargs["mem_size"])

    return Noting()


def timed(run: Callable[[], object], backend: Backend) -> float:
    """Return the median of the seconds that some runs take."""
    seconds = []
    for _ in range(ROUNDS):
        begin = perf_counter()
        run()
        if backend.synchronize is not None:
            backend.synchronize()
        seconds.append(perf_counter() - begin)
    return statistics.median(seconds)


def measured(network: Network, backend: Backend) -> list[list[str]]:
    """Return the rows of a network: for each plan, predicted and allocated bytes, and seconds."""
    params, *arrays = random_arrays(network.specs, seed=0)
    batch = [to_backend(backend, array) for array in arrays]
    rows = []
    for name, options in PLANS.items():
        step = tc.train_step(network.loss, tc.adamw(1e-5), backend=backend, **options)
        state = step.init(params)

        def run(step: Any = step, state: Any = state) -> object:
            return step(state, *batch)[1]

        run()
        peaks = []
        for _ in range(WATCHED):  # what the interpreter makes once and keeps is not the step's
            with watched(backend) as peak:
                run()
            peaks.append(peak.most)
        taken = min(peaks)
        schedule = step.schedule(state, *batch)
        counted = tc.replay(schedule).peak_bytes
        total = tc.ledger(schedule).peak_bytes
        rows.append(
            [network.name, name, f"{counted / 2**20:,.1f}", f"{taken / 2**20:,.1f}",
             "" if options.get("arena") else f"{100 * (taken / counted - 1):+.2f} %",
             f"{total / 2**20:,.1f}",
             f"{timed(run, backend):.3f}"]
        )  # fmt: skip
        del step, state
    return rows


def cupy_package() -> str:
    """Return the name of the installed package of CuPy, which is one for each CUDA."""
    return next(
        name for name in map(str, packages_distributions()["cupy"]) if name.startswith("cupy")
    )


def device() -> str:
    """Return the name of the GPU."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    runtime = cupy.cuda.runtime.runtimeGetVersion()
    return f"On {properties['name'].decode()}, CUDA {runtime}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cupy", choices=("cupy", "numpy"))
    parser.add_argument("--small", action="store_true", help="networks for a CPU")
    options = parser.parse_args()
    backend = get_backend(options.backend)
    body = [row for network in networks(options.small) for row in measured(network, backend)]
    header = ("network", "plan", "counted, MiB", "pool, MiB", "above", "total, MiB", "s a step")
    if options.backend == "cupy":
        table.write(
            "gpu", "Training steps on a GPU", [device(), table.rows(header, body)],
            ["numpy", cupy_package()],
        )  # fmt: skip
    else:
        print(table.rows(header, body))


if __name__ == "__main__":
    main()
