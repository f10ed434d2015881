"""ZeRO pipelines: bytes and volumes equal the formulas; training equals that on one device."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyckpt as tc
from tests.tinyckpt.pipeline.one_device import loss, on_one_device, owner_of, perceptron, trained
from tinyckpt.base.errors import GraphError, OptionError
from tinyckpt.base.tree import leaves
from tinyckpt.networks import random_arrays
from tinyckpt.pipeline import (
    PIPELINES,
    data_parallel,
    gpipe,
    interleaved,
    one_f_one_b,
    partition,
    plan_stages,
    replay_state,
    run_pipeline,
    stages_of,
)
from tinyckpt.pipeline.data_parallelism import replica_of
from tinyckpt.pipeline.device_executor import TOGETHER, DeviceState
from tinyckpt.pipeline.run_in_process import run_collective
from tinyckpt.training import sharded


@pytest.mark.long
@given(st.integers(1, 9), st.integers(0, 3), st.integers(1, 4), st.integers(1, 3), st.data())
def test_state_bytes_equal_the_zero_formulas(
    replicas: int, zero: int, chunks: int, count: int, data: st.DataObject
) -> None:
    width = data.draw(st.sampled_from([1, 5, replicas, 4 * replicas]))
    graph, _ = perceptron(1, width)
    stages = plan_stages(stages_of(graph, partition(graph, chunks)))
    pipeline = data_parallel(interleaved(1, count, chunks), replicas, zero)
    trace = replay_state(pipeline, stages, tc.adam(1e-3))
    sizes = [node.spec.size for node in graph.data if node.role == "parameter"]
    assert len(sizes) == 8
    padded = 8 * sum(-(-size // replicas) for size in sizes)
    parameters, gradients, state = (
        padded if zero >= least else 8 * sum(sizes) for least in (3, 2, 1)
    )
    assert trace.parameters == (parameters,) * replicas
    assert trace.gradients == (gradients,) * replicas
    assert trace.optimizer_state == (2 * state,) * replicas
    if width % replicas == 0 and width > 1:
        step = tc.train_step(loss, tc.adam(1e-3), gradients="held")
        args = [tc.Spec((4, width))] * 2
        ledger = tc.ledger(step.schedule(step.init(leaves_as_specs(graph)), *args))
        found = sharded(ledger, replicas, zero)
        assert (trace.parameters[0], trace.gradients[0]) == (found.parameters, found.gradients)
        if count == 1 and replicas > 1:
            assert trace.exchanged[0] == found.exchanged
            assert trace.sent[0] * replicas == found.exchanged * (replicas - 1)
    # What is held of the state grows beyond the formula by one stage's at most: its gradients, and
    # its parameters with what makes their shares as long.
    largest = max(
        sum(8 * (size + -(-size // replicas) * replicas) for size in sizes)
        for sizes in by_stage(stages)
    )
    above = int(trace.held.max()) - trace.nbytes[0]
    assert 0 <= above <= (largest if zero >= 2 and replicas > 1 else 0)
    assert int(trace.held[-1]) == parameters + 2 * state


def leaves_as_specs(graph: tc.TrainingGraph) -> Any:
    return [{key: graph.data[data].spec for key, data in own.items()} for own in graph.arguments[0]]


def by_stage(stages: Any) -> list[list[int]]:
    return [
        [node.spec.size for node in each.stage.graph.data if node.role == "parameter"]
        for each in stages
    ]


@pytest.mark.long
def test_zero_table_of_7_5_billion_parameters_equals_the_paper() -> None:
    def large(params: Any, x: Any) -> Any:
        for w in params:
            x = tc.tanh(x @ w)
        return tc.half_squared_norm(x.astype("float32"))

    width, layers, ranks = 10_000, 75, 64
    specs = [tc.Spec((width, width), "float16")] * layers
    graph = tc.differentiate(tc.build(large, specs, tc.Spec((1, width), "float16")))
    # A cut behind every tanh: each stage has one layer.
    stages = plan_stages(stages_of(graph, list(range(2, 2 * layers, 2))))
    optimizer = tc.with_master_weights(tc.adam(1e-3))
    parameters = 2 * layers * width**2
    for zero, gigabytes, times in ((0, "120.0", 2), (1, "31.4", 2), (2, "16.6", 2), (3, "1.9", 3)):
        pipeline = data_parallel(interleaved(1, 1, layers), ranks, zero)
        trace = replay_state(pipeline, stages, optimizer)
        assert {f"{nbytes / 1e9:.1f}" for nbytes in trace.nbytes} == {gigabytes}
        assert trace.exchanged == (times * parameters,) * ranks
        assert trace.sent == (times * parameters // 64 * 63,) * ranks


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize(("replicas", "count"), [(2, 1), (3, 2)])
def test_state_in_memory_equals_replayed_state(zero: int, replicas: int, count: int) -> None:
    graph, batches = perceptron(replicas * count)
    stages = plan_stages(stages_of(graph, partition(graph, 3)), "sqrt_n")
    pipeline = data_parallel(interleaved(1, count, 3), replicas, zero)
    trace = replay_state(pipeline, stages, tc.adam(1e-3))
    workers = [
        DeviceState(
            replica_of(pipeline, number), 0, stages,
            batches[number * count :][:count], lambda *_: None, number, tc.adam(1e-3),
        )
        for number in range(replicas)
    ]  # fmt: skip
    sent = [0] * replicas
    lanes = [replica_of(pipeline, number).actions(0) for number in range(replicas)]
    for step, actions in enumerate(zip(*lanes, strict=True)):
        if actions[0].kind in TOGETHER:
            own = [each.holding.offered(a) for each, a in zip(workers, actions, strict=True)]
            got = run_collective(own[0].kind, [each.arrays for each in own])
            for number, (worker, action) in enumerate(zip(workers, actions, strict=True)):
                worker.holding.received(action, got[number])
                # In a ring: each share but one's own, for a gather or a scatter.
                shares = sum(-(-array.size // (1 if own[0].kind == "gather" else replicas))
                             for array in own[0].arrays)  # fmt: skip
                times = 2 if own[0].kind == "all_reduce" else 1
                sent[number] += times * 8 * shares * (replicas - 1)
        else:
            for worker, action in zip(workers, actions, strict=True):
                worker.do(action)
        for number, worker in enumerate(workers):
            counted = trace.held[pipeline.first[number] + step]
            assert held_state(worker) == counted, (step, actions[0])
    assert tuple(sent) == trace.sent


def held_state(worker: DeviceState) -> int:
    """The memory of a device's parameters, gradients and state, each of its arrays' own."""
    own = worker.holding
    trees = [own.parameters, own.gradients, *own.fresh.values(), *own.gathered.values(),
             *own.state.values()]  # fmt: skip
    arrays = [array for tree in trees for array in leaves(tree)]
    in_flight = [array for values in worker.values.values() for array in values.values()]
    known = {id(owner_of(array)) for array in arrays}
    given = {id(owner_of(array)) for source in worker.sources for array in source.values()}
    if worker.pipeline.zero == 3:
        # Nothing in flight holds a parameter that was freed, as a view would.
        sizes = {array.size for array in leaves(own.parameters)}
        for array in in_flight:
            owner = owner_of(array)
            assert id(owner) in known | given or owner.size not in {
                size * worker.pipeline.replicas for size in sizes
            }
    return sum(owner_of(array).nbytes for array in arrays)


def test_peaks_equal_hand_computation() -> None:
    graph, _ = perceptron(1, width=4, layers=2)
    (stage,) = plan_stages(stages_of(graph, []))
    own, size = stage.footprint, 2 * (16 + 4)
    found = [
        replay_state(data_parallel(gpipe(1, 1), 4, zero), [stage], tc.adam(1e-3)).peaks[0]
        for zero in range(4)
    ]
    whole, share = 8 * size, 8 * size // 4
    # Parameters, two moments, and what the backward works with, its gradients too; with ZeRO-3 the
    # gathered parameters besides the share.
    assert own.backward > own.forward
    assert found == [
        whole + 2 * whole + own.backward,
        whole + 2 * share + own.backward,
        whole + 2 * share + own.backward,
        share + 2 * share + whole + own.backward,
    ]


OPTIMIZERS = {
    "sgd": lambda: tc.sgd(0.1),
    "momentum": lambda: tc.momentum(0.1),
    "adamw": lambda: tc.adamw(1e-2),
    "rate": lambda: tc.adam(lambda step: 0.1 / (1.0 + step.astype("float64"))),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("zero", range(4))
def test_several_steps_are_bitwise_equal_to_one_device(name: str, zero: int) -> None:
    # One micro-batch a replica, and a power of 2 of them: then the sums are the same, in order.
    graph, batches = perceptron(4 * 3)
    stages = plan_stages(stages_of(graph, partition(graph, 3)), "recompute_all")
    pipeline = data_parallel(interleaved(1, 1, 3), 4, zero)
    result = run_pipeline(pipeline, stages, batches, OPTIMIZERS[name]())
    assert result.gradients is None
    for ours, theirs in zip(
        leaves(result.parameters), trained(OPTIMIZERS[name](), batches, 4), strict=True
    ):
        assert np.array_equal(ours, theirs)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("recompute", [None, "early"])
def test_every_schedule_trains_as_one_device(name: str, zero: int, recompute: str) -> None:
    graph, batches = perceptron(3 * 2 * 2)
    pipeline = data_parallel(PIPELINES[name](2, 2, recompute=recompute), 3, zero)
    cuts = partition(graph, pipeline.stages // 3)
    stages = plan_stages(stages_of(graph, cuts, pipeline.halves), "sqrt_n", early=True)
    result = run_pipeline(pipeline, stages, batches, tc.adam(1e-2))
    for ours, theirs in zip(
        leaves(result.parameters), trained(tc.adam(1e-2), batches, 6), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("zero", range(4))
def test_shared_embedding_with_integer_inputs_trains_as_one_device(zero: int) -> None:
    network = tc.networks.gpt2(2, 64, vocabulary=50, length=8, batch=2)
    graph, arguments = network.graph(), network.arrays()
    batches = [(arguments[0], *random_arrays(network.specs, seed)[1:]) for seed in range(4)]
    stages = plan_stages(stages_of(graph, partition(graph, 4, costs=tc.cost.flops(graph))))
    result = run_pipeline(data_parallel(interleaved(1, 2, 4), 2, zero), stages, batches)
    _, gradients = on_one_device(graph, batches)
    for ours, theirs in zip(leaves(result.gradients), gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)  # float32


def test_optimizer_across_elements_is_refused() -> None:
    graph, batches = perceptron(2)
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    pipeline = data_parallel(interleaved(1, 1, 2), 2, zero=1)
    clipped = tc.clipped(tc.sgd(0.1), 1.0)
    with pytest.raises(OptionError, match=r"sgd, clipped to 1: .* looks across elements"):
        run_pipeline(pipeline, stages, batches, clipped)
    with pytest.raises(OptionError, match=r"2 micro-batches \(1 in each replica\); got 2 an"):
        run_pipeline(pipeline, stages, batches[:1], tc.sgd(0.1))

    def tied(w: Any, x: Any) -> Any:
        return tc.mean(tc.tanh(tc.tanh(x @ w) @ w) @ tc.transpose(w))

    batch = (np.ones((3, 3)), np.ones((2, 3)))
    graph = tc.differentiate(tc.build(tied, *batch))
    stages = plan_stages(stages_of(graph, [2]))
    with pytest.raises(OptionError, match="w is read on device 1 and updated on device 0, which"):
        run_pipeline(gpipe(2, 1), stages, [batch], tc.sgd(0.1))
    alone = run_pipeline(interleaved(1, 1, 2), stages, [batch], tc.sgd(0.1)).parameters
    many = data_parallel(interleaved(1, 1, 2), 2, zero=3)
    assert np.array_equal(run_pipeline(many, stages, [batch] * 2, tc.sgd(0.1)).parameters, alone)
    both = tc.differentiate(tc.build(tied, *batch), (0, 1))
    stages = plan_stages(stages_of(both, [2]))
    with pytest.raises(GraphError, match="an optimiser updates the first argument; take"):
        run_pipeline(one_f_one_b(2, 1), stages, [batch], tc.sgd(0.1))
