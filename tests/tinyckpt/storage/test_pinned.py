"""Asynchronous copies: bitwise equal in any interleaving with computation, buffers kept alive."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyckpt as tc
from tests import streams, strict
from tests.conftest import examples, require
from tests.random_dags import training_graphs
from tinyckpt.base.tree import leaves
from tinyckpt.core.backend import Backend, get_backend
from tinyckpt.storage import pinned
from tinyckpt.storage.pinned import PinnedMemory

BACKEND = replace(strict.BACKEND, host=lambda: PinnedMemory(strict))


@pytest.fixture(autouse=True)
def _only_when_asked() -> Iterator[None]:
    yield
    streams.Stream.progress = lambda: False


def bits(result: tc.RunResult) -> list[bytes]:
    found = leaves((result.value, result.gradients))
    return [np.asarray(x.get() if hasattr(x, "get") else x).tobytes() for x in found]


@settings(max_examples=examples(60))
@given(
    training_graphs(),
    st.sampled_from((None, 40)),
    st.sampled_from((0.0, 0.2, 0.8)),
    st.integers(0, 99),
)
def test_results_are_bitwise_equal_in_any_copy_interleaving(
    case: Any, bandwidth: int | None, often: float, seed: int
) -> None:
    graph, args = case
    schedule = tc.plan(graph, "offload", bandwidth=bandwidth)
    draws = Random(seed)
    streams.Stream.every[:] = [streams.CURRENT]
    streams.Stream.progress = lambda: draws.random() < often
    moved = tc.run(schedule, *args, backend=BACKEND, check_nan=False)
    assert moved.trace == tc.replay(schedule)
    stored = tc.run(tc.plan(graph, "store_all"), *args, backend=strict.BACKEND, check_nan=False)
    assert bits(moved) == bits(stored)


def test_fetched_value_can_be_offloaded_freed_or_returned() -> None:
    graph = tc.build(lambda x: tc.tanh(tc.tanh(x)), tc.Spec((3,)))
    first, last = (operator.outputs[0] for operator in graph.operators)
    there = [tc.Compute(0), tc.Offload(first), tc.Fetch(first), tc.Offload(first)]
    twice = [*there, tc.Fetch(first), tc.Compute(1), tc.Free(first)]
    unread = [*there, tc.Fetch(first), tc.Free(first), tc.Compute(0), tc.Compute(1), tc.Free(first)]
    x = np.linspace(-1, 1, 3)
    for steps in (twice, unread):
        schedule = tc.Schedule(graph, (*steps, tc.Offload(last), tc.Fetch(last)), "mine")
        result = tc.run(schedule, x, backend=BACKEND)
        assert result.value.get().tolist() == np.tanh(np.tanh(x)).tolist()


def test_at_most_two_copies_are_in_flight_per_direction() -> None:
    host = PinnedMemory(strict)
    arrays = [strict.array(np.full(4, float(n))) for n in range(5)]
    parked = [host.park(array) for array in arrays]
    assert [kept.copy.end.done for kept in parked] == [True] * 3 + [False] * 2
    bound = [(strict.negative,)] * 5
    back = [host.fetch(kept, bound, (n,)) for n, kept in enumerate(parked)]
    assert len(host.arriving) == pinned.MAX_IN_FLIGHT
    assert [bound[n][0](back[n])[0].item() for n in range(5)] == [-0.0, -1.0, -2.0, -3.0, -4.0]


def test_failed_run_waits_for_its_copies() -> None:
    host = PinnedMemory(strict)
    kept = host.park(strict.array(np.ones(4)))
    host.fetch(kept, [], ())
    lines = host.out, host.back
    del host, kept
    assert [stream.count == len(stream.line) for stream in lines] == [True, True]


@pytest.mark.parametrize(
    "numbers",
    [np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1), np.zeros((0, 3)), np.array(2.5)],
    ids=["transposed", "empty", "without axes"],
)
def test_fetched_array_keeps_strides(numbers: Any) -> None:
    host = PinnedMemory(strict)
    array = strict.ndarray(numbers)
    back = host.fetch(host.park(array), [], ())
    host.settle()
    assert (back.shape, back.strides) == (array.shape, array.strides)
    assert back.get().tolist() == numbers.tolist()


def test_update_waits_for_fetched_value() -> None:
    def step(w: Any, x: Any) -> Any:
        return tc.assign(w, w + x)

    graph = tc.build(step, tc.Spec((3,)), tc.Spec((3,)))
    made = graph.operators[0].outputs[0]
    update = tc.Update(graph.operators[-1].id)
    steps = (tc.Compute(0), tc.Offload(made), tc.Fetch(made), update, tc.Free(made))
    result = tc.run(tc.Schedule(graph, steps, "mine"), np.ones(3), np.ones(3), backend=BACKEND)
    assert result.value.get().tolist() == [2.0, 2.0, 2.0]


def test_cupy_api_has_the_methods_used() -> None:
    require("cupy")
    import cupy

    text = Path(pinned.__file__).read_text(encoding="utf-8")
    assert "cuda.Stream(non_blocking=True)" in text
    cuda = cupy.cuda
    named = ("Stream", "get_current_stream", "alloc_pinned_memory", "Device")
    assert all(callable(getattr(cuda, name)) for name in named)
    assert all(callable(getattr(cuda.Stream, name)) for name in ("record", "wait_event"))
    assert callable(cuda.Event.synchronize)
    assert callable(cuda.Device.synchronize)
    # Compiled methods tell their arguments in their docstrings.
    assert "non_blocking=False" in cuda.Stream.__init__.__doc__
    assert "get(self, stream=None, order='C', out=None, blocking=True)" in cupy.ndarray.get.__doc__
    assert "set(self, arr, stream=None)" in cupy.ndarray.set.__doc__
    assert cuda.alloc_pinned_memory.__doc__.startswith("alloc_pinned_memory(size_t size)")


@pytest.mark.gpu
def test_offload_run_on_gpu_is_bitwise_equal() -> None:
    library: Backend = get_backend("cupy")
    graph = tc.networks.chain(16, (256, 256))
    schedule = tc.plan(graph, "offload")
    x = np.linspace(-1, 1, 256 * 256).reshape(256, 256)
    stored = tc.run(tc.plan(graph, "store_all"), x, backend=library)
    moved = tc.run(schedule, x, backend=library)
    assert moved.trace == tc.replay(schedule)
    assert bits(moved) == bits(stored)
