"""The page of published figures equals today's counts."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import tinyckpt as tc
from lessons.figures import (
    approximate,
    codes,
    convolutions,
    fits,
    offload,
    pipelines,
    shares,
    training,
    transformers,
)
from lessons.figures.__main__ import INTRODUCTION, PAGE, SECTIONS, section
from lessons.figures.figure import MIB, Figure
from tests.conftest import PROFILE
from tinyckpt.networks import cnn100
from tinyckpt.pipeline import v_half, v_min

ROOT = Path(__file__).parent.parent


# Some twenty seconds: in the deep profile; here one network of it.
LONG = "Savings of √n per network"
TITLES = [title for title in SECTIONS if title != LONG or PROFILE == "deep"]


@pytest.mark.sampled(4)
@pytest.mark.long
@pytest.mark.parametrize("title", TITLES)
def test_section_equals_output_of_script(title: str) -> None:
    assert section(title) in PAGE.read_text(encoding="utf-8"), "run python -m lessons.figures"


@pytest.mark.long
def test_saved_bytes_of_network_equal_page() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    name = "ViT-B/16"
    assert shares.verdict(name) in lines
    for row in shares.rows_of(name, max(shares.batches(name))):
        assert f"| {' | '.join(row)} |" in lines


def test_page_has_exactly_the_listed_sections() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(INTRODUCTION)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS)
    assert "\nfigures\n" in (ROOT / "docs" / "how_to.md").read_text(encoding="utf-8")


def test_verdict_is_computed_not_written() -> None:
    shape = transformers.GPT3
    graph = transformers.graph_of(shape)
    right = transformers.selective_rows(graph, shape, "GPT-3's", 0.702, 0.009)
    wrong = transformers.selective_rows(graph, shape, "GPT-3's", 0.701, 0.027)
    assert [figure.comes_out for figure in (*right, *wrong)] == [True, True, False, False]
    assert Figure("a", "b", "c", True, "d").cells == ("a", "b", "c", "", "**Yes.** d")


def test_terms_sum_to_all_saved_bytes_of_block() -> None:
    for shape in (transformers.SMALL, transformers.GPT3, transformers.MT_NLG):
        graph = transformers.graph_of(shape)
        here = transformers.kept(graph)
        rows = 2 * 2 * 4 * shape.s * shape.b  # of two norms two float32 a row
        assert sum(here.values()) == 32 * shape.sbh + 4 * shape.as2b + rows
        assert sum(transformers.masks(graph).values()) == 2 * shape.sbh + shape.as2b
        parts = {name.partition(": ")[0] for name in here}
        assert parts == {"norm 1", "norm 2", "norm", "attention", "core", "perceptron"}


@pytest.mark.parametrize(("name", "left"), [("ViT", 7.5), ("LLaMA", 6.3625)])
def test_every_slice_of_block_equals_paper(name: str, left: float) -> None:
    block = approximate.BLOCKS[name]
    plain, rewritten = approximate.both(block)
    assert plain == pytest.approx(
        {**block.slices, **dict.fromkeys(set(plain) - set(block.slices), 0)}
    )
    assert plain["others"] == rewritten["others"] == rewritten["norms"] == 0
    assert sum(plain.values()) - sum(rewritten.values()) == pytest.approx(left, rel=1e-12)
    assert rewritten["activation"] == pytest.approx(plain["activation"] / 8, rel=1e-12)


def test_wrong_share_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [figure.comes_out for figure in approximate.figures()] == [True, True]
    wrong = {name: replace(block, saved=block.saved + 1e-4)
             for name, block in approximate.BLOCKS.items()}  # fmt: skip
    monkeypatch.setattr(approximate, "BLOCKS", wrong)
    assert [figure.comes_out for figure in approximate.figures()] == [False, False]


@pytest.mark.long
def test_wrong_claims_on_fits_codes_and_shards_are_refuted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all(figure.comes_out for figure in (*fits.figures(), *codes.figures()))
    wrong = {name: (own[0], own[1] + 1e-7) for name, own in fits.ERRORS.items()}
    monkeypatch.setattr(fits, "ERRORS", wrong)
    assert [figure.comes_out for figure in fits.figures()] == [True, False, False, True]
    shifted = {name: {fit: replace(own, weights=(*own.weights[:2], own.weights[2] + 1e-7))
                      for fit, own in known.items()}
               for name, known in fits.FITS.items()}  # fmt: skip
    monkeypatch.setattr(fits, "FITS", shifted)
    assert not fits.sums().comes_out
    monkeypatch.setattr(codes, "errors", lambda bits, where: np.full(10**6, 0.6))
    assert not codes.rounding().comes_out
    mixed, _ = training.ledger_of(75 * 10**8, "float16", tc.with_master_weights(tc.adam(1e-3)))
    assert training.zero(mixed).comes_out
    monkeypatch.setattr(training, "RANKS", 63)
    assert not training.zero(mixed).comes_out


@pytest.mark.long
def test_wrong_claims_on_pipelines_are_refuted() -> None:
    verdicts = [figure.comes_out for figure in pipelines.figures()]
    assert verdicts == [True, True, False, True, True, True, True, True]
    assert not pipelines.bubble(4, 16, "3/20").comes_out
    assert not pipelines.v_shaped("V-Min", v_min, 3, 3).comes_out
    assert not pipelines.v_shaped("V-Half", v_half, 2, 3).comes_out


def test_offload_of_more_than_two_layers_waits_for_copies_both_ways() -> None:
    halves = [offload.stalled(Fraction(n, 2)) for n in range(2, 7)]
    moved = offload.LAYERS - 1  # all but the last
    assert halves == [0, moved // 2, moved, 2 * moved, 3 * moved]


def test_cnn_memory_equals_derivation_when_only_last_segment_trains() -> None:
    network = cnn100(convolutions.BATCH)
    found = [convolutions.steady(network, segments) for segments in convolutions.REPORTED]
    assert [round(total / MIB) for total, _ in found] == [864, 688, 611, 582, 561]
    assert [tensors for _, tensors in found] == [104, 54, 32, 24, 18]
