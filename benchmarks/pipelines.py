"""Benchmark: scaling of the pipeline simulator: CPU time and memory per million actions.

Each pipeline is built and replayed in its own process, whose CPU time and peak memory are measured.
Linear scaling means that time and memory per million actions stay constant.

    python benchmarks/pipelines.py
"""

from __future__ import annotations

import resource
import subprocess
import sys
from time import process_time

import table

from tinyckpt.pipeline import PIPELINES, replay_pipeline

# Wide and short, narrow and long, ten and a hundred times as many; the last six are the largest
# asked, of 1,024 stages each, which is half as many devices where each has two.
SIZES = (
    ("1f1b", 64, 256), ("1f1b", 64, 2560), ("1f1b", 64, 25600),
    ("gpipe", 256, 256), ("gpipe", 256, 2560),
    ("1f1b", 4, 4096), ("1f1b", 4, 409600), ("1f1b", 1024, 16),
    ("v-half", 64, 256), ("v-half", 64, 2560),
    ("gpipe", 1024, 4096), ("1f1b", 1024, 4096), ("interleaved", 512, 4096),
    ("zb-h1", 1024, 4096), ("v-min", 512, 4096), ("v-half", 512, 4096),
)  # fmt: skip


def measured(name: str, devices: int, micro_batches: int) -> str:
    """Return stages, actions, seconds to make and to replay, and GiB, as text with spaces."""
    begin = process_time()
    pipeline = PIPELINES[name](devices, micro_batches)
    made = process_time()
    replay_pipeline(pipeline)
    done = process_time()
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return f"{pipeline.stages} {len(pipeline)} {made - begin} {done - made} {peak / 2**30}"


def main() -> None:
    """Write the table, or measure one pipeline."""
    if len(sys.argv) > 1:
        print(measured(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
        return
    body = []
    for name, devices, micro_batches in SIZES:
        one = subprocess.run(
            [sys.executable, __file__, name, str(devices), str(micro_batches)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        stages, count, made, replayed, peak = map(float, one.stdout.split())
        body.append(
            [
                name, f"{devices:,}", f"{stages:,.0f}", f"{micro_batches:,}", f"{count:,.0f}",
                f"{made:.2f}", f"{replayed:.2f}", f"{1e6 * (made + replayed) / count:.2f}",
                f"{peak:.2f}",
            ]
        )  # fmt: skip
        print(" | ".join(body[-1]), flush=True)
    header = [
        "pipeline", "devices", "stages", "micro-batches", "actions", "s to make", "s to replay",
        "s a million actions", "GiB",
    ]  # fmt: skip
    table.write("pipelines", "Replaying pipelines", [table.rows(header, body)], ["numpy"])


if __name__ == "__main__":
    main()
