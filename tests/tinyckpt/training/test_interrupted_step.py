"""Interrupted steps: the state is old, new, or flagged as mixed."""

import ast
import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import strict
from tests.tinyckpt.training.test_train_step import PARAMETERS, X, Y, loss
from tinyckpt.base import interrupted_step as interrupted
from tinyckpt.base.tree import leaves, map_leaves
from tinyckpt.core.execute import execute
from tinyckpt.ops import kernels_parameter_update as kernels_updating

HALVES = map_leaves(lambda p: p.astype("float16"), PARAMETERS)
SENTENCE = "a step was interrupted after it had begun to update the state in place, and arrays of"


def carrying(params: Any, carried: Any, x: Any, y: Any) -> Any:
    return loss(params, x, y), {"mean": carried["mean"] * 0.9 + tc.mean(x, 0) * 0.1}


def step_of(optimizer: tc.Optimizer, **options: Any) -> Callable[[], tc.TrainStep]:
    return lambda: tc.train_step(carrying if options.get("carry") else loss, optimizer, **options)


MASTERS = tc.with_master_weights(tc.adamw(0.05))
STEPS: dict[str, Callable[[], tc.TrainStep]] = {
    "sgd": step_of(tc.sgd(0.1)),
    "momentum": step_of(tc.momentum(0.1)),
    "adam": step_of(tc.adam(0.1)),
    "adamw": step_of(tc.adamw(tc.cosine_rate(0.1, 9))),
    "clipped": step_of(tc.clipped(tc.adam(0.1), 0.1)),
    "masters": step_of(MASTERS),
    "held": step_of(tc.adam(0.1), policy="recompute_all", gradients="held"),
    "scaled": step_of(MASTERS, loss_scale=tc.LossScale(8.0)),
    "parts": step_of(tc.adam(0.1), micro_batches=4),
    "carry": step_of(tc.sgd(0.1), carry=True),
    "carry in parts": step_of(tc.sgd(0.1), carry=True, micro_batches=2),
    "on disk": step_of(tc.adam(0.1), policy="offload", backend=tc.on_disk()),
    "checked": step_of(tc.momentum(0.1), check_nan=True),
    "another library": step_of(tc.momentum(0.1), backend=strict.BACKEND),
}


def batch_of(step: tc.TrainStep) -> tuple[Any, ...]:
    return (np.float16(X), np.float16(Y)) if "master" in step.recipe.optimizer.name else (X, Y)


def begun(step: tc.TrainStep) -> Any:
    parameters = HALVES if "master" in step.recipe.optimizer.name else PARAMETERS
    carried = {"mean": np.zeros(4)} if step.recipe.carry else None
    return step(step.init(parameters, carried), *batch_of(step))[0]


def bits(state: Any) -> list[bytes]:
    """Return what belongs to a state: not what gradients add up in."""
    rest = {key: tree for key, tree in state.items() if key not in ("accumulated", "mixed")}
    return [
        (leaf.get() if hasattr(leaf, "get") else leaf).tobytes()
        for leaf in leaves({key: rest[key] for key in sorted(rest)})
    ]


def copied(state: Any) -> Any:
    return map_leaves(lambda leaf: leaf.copy(), state)


class Interrupting:
    """Raises an error at one of the lines that a step executes, counted over all of them.

    Those of the compiled program, of the machine that looks for NaNs, of the kernels of updates,
    and of what marks the state.
    """

    FILES = (kernels_updating.__file__, interrupted.__file__)

    def __init__(self, line: int, error: BaseException) -> None:
        self.left, self.error = line, error
        self.between_operators = False

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        program = file.startswith("<") and name == "step"
        machine = file == execute.__code__.co_filename and name in ("execute", "update")
        if not program and not machine and file not in self.FILES:
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                self.between_operators = program or machine
                raise self.error
        return self

    def step(self, step: tc.TrainStep, state: Any) -> BaseException | None:
        """Take a step; return the error that interrupted it."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            step(state, *batch_of(step))
        except (type(self.error), tc.BackendError) as error:  # the machine says where it was
            return error
        finally:
            sys.settrace(before)
        return None


@pytest.mark.sampled(4)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("name", STEPS)
def test_step_interrupted_anywhere_leaves_a_correct_dirty_flag(
    name: str, error: type[BaseException], tmp_path: Path
) -> None:
    step = STEPS[name]()
    state = begun(step)
    old, new = bits(state), bits(step(copied(state), *batch_of(step))[0])
    assert old != new
    found = {"old": 0, "new": 0, "mixed": 0}
    line = 0
    while True:
        tried, interrupting = copied(state), Interrupting(line, error())
        raised = interrupting.step(step, tried)
        if raised is None:
            break
        if interrupted.is_mixed(tried):
            found["mixed"] += 1
            # Between the operators, none is marked without need; within a write, it may be.
            assert bits(tried) not in (old, new) or not interrupting.between_operators
            refused(step, tried, tmp_path)
            assert SENTENCE in " ".join(raised.__notes__)
        else:
            which = "old" if bits(tried) == old else "new"
            assert bits(tried) == (old if which == "old" else new)
            assert not hasattr(raised, "__notes__")
            found[which] += 1
            if which == "old":
                assert bits(step(tried, *batch_of(step))[0]) == new
        line += 5 if step.check_nan else 1
    assert min(found.values()) > 0, found
    assert line > 20


def refused(step: tc.TrainStep, state: Any, folder: Path) -> None:
    """Check that nothing takes a state that is mixed, nor a copy of it."""
    before = bits(state)
    for same in (state, dict(state), copied(state)):
        with pytest.raises(tc.GraphError, match=SENTENCE):
            step(same, *batch_of(step))
    for tree in (state, {"run": [state], "seed": np.array(7)}):
        with pytest.raises(tc.FormatError, match=SENTENCE):
            tc.save_params(tree, folder / "state.npz")
    assert list(folder.iterdir()) == []
    assert bits(state) == before


def test_dirty_flag_survives_copies_and_can_be_deleted(tmp_path: Path) -> None:
    step = STEPS["adam"]()
    state = begun(step)
    saved = copied(state)
    tc.save_params(state, tmp_path / "state.npz")
    line = 0
    while not interrupted.is_mixed(state):
        state = copied(saved)
        assert Interrupting(line, KeyboardInterrupt()).step(step, state)
        line += 1
    for same in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        with pytest.raises(tc.GraphError, match="go on from a state that was saved before"):
            step(same, X, Y)
    with pytest.raises(tc.FormatError, match="run/0: a step was interrupted"):
        tc.save_params({"run": [state]}, tmp_path / "other.npz")
    # One goes on from what was saved, or takes it as it is.
    again, _ = step(tc.load_params(tmp_path / "state.npz"), X, Y)
    assert bits(again) == bits(step(copied(saved), X, Y)[0])
    graph = step.graph(state, X, Y)
    assert graph == step.graph(saved, X, Y)
    del state["mixed"]
    step(state, X, Y)
    tc.save_params(state, tmp_path / "mixed.npz")
    # A key of that name elsewhere is anybody's.
    tc.save_params({"mixed": np.ones(2)}, tmp_path / "own.npz")


@pytest.mark.parametrize("name", ["adam", "parts", "checked"])
def test_kernel_failure_after_first_write_sets_the_dirty_flag(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = STEPS[name]()
    state = begun(step)
    written = []

    def failing(writes: interrupted.Writes, source: Any) -> None:
        if id(source) in writes.ahead:
            written.append(source)
            if len(written) == 2:
                raise FloatingPointError("a kernel fails")

    monkeypatch.setattr(interrupted.Writes, "end", failing)
    with pytest.raises((tc.BackendError, FloatingPointError)) as caught:
        step(state, *batch_of(step))
    assert interrupted.is_mixed(state)
    assert SENTENCE in " ".join(caught.value.__notes__)


def test_failure_before_first_write_leaves_state_usable() -> None:
    def impossible(params: Any, x: Any, y: Any) -> Any:
        return loss(params, x, y) * tc.sum(params["none"])

    state = begun(STEPS["adam"]())
    old = bits(state)
    for wrong in (
        lambda: STEPS["adam"]()(state, X),
        lambda: STEPS["adam"]()(state, X[:, :2], Y),
        lambda: STEPS["parts"]()(state, X, Y),
        lambda: STEPS["adam"]()(state, X, np.array([Y], object)),
        lambda: tc.train_step(impossible, tc.adam(0.1))(state, X, Y),
        lambda: tc.train_step(loss, tc.adam(0.1), budget="1 B")(state, X, Y),
    ):
        with pytest.raises((tc.TinyckptError, LookupError, TypeError)):
            wrong()
        assert not interrupted.is_mixed(state)
        assert bits(state) == old


def test_threads_do_not_flag_each_others_states() -> None:
    step = STEPS["adam"]()
    states = [begun(step) for _ in range(4)]
    expected = bits(step(step(copied(states[0]), X, Y)[0], X, Y)[0])
    threads = [
        threading.Thread(target=lambda own=own: [step(own, X, Y) for _ in range(2)])
        for own in states
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bits(state) for state in states] == [expected] * 4
    assert not any(map(interrupted.is_mixed, states))


TRAINING = """
import os, sys, threading, time, signal, numpy as np, tinyckpt as tc
from tinyckpt.base.tree import leaves, map_leaves

# A shell starts its background jobs with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def loss(params, x):
    for w in params:
        x = tc.tanh(x @ w)
    return tc.mean(x * x)

def bits(state):
    return [leaf.tobytes() for key in ("parameters", "optimizer", "step")
            for leaf in leaves(state[key])]

step = tc.train_step(loss, tc.adamw(0.01))
x = np.ones((2, 16))
state = step.init([np.eye(16) * 0.5 for _ in range(8)])
known = []
for _ in range(400):
    known.append(bits(state))
    state, _ = step(state, x)
first = step.init([np.eye(16) * 0.5 for _ in range(8)])
found = {"clean": 0, "mixed": 0}
for seconds in np.random.default_rng(3).uniform(0.001, 0.03, 40):
    state = map_leaves(np.copy, first)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while int(state["step"]) < 399:
            step(state, x)
        time.sleep(10)
    except KeyboardInterrupt as error:
        notes = " ".join(getattr(error, "__notes__", ()))
    timer.join()
    assert ("mixed" in state) == ("a step was interrupted" in notes)
    if "mixed" in state:
        found["mixed"] += 1
        for take in (lambda: step(state, x), lambda: tc.save_params(state, sys.argv[1])):
            try:
                take()
            except tc.TinyckptError as error:
                assert "a step was interrupted" in str(error)
            else:
                raise AssertionError("it was taken")
    else:
        found["clean"] += 1
        assert bits(state) == known[int(state["step"])]
assert not os.path.exists(sys.argv[1])
print(found)
"""


@pytest.mark.long
def test_real_interrupt_leaves_a_correct_dirty_flag(tmp_path: Path) -> None:
    run = [sys.executable, "-c", TRAINING, str(tmp_path / "state.npz")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    found = ast.literal_eval(done.stdout)
    assert found["clean"] + found["mixed"] == 40
