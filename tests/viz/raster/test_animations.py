"""Animation encoders: decoded frames equal the drawn ones, in every format."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tinyckpt as tc
import viz
from tests.conftest import PROFILE, require
from viz.frame_times import delays_of, holds_of, speed_of
from viz.layout.geometry import MARGIN, WIDTH
from viz.picture_layout import LEGEND
from viz.raster.canvas import Canvas, Change, inks_of
from viz.raster.encode import ENCODERS
from viz.raster.picture import Picture
from viz.raster.video import Film
from viz.scene import PLAIN, Style, scene_of
from viz.theme import LIGHT, THEMES
from viz.time_axis import MOST_FRAMES, Span, frame_steps, recomputations

LONGER = ["chain:256"] if PROFILE == "deep" else []
LOSSLESS = ("gif", "apng", "webp")


def trace_of(name: str, policy: str = "sqrt_n") -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.network_from_text(name)[0], policy))


def decoded(file: Any) -> tuple[list[Any], list[int]]:
    """Decode a file by Pillow: frames in RGB, and delays in milliseconds."""
    frames, delays = [], []
    with Image.open(file) as image:
        assert image.info["loop"] == 0
        for frame in range(image.n_frames):
            image.seek(frame)
            frames.append(np.asarray(image.convert("RGB")))
            delays.append(round(image.info["duration"]))
    return frames, delays


def decoded_by_ffmpeg(file: Any) -> tuple[list[Any], list[float]]:
    """Decode a file by FFmpeg: frames in RGB, and their begins in seconds."""
    import av

    frames, starts = [], []
    with av.open(file) as container:
        for frame in container.decode(video=0):
            frames.append(frame.to_ndarray(format="rgb24"))
            starts.append(frame.time)
    return frames, starts


def drawn(traces: Any, style: Style = PLAIN, **options: Any) -> list[Any]:
    picture = Picture(scene_of(traces, style, Span(**options)))
    return [picture.rgb() for _ in picture.play()]


def equal(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(
    ("name", "every"), [("chain:6", 7), ("chain:40", 7), ("residual:2x4", 7), ("unet", 60)]
)
def test_incremental_drawing_equals_full_drawing(name: str, every: int, theme: str) -> None:
    trace = trace_of(name)
    picture = Picture(scene_of([trace], Style(theme), Span()))
    for step, canvas in zip(picture.scene.steps, picture.play(), strict=True):
        if step >= 0 and step % every == 0:
            fresh = Picture(replace(picture.scene, steps=(step,)))
            next(fresh.play())
            assert np.array_equal(canvas, fresh.canvas)


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "names", "policies", "theme", "scale"),
    [
        ("gif", ["chain:6"], ["sqrt_n"], "light", 1),
        ("apng", ["chain:33"], ["sqrt_n"], "dark", 1),
        ("webp", ["residual:1x4"], ["sqrt_n"], "light", 2),
        *(
            (form, ["chain:5"], ["store_all", "sqrt_n", "recompute_all"], "dark", 1)
            for form in LOSSLESS
        ),
        ("gif", ["chain:1", "chain:3"], ["sqrt_n"], "light", 3),
    ],
)
def test_decoded_animation_equals_drawn_frames(
    tmp_path: Path, form: str, names: list[str], policies: list[str], theme: str, scale: int
) -> None:
    traces = [trace_of(name, policy) for name in names for policy in policies]
    path = viz.gif(traces, tmp_path / f"out.{form}", scale=scale, theme=theme, fps=30, hold=(1, 2))
    frames, delays = decoded(path)
    expected = drawn(traces, Style(theme, scale=scale))
    assert equal(frames, expected)
    assert delays == [10 * delay for delay in delays_of(len(expected), 30, (1, 2))]
    assert (delays[0], delays[-1]) == (1000, 2000)
    assert sum(delays[1:-1]) == pytest.approx(1000 * (len(delays) - 2) / 30, abs=10)


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("name", ["chain:9", pytest.param("chain:40", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("form", ["gif", "apng"])
def test_ffmpeg_decodes_the_same_frames(tmp_path: Path, form: str, name: str) -> None:
    require("av")
    traces = [trace_of(name), trace_of(name, "store_all")]
    path = viz.gif(traces, tmp_path / f"out.{form}", theme="dark", fps=20, hold=0)
    frames, starts = decoded_by_ffmpeg(str(path))
    assert equal(frames, drawn(traces, Style("dark")))
    assert starts == pytest.approx([frame / 20 for frame in range(len(frames))])


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(("form", "apart"), [("mp4", 3), ("webm", 4)])
@pytest.mark.parametrize("width", [800, 641])
def test_video_is_close_to_drawn_frames(tmp_path: Path, form: str, apart: int, width: int) -> None:
    require("av")
    import av

    traces = [trace_of("chain:6"), trace_of("chain:6", "store_all")]
    path = viz.gif(traces, tmp_path / f"out.{form}", fps=20, hold=(1, 3), width=width)
    frames, starts = decoded_by_ffmpeg(str(path))
    expected = drawn(traces, Style(width=width))
    expected.append(expected[-1])  # with which it ends, so that it stays on the screen
    assert len(frames) == len(expected)
    for seen, picture in zip(frames, expected, strict=True):
        assert seen.shape[1] == width + width % 2
        assert np.abs(seen[:, :width].astype(int) - picture).mean() < apart
    assert starts[:3] == pytest.approx([0, 1, 1.05])
    assert starts[-1] == pytest.approx(starts[-2] + 2.99)
    with av.open(str(path)) as container:
        assert container.duration / 1e6 == pytest.approx(starts[-1] + 0.01)


@pytest.mark.long
def test_imageio_accepts_frames(tmp_path: Path) -> None:
    import imageio.v3 as iio

    trace = trace_of("chain:4")
    frames = list(viz.frames(trace, width=640, theme="dark"))
    assert equal(frames, drawn([trace], Style("dark", width=640)))
    assert {(frame.dtype.name, frame.shape[0] % 2, frame.shape[1:]) for frame in frames} == {
        ("uint8", 0, (640, 3))
    }
    iio.imwrite(tmp_path / "all.gif", frames, duration=120, loop=0)
    assert iio.improps(tmp_path / "all.gif").n_images >= 10
    require("av")
    with iio.imopen(tmp_path / "plan.mp4", "w", plugin="pyav") as film:
        film.init_video_stream("libx264", fps=8)
        for frame in viz.frames(trace, width=640):
            film.write_frame(frame)
    assert iio.improps(tmp_path / "plan.mp4", plugin="pyav").shape[1:] == frames[0].shape


def scribbles(canvas: Canvas, count: int) -> Iterator[Change]:
    """Yield changes of boxes in random colours, some of them empty."""
    random = np.random.default_rng(0)
    height, width = canvas.pixels.shape
    for _ in range(count):
        for _ in range(random.integers(0, 4)):
            top, left = int(random.integers(0, height)), int(random.integers(0, width))
            box = canvas.region(top, height, left, min(width, left + 50))
            box[:] = random.integers(0, 3, box.shape)
        yield canvas.change()


@pytest.mark.parametrize("form", LOSSLESS)
@pytest.mark.parametrize("colours", [3, 4, 63, 64])
def test_encoders_handle_any_rectangles_and_palettes(form: str, colours: int) -> None:
    inks = inks_of(LIGHT)
    palette = np.random.default_rng(1).integers(0, 256, (colours, 3)).astype(np.uint8)
    canvas, count = Canvas((20, 800), inks), 30
    expected = []

    def changes() -> Iterator[Change]:
        for change in scribbles(canvas, count):
            expected.append(palette[canvas.pixels])
            unchanged = change.pixels == len(inks.colours)
            yield replace(change, pixels=np.where(unchanged, np.uint8(colours), change.pixels))

    file = io.BytesIO()
    ENCODERS[form].write(file, Film(800, 20, palette, [5] * count), changes())
    frames, delays = decoded(file)
    assert equal(frames, expected)
    assert delays == [50] * count


@pytest.mark.parametrize("form", LOSSLESS)
def test_encoders_stream_frames(form: str) -> None:
    picture = Picture(scene_of([trace_of("chain:6")], span=Span()))
    file, sizes = io.BytesIO(), []

    def watched() -> Iterator[Change]:
        for change in picture.changes():
            sizes.append(file.tell())
            yield change

    height, width = picture.canvas.shape
    film = Film(width, height, picture.inks.colours, [5] * len(picture.scene.steps))
    ENCODERS[form].write(file, film, watched())
    assert len(sizes) == len(picture.scene.steps)
    assert sizes == sorted(set(sizes))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("policy", ["store_all", "sqrt_n", "recompute_all", "revolve", "offload"])
def test_animation_files_are_small(tmp_path: Path, policy: str, theme: str) -> None:
    path = viz.gif(trace_of("chain:16", policy), tmp_path / "out.gif", theme=theme)
    # Its memory changes in every third column of a strip that takes a quarter of the height.
    most = 206 if policy == "recompute_all" else 200
    assert path.stat().st_size <= most * 1024


@pytest.mark.nightly
def test_partial_range_has_the_same_frames(tmp_path: Path) -> None:
    traces = [trace_of("chain:9"), trace_of("chain:3"), trace_of("chain:9", "recompute_all")]
    whole = Picture(scene_of(traces, span=Span()))
    frames = dict(zip(whole.scene.steps, drawn(traces), strict=True))
    inside = [step for step in whole.scene.steps if 30 <= step <= 90]
    for every in (1, 4):
        part = Picture(scene_of(traces, span=Span(first=30, last=90, every=every)))
        assert part.scene.steps[0] == max(step for step in whole.scene.steps if step <= 30)
        assert part.scene.steps[-1] == inside[-1]
        part_firsts = {next(recomputations(trace), None) for trace in traces} & set(inside)
        assert len(part.scene.steps) <= 3 + len(traces) + len(part_firsts) + len(inside) // every
        shown = drawn(traces, first=30, last=90, every=every)
        assert equal(shown, [frames[step] for step in part.scene.steps])
    path = viz.gif(traces, tmp_path / "part.gif", first=30, last=30)
    assert equal(decoded(path)[0], [frames[part.scene.steps[0]]])


def test_still_of_a_long_trace_equals_its_frame(tmp_path: Path) -> None:
    trace = trace_of("chain:64", "recompute_all")
    thinned = scene_of([trace], span=Span()).steps
    step = next(step for step in frame_steps(trace)[20:] if step not in thinned)
    with Image.open(viz.save_still(trace, tmp_path / "still.png", step)) as image:
        still = np.asarray(image.convert("RGB"))
    *_, before, frame = drawn([trace], first=step - 20, last=step)
    assert np.array_equal(still, frame)
    assert not np.array_equal(still, before)


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_legend_stays_within_margins(scale: int) -> None:
    picture = Picture(scene_of([trace_of("chain:2")], Style(scale=scale), Span()))
    next(picture.play())
    legend = picture.canvas[-LEGEND * scale :]
    columns = np.flatnonzero((legend != picture.drawing.ground).any(axis=0)) / scale
    assert MARGIN <= columns[0] < MARGIN + 2
    assert WIDTH - MARGIN - 3 < columns[-1] < WIDTH - MARGIN + 1


@pytest.mark.sampled(4)
@pytest.mark.long
@pytest.mark.parametrize("name", ["chain:2", "chain:16", "chain:64", *LONGER])
@pytest.mark.parametrize("options", [{}, {"seconds": 12}, {"seconds": 1}, {"hold": (2, 3)}])
def test_animation_has_the_requested_duration(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    trace = trace_of(name, "recompute_all" if name == "chain:64" else "sqrt_n")
    delays = decoded(viz.gif(trace, tmp_path / "out.gif", width=320, **options))[1]
    if "seconds" in options:
        assert sum(delays) == pytest.approx(1000 * options["seconds"], abs=30)
    else:
        assert sum(delays) <= 30_000
        slow = scene_of([trace], span=Span(most=72)).slow
        assert max(delay for f, delay in enumerate(delays[1:-1], 1) if f not in slow) <= 260
        assert all(delays[frame] == pytest.approx(4 * min(delays[1:-1]), abs=20) for frame in slow)
        hold, last = options.get("hold", (1.5, 2))
        assert (delays[0], delays[-1]) == (1000 * hold, 1000 * last)
    assert min(delays) >= 20


@pytest.mark.parametrize(
    ("count", "hold", "seconds"),
    [(1, None, 5), (2, None, 5), (3, None, 5), (2, (0, 0), 1), (50, (2, 0), 9), (3, (0, 4), 600)],
)
def test_delays_of_any_frame_count_add_up(count: int, hold: Any, seconds: float) -> None:
    delays = delays_of(count, speed_of(count, seconds, hold), holds_of(hold, seconds))
    assert sum(delays) == pytest.approx(100 * seconds, abs=3)


def test_thinned_traces_keep_peak_and_end() -> None:
    trace = trace_of("chain:64", "recompute_all")
    picture = Picture(scene_of([trace], span=Span()))
    assert len(picture.scene.steps) <= MOST_FRAMES + 2
    assert picture.scene.steps[0] == -1
    assert picture.scene.steps[-1] == len(trace.steps) - 1
    assert trace.nodes.index(trace.peak_nodes) in picture.scene.steps
    assert (
        len(scene_of([trace], span=Span(every=1)).steps)
        == 1 + len(frame_steps(trace))
        > 2 * MOST_FRAMES
    )


def test_shorter_trace_shows_its_end_if_its_last_frame_is_skipped() -> None:
    short, long = trace_of("chain:2"), trace_of("chain:5", "recompute_all")
    skipped = Picture(scene_of([short, long], span=Span(every=len(long.steps))))
    assert len(short.steps) - 1 not in skipped.scene.steps
    assert equal(drawn([short, long])[-1:], drawn([short, long], every=len(long.steps))[-1:])
