"""What a rank of ``tinyckpt pipe`` draws; what it does under MPI is in the tests of pipelines."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import tinyckpt as tc
from tinyckpt.cli.ranks import Drawn
from tinyckpt.networks import random_arrays
from tinyckpt.pipeline import (
    data_parallel,
    one_f_one_b,
    partition,
    plan_stages,
    run_pipeline,
    stages_of,
)
from tinyckpt.pipeline.replicas import replica_of
from tinyckpt.pipeline.running import batches_of
from tinyckpt.pipeline.working import Worker
from tinyckpt.tree import leaves

NETWORK = tc.networks.mlp(4, 8)


def test_what_is_not_needed_is_a_view_of_one_zero() -> None:
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


def test_parameters_are_the_networks_and_data_are_drawn_once() -> None:
    places = set(range(len(leaves(NETWORK.specs))))
    drawn = Drawn(NETWORK.specs, 4, places)
    assert len(drawn) == 4
    params, *batch = drawn[2]
    for ours, theirs in zip(leaves(params), leaves(NETWORK.arrays()[0]), strict=True):
        assert np.array_equal(ours, theirs)
    others = [leaves(drawn[number][1:])[0] for number in (0, 1)]
    assert not np.array_equal(others[0], others[1])
    assert drawn[2][1] is batch[0]
    last = max(places)
    some = leaves(Drawn(NETWORK.specs, 4, {last})[2])
    assert np.array_equal(some[last], leaves(batch)[-1])
    assert not any(any(array.strides) for array in some[:last])


class Watched(Sequence[Any]):
    def __init__(self, batches: list[Any]) -> None:
        self.batches, self.asked = batches, list[int]()

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: Any) -> Any:
        self.asked.append(number)
        return self.batches[number]


def test_a_device_looks_up_its_own_micro_batches_once_and_keeps_what_it_reads() -> None:
    graph = NETWORK.graph()
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    pipeline = data_parallel(one_f_one_b(2, 3), 2)
    batches = Watched([NETWORK.arrays(seed) for seed in range(12)])
    own = batches_of(pipeline, batches, 1)
    found = []
    for device in range(2):
        batches.asked = []
        worker = Worker(replica_of(pipeline, 1), device, stages, own, lambda *_: None, 1)
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
