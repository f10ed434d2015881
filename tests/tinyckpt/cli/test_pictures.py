"""What the command line asks of pictures reaches them, and what is wrong is one clear line."""

from pathlib import Path

import pytest

from tests.conftest import require
from tinyckpt.cli import main


def test_widths_labels_and_groups_reach_the_picture(
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


def test_an_animation_lasts_as_long_as_is_asked(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--width", "100"), "width 100: legal are 320 to 3840 pixels"),
        (("--aspect", "wide"), "aspect 'wide': legal are width and height such as 16:9"),
        (("--labels", "kind"), "labels 'kind': legal are name, symbol"),
        (("--labels", "f1=a,=b"), "expected NAME=TEXT, with commas between them"),
        (("--labels", "nobody=b"), "labels: no operator has the id or name 'nobody'"),
        (("--group", "scope"), "group 'scope': chain:4 has no scopes that divide it"),
        (("--seconds", "3", "--fps", "8"), "fps 8.0 and seconds 3.0: give one of them"),
    ],
)
def test_what_is_not_legal_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], reason: str
) -> None:
    require("PIL")
    with pytest.raises(SystemExit) as ended:
        main(["gif", "chain:4", "-o", str(tmp_path / "out.gif"), *options])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
