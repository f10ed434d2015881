"""Animation errors: one clear message, and the old file is kept."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.conftest import require
from tests.viz.raster.test_animations import trace_of
from viz.raster.encode import ENCODERS


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"theme": "neon"}, "unknown theme 'neon'; known are light, dark"),
        ({"scale": 5}, "scale 5: expected 1, 2 or 3"),
        ({"scale": 1.0}, "scale 1.0: expected 1, 2 or 3"),
        ({"fps": 0}, "fps 0: expected 0.01 to 50"),
        ({"fps": 100}, "fps 100: expected"),
        ({"fps": float("nan")}, "fps nan: expected"),
        ({"fps": "8"}, "fps '8': expected"),
        ({"hold": -1}, "hold -1: expected a number of seconds, or a pair, from 0 to 600"),
        ({"hold": (1, 2, 3)}, r"hold \(1, 2, 3\): expected"),
        ({"first": -1}, "step -1 is out of range: expected 0 to 8"),
        ({"last": 9}, "step 9 is out of range: expected 0 to 8"),
        ({"first": 5, "last": 4}, "no steps from 5 to 4: the range ends before it begins"),
        ({"every": 0}, "every 0: expected a positive integer"),
        ({"format": "bmp"}, "unknown format 'bmp'; known are gif, apng, webp, mp4, webm"),
        ({"width": 319}, "width 319: expected 320 to 3840 pixels"),
        ({"width": 3841}, "width 3841: expected 320 to 3840 pixels"),
        ({"width": 800.0}, "width 800.0: expected 320 to 3840 pixels"),
        ({"width": True}, "width True: expected 320 to 3840 pixels"),
        ({"width": 800, "scale": 2}, "width 800 and scale 2: give one of them"),
        ({"aspect": "wide"}, "aspect 'wide': expected width:height such as 16:9"),
        ({"aspect": "16:0"}, "aspect '16:0': expected"),
        ({"aspect": 1.5}, "aspect 1.5: expected"),
        ({"aspect": "9:1"}, "aspect '9:1': expected .*, from 1:4 to 4:1"),
        ({"arrange": "beside"}, "arrange 'beside': expected stacked, side by side"),
        ({"seconds": 0.5}, "seconds 0.5: expected 1 to 600"),
        ({"seconds": 5, "fps": 8}, "fps 8 and seconds 5: give one of them"),
        ({"seconds": 5, "hold": 2}, "hold 2: the first and the last frame take more than half"),
        ({"labels": "kind"}, "labels 'kind': expected name, symbol, a mapping"),
        ({"labels": {"x": "y"}}, "labels: no operator has the id or name 'x'"),
        ({"labels": {0: 1}}, "labels: expected a text for 0, got a int"),
        ({"labels": lambda _: 3}, "labels: expected a text or None for f1, got a int"),
        ({"group": "layer"}, "group 'layer': expected scope, operator, or a function"),
        ({"group": "scope"}, "group 'scope': chain:2 has no scopes that divide it"),
        ({"group": lambda _: 3}, "group: expected a text or None for f1, got a int"),
        ({"title": ["a", "b"]}, "2 titles for 1 trace: give one for each, in order, or none"),
    ],
)
def test_options_out_of_range_are_refused(tmp_path: Path, options: Any, match: str) -> None:
    with pytest.raises(tc.OptionError, match=match):
        viz.gif(trace_of("chain:2"), tmp_path / "out.gif", **options)
    with pytest.raises(tc.OptionError, match=r"out.bmp: the name must end in one of \.gif"):
        viz.gif(trace_of("chain:2"), tmp_path / "out.bmp")
    assert list(tmp_path.iterdir()) == []


def test_options_depending_on_trace_and_frame_counts_are_refused(tmp_path: Path) -> None:
    three, path = [trace_of("chain:2")] * 3, tmp_path / "out.gif"
    with pytest.raises(tc.OptionError, match="width 900: 3 traces side by side need at least 960"):
        viz.gif(three, path, width=900, arrange="side by side")
    with pytest.raises(tc.OptionError, match="seconds 1: 292 frames are too many"):
        viz.gif(trace_of("chain:64"), path, seconds=1, every=1)
    many = trace_of("chain:1001")
    with pytest.raises(tc.OptionError, match="chain:1001 would have 1,001 nodes, and a picture"):
        viz.gif(many, path, group="operator")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_picture_too_large_for_its_format_is_refused(tmp_path: Path) -> None:
    traces = [trace_of("chain:2")] * 50
    with pytest.raises(tc.OptionError, match=r"2400 by \d+ pixels are too many for webp"):
        viz.gif(traces, tmp_path / "out.webp", scale=3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("form", ENCODERS)
def test_full_disk_raises_one_error_and_keeps_the_old_file(tmp_path: Path, form: str) -> None:
    if form in ("mp4", "webm"):
        require("av")
        import imageio.plugins.pyav  # noqa: F401  (its bytecode would be written to the full disk)
    path = tmp_path / f"out.{form}"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, before[1]))
    try:
        with pytest.raises(tc.FormatError, match=r"cannot write .*File too large"):
            viz.gif(trace_of("chain:16"), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(tc.FormatError, match="cannot write /dev/full: No space left on device"):
        viz.gif(trace_of("chain:2"), "/dev/full", format=form)


KILLED = """
import os, signal, sys
import tinyckpt as tc, viz
from viz.raster.picture import Picture

whole = Picture.changes
def changes(self):
    for number, change in enumerate(whole(self)):
        if number == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        yield change
Picture.changes = changes
viz.gif(tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n")), sys.argv[1])
"""


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("old", [None, b"old"])
def test_killed_process_leaves_the_old_file_or_none(tmp_path: Path, old: bytes | None) -> None:
    path = tmp_path / "out.gif"
    if old is not None:
        path.write_bytes(old)
    result = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True)
    assert result.returncode == -signal.SIGKILL
    assert (path.read_bytes() if path.exists() else None) == old


def test_unwritable_folders_raise_format_error(tmp_path: Path) -> None:
    trace = trace_of("chain:2")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(tc.FormatError, match=r"cannot write .*Not a directory"):
        viz.gif(trace, tmp_path / "file" / "out.gif")
    folder, reason = tmp_path, "Permission denied"
    if os.geteuid() == 0:  # who may write everywhere, but not make files that the kernel does not
        folder, reason = Path("/sys"), "Permission denied|Read-only file system"
    else:
        folder.chmod(0o500)
    with pytest.raises(tc.FormatError, match=rf"cannot write .*({reason})"):
        viz.gif(trace, folder / "out.gif")
