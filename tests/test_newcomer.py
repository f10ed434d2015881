"""The newcomer's path end to end: clone, ``make demo``, its next steps, the README's commands.

In a copy of what git tracks, in an environment made from nothing, in a shell that knows of no other
one: what is printed is what is run, to the letter. It takes minutes and downloads packages, so it
is asked for by itself: ``make newcomer``. CI always runs it.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.readme import ROOT, commands, needs_torch, outputs, python_blocks

pytestmark = pytest.mark.newcomer


def environment() -> dict[str, str]:
    """Return the environment of a terminal that was just opened: in no virtual environment."""
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL", "EXTRAS")
    own = Path(os.environ.get("VIRTUAL_ENV", ROOT / ".venv")) / "bin"
    folders = [f for f in os.environ["PATH"].split(os.pathsep) if Path(f) not in (own, VENV_BIN)]
    kept = {key: value for key, value in os.environ.items() if key not in ours}
    return {**kept, "PATH": os.pathsep.join(folders)}


VENV_BIN = ROOT / ".venv" / "bin"


def shell(script: str, folder: Path) -> str:
    """Run lines in a shell of their own, up to the first that fails; return what they print."""
    result = subprocess.run(
        ["bash", "-e", "-o", "pipefail"], input=script, cwd=folder, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, f"{script}\n{result.stdout}"
    return result.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what git tracks, and what it would; as it stands, committed or not."""
    folder = tmp_path_factory.mktemp("newcomer") / "tinyckpt"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():  # and was not just deleted
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def demo(clone: Path) -> str:
    """Return what ``make demo`` prints."""
    return shell("make demo", clone)


@pytest.mark.nightly
def test_every_next_step_of_demo_runs(clone: Path, demo: str) -> None:
    before, _, after = demo.partition("Next, from this folder:")
    for path in re.findall(r"(?:watch it|browser|chart|both): (\S+)", before):
        assert (clone / path).exists()
    steps = [line.strip() for line in after.splitlines() if line.strip()]
    assert any("lessons/01" in step for step in steps)
    assert len(steps) >= 3
    for step in steps:
        assert shell(step, clone)


PAGES = ("README.md", "docs/choosing.md", "docs/pictures.md", "docs/command_line.md")


@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_page_runs(clone: Path, demo: str, page: str) -> None:
    # The demo ran, and CI; lines for PyTorch, which is large, are run in tests/test_readme.py.
    text = (ROOT / page).read_text(encoding="utf-8")
    activation = "source .venv/bin/activate"
    blocks = [code for code in python_blocks(text) if not needs_torch(code)]
    if blocks:
        (clone / "copied.py").write_text("\n".join(blocks))
        shell(f"{activation}\npython copied.py", clone)
    for line in commands(text):
        if line.startswith("make ") or line == activation or needs_torch(line):
            continue
        printed = shell(f"{activation}\n{line}", clone)
        for expected in outputs(text).get(line, ()):
            assert expected in printed.splitlines()
        for written in re.findall(r" -o (\S+)", line.split(" # ")[0]):
            assert (clone / written).exists()
