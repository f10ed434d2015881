"""Random micro-batches and memory check of one rank of ``tinyckpt pipe``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.errors import BackendError
from tinyckpt.base.tree import leaves
from tinyckpt.cli.mpi_rank import RandomMicroBatches, estimate, processes_here, run_rank
from tinyckpt.networks import random_arrays
from tinyckpt.pipeline import (
    data_parallel,
    one_f_one_b,
    partition,
    plan_stages,
    run_pipeline,
    stages_of,
)
from tinyckpt.pipeline.data_parallelism import replica_of
from tinyckpt.pipeline.device_executor import DeviceState
from tinyckpt.pipeline.run_in_process import MicroBatches

NETWORK = tc.networks.mlp(4, 8)


def test_unneeded_arrays_are_views_of_one_zero() -> None:
    whole = leaves(random_arrays(NETWORK.specs, 3))
    for needed in ({0, 3}, set(), set(range(len(whole)))):
        some = leaves(random_arrays(NETWORK.specs, 3, needed))
        for place, (array, known) in enumerate(zip(some, whole, strict=True)):
            assert (array.shape, array.dtype) == (known.shape, known.dtype)
            if place in needed:
                assert np.array_equal(array, known)
            else:
                assert not array.any()
                assert not any(array.strides)


def test_parameters_equal_network_arrays_and_data_are_generated_once() -> None:
    graph = NETWORK.graph()
    whole = plan_stages(stages_of(graph, []))
    drawn = RandomMicroBatches(NETWORK.specs, one_f_one_b(1, 4), whole, (0, 0), steps=3)
    assert len(drawn) == 12
    params, *batch = drawn[2]
    for ours, theirs in zip(leaves(params), leaves(NETWORK.arrays()[0]), strict=True):
        assert np.array_equal(ours, theirs)
    others = [leaves(drawn[number][1:])[0] for number in (0, 1)]
    assert not np.array_equal(others[0], others[1])
    assert drawn[2][1] is batch[0]
    assert drawn[6][1] is batch[0]  # each step has the same batch
    assert drawn[2][0] is drawn[0][0]
    # What another device reads is a view; together they have all.
    pipeline, stages = one_f_one_b(2, 4), plan_stages(stages_of(graph, partition(graph, 2)))
    parts = [
        leaves(RandomMicroBatches(NETWORK.specs, pipeline, stages, (0, k))[2]) for k in range(2)
    ]
    for ours, theirs, known in zip(*parts, leaves(drawn[2]), strict=True):
        assert any(ours.strides) != any(theirs.strides)
        assert np.array_equal(ours if any(ours.strides) else theirs, known)


def test_sharded_parameters_are_given_to_first_micro_batch_only() -> None:
    pipeline = data_parallel(one_f_one_b(1, 2), 2, zero=3)
    stages = plan_stages(stages_of(NETWORK.graph(), []))
    drawn = RandomMicroBatches(NETWORK.specs, pipeline, stages, (1, 0), steps=2, lasting=False)
    for number in (2, 3, 6, 7):
        params = leaves(drawn[number][0])
        assert all(any(array.strides) == (number == 2) for array in params)
        assert all(array is not other for array in params for other in leaves(drawn[2][0]))


def test_memory_estimate_above_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, graph = data_parallel(one_f_one_b(2, 3), 2, 1), NETWORK.graph()
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    plain, trained = (estimate(pipeline, stages, each) for each in (None, tc.adam(1e-3)))
    of_parameters = sum(node.nbytes for node in graph.data if node.role == "parameter")
    assert 0 < trained - plain <= of_parameters
    assert processes_here({}) == processes_here({"MPI_LOCALNRANKS": ""}) == 1
    # A machine with room for one process, and not for all that a launcher started on it.
    monkeypatch.setattr("tinyckpt.networks.machine_memory.memory_of_machine", lambda: 2 * plain)
    monkeypatch.setenv("MPI_LOCALNRANKS", str(2**20))
    with pytest.raises(
        BackendError, match=r"^1048576 of the pipeline's processes take about .* Gi"
    ):
        run_rank(pipeline, stages, NETWORK.specs, None, 1, 1.0)


class Watched(Sequence[Any]):
    def __init__(self, batches: list[Any]) -> None:
        self.batches, self.asked = batches, list[int]()

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: Any) -> Any:
        self.asked.append(number)
        return self.batches[number]


def test_device_reads_own_micro_batches_once() -> None:
    graph = NETWORK.graph()
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    pipeline = data_parallel(one_f_one_b(2, 3), 2)
    batches = Watched([NETWORK.arrays(seed) for seed in range(12)])
    own = MicroBatches(pipeline, batches, 1)
    found = []
    for device in range(2):
        batches.asked = []
        worker = DeviceState(replica_of(pipeline, 1), device, stages, own, lambda *_: None, 1)
        assert batches.asked == [3, 4, 5]
        found.append({data for data in worker.sources[0] if graph.data[data].role != "constant"})
        worker.next_step()
        assert batches.asked == [3, 4, 5, 9, 10, 11]
    # Each source is read by one of the two.
    assert found[0] & found[1] == set()
    assert len(found[0] | found[1]) == len(leaves(graph.arguments))
    params = NETWORK.arrays()[0]
    same = [(params, *batch[1:]) for batch in batches.batches[:6]]
    assert len(run_pipeline(pipeline, stages, Watched(same)).values) == 6
