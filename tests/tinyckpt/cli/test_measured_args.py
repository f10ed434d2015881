"""Command line: measured memory on player and lab pages."""

from pathlib import Path

import pytest

from tests.snapshots import event, listed, pickled, snapshot, training
from tests.tinyckpt.cli.test_cli import run
from tests.viz.player.player_driver import code_of


@pytest.mark.long
def test_player_and_lab_draw_measured_memory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken = pickled(tmp_path, training())
    for job in ("play", "lab"):
        out = tmp_path / f"{job}.html"
        options = ("--measured", str(taken), "--between", "0.1,0.6", "--base", "1 KiB")
        assert run(capsys, job, "chain:4", "-o", str(out), *options)[0] == 0
        page = out.read_text(encoding="utf-8")
        assert "class MeasuredLine" in code_of(page)
        assert '"base":1024' in page
        assert run(capsys, job, "chain:4", "-o", str(out), "--measured", str(taken))[0] == 0
        assert '"base":10000' in out.read_text(encoding="utf-8")


def test_bad_measured_option_gives_one_line_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "x.html")
    both = str(pickled(tmp_path, snapshot([event("alloc", 1, 1)], [event("alloc", 1, 1)])))
    moments = str(listed(tmp_path, [(0, 1), (1, 2)]))
    cases = [
        (("--device", "1"), 2, "--device is for --measured FILE, which was not given"),
        (("--base", "0"), 2, "--base is for --measured FILE, which was not given"),
        (("--measured", both), 2, "devices 0, 1 have events; choose one, device=0"),
        (("--measured", both, "--device", "7"), 2, "device 7 has no events; those that have are"),
        (("--measured", moments, "--between", "3,4"), 2, "within 0 to 1 seconds"),
        (("--measured", moments, "--between", "3"), 2, "'3': expected two moments, such as 1.5,2"),
        (("--measured", moments, "--base", "50 %"), 2, "'50 %': expected '1.5 GiB', a number of"),
        (("--measured", str(tmp_path / "none")), 1, "cannot read"),
    ]
    for options, expected, said in cases:
        code, _, err = run(capsys, "play", "chain:4", "-o", out, *options)
        assert code == expected, options
        assert said in err, options
        assert not Path(out).exists()


def test_empty_lab_takes_no_network(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = str(tmp_path / "lab.html")
    code, text, _ = run(capsys, "lab", "--empty", "-o", out)
    assert (code, text) == (0, f"written to {out}; open it in a browser, and drop a file onto it\n")
    assert "Drop a graph, a trace or a memory snapshot here" in Path(out).read_text("utf-8")
    for options, said in (
        (("-o", out), "NETWORK is missing; or --empty, onto which one drops a file"),
        (("chain:4", "--empty", "-o", out), "--empty has nothing in it: leave network out"),
        (("--empty", "-o", out, "--points", "3"), "--empty has nothing in it: leave points out"),
        (("--empty", "-o", out, "--cost", "flops"), "--empty has nothing in it: leave cost out"),
        (("--empty", "-o", out, "--challenge", "1 MiB"), "it: leave challenge out"),
        (("--empty", "-o", out, "--device", "3"), "--device is for --measured FILE"),
        (("--empty", "-o", "lab.gif"), "it must end in .html, .htm"),
    ):
        code, _, err = run(capsys, "lab", *options)
        assert code == 2
        assert said in err
