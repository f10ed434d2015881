"""One call does everything; real data; the demo."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.cli import main
from tinyckpt.networks.digits import STEPS, accuracy, digits_network, load_digits, train


def loss(params: Any, x: Any) -> Any:
    return tc.sum(tc.tanh(x @ params["w"]) ** 2)


def test_value_and_grad_builds_once_for_each_shape() -> None:
    calls = []

    def counted(params: Any, x: Any) -> Any:
        calls.append(x.shape)
        return loss(params, x)

    step = tc.value_and_grad(counted, policy="sqrt_n")
    params = {"w": np.eye(3)}
    for rows in (2, 2, 4, 2, 4):
        value, gradients = step(params, np.ones((rows, 3)))
        assert value.shape == ()
        assert gradients["w"].shape == (3, 3)
    assert calls == [(2, 3), (4, 3)]


def test_plain_numbers_are_arguments() -> None:
    value, gradient = tc.value_and_grad(lambda x, y: x * y + x)(3.0, 4.0)
    assert (float(value), float(gradient)) == (15.0, 5.0)


def test_several_arguments_to_differentiate() -> None:
    _, (first, second) = tc.value_and_grad(lambda x, y: x * y, wrt=(0, 1))(3.0, 4.0)
    assert (float(first), float(second)) == (4.0, 3.0)
    with pytest.raises(tc.GraphError, match=r"wrt=2: .* has 2 positional arguments"):
        tc.value_and_grad(lambda x, y: x * y, wrt=2)(3.0, 4.0)


def test_digits_are_as_published() -> None:
    digits = load_digits()
    labels = np.concatenate([digits.labels, digits.test_labels])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    images = np.concatenate([digits.images, digits.test_images])
    assert images.shape == (1797, 64)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert (len(digits.images), len(digits.test_images)) == (1400, 397)


def test_training_is_the_same_to_the_last_bit_under_every_policy() -> None:
    losses = {}
    for policy in ("store_all", "sqrt_n", "recompute_all"):
        steps = list(train(policy))
        losses[policy] = [value for value, _ in steps]
        assert accuracy(steps[-1][1]) > 0.95
    assert len(losses["store_all"]) == STEPS
    assert losses["store_all"] == losses["sqrt_n"] == losses["recompute_all"]


def test_the_demo_says_where_everything_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "-o", str(tmp_path / "new" / "folder")]) == 0
    out = capsys.readouterr().out
    for name in ("chain16.gif", "chain16.svg", "digits.gif"):
        path = tmp_path / "new" / "folder" / name
        assert str(path) in out
        assert path.stat().st_size > 10_000
    assert "losses are equal to the last bit" in out


def test_the_demo_refuses_a_folder_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "-o", str(tmp_path / "file" / "folder")]) == 1
    assert "cannot make the folder" in capsys.readouterr().err


def test_the_digits_network_has_what_the_demo_says() -> None:
    graph = digits_network().graph()
    traces = [tc.replay(tc.plan(graph, p)) for p in ("store_all", "sqrt_n", "recompute_all")]
    assert [trace.total_evaluations for trace in traces] == [52, 61, 136]
    peaks = [trace.peak_bytes for trace in traces]
    assert peaks == sorted(peaks, reverse=True)
