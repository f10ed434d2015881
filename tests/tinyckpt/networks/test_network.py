"""Initial values of parameters, their count, and the check against memory."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.tree import leaves
from tinyckpt.networks import Network, mlp, random_arrays
from tinyckpt.networks import machine_memory as memory


def test_parameter_count_needs_no_arrays() -> None:
    assert mlp(2, 3, classes=2).parameter_count == 2 * (3 * 3 + 3) + 3 * 2 + 2
    huge = {"w": tc.Spec((10**9, 10**9), "float16"), "none": None}
    assert Network("huge", len, (huge, tc.Spec(7))).parameter_count == 10**18


def test_initial_norms_are_neutral_biases_zero_and_weights_scaled() -> None:
    norm = {"scale": tc.Spec(4, "float32"), "shift": tc.Spec(4), "variance": tc.Spec(4)}
    specs = (
        {
            "norms": [norm, norm],
            "tokens": tc.Spec((200, 100)),
            "affine": {"w": tc.Spec((400, 100)), "b": tc.Spec(100)},
            "conv": {"w": tc.Spec((50, 8, 5, 5))},
        },
        tc.Spec((40, 3, 16, 16), "float32"),
        tc.Spec(9, "int64"),
    )
    params, images, labels = random_arrays(specs)
    for layer in params["norms"]:
        assert layer["scale"].tolist() == [1, 1, 1, 1] == layer["variance"].tolist()
        assert layer["shift"].tolist() == [0, 0, 0, 0]
        assert (layer["scale"].dtype, layer["shift"].dtype) == ("float32", "float64")
    assert not params["affine"]["b"].any()
    assert not labels.any()
    # 10,000 numbers or more each: the deviation of a deviation is less than 1 %.
    for array, deviation in (
        (params["tokens"], 0.02),
        (params["affine"]["w"], 400**-0.5),
        (params["conv"]["w"], (2 / (8 * 5 * 5)) ** 0.5),
        (images, 16**-0.5),
    ):
        assert np.isclose(array.std(), deviation, rtol=0.03)
    again = random_arrays(specs)
    assert np.array_equal(again[0]["conv"]["w"], params["conv"]["w"])
    assert not np.array_equal(random_arrays(specs, 1)[0]["conv"]["w"], params["conv"]["w"])


def test_empty_arrays_are_initialised() -> None:
    shapes = ((0, 4), (0,), (3, 0, 2, 2), (4, 0))
    arrays = random_arrays([{"w": tc.Spec(shape, "float32")} for shape in shapes])
    assert [array["w"].shape for array in arrays] == list(shapes)


def test_arrays_above_memory_are_refused_before_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = tc.networks.mlp(1, 10**7)  # a petabyte
    with pytest.raises(tc.BackendError, match=r"the arrays take .* TiB, and this machine has "):
        network.arrays()
    small = tc.networks.mlp(2, 8)
    needed = sum(spec.nbytes for spec in leaves(small.specs))
    for there in (None, needed):
        monkeypatch.setattr(memory, "memory_of_machine", lambda there=there: there)
        small.arrays()
    monkeypatch.setattr(memory, "memory_of_machine", lambda: needed - 1)
    with pytest.raises(tc.BackendError, match="plans and pictures take none of it"):
        small.arrays()
    assert len(leaves(random_arrays(small.specs, needed={0}))) == len(leaves(small.specs))


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of processes")
def test_memory_of_machine_respects_rlimits() -> None:
    script = (
        "import resource; from tinyckpt.networks import machine_memory; "
        "memory = machine_memory.memory_of_machine; "
        "whole = memory(); resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33)); "
        "assert memory() == min(whole, 2**33); "
        "resource.setrlimit(resource.RLIMIT_DATA, (2**32,) * 2); "
        "assert memory() == min(whole, 2**32)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: tc.networks.bert(dropout=np.ones(2)), "dropout: rate array"),
        (lambda: tc.networks.vgg(depth=np.ones(2)), "vgg: depth=array"),
        (lambda: tc.networks.mlp(2, 3, activation=np.ones(2)), "unknown activation array"),
        (lambda: mlp(2, 3).arrays(seed="x"), "seed='x'; it must be an integer of 0 or more"),
        (lambda: random_arrays([7]), r"specs\[0\]: expected a tc.Spec, got a int"),
        (lambda: tc.networks.inference(7), "inference: statistics=7; expected one per batch norm"),
    ],
)
def test_argument_of_wrong_type_is_refused(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        build()


def test_inference_refuses_fewer_statistics_than_batch_norms() -> None:
    params, statistics, images, _ = tc.networks.resnet(18, 2, 32, width=4, statistics=True).specs

    def logits(p: Any, s: Any, x: Any) -> Any:
        return tc.networks.resnet_logits(p, x, tc.networks.inference(s[:3]))

    with pytest.raises(tc.GraphError, match="inference: statistics of 3 batch norms; more follow"):
        tc.build(logits, params, statistics, images)
