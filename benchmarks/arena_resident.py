"""Benchmark: resident memory of a step in one buffer, against the buffer and the arguments.

Each step in a process of its own: the high-water mark of its resident set (VmHWM in Linux's
``/proc/self/status``) over two calls after the first one, less what was resident before there were
arguments and a buffer. Before that, BLAS has its own memory, and the heap is trimmed. The
first call, which finds the layouts, runs the kernels as ever: its mark is a column of its own.
``arena.py`` writes the table.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
import peers
import table
from memory import MIB, resident, trim

import tinyckpt as tc

STEPS: dict[str, Callable[[], models.Model]] = {
    "MLP, 16 layers, 2,048x64": lambda: models.perceptron(16, 64, 2_048),
    "MLP, 64 layers, 64x256": models.perceptron,
    "GPT block, b=4, s=256, h=256": models.gpt_block,
    "conv block, b=32": models.conv_block,
    "ResNet-18, b=32, 32x32": models.resnet18,
    "MLP, 16 layers, 65,536x64": lambda: models.perceptron(16, 64, 65_536),
    "conv block, b=320": lambda: models.conv_block(320),
    "GPT block, b=64, s=256, h=256": lambda: models.gpt_block(64),
    "MLP, 16 layers, 229,376x64": lambda: models.perceptron(16, 64, 229_376),
}
SHARE, MORE = 0.01, 2 * MIB  # the limit: over buffer and arguments


def high_water() -> int:
    """Return the most bytes that were resident since the mark was reset."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def reset_high_water() -> int:
    """Return free heap memory to the system, reset the mark, and return what is resident now."""
    trim()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return resident()


def one(name: str) -> dict[str, int]:
    """Run one step in this process; return bytes."""
    model, dialect = STEPS[name](), peers.of_tinyckpt()
    graph = tc.differentiate(
        tc.build(lambda p, x: model.loss(dialect, p, x), model.parameters, model.x)
    )
    program = tc.compile(tc.plan(graph, "store_all"), arena=True, results="reused")
    assert program.arena is not None
    # BLAS has a buffer of its own, of which long products touch all that others need.
    tall = np.ones((2**14, 1024), "float32")
    tall @ tall[:1024], tall[:1024] @ tall.mT, tall.mT @ tall
    del tall
    before = reset_high_water()
    specs = tc.tree.leaves((model.parameters, model.x))
    parameters, x = tc.tree.map_leaves(
        lambda spec: np.full(spec.shape, 0.01, spec.dtype), (model.parameters, model.x)
    )
    program.function(parameters, x)
    first = high_water() - before
    reset_high_water()
    for _ in range(2):
        program.function(parameters, x)
    return {
        "buffer": program.arena.nbytes,
        "arguments": sum(spec.nbytes for spec in specs),
        "first": first,
        "later": high_water() - before,
    }


def resident_table() -> str:
    """Return the table of all steps."""
    body = []
    within = 0
    for name in STEPS:
        command = [sys.executable, __file__, name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, int] = json.loads(done.stdout)
        predicted = found["buffer"] + found["arguments"]
        within += found["later"] <= predicted * (1 + SHARE) + MORE
        columns = [found["buffer"], found["arguments"], found["later"], found["later"] - predicted]
        body.append(
            [
                name,
                *(f"{nbytes / MIB:,.1f}" for nbytes in columns),
                f"{100 * (found['later'] / predicted - 1):+.2f} %",
                f"{found['first'] / MIB:,.1f}",
            ]
        )
        print(*body[-1], file=sys.stderr, flush=True)
    header = [
        "step, float32", "buffer, MiB", "arguments", "resident, later calls", "over both, MiB",
        "", "resident, first call",
    ]  # fmt: skip
    return (
        f"{within} of {len(body)} are within 1 % + 2 MiB of buffer and arguments.\n\n"
        f"{table.rows(header, body)}"
    )


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1])))
