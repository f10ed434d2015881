"""The LRU cache of compiled programs: bounded, least recently used evicted, thread-safe."""

import copy
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base import lru_cache as programs
from tinyckpt.base.lru_cache import MOST_PROGRAMS, ProgramCache
from tinyckpt.base.tree import leaves


def loss(w: Any, x: Any, power: int = 2) -> Any:
    return tc.mean((tc.tanh(x * w)) ** power)


def taken(step: tc.TrainStep) -> Callable[..., Any]:
    return lambda w, x: step(step.init(w), x)


MAKERS: dict[str, Callable[[], Callable[..., Any]]] = {
    "value_and_grad": lambda: tc.value_and_grad(loss),
    "grad": lambda: tc.grad(loss, "sqrt_n"),
    "jit": lambda: tc.jit(loss),
    "static": lambda: tc.grad(loss, static="power"),
    "train_step": lambda: taken(tc.train_step(loss, tc.adam(0.1))),
    "micro-batches": lambda: taken(tc.train_step(loss, tc.sgd(0.1), micro_batches=2)),
}


def alive() -> int:
    """Return how many programs there are."""
    gc.collect()
    return sum(type(thing) is tc.Compiled for thing in gc.get_objects())


def called(function: Callable[..., Any], size: int) -> list[bytes]:
    found = function(np.float64(0.3), np.linspace(-1, 1, 2 * size))
    return [np.asarray(leaf).tobytes() for leaf in leaves(found)]


@pytest.mark.parametrize("name", MAKERS)
def test_cache_is_bounded_and_recompiled_programs_are_bitwise_equal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 4)
    before, function = alive(), MAKERS[name]()
    first = {size: called(function, size) for size in range(1, 13)}
    assert alive() - before == 4
    for size in (12, 1, 7, 1, 12, 3):
        assert called(function, size) == first[size]
    assert alive() - before == 4
    del function
    assert alive() == before


def test_cache_capacity_equals_documented_value() -> None:
    before, function = alive(), tc.jit(tc.sum)
    for size in range(MOST_PROGRAMS + 20):
        function(np.ones(size))
    assert alive() - before == MOST_PROGRAMS


def test_programs_per_static_argument_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 2)
    before, function = alive(), tc.grad(loss, static="power")
    expected = [float(function(0.5, 0.25, power=power)) for power in range(1, 6)]
    assert [float(function(0.5, 0.25, power=power)) for power in range(1, 6)] == expected
    assert alive() - before == 2


def test_least_recently_used_program_is_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 3)
    kept, made = ProgramCache[str](), []

    def get(key: str) -> None:
        assert kept.get(key, lambda: made.append(key) or key.upper()) == key.upper()  # type: ignore[func-returns-value]

    for key in "abcadabe":
        get(key)
    assert made == list("abcdbe")
    assert sorted(map(str, kept.entries)) == ["a", "b", "e"]
    for key in "ec":
        get(key)
    assert made == list("abcdbec")
    assert len(copy.deepcopy(kept)) == 0


def test_failed_compilation_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    function = tc.grad(loss)
    for _ in range(2):
        with pytest.raises(tc.GraphError):
            function(np.ones(3), np.ones(2))
    assert called(function, 2) == called(tc.grad(loss), 2)


@pytest.mark.parametrize("name", ["value_and_grad", "train_step"])
def test_threads_share_programs_with_bitwise_equal_results(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 3)
    before, function = alive(), MAKERS[name]()
    expected = [called(function, size) for size in range(1, 7)]
    wrong = []

    def work(seed: int) -> None:
        for size in np.random.default_rng(seed).integers(1, 7, 12).tolist():
            wrong.append(called(function, size) != expected[size - 1])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 48
    assert alive() - before <= 3
