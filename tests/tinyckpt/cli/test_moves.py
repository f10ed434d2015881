"""Command line: pictures of schedules that offload to host memory."""

from pathlib import Path

import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.tinyckpt.cli.test_cli import run
from tests.viz.player.player_driver import code_of

OFFLOAD = ("--policy", "offload", "--set", "bandwidth=512")


def test_animation_has_a_frame_per_transfer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    require("PIL")
    from PIL import Image

    path = tmp_path / "x.gif"
    code, out, _ = run(capsys, "gif", "chain:16", *OFFLOAD, "--every", "1", "-o", str(path))
    assert (code, out) == (0, f"written to {path}\n")
    trace = tc.replay(tc.plan(tc.networks.chain(16), "offload", bandwidth=512))
    moves = sum(isinstance(step, tc.Offload | tc.Fetch) for step in trace.steps)
    frees = len(trace.steps) - trace.evaluations - moves
    assert (moves, frees) == (30, 32)
    with Image.open(path) as animation:
        # One before the first step; after each backward evaluation one for all that is freed.
        assert animation.n_frames == 1 + trace.evaluations + moves + 16


def test_still_shows_values_on_host(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    assert run(capsys, "gif", "chain:16", *OFFLOAD, "-o", str(path), "--still", "40")[0] == 0
    text = path.read_text(encoding="utf-8")
    assert ">f13 comes back from the host (512 B)<" in text
    assert text.count(">on the host<") == 3  # the counter, the lane, the legend


def test_page_has_times_when_link_is_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.html"
    cases = (
        ((*OFFLOAD, "--set", "latency=1"), True),
        (("--policy", "offload"), False),
        (("--policy", "sqrt_n"), False),
    )
    for how, timed in cases:
        assert run(capsys, "play", "chain:16", *how, "-o", str(path))[0] == 0
        assert ("class TimeLane" in code_of(path.read_text(encoding="utf-8"))) == timed
    flops = ("--cost", "flops", "--policy", "offload", "--set", "bandwidth=1")
    assert run(capsys, "play", "mlp:3x8", *flops, "-o", str(path))[0] == 0
    assert " FLOPs, " in path.read_text(encoding="utf-8")
