"""Measuring techniques: which steps are timed, and the reasons why others are not run."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests import strict
from tests.tinyckpt.networks.small import small
from tests.tinyckpt.techniques.test_techniques import quick
from tinyckpt.networks import Network
from tinyckpt.techniques import comparison


@pytest.mark.long
def test_other_backend_times_offload_and_skips_several_devices() -> None:
    network = small("gpt2")
    found = quick(network, backend=strict.BACKEND, budget="80 %", stages=2)
    for row in found.rows:
        runs = not row.why and row.devices == 1
        assert (row.measured is not None) == runs == (row.error is not None)
        if row.gradients == "bitwise":
            assert row.error == 0
    assert found.row("offload").host_bytes > 0
    assert quick(network, budget="80 %", stages=2).row("offload").measured is None


@pytest.mark.long
def test_step_beyond_memory_or_time_is_not_run_with_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(table: Any, ids: Any) -> Any:
        return tc.mean(tc.embedding(table, ids) ** 2)

    def refuse(specs: Any) -> Any:
        raise AssertionError("arguments are made")

    # No FLOPs to speak of, but a table of 128 GiB and a gradient of as much.
    network = Network("table", loss, (tc.Spec((2**30, 32), "float32"), tc.Spec((8,), "int64")))
    with monkeypatch.context() as context:
        context.setattr(comparison, "random_arrays", refuse)
        found = quick(network, "store-all")
    assert found.note == (
        "nothing was measured: store-all: it needs 256.0 GiB, arguments included; the limit is "
        "4.0 GiB"
    )
    assert str(found).endswith(found.note)
    assert found.document()["rows"][0]["not_run"] in found.note
    slow = quick(tc.networks.transformer(2, 64, batch=8), time_limit=0.001)
    assert slow.note.startswith("nothing was measured: store-all: 4 steps may take ")
    assert slow.note.endswith(" s; the limit is 0.001 s")
    network = tc.networks.mlp(4, 32, 256)  # whose few logits take more in pieces
    whole, sources = tc.replay(tc.plan(network.graph())).peak_bytes, network.graph().source_bytes
    monkeypatch.setattr(comparison, "MOST_BYTES", whole + sources)
    found = quick(network, stages=2)
    left = {row.name for row in found.rows if row.not_run}
    assert left == {row.name for row in found.rows if (row.peak or 0) * row.devices > whole}
    assert "chunking" in left
    assert all(found.row(name).measured is None and not found.row(name).why for name in left)
    assert "\nnot run: chunking" in str(found)


def test_non_finite_gradients_prevent_measurement() -> None:
    network = Network("bad", lambda w, x: tc.sum(tc.sqrt(0.0 * w * x)), (tc.Spec(4),) * 2)
    with np.errstate(all="ignore"):
        found = quick(network, "store-all")
    assert (
        found.note
        == "nothing was measured: store-all: the gradients of random arguments are not finite"
    )
    assert found.row("store-all").peak is not None
