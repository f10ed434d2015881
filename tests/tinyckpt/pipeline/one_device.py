"""Training on one device, for comparison: a perceptron, its micro-batches, gradients and steps."""

from functools import partial
from typing import Any

import numpy as np

import tinyckpt as tc
from tinyckpt.base.tree import leaves


def loss(params: Any, x: Any, y: Any) -> Any:
    for own in params:
        # The transpose is a view of the parameter, which the backward reads as well.
        x = tc.tanh(x @ tc.transpose(own["w"]) + own["b"])
    return tc.mean((x - y) ** 2)


def perceptron(count: int, width: int = 5, layers: int = 4) -> tuple[tc.TrainingGraph, list[Any]]:
    generator = np.random.default_rng(3)
    draw = partial(generator.normal)
    params = [{"w": draw(size=(width, width)), "b": draw(size=width)} for _ in range(layers)]
    batches = [(params, draw(size=(4, width)), draw(size=(4, width))) for _ in range(count)]
    return tc.differentiate(tc.build(loss, *batches[0])), batches


def trained(optimizer: tc.Optimizer, batches: list[Any], count: int) -> list[Any]:
    """Parameters after steps of one device, of ``count`` micro-batches each."""
    step = tc.train_step(loss, optimizer, micro_batches=count)
    state = step.init(batches[0][0])
    for begin in range(0, len(batches), count):
        own = batches[begin : begin + count]
        state, _ = step(state, *(np.concatenate([batch[k] for batch in own]) for k in (1, 2)))
    return leaves(state["parameters"])


def on_one_device(graph: tc.TrainingGraph, batches: list[Any]) -> tuple[list[Any], list[Any]]:
    """Values of each micro-batch, and the mean of the gradients, added up one by one."""
    results = [tc.run(tc.plan(graph), *batch, check_nan=False) for batch in batches]
    total: list[Any] = []
    for result in results:
        parts = [array * array.dtype.type(1 / len(batches)) for array in leaves(result.gradients)]
        total = [a + b for a, b in zip(total, parts, strict=True)] if total else parts
    return [result.value for result in results], total


def owner_of(array: Any) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
