"""Benchmark: memory of training: predicted peak against tracemalloc and resident set size.

Each network and each kind of plan in its own process, twice: once plain, for the resident set size;
once under tracemalloc, which takes memory itself. The compiled program runs, with parameters and
batch already allocated. And LLaMA-7B with Adam, which fits in no machine here: seconds and memory
of building, differentiating, planning and replaying it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import ctypes
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

import numpy as np
import table

import tinyckpt as tc
from tinyckpt.networks import (
    Network,
    bert,
    cnn100,
    gpt2,
    lenet5,
    llama,
    mobilenet_v1,
    resnet,
    unet_network,
    vgg,
    vit,
)

MIB = 2**20
TEXT: dict[str, Any] = {"length": 256, "batch": 4, "vocabulary": 8000}
NETWORKS: dict[str, Callable[[], Network]] = {
    "LeNet-5, 1024 images": lambda: lenet5(1024),
    "CNN of 10 layers, 8 images": lambda: cnn100(8, layers=10, width=160),
    "VGG-16, 2 of 224x224": lambda: vgg(16, 2),
    "ResNet-18, 8 of 224x224": lambda: resnet(18, 8),
    "ResNet-50, 4 of 224x224": lambda: resnet(50, 4),
    "MobileNet, 8 of 224x224": lambda: mobilenet_v1(8),
    "U-Net, 2 of 256x256": lambda: unet_network(2, 256, width=32),
    "ViT, 6x384, 8 of 224x224": lambda: vit(6, 384, batch=8),
    "BERT, 4x512": lambda: bert(4, 512, **TEXT),
    "GPT-2, 4x512": lambda: gpt2(4, 512, **TEXT),
    "GPT-2, 4x512, fused": lambda: gpt2(4, 512, **TEXT, fused=True),
    "LLaMA, 4x512": lambda: llama(4, 512, **TEXT, hidden=1376),
}
HOWS = ("store_all", "sqrt_n", "budget")
BUDGET_SECONDS = 4.0
SAMPLING = 0.0005  # seconds between looks at the resident set


def resident() -> int:
    """Return the resident set size of this process, in bytes (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def trim() -> None:
    """Return free heap memory to the system (glibc's malloc_trim)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class Watch:
    """Sampler of the resident set in a thread; records the maximum."""

    def __init__(self) -> None:
        self.most, self.done = resident(), Event()
        self.thread = Thread(target=self.sample, daemon=True)

    def sample(self) -> None:
        while not self.done.wait(SAMPLING):
            self.most = max(self.most, resident())

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self.done.set()
        self.thread.join()
        self.most = max(self.most, resident())


def schedule_of(graph: tc.TrainingGraph, how: str) -> tc.Schedule:
    """Return the schedule of a policy; or the best in a budget between store-all and sqrt(n)."""
    if how != "budget":
        return tc.plan(graph, how)
    peaks = [tc.replay(tc.plan(graph, policy)).peak_bytes for policy in ("store_all", "sqrt_n")]
    return tc.plan(graph, budget=sum(peaks) // 2, time_limit=BUDGET_SECONDS)


def one(name: str, how: str, traced: bool) -> dict[str, int]:
    """Run one network in this process; return the growth of its memory, in bytes."""
    network = NETWORKS[name]()
    graph = network.graph()
    schedule = schedule_of(graph, how)
    program = tc.compile(schedule)
    args = network.arrays()
    predicted = tc.replay(schedule).peak_bytes
    if traced:
        tracemalloc.start()
        program(*args)
        return {"predicted": predicted, "held": tracemalloc.get_traced_memory()[1]}
    square = np.ones((1024, 1024), "float32")
    square @ square  # BLAS takes a buffer of its own, once
    trim()
    before = resident()
    with Watch() as watch:
        program(*args)
    return {"predicted": predicted, "resident": watch.most - before}


def in_a_process(*arguments: str) -> dict[str, Any]:
    """Run this script for one number, in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def networks() -> str:
    """Return the table of all networks."""
    body = []
    for name in NETWORKS:
        for how in HOWS:
            found = in_a_process(name, how, "traced") | in_a_process(name, how, "resident")
            predicted = found["predicted"]
            body.append(
                [
                    name, how, f"{predicted / MIB:,.1f}", f"{found['held'] / MIB:,.1f}",
                    f"{100 * (found['held'] / predicted - 1):+.2f} %",
                    f"{found['resident'] / MIB:,.1f}",
                    f"{100 * (found['resident'] / predicted - 1):+.1f} %",
                ]
            )  # fmt: skip
            print(*body[-1], file=sys.stderr)
    header = [
        "network", "plan", "predicted, MiB", "tracemalloc, MiB", "", "resident set grows by, MiB",
        "",
    ]  # fmt: skip
    return table.rows(header, body)


def llama_7b() -> dict[str, Any]:
    """Return seconds and resident memory of every stage of LLaMA-7B, in this process."""
    found: dict[str, Any] = {}
    begin = perf_counter()

    def station(name: str, what: str) -> None:
        nonlocal begin
        now = perf_counter()
        found[name] = [what, now - begin, resident()]
        begin = perf_counter()

    network = llama()
    step = tc.train_step(network.loss, tc.adam(1e-4))
    graph = step.graph(step.init(network.specs[0]), *network.specs[1:])
    station("build, differentiate, add Adam", f"{len(graph.operators):,} operators")
    stored = tc.replay(tc.plan(graph))
    station("store_all, replayed", f"{stored.peak_bytes / 2**30:.1f} GiB")
    schedule = tc.plan(graph, "sqrt_n")
    station("plan, sqrt_n", f"{len(schedule.steps):,} steps")
    trace = tc.replay(schedule)
    station("replay", f"{trace.peak_bytes / 2**30:.1f} GiB")
    ledger = tc.ledger(schedule)
    station("ledger", f"{ledger.peak_bytes / 2**30:.1f} GiB total")
    budgeted = tc.plan(graph, budget=0.5, time_limit=30.0)
    peak = tc.replay(budgeted).peak_bytes
    station("plan, half of store-all's peak", f"{peak / 2**30:.1f} GiB, {budgeted.certificate}")
    return found


def large() -> str:
    """Return the table of LLaMA-7B."""
    body = [
        [name, what, f"{seconds:.2f}", f"{nbytes / MIB:,.0f}"]
        for name, (what, seconds, nbytes) in in_a_process("llama_7b").items()
    ]
    header = ["LLaMA-7B with Adam, a sequence of 2,048", "", "s", "resident, MiB"]
    return table.rows(header, body)


EXPLANATION = """Predicted is the peak of `replay`, workspace included. tracemalloc counts all bytes
that NumPy and Python take while the compiled program runs. The resident set is what the process has
more of, at the most, than before the call: memory that was taken and not touched yet does not
count, what the allocator keeps for later does. Before the call, it has given everything back, and
BLAS has its own buffer. Parameters and batch are in none of these. The budget lies halfway between
store-all's peak and sqrt_n's."""

if __name__ == "__main__":
    if sys.argv[1:] == ["llama_7b"]:
        print(json.dumps(llama_7b()))
    elif sys.argv[1:]:
        print(json.dumps(one(sys.argv[1], sys.argv[2], sys.argv[3] == "traced")))
    else:
        table.write("memory", "What training holds", [EXPLANATION, networks(), large()], ["numpy"])
