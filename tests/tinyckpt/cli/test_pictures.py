"""Command line: picture options reach viz, and bad ones give a one-line error."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.tinyckpt.cli.test_cli import run
from tinyckpt.cli import main


def test_width_labels_and_group_options_reach_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("PIL")
    path = tmp_path / "out.svg"
    size = ("--width", "1280", "--aspect", "16:9")
    assert main(["gif", "mlp:2x8", "-o", str(path), *size, "--group", "scope"]) == 0
    text = path.read_text(encoding="utf-8")
    assert 'width="1280" height="720"' in text
    assert ">layer1<" in text
    labels = ("--labels", "f1=first,1=second one", "--arrange", "side by side")
    assert main(["gif", "chain:2", "-o", str(path), *labels]) == 0
    assert ">first<" in path.read_text(encoding="utf-8")
    assert ">second one<" in path.read_text(encoding="utf-8")
    page = tmp_path / "out.html"
    assert main(["play", "mlp:2x8", "-o", str(page), "--group", "scope", "--labels", "name"]) == 0
    assert capsys.readouterr().err == ""


def test_play_opens_at_the_policy_and_moment_that_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("PIL")
    page = tmp_path / "out.html"
    two = ["play", "chain:4", "--policy", "store_all", "--policy", "sqrt_n", "-o", str(page)]
    opened = {}
    for name, own in (
        ("difference", []),
        ("policy", ["--show", "sqrt_n", "--stop", "first recomputation"]),
        ("in a word", ["--stop", "recomputation"]),
        ("by name", ["--show", "difference"]),
        ("all", ["--show", "all"]),
    ):
        assert main([*two, *own]) == 0
        found = re.search(r'"opening":\s*(\{\s*"show[^}]*\})', page.read_text(encoding="utf-8"))
        assert found
        opened[name] = json.loads(found[1])
    assert opened == {
        "difference": {"show": "difference", "stop": "peak"},
        "policy": {"show": 1, "stop": "first recomputation"},
        "in a word": {"show": "difference", "stop": "first recomputation"},
        "by name": {"show": "difference", "stop": "peak"},
        "all": {"show": "all", "stop": "peak"},
    }
    with pytest.raises(SystemExit):
        main([*two, "--stop", "recomputatoin"])
    assert "(did you mean first recomputation?)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*two, "--show", "revolve"])
    assert "revolve" in capsys.readouterr().err


def test_play_knows_the_stops_of_the_player() -> None:
    require("PIL")
    from tinyckpt.viz.scene import STOPS as PLAYED

    from tinyckpt.cli.options import STOPS

    assert STOPS == PLAYED


def test_animation_duration_equals_seconds_option(tmp_path: Path) -> None:
    require("PIL")
    from PIL import Image

    path = tmp_path / "out.gif"
    assert main(["gif", "chain:4", "-o", str(path), "--seconds", "3", "--width", "320"]) == 0
    total = 0
    with Image.open(path) as image:
        for frame in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(frame)
            total += image.info["duration"]
    assert total == pytest.approx(3000, abs=30)


def test_svg_still_shows_peak_or_given_step(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    require("PIL")
    path = tmp_path / "still.svg"
    for arguments, step in (((), 26), (("--still", "3"), 3)):
        code, out, _ = run(capsys, "gif", "chain:16", *arguments, "-o", str(path))
        assert (code, out) == (0, f"written to {path}\n")
        assert f"step {step} of 82" in path.read_text(encoding="utf-8")


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code that begins with the command's ``main`` imported."""
    code = f"import sys; from tinyckpt.cli.main import main\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.long
@pytest.mark.parametrize(("missing", "name"), [("PIL", "x.gif"), ("av", "x.mp4")])
def test_missing_picture_package_names_install(tmp_path: Path, missing: str, name: str) -> None:
    path = str(tmp_path / name)
    code = f"sys.modules[{missing!r}] = None; sys.exit(main(['gif', 'chain:2', '-o', {path!r}]))"
    result = python(code)
    assert result.returncode == 1
    extra = "mp4" if missing == "av" else "viz"
    assert "which is not installed: pip install" in result.stderr
    assert f"'tinyckpt[{extra}]'" in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_gif_imports_only_needed_packages(tmp_path: Path) -> None:
    require("PIL")
    result = python(
        f"main(['gif', 'chain:4', '-o', {str(tmp_path / 'x.gif')!r}]); print(*sys.modules)"
    )
    heavy = {"matplotlib", "graphviz", "pygraphviz", "imageio", "tqdm", "av", "ortools", "cupy"}
    assert not heavy & set(result.stdout.split())


def test_animation_of_step_range(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    require("PIL")
    from PIL import Image

    path = tmp_path / "x"
    arguments = ("--format", "webp", "--from", "4", "--to", "9", "--hold", "2,3", "--title", "A")
    titles = ("--policy", "sqrt_n", "--policy", "store_all", "--title", "B")
    code, out, _ = run(capsys, "gif", "chain:4", "-o", str(path), *arguments, *titles)
    assert code == 0
    assert out == f"written to {path}\n"
    with Image.open(path) as image:
        assert image.n_frames == 6
        durations = []
        for frame in range(6):
            image.seek(frame)
            image.load()
            durations.append(image.info["duration"])
    assert (durations[0], durations[-1]) == (2000, 3000)


@pytest.mark.long
def test_gif_in_style_of_explainer_is_the_picture_of_viz(tmp_path: Path) -> None:
    require("PIL")
    from tinyckpt import viz

    path = tmp_path / "a.gif"
    assert main(["gif", "chain:16", "--style", "explainer", "-o", str(path)]) == 0
    trace = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    command = "tinyckpt gif chain:16 --style explainer"
    expected = viz.explainer(trace, tmp_path / "b.gif", command=command)
    assert path.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize(
    "more", [["--fps", "9"], ["--from", "3"], ["--align", "step"], ["--policy", "dtr"] * 3]
)
def test_explainer_refuses_options_of_graphs(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.gif"
    with pytest.raises(SystemExit):
        main(["gif", "chain:4", "--style", "explainer", "-o", str(path), *more])
    assert "explainer" in capsys.readouterr().err.splitlines()[-1]
    assert not path.exists()
