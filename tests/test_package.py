"""Wheel and sdist: contents, metadata, and smoke tests in environments without the source.

One environment without extras and one with ``viz`` are made in CI, for the Python that runs the
tests; ``make nightly`` makes those of other versions of Python and NumPy, fails where one of the
classifiers' is not installed, and asks the publisher's tools.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROFILE, ROOT, require

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CLASSIFIED = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
FIRST_PICTURE = 60  # seconds, at most
OTHERS = 300  # seconds for any other command


def names(wheel: Path) -> set[str]:
    """Return the names of a wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture
def sdist(distributions: Path) -> Path:
    (path,) = distributions.glob("*.tar.gz")
    return path


# What is in them ----------------------------------------------------------------------------------


@pytest.mark.long
def test_wheel_holds_the_packages_and_what_their_commands_copy(wheel: Path) -> None:
    held = names(wheel)
    scripts = {path.name for path in (ROOT / "lessons").glob("[0-9]*.py")}
    lessons = "tinyckpt/course/lessons/"
    assert {name.removeprefix(lessons) for name in held if name.startswith(lessons)} == scripts
    assert {name.partition("/")[0].partition("-")[0] for name in held} == {"tinyckpt", "viz.py"}
    assert "tinyckpt/py.typed" in held
    assert not [name for name in held if re.search(r"__pycache__|/out/|(^|/)\.|tests/", name)]


@pytest.mark.long
def test_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    (built,) = WheelBuilder(str(source)).build(directory=str(tmp_path), versions=["standard"])
    assert Path(built).read_bytes() == wheel.read_bytes()


def test_every_file_that_is_not_ours_ships_with_its_licence(wheel: Path) -> None:
    # Code and texts are ours: what else is in the wheel is listed here, with where its licence is.
    ours = (".py", ".js", ".css", ".html", ".md", ".json", ".typed")
    licences = {
        "tinyckpt/viz/fonts/Inter": ("viz/fonts/OFL.txt", "SIL OPEN FONT LICENSE"),
        "tinyckpt/data/digits.npz": ("tinyckpt/data/ATTRIBUTION.md", "CC BY 4.0"),
        "tinyckpt/data/lessons.txt": ("LICENSE-TEXTS.md", "CC-BY-4.0"),
    }
    info = next(name for name in names(wheel) if name.endswith("/METADATA")).rpartition("/")[0]
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(ours) or name.startswith(info) or name.endswith("/OFL.txt"):
                continue
            (prefix,) = filter(name.startswith, licences)
            file, words = licences[prefix]
            assert words in archive.read(f"{info}/licenses/{file}").decode(), name
        code = [name for name in archive.namelist() if name.endswith((".js", ".css", ".html"))]
        # axe-core and other people's scripts, which tests use, do not ship.
        assert [name for name in code if b"Copyright" in archive.read(name)] == []


# Metadata -----------------------------------------------------------------------------------------


def test_dependency_groups_equal_extras() -> None:
    groups, extras = PROJECT["dependency-groups"], PROJECT["project"]["optional-dependencies"]
    for name in ("dev", "docs"):
        listed: list[str] = []
        for each in groups[name]:
            listed += groups[each["include-group"]] if isinstance(each, dict) else [each]
        assert sorted(listed) == sorted(extras[name])


def test_classifiers_name_supported_versions_of_python() -> None:
    listed = [version.removeprefix("3.") for version in CLASSIFIED]
    assert int(listed[0]) == int(PROJECT["project"]["requires-python"].removeprefix(">=3."))
    assert sorted(map(int, listed)) == list(map(int, listed))


def test_citation_and_changelog_have_the_version_of_the_package() -> None:
    version = PROJECT["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in citation
    assert f"\nlicense: {PROJECT['project']['license']}\n" in citation
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[([\d.]+)\]", changes, re.MULTILINE)[0] == version


@pytest.mark.parametrize("source", [None, "https://example.org/a/b"])
def test_readme_of_an_index_has_no_relative_link(source: str | None) -> None:
    require("hatchling")
    from hatch_build import for_index

    text = for_index((ROOT / "README.md").read_text(encoding="utf-8"), source)
    targets = re.findall(r'\]\(([^)]*)\)|(?:src|srcset)="([^"]*)"', text)
    assert [each for pair in targets for each in pair if each and "://" not in each] == []
    assert ("<picture>" in text) == (source is not None)
    assert "[All extras" in text if source else "All extras, and platforms." in text


# Environments of their own ------------------------------------------------------------------------


def run(command: list[str], folder: Path, limit: float = OTHERS) -> str:
    """Run a command outside of the source, and return what it prints; it must succeed."""
    python = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env={**python, "PYTHONUTF8": "0"}, timeout=limit,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout


@cache
def interpreter(version: str) -> str | None:
    """Return a Python of a version: on the path, of pyenv or of uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    if shutil.which("uv"):
        asked = ["uv", "python", "find", "--offline", "--no-python-downloads", version]
        uv = subprocess.run(asked, capture_output=True, text=True, check=False)
        found += [uv.stdout.strip()] if uv.returncode == 0 else []
    for each in filter(None, found):
        says = [str(each), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(says, capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:  # a shim of pyenv may lead to no interpreter
            return str(each)
    return None


def environment(python: str, folder: Path, *packages: str) -> Path:
    """Make an environment with packages in it; return the folder of its programs."""
    # The pip that runs here installs there: one of its own takes as long as all else.
    run([python, "-m", "venv", "--without-pip", str(folder / "env")], folder)
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-compile"]
    run([*pip, *quiet, *packages], folder, 1200)
    return programs


def try_out(programs: Path, folder: Path, extra: str) -> None:
    """Run what works without extras, and what the extra is for."""
    python, tinyckpt = str(programs / "python"), str(programs / "tinyckpt")
    listed = "import sys, tinyckpt; print(*sys.modules, sep='\\n'); print(tinyckpt.__file__)"
    *modules, place = run([python, "-W", "error", "-c", listed], folder).splitlines()
    assert Path(place).is_relative_to(folder)
    assert not {"matplotlib", "PIL", "ortools", "viz"} & set(modules)
    assert "42 evaluations" in run([tinyckpt, "plan", "chain:16", "--budget", "9 nodes"], folder)
    run([tinyckpt, "run", "mlp:4x8", "--policy", "sqrt_n"], folder)
    assert "written to course" in run([tinyckpt, "course", "--copy", "course"], folder)
    assert "01_the_graph.py" in run([tinyckpt, "lessons", "--copy", "lessons"], folder)
    gif = [tinyckpt, "gif", "chain:16", "-o", "chain.gif"]
    if not extra:
        refused = subprocess.run(gif, cwd=folder, capture_output=True, text=True, check=False)
        assert refused.returncode == 1
        assert "viz" in refused.stderr
        return
    run(gif, folder, FIRST_PICTURE)
    assert (folder / "chain.gif").read_bytes().startswith(b"GIF89a")
    run([tinyckpt, "demo", "-o", "demo"], folder)
    assert (folder / "demo" / "chain16.html").exists()
    run([python, "lessons/01_the_graph.py"], folder)
    if extra == "all":
        run([tinyckpt, "gif", "chain:9", "-o", "chain.mp4"], folder)
        assert "optimal" in run([tinyckpt, "plan", "chain:9", "--policy", "optimal"], folder)
        run([python, "-c", "import ml_dtypes, anywidget, safetensors"], folder)


@pytest.mark.newcomer
@pytest.mark.parametrize("extra", ["", pytest.param("viz", marks=pytest.mark.nightly)])
def test_wheel_runs_in_an_environment_of_its_own(wheel: Path, tmp_path: Path, extra: str) -> None:
    programs = environment(sys.executable, tmp_path, f"{wheel}[{extra}]" if extra else str(wheel))
    try_out(programs, tmp_path, extra)


# NumPy's first version with wheels for a version of Python, of those from 2.0 on.
OLDEST: Mapping[str, str] = {"3.11": "2.0.0", "3.12": "2.0.0", "3.13": "2.1.0", "3.14": "2.3.2"}
MATRIX = [
    (version, extra, numpy)
    for version in OLDEST
    for extra, numpy in (("", OLDEST[version]), ("viz", OLDEST[version]), ("all", ""))
]


@pytest.mark.nightly
@pytest.mark.parametrize(("version", "extra", "numpy"), MATRIX)
def test_wheel_runs_on_other_versions(
    wheel: Path, tmp_path: Path, version: str, extra: str, numpy: str
) -> None:
    python = interpreter(version)
    if python is None:
        # The classifiers name versions that were tried; a newer one follows with its first run.
        missing = f"needs Python {version}, on the path, of pyenv or of uv"
        if version in CLASSIFIED and (PROFILE == "deep" or os.environ.get("CI")):
            pytest.fail(missing)
        pytest.skip(missing)
    pinned = [f"numpy=={numpy}"] if numpy else []
    programs = environment(python, tmp_path, f"{wheel}[{extra}]" if extra else str(wheel), *pinned)
    try_out(programs, tmp_path, extra)


# The publisher's tools ----------------------------------------------------------------------------

TOOLS = ("twine", "check-wheel-contents", "cffconvert", "codespell", "sp-repo-review[cli]")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the tools in an environment of their own: what they need may be of other versions."""
    return environment(sys.executable, tmp_path_factory.mktemp("tools"), *TOOLS)


@pytest.mark.nightly
def test_publishers_tools_find_nothing(tools: Path, wheel: Path, sdist: Path) -> None:
    commands: list[list[Any]] = [
        ["twine", "check", "--strict", wheel, sdist],
        ["check-wheel-contents", wheel],
        ["cffconvert", "--validate"],
        ["codespell"],
        ["sp-repo-review", "."],
    ]
    for program, *arguments in commands:
        run([str(tools / program), *map(str, arguments)], ROOT)
