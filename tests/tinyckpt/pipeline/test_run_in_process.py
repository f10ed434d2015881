"""In-process pipelines with arrays: equal to gradient accumulation on one device."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests.conftest import examples
from tests.random_dags import training_graphs
from tests.tinyckpt.pipeline.one_device import loss, on_one_device, owner_of, perceptron
from tinyckpt.base.errors import BackendError, GraphError, OptionError, ScheduleError
from tinyckpt.base.tree import leaves
from tinyckpt.networks import random_arrays
from tinyckpt.networks.network import Network
from tinyckpt.pipeline import (
    PIPELINES,
    Action,
    Pipeline,
    data_parallel,
    gpipe,
    one_f_one_b,
    partition,
    pipeline_costs,
    plan_stages,
    replay_pipeline,
    run_pipeline,
    stages_of,
    v_half,
)
from tinyckpt.pipeline.device_executor import DeviceState, Message

FOLDED = ("interleaved", "v-min", "v-half")


def drawn_pipeline(data: st.DataObject, most: int) -> Pipeline:
    name = data.draw(st.sampled_from(sorted(PIPELINES)))
    chunks = 2 if name in FOLDED else 1
    if chunks > most:
        name, chunks = "gpipe", 1
    devices = data.draw(st.integers(1, min(4, most // chunks)))
    groups = data.draw(st.integers(1, 2))
    recompute = data.draw(st.sampled_from([None, "early", "late"]))
    return PIPELINES[name](devices, devices * groups, recompute=recompute)


@pytest.mark.long
@settings(max_examples=examples(250))
@given(training_graphs(largest=8), st.data())
def test_random_partitions_and_pipelines_equal_one_device(
    drawn: tuple[tc.TrainingGraph, tuple[Any, ...]], data: st.DataObject
) -> None:
    graph, (params, x, unused) = drawn
    pipeline = drawn_pipeline(data, graph.forward_count)
    replicas, zero = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))
    places = st.integers(1, max(1, graph.forward_count - 1))
    count = pipeline.stages - 1
    cuts = sorted(data.draw(st.sets(places, min_size=count, max_size=count)))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    batches = [
        (params, generator.normal(size=x.shape), unused)
        for _ in range(replicas * pipeline.micro_batches)
    ]
    policy = data.draw(st.sampled_from(["store_all", "sqrt_n", "recompute_all", "chen_recursive"]))
    halves, early = pipeline.halves, data.draw(st.booleans())
    stages = plan_stages(stages_of(graph, cuts, halves), policy, early=early)
    trace = replay_pipeline(
        pipeline, pipeline_costs(pipeline, stages), [each.footprint for each in stages]
    )
    assert trace.makespan >= max(trace.busy)
    whole = data_parallel(pipeline, replicas, zero)
    if replicas > 1 and zero == 3 and len(leaves(graph.gradients)) != len(params):
        with pytest.raises(GraphError, match="take the gradient with respect to that, and to noth"):
            run_pipeline(whole, stages, batches)
        return
    result = run_pipeline(whole, stages, batches)
    values, gradients = on_one_device(graph, batches)
    for ours, theirs in zip(leaves(result.values), leaves(values), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(leaves(result.gradients), gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@given(training_graphs(largest=8), st.data())
def test_device_memory_equals_replayed_memory(
    drawn: tuple[tc.TrainingGraph, tuple[Any, ...]], data: st.DataObject
) -> None:
    graph, arguments = drawn
    count = min(3, graph.forward_count)
    pipeline = one_f_one_b(count, 2, data.draw(st.sampled_from([None, "late"])))
    policy = data.draw(st.sampled_from(["store_all", "sqrt_n", "recompute_all"]))
    cuts = data.draw(
        st.sets(
            st.integers(1, max(1, graph.forward_count - 1)), min_size=count - 1, max_size=count - 1
        )
    )
    stages = plan_stages(stages_of(graph, sorted(cuts)), policy)
    batches = [arguments, arguments]
    sent: dict[Message, list[Any]] = {}
    workers = [
        DeviceState(pipeline, device, stages, batches, sent.__setitem__) for device in range(count)
    ]
    queues = [pipeline.actions(device) for device in range(count)]
    while any(queues):
        for worker, queue in zip(workers, queues, strict=True):
            while queue:
                action = queue[0]
                if action.kind.startswith("recv"):
                    stage, micro_batch = action.stage, action.micro_batch
                    message = Message(stage, "activation" in action.kind, stage, micro_batch)
                    if message not in sent:
                        break
                    worker.arrived[message] = sent.pop(message)
                elif action.kind.startswith("send"):
                    worker.send(action)
                elif action.kind != "update":
                    worker.work(action)
                    own = stages[action.stage].footprint
                    left = {"forward": own.held, "backward": 0, "recompute": own.recomputed}
                    came_back = stages[action.stage].stage
                    late = (
                        0 if action.kind != "recompute" else came_back.nbytes(came_back.takes_back)
                    )
                    assert held_bytes(worker, action) == left[action.kind] - late
                del queue[0]


def held_bytes(worker: DeviceState, action: Action) -> int:
    """The memory of a micro-batch in a stage, by the arrays; what the caller gave is not in it."""
    stage = worker.stages[action.stage].stage
    arrays = worker.values.get((action.stage, action.micro_batch), {})
    given = [*worker.sources[action.micro_batch].values(), *stage.graph.constants.values()]
    theirs = {id(owner_of(array)) for array in given}
    owners = {id(owner_of(array)): owner_of(array) for array in arrays.values()}
    return sum(owner.nbytes for key, owner in owners.items() if key not in theirs)


NETWORKS: dict[str, Callable[[], Network]] = {
    "transformer": lambda: tc.networks.transformer(2, 64, length=16, batch=4, vocabulary=503),
    "gpt2, whose embedding is shared": lambda: tc.networks.gpt2(
        2, 64, vocabulary=50, length=8, batch=2
    ),
    "lenet5": lambda: tc.networks.lenet5(2),
    "branching": lambda: tc.networks.branching(3, 8),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "v-half"])
def test_network_gradients_are_bitwise_equal_to_one_device(name: str, schedule: str) -> None:
    network = NETWORKS[name]()
    graph = network.graph()
    arguments = network.arrays()
    batches = [(arguments[0], *random_arrays(network.specs, seed)[1:]) for seed in range(4)]
    pipeline = PIPELINES[schedule](2, 4, recompute="early")
    cuts = partition(graph, pipeline.stages, costs=tc.cost.flops(graph))
    stages = plan_stages(stages_of(graph, cuts, pipeline.halves), "sqrt_n", early=True)
    result = run_pipeline(pipeline, stages, batches)
    values, gradients = on_one_device(graph, batches)
    assert all(map(np.array_equal, leaves(result.values), leaves(values)))
    assert all(map(np.array_equal, leaves(result.gradients), gradients))


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("policy", ["store_all", "sqrt_n", "recompute_all"])
def test_perceptron_gradients_are_bitwise_equal_to_one_device(name: str, policy: str) -> None:
    graph, batches = perceptron(8)
    pipeline = PIPELINES[name](2, len(batches), recompute="early")
    cuts = partition(graph, pipeline.stages)
    stages = plan_stages(stages_of(graph, cuts, pipeline.halves), policy)
    result = run_pipeline(pipeline, stages, batches)
    values, gradients = on_one_device(graph, batches)
    assert result.values == values
    assert all(map(np.array_equal, leaves(result.gradients), gradients))


def test_mean_over_micro_batches_equals_whole_batch() -> None:
    graph, batches = perceptron(8)
    stages = plan_stages(stages_of(graph, partition(graph, 3)))
    result = run_pipeline(one_f_one_b(3, 8), stages, batches)
    params, x, y = batches[0][0], *(np.concatenate(part) for part in list(zip(*batches))[1:])  # noqa: B905

    value, gradients = tc.value_and_grad(loss)(params, x, y)
    assert abs(np.mean(result.values) - value) < 1e-12
    for ours, theirs in zip(leaves(result.gradients), leaves(gradients), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_batch_norm_normalises_over_one_micro_batch() -> None:
    def loss(params: Any, x: Any) -> Any:
        h, mean, variance = tc.batch_norm(x, params["scale"], params["shift"])
        return tc.mean(tc.tanh(h) ** 2), mean, variance

    draw = np.random.default_rng(0)
    params = {"scale": draw.normal(size=3), "shift": draw.normal(size=3)}
    batches = [(params, draw.normal(size=(4, 3, 2, 2))) for _ in range(4)]
    graph = tc.differentiate(tc.build(loss, *batches[0]))
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    result = run_pipeline(data_parallel(PIPELINES["1f1b"](2, 2), 2, zero=2), stages, batches)
    values, gradients = on_one_device(graph, batches)
    # As one device that adds up micro-batches: the same numbers, statistics of each included.
    for ours, theirs in zip(leaves(result.values), leaves(values), strict=True):
        assert np.array_equal(ours, theirs)
    for ours, theirs in zip(leaves(result.gradients), gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)
    # And not those of the whole batch, whose statistics are others.
    whole = tc.run(tc.plan(tc.differentiate(tc.build(loss, params, tc.Spec((16, 3, 2, 2))))),
                   params, np.concatenate([batch[1] for batch in batches]))  # fmt: skip
    differences = [
        np.abs(ours - theirs).max()
        for ours, theirs in zip(leaves(whole.gradients), gradients, strict=True)
    ]
    assert max(differences) > 1e-4


def test_shared_parameter_in_two_stages_gets_both_gradients() -> None:
    def loss(w: Any, x: Any) -> Any:
        return tc.mean(tc.tanh(tc.tanh(x @ w) @ w) @ tc.transpose(w))

    generator = np.random.default_rng(1)
    w = generator.normal(size=(3, 3))
    batches = [(w, generator.normal(size=(2, 3))) for _ in range(4)]
    graph = tc.differentiate(tc.build(loss, *batches[0]))
    stages = plan_stages(stages_of(graph, [2, 4]))
    assert [stage.fixed_bytes for stage in stages] == [144, 72, 72]
    result = run_pipeline(gpipe(3, 4), stages, batches)
    values, gradients = on_one_device(graph, batches)
    np.testing.assert_allclose(result.values, values, rtol=1e-14)
    np.testing.assert_allclose(result.gradients, gradients[0], rtol=1e-13)


def test_footprints_of_a_chain_equal_hand_computation() -> None:
    # Values of 512 bytes. Stage 0 keeps f1 and f2, which it also sent; stage 1 takes f2, and keeps
    # f3 and f4.
    graph = tc.networks.chain(4)
    first, second = plan_stages(stages_of(graph, [2]))
    assert first.footprint.forward == first.footprint.held == 2 * 512
    assert first.footprint.backward == 4 * 512  # f1, f2, b3, b2
    assert second.footprint.held == 512 + 2 * 512
    trace = replay_pipeline(gpipe(2, 3), None, [first.footprint, second.footprint])
    assert trace.peaks[0] == 2 * 1024 + 2048


def test_early_recomputation_shortens_the_makespan() -> None:
    graph, batches = perceptron(8, layers=8)
    spans = []
    for recompute in ("late", "early"):
        pipeline = gpipe(4, len(batches), recompute)
        stages = plan_stages(stages_of(graph, partition(graph, 4)), "recompute_all", early=True)
        spans.append(replay_pipeline(pipeline, pipeline_costs(pipeline, stages)).makespan)
    assert spans[1] < spans[0]


@pytest.mark.long
def test_every_stage_stays_within_the_budget() -> None:
    graph = tc.networks.chain(16)
    batches = [(np.random.default_rng(seed).normal(size=(8, 8)),) for seed in range(8)]
    cut = stages_of(graph, partition(graph, 2))
    budget = 6 * 512
    assert all(tc.replay(tc.plan(stage.graph)).peak_bytes > budget for stage in cut)
    stages = plan_stages(cut, None, budget=budget, early=True)
    assert all(tc.replay(stage.schedule).peak_bytes <= budget for stage in stages)
    for each in plan_stages(cut, None, budget="6 nodes", early=True):
        assert tc.replay(each.schedule).peak_nodes <= 6
    for each in plan_stages(cut, "greedy", budget=budget, early=True):
        assert tc.replay(each.schedule).peak_bytes <= budget
    _, gradients = on_one_device(graph, batches)
    result = run_pipeline(v_half(1, 8), stages, batches)
    assert np.array_equal(result.gradients, gradients[0])


def test_mismatched_stages_and_batches_are_refused() -> None:
    graph, batches = perceptron(8)
    cut = stages_of(graph, partition(graph, 2))
    stages = plan_stages(cut)
    with pytest.raises(OptionError, match="gpipe has 3 stages and 8 micro-batches; got"):
        run_pipeline(gpipe(3, 8), stages, batches)
    with pytest.raises(ScheduleError, match="1 policies; there are 2 stages"):
        plan_stages(cut, ["store_all"])


def test_failing_kernel_names_device_action_and_operator() -> None:
    graph = tc.networks.chain(4)
    operators = tuple(replace(operator, primitive=None) for operator in graph.operators)
    stages = plan_stages(stages_of(replace(graph, operators=operators), [2]))
    with pytest.raises(BackendError, match="f1 is abstract"):
        run_pipeline(gpipe(2, 1), stages, [(np.zeros((8, 8)),)])

    def broken(xp: Any, x: Any) -> Any:
        raise ValueError("no")

    primitive = replace(graph.operators[3].primitive, forward=broken)
    operators = tuple(
        replace(operator, primitive=primitive) if operator.id == 3 else operator
        for operator in graph.operators
    )
    stages = plan_stages(stages_of(replace(graph, operators=operators), [2]))
    message = "^device 1: forward of stage 1, micro-batch 0: f4 failed: no$"
    with pytest.raises(BackendError, match=message):
        run_pipeline(gpipe(2, 1), stages, [(np.zeros((8, 8)),)])


def test_profiled_costs_add_up_over_stages() -> None:
    chain = tc.networks.chain(4)
    graph = replace(chain, operators=tuple(replace(o, cost=7.5) for o in chain.operators))
    pipeline = gpipe(2, 2)
    found, ones = (
        pipeline_costs(pipeline, plan_stages(stages_of(whole, (2,)))) for whole in (graph, chain)
    )
    assert (found.measure, ones.measure) == ("cost", "evaluations")
    for part in ("forward", "backward_input"):
        assert getattr(found, part) == [7.5 * count for count in getattr(ones, part)]


def test_pipeline_costs_carry_their_unit() -> None:
    graph = tc.networks.chain(4)
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    for costs_of, unit in ((tc.cost.given, "evaluations"), (tc.cost.flops, "FLOPs")):
        costs = pipeline_costs(gpipe(2, 1), stages, costs_of)
        assert costs.measure == unit
        assert replay_pipeline(gpipe(2, 1), costs).costs.measure == unit
