"""Handshake of MPI ranks: digests of arguments, and the error for a mismatch; needs no MPI."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyckpt as tc
from tests.tinyckpt.pipeline.one_device import perceptron
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.pipeline import data_parallel, one_f_one_b, partition, plan_stages, stages_of
from tinyckpt.pipeline.data_parallelism import replica_of
from tinyckpt.pipeline.device_executor import DeviceState
from tinyckpt.pipeline.mpi_handshake import argument_digests, digest, disagreement
from tinyckpt.pipeline.parameter_shards import parameters_of
from tinyckpt.pipeline.run_in_process import MicroBatches, run_pipeline
from tinyckpt.pipeline.save_and_resume import checked_state

GRAPH, BATCHES = perceptron(4, width=3)
STAGES = plan_stages(stages_of(GRAPH, partition(GRAPH, 2)))
PIPELINE = data_parallel(one_f_one_b(2, 2), 2, zero=1)
STATE = run_pipeline(PIPELINE, STAGES, BATCHES, tc.adam(0.1)).state


def claims(rank: int, state: Any = STATE, stages: Any = STAGES, batches: Any = BATCHES) -> Any:
    number, device = divmod(rank, 2)
    begin = checked_state(state, tc.adam(0.1), parameters_of(stages))
    own = [(state["parameters"], *batch[1:]) for batch in batches]
    worker = DeviceState(
        replica_of(PIPELINE, number), device, stages, MicroBatches(PIPELINE, own, number),
        lambda *_: None, number, tc.adam(0.1), begin,
    )  # fmt: skip
    return argument_digests(PIPELINE, stages, worker, begin), None


def test_ranks_with_equal_arguments_agree() -> None:
    assert disagreement([claims(rank) for rank in range(4)], 2) is None


@given(st.integers(0, 3), st.data())
def test_one_differing_bit_in_one_rank_is_found(rank: int, data: st.DataObject) -> None:
    state = map_leaves(lambda leaf: leaf.copy(), STATE)
    arrays = [*leaves(state["parameters"]), *leaves(state["optimizer"])]
    array = data.draw(st.sampled_from(arrays))
    place = data.draw(st.integers(0, array.nbytes - 1))
    array.reshape(-1).view(np.uint8)[place] ^= 1 << data.draw(st.integers(0, 7))
    found = disagreement([claims(k, state if k == rank else STATE) for k in range(4)], 2)
    own = {id(leaf): index for index, leaf in enumerate(arrays)}[id(array)] % 8
    name = f"params[{own // 2}]['{'wb'[own % 2]}']"
    holders = [k for k in range(4) if f"numbers in {name}" in claims(k)[0]]
    assert len(holders) == 2
    if rank not in holders:
        assert found is None  # nobody reads it there
    else:
        # Of two that differ, nobody knows who is wrong: the other one is named, and both are.
        assert found is not None
        first, second = holders
        assert found.startswith(f"rank {second} (device {second % 2}) was given other numbers in ")
        assert f"{name}" in found
        assert f" than rank {first}; all processes" in found


def test_differing_plans_steps_and_batches_are_found() -> None:
    usual = [claims(rank) for rank in range(3)]
    other = plan_stages([each.stage for each in STAGES], "recompute_all")
    for last, what in (
        (claims(3, stages=other), "stages"),
        (claims(3, {**STATE, "step": 7}), "numbers of steps taken"),
        (claims(3, batches=BATCHES * 2), "numbers of micro-batches"),
    ):
        assert disagreement([*usual, last], 2) == (
            f"rank 3 (device 1) was given other {what} than rank 0; all processes must be "
            "called with the same arguments"
        )
    # The most are taken for right.
    several = [claims(3, {**STATE, "step": 7}), *[claims(k) for k in (1, 2, 3)]]
    assert str(disagreement(several, 2)).startswith("rank 0 (device 0) was given other numbers of")


@pytest.mark.parametrize(
    ("troubles", "said"),
    [
        (["no", "no", "no", "no"], "no"),
        ([None, None, "no", None], "rank 2 (device 0): no"),
        ([None, "no", None, "neither"], "rank 1 (device 1) (and 1 more): no"),
        (["no", "no", "no", "neither"], "rank 0 (device 0) (and 3 more): no"),
    ],
)
def test_failed_ranks_are_reported_once(troubles: list[str | None], said: str) -> None:
    assert disagreement([({}, trouble) for trouble in troubles], 2) == said


def test_digests_depend_on_shapes_and_dtypes() -> None:
    arrays = [np.zeros(4), np.zeros((2, 2)), np.zeros(8, "float32"), np.zeros(0), np.zeros(())]
    assert len({digest([array]) for array in arrays}) == 5
    square = np.arange(9.0).reshape(3, 3)
    assert digest([square.T]) == digest([square.T.copy()]) != digest([square])
    assert digest(["ab", "c"]) != digest(["a", "bc"])
