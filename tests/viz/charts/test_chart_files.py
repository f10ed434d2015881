"""Files of all charts: formats, determinism, widths, titles, fonts, hostile names."""

import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.tinyckpt.documents.test_serialize import hostile_graph
from tests.viz.charts.test_breakdown import ledger_of
from tests.viz.charts.test_charts import trace_of
from tests.viz.charts.test_gradient_error import EXACT, WAYS
from tests.viz.charts.test_transfer_lanes import offloaded
from tinyckpt.pipeline import gpipe, replay_pipeline, zb_h1
from tinyckpt.techniques import TECHNIQUES, Row, TechniqueComparison
from viz.charts.style import shown

FORMATS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def charts() -> dict[str, Any]:
    """Return each chart as a function of a path and a theme."""
    traces = [trace_of("chain:4", policy) for policy in ("store_all", "sqrt_n")]
    found = tc.frontier(traces[0].graph)
    many = {"sqrt_n": [trace_of("chain:4"), trace_of("chain:9")]}
    pipes = [replay_pipeline(make(2, 3, "early")) for make in (gpipe, zb_h1)]
    return {
        "timeline": lambda path, **look: viz.timeline(traces, path, **look),
        "frontier": lambda path, **look: viz.frontier(found, path, traces=traces, **look),
        "scaling": lambda path, **look: viz.scaling(many, path, **look),
        "ledger": lambda path, **look: viz.ledger(traces, path, **look),
        "pipeline": lambda path, **look: viz.pipeline(pipes, path, **look),
        "breakdown": lambda path, **look: viz.breakdown(ledger_of("held"), path, **look),
        "gradient error": lambda path, **look: viz.gradient_error(WAYS, path, exact=EXACT, **look),
        "techniques": lambda path, **look: viz.techniques(COMPARED, path, **look),
        "memory map": lambda path, **look: viz.memory_map(traces[1], path, **look),
        "transfers": lambda path, **look: viz.timeline(offloaded("chain:4", 512), path, **look),
    }


CHARTS = [
    "timeline", "frontier", "scaling", "ledger", "pipeline", "breakdown", "gradient error",
    "techniques", "memory map", "transfers",
]  # fmt: skip
POINTS = [
    Row(name, peak=2**20, share=1.0, fits=True, times=1.0, gradients="bitwise")
    for name in TECHNIQUES
]
COMPARED = TechniqueComparison("compared", 2**21, "FLOPs", None, tuple(POINTS))


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_writes_every_format_deterministically(tmp_path: Path, chart: str) -> None:
    draw = charts()[chart]
    for suffix, magic in FORMATS.items():
        path = draw(tmp_path / f"one.{suffix}")
        assert path == tmp_path / f"one.{suffix}"
        content = path.read_bytes()
        assert content.startswith(magic)
        assert content == draw(tmp_path / f"two.{suffix.upper()}").read_bytes()
        assert content != draw(path, theme="dark").read_bytes()
    with pytest.raises(tc.TinyckptError, match=r"unknown format 'bmp'; known are png, svg, pdf$"):
        draw(tmp_path / "x.bmp")
    with pytest.raises(tc.TinyckptError, match="unknown theme 'neon'; known are light, dark"):
        draw(tmp_path / "x.png", theme="neon")
    with pytest.raises(tc.FormatError, match=r"cannot write .*No such file or directory"):
        draw(tmp_path / "missing" / "x.png")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{n}.{s}" for s in FORMATS for n in ("one",)} | {
        "two.PNG",
        "two.SVG",
        "two.PDF",
    }


@pytest.mark.sampled(1)
@pytest.mark.long
def test_unknown_letters_and_formulae_are_literal_text(tmp_path: Path) -> None:
    assert shown("a 漢 \ud800 $x$ Жλ") == "a ?   $x$ Жλ"
    graph = hostile_graph()
    nasty = replace(graph, name=r"$\frac{1}{ 漢 <script>")
    trace = tc.replay(replace(tc.plan(nasty), policy="$$ =cmd() </svg>"))
    for name, chart in (("t", viz.timeline), ("l", viz.ledger)):
        path = chart(trace, tmp_path / f"{name}.svg")
        assert b"<script" not in path.read_bytes()
        assert path.read_bytes().count(b"</svg>") == 1
    found = tc.frontier(nasty)
    ways = {"</svg>\n<b>$x$ 漢": [("$\\frac{1}{</svg>", 1, 1.0)]}
    for path in (
        viz.frontier(found, tmp_path / "f.svg", traces={"</svg>\n<b>$": trace}),
        viz.gradient_error(ways, tmp_path / "g.svg", title="</svg>"),
        viz.techniques(replace(COMPARED, name="</svg>\n<b>$"), tmp_path / "c.svg"),
    ):
        assert path.read_bytes().count(b"</svg>") == 1
    with pytest.raises(
        tc.TinyckptError, match=r"what tinyckpt\.techniques\.compare_techniques returned, got"
    ):
        viz.techniques(3, tmp_path / "x.png")  # type: ignore[arg-type]


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("chart", ["timeline", "frontier", "scaling", "ledger"])
def test_charts_accept_widths_and_titles(tmp_path: Path, chart: str) -> None:
    from PIL import Image

    draw = charts()[chart]
    for width in (3, 3.3, 8, 30):
        with Image.open(draw(tmp_path / "c.png", width=width)) as image:
            assert image.size[0] == pytest.approx(150 * width, abs=1)
    default = draw(tmp_path / "c.svg").read_bytes()
    assert draw(tmp_path / "c.svg", width=8.0, title=None).read_bytes() == default
    assert len(draw(tmp_path / "c.svg", title="").read_bytes()) < len(default)
    count = 1 if chart == "frontier" else 2
    assert draw(tmp_path / "c.svg", title=[f"t{n}" for n in range(count)]).read_bytes() != default
    for bad in (2.9, 31, "8", float("nan")):
        with pytest.raises(tc.OptionError, match=r"width .*: expected 3 to 30 inches"):
            draw(tmp_path / "c.png", width=bad)
    with pytest.raises(tc.OptionError, match=rf"one for each chart, of which there are {count}"):
        draw(tmp_path / "c.png", title=["a", "b", "c"])


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("chart", ["timeline", "frontier", "scaling", "ledger"])
def test_pdf_embeds_only_truetype_fonts(tmp_path: Path, chart: str) -> None:
    content = charts()[chart](tmp_path / "c.pdf").read_bytes()
    assert b"/Type3" not in content
    assert set(re.findall(rb"/Subtype /(CIDFont\w+|Type[0-9]\b)", content)) == {
        b"CIDFontType2", b"Type0",
    }  # fmt: skip
    fonts = []
    for number in re.findall(rb"/FontFile2 (\d+) 0 R", content):
        found = re.search(rb"\n%s 0 obj\n.*?stream\r?\n" % number, content, re.DOTALL)
        assert found
        fonts.append(zlib.decompressobj().decompress(content[found.end() :])[:4])
    assert fonts
    assert set(fonts) == {b"\0\1\0\0"}  # not OTTO, which is OpenType without TrueType outlines
    assert set(re.findall(rb"/BaseFont /[A-Z]+\+(\w+)", content)) <= {b"Inter"}
