"""Notebooks of lessons and parts: they show what their scripts write, and collapse answers."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tinyckpt.course.handing_out import solution_of, stub_of

ROOT = Path(__file__).parent.parent
LESSONS = sorted(path.stem for path in (ROOT / "lessons").glob("[0-9]*.py"))
PARTS = sorted(path.name for path in (ROOT / "course").glob("part_[0-9]*"))
FEW = ("01_the_graph", "part_0")  # executed wherever tests run; the others nightly


@pytest.fixture
def notebooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that makes notebooks, whose kernels import this clone."""
    for module in ("jupytext", "nbclient", "ipykernel"):
        require(module)
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    import notebooks

    return notebooks


def sources(notebook: Any, kind: str = "code") -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


@pytest.mark.parametrize("lesson", LESSONS)
def test_notebook_of_lesson_installs_first_and_shows_pictures(notebooks: Any, lesson: str) -> None:
    path = ROOT / "lessons" / f"{lesson}.py"
    notebook = notebooks.lesson_notebook(path)
    first, *codes = sources(notebook)
    assert f'%pip install --quiet "{{CLONE}}[viz{",torch" * lesson.startswith("19")}]"' in first
    assert "pip install '.[viz]'" in (ROOT / "README.md").read_text("utf-8")
    code = "\n".join(codes)
    drawn = re.findall(r'OUT / "[\w.-]+\.(?:png|gif|svg|html)"', path.read_text("utf-8"))
    assert code.count("display(") == len(set(drawn))
    assert ".html" not in code
    assert not re.search(r"print\((viz\.(?!challenge)|OUT)", code)
    assert code.count("viz.ask(") == path.read_text("utf-8").count("viz.ask(")
    for cell in notebook.cells:
        told = cell.cell_type == "code" and "you said {" in cell.source
        assert not told or cell.metadata.jupyter.outputs_hidden
    assert notebook.cells[-1].metadata.jupyter.source_hidden


@pytest.mark.parametrize("part", PARTS)
def test_notebook_of_part_has_stub_tests_and_hints(notebooks: Any, part: str) -> None:
    folder = ROOT / "course" / part
    notebook = notebooks.part_notebook(folder)
    solution = (ROOT / "course" / "solutions" / f"{part}.py").read_text("utf-8")
    stub = stub_of(solution).rstrip()
    codes = sources(notebook)
    assert '"{CLONE}[viz]" pytest\n    import tinyckpt  # stops here' in codes[0]
    assert f"%%writefile {part}.py\n{stub}" in codes
    assert any(code.startswith(f"%%writefile test_{part}.py\n") for code in codes)
    # Whatever they import is written by the notebook, or by those of earlier parts.
    imports = re.findall(r"^from (\w+) import", "\n".join(codes), re.M)
    known = {*sys.stdlib_module_names, "tinyckpt", "IPython", "numpy", "pytest", *PARTS}
    for module in set(imports) - known:
        assert any(code.startswith(f"%%writefile {module}.py\n") for code in codes), module
    assert solution_of(solution).rstrip() not in "\n".join(codes)
    (hints,) = (text for text in sources(notebook, "markdown") if "Hints" in text)
    page = (folder / "README.md").read_text("utf-8")
    assert not re.search(r"\]\((?!http)", "".join(sources(notebook, "markdown")))
    assert hints.count("Step 3") == (folder / "hints.md").read_text("utf-8").count("Step 3") > 0
    assert "\n".join(codes).count("\nprint(") >= page.count("\nprint(")


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FEW else [pytest.mark.nightly])
        for name in (*LESSONS, *PARTS)
    ],
)
def test_executed_notebook_shows_players_and_pictures(notebooks: Any, name: str) -> None:
    import nbformat

    path = ROOT / ("course" if name in PARTS else "lessons") / name
    path = path if path.is_dir() else path.with_suffix(".py")
    if name == "19_pytorch":
        require("torch")
    notebook = nbformat.reads(notebooks.executed(path), as_version=4)
    nbformat.validate(notebook)
    said, shown = "", []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            said += output.get("text", "")
            if output.output_type == "display_data":
                shown.append(output.data)
    assert len(shown) == "\n".join(sources(notebook)).count("display(")
    for data in shown:  # a player or lab, a picture of viz, a figure of matplotlib
        html = data.get("text/html", "")
        assert html.startswith(("<iframe srcdoc=", '<img src="data:')) or "image/png" in data
    assert "out/" not in said
    if name in LESSONS:
        assert said.count("(non-interactive: using ") == said.count("you said ") > 0
        assert any("<iframe" in data.get("text/html", "") for data in shown)
    else:
        page = (path / "README.md").read_text("utf-8")
        for expected in re.findall(
            r"^```python\n.*?^```\n\n```text\n(.*?)^```$", page, re.M | re.S
        ):
            assert expected in said
        assert "NotImplementedError" in next(
            code for code in sources(notebook) if f"file {name}.py" in code
        )
        assert " passed" not in said
