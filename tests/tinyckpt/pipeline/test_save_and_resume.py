"""Saving and resuming the training state of a pipeline: bitwise equal to consecutive steps."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.pipeline.one_device import loss, perceptron
from tests.tinyckpt.pipeline.test_zero import OPTIMIZERS
from tinyckpt.base.errors import GraphError, OptionError
from tinyckpt.base.tree import leaves, leaves_with_paths
from tinyckpt.pipeline import (
    data_parallel,
    interleaved,
    one_f_one_b,
    partition,
    plan_stages,
    run_pipeline,
    stages_of,
)

CHOSEN = {**OPTIMIZERS, "masters": lambda: tc.with_master_weights(tc.momentum(0.1), "float64")}


def same(ours: Any, theirs: Any) -> bool:
    pairs = list(zip(leaves_with_paths(ours, ""), leaves_with_paths(theirs, ""), strict=True))
    return all(
        one == other and np.array_equal(a, b) and a.dtype == b.dtype
        for (one, a), (other, b) in pairs
    )


@pytest.mark.sampled(8)
@pytest.mark.long
@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("zero", range(4))
def test_resumed_steps_are_bitwise_equal_to_consecutive_steps(name: str, zero: int) -> None:
    graph, batches = perceptron(4 * 3, width=3)
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    pipeline = data_parallel(interleaved(1, 2, 2), 2, zero)
    whole = run_pipeline(pipeline, stages, batches, CHOSEN[name]())
    state = run_pipeline(pipeline, stages, batches[:4], CHOSEN[name]()).state
    before = [leaf.copy() for leaf in leaves(state)]
    for begin in (4, 8):
        parts = [batch[1:] for batch in batches[begin : begin + 4]]
        result = run_pipeline(pipeline, stages, parts, CHOSEN[name](), state)
        assert all(map(np.array_equal, leaves(state), before))  # stays as it is
        state, before = result.state, [leaf.copy() for leaf in leaves(result.state)]
    assert same(state, whole.state)
    assert int(whole.state["step"]) == 3
    # The state has no shares in it: any other number of replicas goes on from there.
    alone = run_pipeline(interleaved(1, 4, 2), stages, parts, CHOSEN[name](), state)
    again = run_pipeline(pipeline, stages, parts, CHOSEN[name](), state)
    for one, other in zip(leaves(alone.state), leaves(again.state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CHOSEN)
def test_state_equals_that_of_train_step(name: str) -> None:
    graph, batches = perceptron(2)
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    step = tc.train_step(loss, CHOSEN[name]())
    state, _ = step(step.init(batches[0][0]), *batches[0][1:])
    first = run_pipeline(one_f_one_b(2, 1), stages, batches[:1], CHOSEN[name]())
    assert same(first.state, state)
    ours = run_pipeline(one_f_one_b(2, 1), stages, [batches[1][1:]], CHOSEN[name](), state)
    theirs, _ = step(first.state, *batches[1][1:])
    assert same(ours.state, theirs)


def test_state_that_does_not_fit_is_refused() -> None:
    graph, batches = perceptron(2)
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    pipeline, own = one_f_one_b(2, 1), [batches[1][1:]]
    state = run_pipeline(pipeline, stages, batches[:1], tc.adam(0.1)).state

    def go_on(change: dict[str, Any], optimizer: Any = None, batch: Any = own) -> None:
        run_pipeline(pipeline, stages, batch, optimizer or tc.adam(0.1), state | change)

    wide = {
        "mean": state["optimizer"]["mean"],
        "square": [{"w": np.zeros(2), "b": np.zeros(5)}] * 4,
    }
    for change, message in (
        ({"scale": 1}, "expected a dict of parameters, optimizer, step, .* got .*'scale'"),
        ({"step": 1.5}, r"state\['step'\]: expected the number of steps taken, got 1.5"),
        ({"step": -1}, "it must be from 0 to"),
        ({"step": 2**70}, r"state\['step'\]"),
        (
            {"optimizer": wide},
            r"state\['optimizer'\]\['square'\]\[0\]\['w'\]: expected an array of",
        ),
    ):
        with pytest.raises(OptionError, match=message):
            go_on(change)
    with pytest.raises(GraphError, match=r"state\['optimizer'\]: expected a dict with the keys"):
        go_on({"optimizer": ()})
    with pytest.raises(GraphError, match=r"state\['optimizer'\]"):
        go_on({}, tc.momentum(0.1))
    with pytest.raises(GraphError, match=r"takes 3 arguments, .* got 4"):
        go_on({}, batch=batches[1:])
    with pytest.raises(OptionError, match="a state is for an optimizer"):
        run_pipeline(pipeline, stages, own, state=state)
    with pytest.raises(OptionError, match=r"expected a dict of .* got list"):
        run_pipeline(pipeline, stages, own, tc.adam(0.1), [1])


def test_optimizer_state_of_other_shapes_is_refused() -> None:
    graph, batches = perceptron(1)
    stages = plan_stages(stages_of(graph, partition(graph, 2)))
    odd = tc.Optimizer("odd", lambda params: np.zeros((3, 3)), lambda g, s, p, step: (p, s))
    with pytest.raises(
        OptionError, match="odd: its state has an array that is not of a parameter's shape"
    ):
        run_pipeline(one_f_one_b(2, 1), stages, batches, odd)
