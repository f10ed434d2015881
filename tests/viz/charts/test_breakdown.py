"""Memory breakdown chart: areas equal the ledger's columns."""

from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.training.ledger import HELD, SOURCES
from viz.charts.breakdown import breakdown_figure, fills_of
from viz.charts.style import byte_unit
from viz.theme import DARK, LIGHT


def ledger_of(gradients: Any) -> tc.Ledger:
    network = tc.networks.mlp(6, 64, 32)
    params, *batch = network.specs
    step = tc.train_step(network.loss, tc.adamw(1e-3), gradients=gradients)
    return tc.ledger(step.schedule(step.init(params), *batch))


@pytest.mark.long
@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_areas_equal_ledger_columns(theme: Any) -> None:
    ledgers = [ledger_of("held"), ledger_of("consumed")]
    figure = breakdown_figure(ledgers, theme, names=["held", "consumed"])
    unit, _ = byte_unit(max(ledger.peak_bytes for ledger in ledgers))
    for axis, ledger in zip(figure.axes, ledgers, strict=True):
        tops = [area.get_paths()[0].vertices[:, 1].max() for area in axis.collections]
        assert tops[-1] * unit == pytest.approx(ledger.peak_bytes, rel=0.02)
        assert tops[0] * unit == pytest.approx(ledger.sources["parameters"])
        assert axis.get_title("left") in ("held", "consumed")
        (label,) = [text.get_text() for text in axis.texts if "peak" in text.get_text()]
        assert label.endswith("of it sources")
    assert np.diff(figure.axes[0].get_ylim())[0] * unit > max(x.peak_bytes for x in ledgers)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_kind_of_bytes_has_its_own_fill(theme: Any) -> None:
    fills = fills_of(theme)
    assert set(fills) == {*SOURCES, *HELD}
    assert len(set(fills.values())) == len(fills)
