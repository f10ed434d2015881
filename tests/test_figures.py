"""The page of published figures: what stands there is what is counted today."""

from pathlib import Path

import pytest

from lessons.figures import convolutions, shares, transformers
from lessons.figures.__main__ import INTRODUCTION, PAGE, SECTIONS, section
from lessons.figures.figure import MIB, Figure
from tests.conftest import PROFILE
from tinyckpt.networks import cnn100

ROOT = Path(__file__).parent.parent


# Some twenty seconds: in the deep profile; here one network of it.
LONG = "What √n saves of a network"
TITLES = [title for title in SECTIONS if title != LONG or PROFILE == "deep"]


@pytest.mark.parametrize("title", TITLES)
def test_a_section_is_what_the_script_writes(title: str) -> None:
    assert section(title) in PAGE.read_text(encoding="utf-8"), "run python -m lessons.figures"


def test_one_network_saves_what_the_page_says() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    name = "ViT-B/16"
    assert shares.verdict(name) in lines
    for row in shares.rows_of(name, max(shares.batches(name))):
        assert f"| {' | '.join(row)} |" in lines


def test_the_page_has_these_sections_and_no_others() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(INTRODUCTION)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS)
    assert "\nfigures\n" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_a_verdict_is_computed() -> None:
    shape = transformers.GPT3
    graph = transformers.graph_of(shape)
    right = transformers.selective_rows(graph, shape, "GPT-3's", 0.702, 0.009)
    wrong = transformers.selective_rows(graph, shape, "GPT-3's", 0.701, 0.027)
    assert [figure.comes_out for figure in (*right, *wrong)] == [True, True, False, False]
    assert Figure("a", "b", "c", True, "d").cells == ("a", "b", "c", "", "**Yes.** d")


def test_the_terms_are_all_that_a_block_keeps() -> None:
    for shape in (transformers.SMALL, transformers.GPT3, transformers.MT_NLG):
        graph = transformers.graph_of(shape)
        here = transformers.kept(graph)
        rows = 2 * 2 * 4 * shape.s * shape.b  # of two norms two float32 a row
        assert sum(here.values()) == 32 * shape.sbh + 4 * shape.as2b + rows
        assert sum(transformers.masks(graph).values()) == 2 * shape.sbh + shape.as2b
        parts = {name.partition(": ")[0] for name in here}
        assert parts == {"norm 1", "norm 2", "norm", "attention", "core", "perceptron"}


def test_the_cnn_holds_what_was_derived_where_the_last_segment_alone_trains() -> None:
    network = cnn100(convolutions.BATCH)
    found = [convolutions.steady(network, segments) for segments in convolutions.REPORTED]
    assert [round(total / MIB) for total, _ in found] == [864, 688, 611, 582, 561]
    assert [tensors for _, tensors in found] == [104, 54, 32, 24, 18]
