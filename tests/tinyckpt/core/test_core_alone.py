"""Base, core and ops by themselves, in a package with an empty ``__init__``, are the engine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import tinyckpt

SCRIPT = """
import hashlib, json, sys
import numpy as np
from tinyckpt.base.spec import Spec
from tinyckpt.base.tree import leaves
from tinyckpt.core.autodiff import differentiate
from tinyckpt.core.costs import evaluations
from tinyckpt.core.execute import execute
from tinyckpt.core.policies import RECOMPUTE_ALL, SQRT_N, STORE_ALL
from tinyckpt.core.replay import replay
from tinyckpt.core.tracing import build, scope
from tinyckpt.ops import activation, convolution, pooling, reduce, shape

def mlp(weights, x):
    for number, w in enumerate(weights):
        with scope(f"layer{number}"):
            x = activation.tanh(x @ w)
    return reduce.sum(x * x)

def residual(weights, x):
    for w in weights:
        x = x + activation.relu(x @ w)
    return reduce.mean(x**2)

def cnn(weights, x):
    x = activation.relu(convolution.conv2d(x, weights[0]))
    x = pooling.max_pool2d(x, 2)
    x = activation.relu(convolution.conv2d(x, weights[1]))
    return reduce.sum(shape.reshape(x, (x.shape[0], -1)) @ weights[2])

square = [(8, 8)] * 9
networks = [
    (mlp, square, (4, 8)), (residual, square, (4, 8)),
    (cnn, [(4, 2, 3, 3), (4, 4, 3, 3), (16, 3)], (2, 2, 10, 10)),
]
found = []
for function, weights, batch in networks:
    random = np.random.default_rng(0)
    args = [random.normal(size=size) for size in weights], random.normal(size=batch)
    graph = differentiate(build(function, *args))
    sources = dict(zip(leaves(graph.arguments), leaves(args), strict=True)) | graph.constants
    for policy in (STORE_ALL, RECOMPUTE_ALL, SQRT_N):
        schedule = policy.plan(graph, evaluations(graph))
        trace = replay(schedule)
        results, measured = execute(schedule, sources)
        assert trace == measured
        bits = hashlib.sha256(b"".join(np.asarray(results[d]).tobytes() for d in graph.outputs))
        found.append([
            policy.name, repr(schedule.steps), trace.evaluations, trace.peak_bytes,
            trace.peak_nodes, bits.hexdigest(),
        ])
print(json.dumps([sorted(m for m in sys.modules if m.startswith("tinyckpt.")), found]))
"""


def ran(place: Path) -> tuple[list[str], list[list[object]]]:
    """Return the modules and the schedules of the script, with the package of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(run, capture_output=True, text=True, env=environment, cwd=place)
    assert done.returncode == 0, done.stderr
    modules, found = json.loads(done.stdout)
    return modules, found


def test_core_alone_gives_same_steps_counts_bytes_and_bits_as_whole_library(tmp_path: Path) -> None:
    whole = Path(tinyckpt.__file__).parent
    alone = tmp_path / "tinyckpt"
    for package in ("base", "core", "ops"):
        shutil.copytree(whole / package, alone / package)
    (alone / "__init__.py").write_text("", encoding="utf-8")
    modules, found = ran(tmp_path)
    assert {name.split(".")[1] for name in modules} == {"base", "core", "ops"}
    assert len(found) == 9
    assert len({entry[-1] for entry in found}) == 3  # the bits of each network, of all policies
    assert found == ran(whole.parent)[1]
