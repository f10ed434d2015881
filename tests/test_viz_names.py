"""``tinyckpt.viz`` and ``viz`` are one module object: in a clone, an editable install, a wheel."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import require

require("matplotlib")

ROOT = Path(__file__).parent.parent
SAME = """
import sys, {first}
import {second}
import viz.charts.style, viz.lab.data, tinyckpt.viz.charts.style, tinyckpt.viz.lab.data
from tinyckpt import viz as picture
from viz.theme import THEMES
assert sys.modules["viz"] is sys.modules["tinyckpt.viz"] is picture
assert sys.modules["viz.lab.data"] is sys.modules["tinyckpt.viz.lab.data"]
assert THEMES is tinyckpt.viz.theme.THEMES
assert callable(picture.lab) and callable(picture.gif) and callable(picture.player)
names = [name for name in sys.modules if name.split(".")[0] == "viz"]
assert all(sys.modules[name] is sys.modules["tinyckpt." + name] for name in names), names
print(picture.__name__, picture.__file__)
"""


def printed(code: str, folder: Path) -> list[str]:
    """Run code where modules of a folder come first; return the words that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def wheel(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the wheel, as an installer does."""
    (archive,) = distributions.glob("*.whl")
    installed = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(archive) as content:
        content.extractall(installed)
    return installed


ORDERS = [("viz", "tinyckpt.viz"), ("tinyckpt.viz", "viz"), ("tinyckpt, viz.theme", "tinyckpt.viz")]


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), ORDERS)
def test_both_names_are_one_module_in_clone(first: str, second: str) -> None:
    assert printed(SAME.format(first=first, second=second), ROOT) == [
        "tinyckpt.viz",
        str(ROOT / "viz" / "__init__.py"),
    ]


@pytest.mark.long
def test_both_names_are_one_module_in_this_installation(tmp_path: Path) -> None:
    name, _ = printed(SAME.format(first="viz", second="tinyckpt.viz"), tmp_path)
    assert name == "tinyckpt.viz"


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), ORDERS)
def test_both_names_are_one_module_in_wheel(wheel: Path, first: str, second: str) -> None:
    assert printed(SAME.format(first=first, second=second), wheel) == [
        "tinyckpt.viz",
        str(wheel / "tinyckpt" / "viz" / "__init__.py"),
    ]


def test_wheel_puts_no_package_viz_beside_tinyckpt(wheel: Path) -> None:
    made = (".dist-info", "__pycache__")  # beside the wheel's own: by installers, by imports
    assert {path.name for path in wheel.iterdir() if not path.name.endswith(made)} == {
        "tinyckpt",
        "viz.py",
    }
    assert not (wheel / "tinyckpt" / "viz.py").exists()


@pytest.mark.long
def test_another_distribution_keeps_its_package_viz(wheel: Path, tmp_path: Path) -> None:
    both = shutil.copytree(wheel, tmp_path / "site")
    (both / "viz").mkdir()
    (both / "viz" / "__init__.py").write_text("mine = 1\n")
    code = "import viz, tinyckpt.viz; print(viz.mine, tinyckpt.viz.gif.__module__)"
    assert printed(code, both) == ["1", "tinyckpt.viz.gif"]


def test_another_package_viz_is_not_taken_for_ours_in_clone(tmp_path: Path) -> None:
    (tmp_path / "viz").mkdir()
    (tmp_path / "viz" / "__init__.py").write_text("mine = 1\n")
    code = "import viz, tinyckpt.viz; print(viz.mine, tinyckpt.viz.gif.__module__)"
    assert printed(code, tmp_path) == ["1", "tinyckpt.viz.gif"]
