"""What each rank of the tests under MPI does: ``mpi_program.py PIPELINE REPLICAS [FAULT]``."""

import json
import os
import signal
import sys

from tinyckpt.pipeline.mpi import run_pipeline_mpi, supervise

if __name__ == "__main__":
    supervise()

from typing import Any

import numpy as np

import tinyckpt as tc
from tinyckpt.pipeline import PIPELINES, partition, plan_stages, run_pipeline, stages_of
from tinyckpt.tree import leaves


def loss(params: Any, x: Any, y: Any) -> Any:
    for own in params:
        x = tc.tanh(x @ own["w"] + own["b"])
    return tc.mean((x - y) ** 2)


def main(name: str, replicas: int, fault: str) -> None:
    generator = np.random.default_rng(0)
    params = [{"w": generator.normal(size=(6, 6)), "b": generator.normal(size=6)} for _ in range(8)]
    batches = [
        (params, generator.normal(size=(4, 6)), generator.normal(size=(4, 6))) for _ in range(8)
    ]
    graph = tc.differentiate(tc.build(loss, *batches[0]))
    devices = 4 // replicas
    pipeline = PIPELINES[name](devices, 8 // replicas, recompute="early")
    halves = name in ("zb-h1", "v-min", "v-half")
    cut = stages_of(graph, partition(graph, pipeline.stages), halves)
    stages = plan_stages(cut, "sqrt_n", early=True)
    if fault:
        rank = int(os.environ["PMI_RANK"])
        batches = [faulty(batch, fault) if rank == 2 else batch for batch in batches]
    result = run_pipeline_mpi(pipeline, stages, batches, replicas)
    if result is None:
        return
    whole = PIPELINES[name](devices, 8, recompute="early")
    alone = run_pipeline(whole, stages, batches)
    pairs = list(zip(leaves(result.gradients), leaves(alone.gradients), strict=True))
    print(
        json.dumps(
            {
                "values": result.values == alone.values,
                "bitwise": all(np.array_equal(ours, theirs) for ours, theirs in pairs),
                "error": max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs),
            }
        )
    )


class Deadly:
    """An argument that kills the process that looks at it."""

    @property
    def shape(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
        return ()

    dtype = np.dtype("float64")


def faulty(batch: Any, fault: str) -> Any:
    return (batch[0], batch[1], Deadly() if fault == "killed" else np.zeros(3))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
