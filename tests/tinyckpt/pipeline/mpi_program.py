"""The program of each rank in the MPI tests: ``mpi_program.py PIPELINE REPLICAS [FAULT|ZERO]``."""

import json
import os
import signal
import sys
import time

from tinyckpt.pipeline.rank_supervisor import launched_rank, supervise

if __name__ == "__main__":
    supervise()
    if sys.argv[-1] == "killed before" and launched_rank() == "2":
        os.kill(os.getpid(), signal.SIGKILL)  # before it has met the others in MPI
    if sys.argv[-1] == "left before" and launched_rank() == "2":
        sys.exit(3)

from typing import Any

import numpy as np

import tinyckpt as tc
from tests.tinyckpt.pipeline.one_device import perceptron, trained
from tinyckpt.base.tree import leaves
from tinyckpt.pipeline import (
    PIPELINES,
    data_parallel,
    interleaved,
    partition,
    plan_stages,
    run_pipeline,
    run_pipeline_mpi,
    stages_of,
)
from tinyckpt.pipeline.device_executor import DeviceState
from tinyckpt.pipeline.mpi import Ranks


def main(name: str, replicas: int, fault: str) -> None:
    graph, batches = perceptron(8, width=6, layers=8)
    devices = 4 // replicas
    pipeline = PIPELINES[name](devices, 8 // replicas, recompute="early")
    cut = stages_of(graph, partition(graph, pipeline.stages), pipeline.halves)
    stages = plan_stages(cut, "sqrt_n", early=True)
    if fault:
        rank = int(launched_rank() or 0)
        if fault in AT:
            fail_at(fault, rank)
        elif fault == "late" and rank == 2:
            time.sleep(60)
        elif fault == "other" and rank >= 2:  # a replica of its own
            batches = [(tiny_bit_more(batch[0]), *batch[1:]) for batch in batches]
        elif fault in ("wrong", "killed"):
            batches = [faulty(batch, fault) if rank == 2 else batch for batch in batches]
    patience = 2.0 if fault in ("stopped", "late") else 100.0
    result = run_pipeline_mpi(pipeline, stages, batches, replicas, patience=patience)
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


def zero_main(replicas: int, zero: int) -> None:
    """Two steps of Adam, with the state shared out; on one device, or on two of a pipeline."""
    graph, batches = perceptron(16, width=6)
    one = interleaved(4 // replicas, 8 // replicas)
    stages = plan_stages(stages_of(graph, partition(graph, one.stages)), "sqrt_n")
    pipeline = data_parallel(one, replicas, zero)
    from mpi4py import MPI

    first = run_pipeline_mpi(pipeline, stages, batches[:8], optimizer=tc.adam(1e-2))
    state = MPI.COMM_WORLD.bcast(None if first is None else first.state)
    own = [batch[1:] for batch in batches[8:]]
    result = run_pipeline_mpi(pipeline, stages, own, optimizer=tc.adam(1e-2), state=state)
    if result is None:
        return
    alone = run_pipeline(pipeline, stages, batches, tc.adam(1e-2)).parameters
    errors = [
        max(
            float(np.abs(ours - theirs).max())
            for ours, theirs in zip(leaves(result.parameters), others, strict=True)
        )
        for others in (trained(tc.adam(1e-2), batches, 8), leaves(alone))
    ]
    print(json.dumps({"errors": errors}))


AT = {
    "killed in a forward": (DeviceState, "work", signal.SIGKILL),
    "killed in an all-reduce": (Ranks, "collective", signal.SIGKILL),
    "killed at the end": (Ranks, "gather", signal.SIGKILL),
    "stopped": (DeviceState, "work", signal.SIGSTOP),
}


def fail_at(fault: str, rank: int) -> None:
    """Have rank 2 get a signal when it is somewhere; the others get that far before."""
    owner, name, which = AT[fault]
    method = getattr(owner, name)

    def failing(self: Any, *arguments: Any) -> Any:
        if rank == 2:
            time.sleep(0.2)
            os.kill(os.getpid(), which)
        return method(self, *arguments)

    setattr(owner, name, failing)


def tiny_bit_more(params: Any) -> Any:
    """The parameters, but for the last bit of one number in the last layer."""
    *others, last = params
    b = last["b"].copy()
    b[3] = np.nextafter(b[3], np.inf)
    return [*others, {**last, "b": b}]


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
    last = sys.argv[3] if len(sys.argv) > 3 else ""
    if last.isdigit():
        zero_main(int(sys.argv[2]), int(last))
    else:
        main(sys.argv[1], int(sys.argv[2]), last)
