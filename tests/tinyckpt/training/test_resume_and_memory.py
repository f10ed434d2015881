"""Memory of a training process, and resuming from a file after it was killed."""

import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.tinyckpt.training.test_train_step import arrays


def deep(params: Any, x: Any) -> Any:
    h = x
    for w in params:
        h = tc.tanh(h @ w)
    return tc.half_squared_norm(h)


@pytest.mark.long
def test_consumed_gradients_halve_the_memory_of_a_deep_network() -> None:
    params, x = tc.networks.random_arrays(([tc.Spec((256, 256), "float32")] * 64,
                                           tc.Spec((64, 256), "float32")), seed=1)  # fmt: skip
    peaks, finals = {}, {}
    for how in ("consumed", "held"):
        step = tc.train_step(deep, tc.momentum(1e-3), gradients=how)  # type: ignore[arg-type]
        state = step.init(params)
        state, _ = step(state, x)  # plans and compiles
        tracemalloc.start()
        state, _ = step(state, x)
        peaks[how] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        predicted = tc.replay(step.schedule(state, x)).peak_bytes
        assert predicted <= peaks[how] <= 1.01 * predicted
        for _ in range(18):
            state, _ = step(state, x)
        finals[how] = arrays(state)
    assert peaks["consumed"] < 0.5 * peaks["held"]
    assert (finals["consumed"] == finals["held"]).all()


SCRIPT = """
import sys, numpy as np, tinyckpt as tc
from pathlib import Path
def loss(params, x):
    return tc.half_squared_norm(tc.tanh(x @ params["w"]) - 1.0)
step = tc.train_step(loss, tc.adamw(1e-2))
path = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(16, 64))
state = tc.load_params(path) if path.exists() else step.init({"w": np.full((64, 64), 0.01)})
while int(state["step"]) < int(sys.argv[2]):
    state, value = step(state, x * (1 + int(state["step"])))
    tc.save_params(state, path)
    print(int(state["step"]), flush=True)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_training_resumes_bitwise_from_its_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([*command, tmp_path / "whole.npz", "12"], env=environment, check=True,
                   capture_output=True)  # fmt: skip
    path = tmp_path / "killed.npz"
    with subprocess.Popen([*command, path, "1000"], env=environment, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        for _ in range(5):
            run.stdout.readline()
        run.kill()
    reached = int(tc.load_params(path)["step"])
    assert reached >= 5
    if reached < 12:
        subprocess.run([*command, path, "12"], env=environment, check=True, capture_output=True)
        killed, whole = tc.load_params(path), tc.load_params(tmp_path / "whole.npz")
        assert (arrays(killed) == arrays(whole)).all()


def test_carried_values_may_be_swapped_or_transposed() -> None:
    def loss(params: Any, carried: Any, x: Any) -> Any:
        swapped = {"u": carried["v"], "v": carried["u"], "w": carried["w"][::-1]}
        return tc.sum(params * x) + tc.sum(carried["u"] * x), swapped

    step = tc.train_step(loss, tc.sgd(0.1), "recompute_all", carry=True)
    carried = {"u": np.arange(3.0), "v": -np.ones(3), "w": np.arange(4.0)}
    state = step.init(np.zeros(3), carried)
    state, _ = step(state, np.ones(3))
    assert state["carried"]["u"].tolist() == [-1, -1, -1]
    assert state["carried"]["v"].tolist() == [0, 1, 2]
    assert state["carried"]["w"].tolist() == [3, 2, 1, 0]
    schedule = step.schedule(state, np.ones(3))
    assert tc.replay(schedule).peak_bytes >= 3 * 8  # the copies are counted
