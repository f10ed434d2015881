"""Every stub fails its tests, every solution passes them; pages, hints and code agree."""

import ast
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, require
from tests.course.networks import COURSE, MINI
from tinyckpt.course.handing_out import REGION, copy_course, given, solution_of, stub_of

SOLUTIONS = COURSE / "solutions"
PARTS = range(7)
PICTURES = {
    3: {"mine.png", "mine.gif"},
    4: {"part_4.png", "part_4.gif"},
    5: {"part_5.png", "part_5.gif"},
    6: {"part_6.png"},
}
DONE = runpy.run_path(str(COURSE / "done.py"))
TASK = re.compile(r"Task (\d\.\d)")


def page(part: int, name: str = "README.md") -> str:
    return (COURSE / f"part_{part}" / name).read_text(encoding="utf-8")


def marked(part: int) -> str:
    """Return the solution of a part with its markers."""
    return (SOLUTIONS / f"part_{part}.py").read_text(encoding="utf-8")


def import_from(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Have ``part_1`` and so on come from the first of some folders that has them."""
    modules = r"part_\d|draw|example_\w+"
    for name in [name for name in sys.modules if re.fullmatch(modules, name)]:
        monkeypatch.delitem(sys.modules, name)
    examples = (COURSE / "part_1", COURSE / "part_2")  # of the tests: losses, chains
    for folder in (*examples, *reversed(folders)):
        monkeypatch.syspath_prepend(str(folder))


def verdicts(part: int, prefix: str = "test_") -> dict[str, bool]:
    """Run the tests of a part, or of one of its tasks, and return whether each passes."""
    found = {}
    for name, test in runpy.run_path(str(COURSE / f"part_{part}" / f"test_part_{part}.py")).items():
        if name.startswith(prefix):
            try:
                test()
            except (Exception, pytest.fail.Exception):
                found[name] = False
            else:
                found[name] = True
    assert len(found) >= (9 if prefix == "test_" else 1)
    return found


@pytest.mark.parametrize("part", PARTS)
def test_each_test_of_a_part_fails_on_its_stub(
    part: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # With the parts before it solved.
    (tmp_path / f"part_{part}.py").write_text(stub_of(marked(part)), encoding="utf-8")
    import_from(monkeypatch, tmp_path, SOLUTIONS)
    assert [name for name, passed in verdicts(part).items() if passed] == []


@pytest.mark.parametrize("part", PARTS)
def test_each_test_of_a_part_passes_on_its_solution(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_from(monkeypatch, SOLUTIONS)
    assert [name for name, passed in verdicts(part).items() if not passed] == []


@pytest.mark.parametrize("part", PARTS)
def test_each_task_has_a_stub_a_line_on_the_page_a_test_and_three_hints(part: int) -> None:
    tasks = sorted(set(TASK.findall(stub_of(marked(part)))))
    assert tasks == [f"{part}.{number}" for number in range(1, len(tasks) + 1)]
    assert re.findall(r"^- \*\*(\d\.\d)\*\* `\w", page(part), re.MULTILINE) == tasks
    tested = re.findall(r"^def test_(\d)_(\d)_", page(part, f"test_part_{part}.py"), re.MULTILINE)
    assert sorted({f"{one}.{two}" for one, two in tested}) == tasks
    sections = page(part, "hints.md").split("\n## ")[1:]
    assert [section.split()[0] for section in sections] == tasks
    for section in sections:
        steps = re.findall(r"<summary>(Step \d)</summary>(.+)</details>", section)
        assert [step for step, _ in steps] == ["Step 1", "Step 2", "Step 3"]


@pytest.mark.parametrize("part", PARTS)
def test_stub_is_the_solution_without_the_bodies_of_its_tasks(part: int) -> None:
    written = {node.name: node for node in functions(ast.parse(stub_of(marked(part))))}
    left_out = set()
    for node in functions(ast.parse(solution_of(marked(part)))):
        other = written.pop(node.name)
        assert ast.get_docstring(other) == ast.get_docstring(node)
        if ast.unparse(other) != ast.unparse(node):
            assert len(other.body) == 2
            assert ast.unparse(other.body[1]).startswith("raise NotImplementedError('Task ")
            left_out.add(node.name)
    assert set(written) == ({"not_written"} if part == 1 else set())
    # Each is named in the list of tasks.
    listed = page(part).partition("## Tasks")[2]
    assert {name for name in left_out if f"`{name}`" in listed.replace("Graph.", "")} == left_out


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("part", PARTS)
def test_tests_of_a_task_pass_before_later_tasks_are_solved(
    part: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def text_of(region: re.Match[str]) -> str:
        later = any(each > task for each in TASK.findall(region[1]))
        return given(region) if later else region[0]

    for task in sorted({*TASK.findall(marked(part))}):
        (tmp_path / task).mkdir()
        text = REGION.sub(text_of, marked(part))
        (tmp_path / task / f"part_{part}.py").write_text(text, encoding="utf-8")
        import_from(monkeypatch, tmp_path / task, SOLUTIONS)
        found = verdicts(part, f"test_{task.replace('.', '_')}_")
        assert [name for name, passed in found.items() if not passed] == []


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("part", PARTS)
def test_code_of_page_prints_what_it_shows(
    part: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    import_from(monkeypatch, SOLUTIONS, COURSE)
    monkeypatch.chdir(tmp_path)
    if "from draw" in page(part):
        require("matplotlib")
    DONE["main"](str(part))
    shown = [text for _, text in DONE["BLOCK"].findall(page(part)) if text]
    assert shown
    assert capsys.readouterr().out == "".join(f"{text}As on the page.\n" for text in shown)
    assert {path.name for path in tmp_path.iterdir()} == PICTURES.get(part, set())


def test_table_of_parts_says_what_their_pages_say() -> None:
    table = (COURSE / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d)\]\((\S+)\) \| .+ \| (\d+) \| `(\S+)` \|$", table, re.MULTILINE)
    assert [int(part) for part, *_ in rows] == list(PARTS)
    for part, link, minutes, file in rows:
        assert (COURSE / link).is_file()
        assert file == f"part_{part}/part_{part}.py"
        text = page(int(part)).replace("\n", " ")
        assert f"**Minutes:** {minutes}." in text
        for promise in ("**Goal.** ", "**Prerequisites:** ", "**You will have built** "):
            assert promise in text


def test_page_of_the_site_says_what_the_parts_say() -> None:
    text = (ROOT / "docs" / "course.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| (.+) \| (.+) \| (\d+) \|$", text, re.MULTILINE)
    assert [int(part) for part, *_ in rows] == list(PARTS)
    for part, goal, built, minutes in rows:
        head = " ".join(page(int(part)).split())
        assert f"**Goal.** {goal} **Prerequisites:**" in head
        assert f"**Minutes:** {minutes}. **You will have built** {built}. " in head


def test_page_of_the_site_says_of_each_file_of_core_what_it_adds_to_mini() -> None:
    text = (ROOT / "docs" / "course.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\d+\. `(\w+)`: (?:new|your (.+))\. .+", text, re.MULTILINE)
    listed = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name, _ in entries] == re.findall(r"\(tinyckpt/core/(\w+)\.py\)", listed)
    mini = ast.parse(MINI)
    kinds = ast.ClassDef | ast.FunctionDef
    defined = {node.name for node in ast.walk(mini) if isinstance(node, kinds)}
    defined |= {node.id for node in ast.walk(mini) if isinstance(node, ast.Name)}
    named = re.findall(r"`(\w+)`", " ".join(yours.partition(". ")[0] for _, yours in entries))
    assert set(named) <= defined
    assert len(named) == len(set(named)) == 19


def test_done_says_which_line_differs_from_the_page() -> None:
    difference = DONE["difference"]
    assert difference("1\n2\n", "1\n2\n") == "As on the page."
    found = "Not as on the page. Line 2 is\n  {}\nand the page has\n  {}"
    assert difference("1\n3\n", "1\n2\n") == found.format(3, 2)
    assert difference("1\n", "1\n2\n") == found.format("nothing", 2)
    assert difference("1\n2\n", "1\n") == found.format(2, "nothing")


def test_done_leaves_pictures_out_without_tinyckpt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import_from(monkeypatch, SOLUTIONS, COURSE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tinyckpt.viz.charts", None)
    DONE["main"]("3")
    *_, verdict, last = capsys.readouterr().out.splitlines()
    assert verdict == "As on the page."
    assert last.startswith("No pictures (")
    assert last.endswith("): in a clone of tinyckpt, pip install '.[viz]'.")
    assert "pip install '.[viz]'" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == []


def test_each_step_of_a_hint_is_printed_as_plain_text() -> None:
    hint = runpy.run_path(str(COURSE / "hint.py"))["hint"]
    for part in PARTS:
        for section in page(part, "hints.md").split("\n## ")[1:]:
            steps = [hint(section.split()[0], step) for step in "123"]
            assert len(set(steps)) == 3
            for text in steps:
                assert "summary" not in text
                assert "code>" not in text
                assert text.count("`") % 2 == 0


def test_what_students_get_links_to_nothing_else() -> None:
    pages = [path for path in COURSE.rglob("*.md") if SOLUTIONS not in path.parents]
    assert len(pages) >= 15
    for path in pages:
        text = path.read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            target = (path.parent / link).resolve()
            assert target.is_file(), f"{path.name}: {link}"
            assert COURSE in target.parents, f"{path.name}: {link}"
        assert "solutions" not in text.partition("For teachers: ")[0], path.name


@pytest.mark.nightly
def test_documented_commands_run_stub_and_solution(tmp_path: Path) -> None:
    # Students have it anywhere, without the rest of the repository.
    folder = copy_course(tmp_path / "mine", teacher=True)
    page = (folder / "README.md").read_text("utf-8")  # what it says to run is there
    named = re.findall(r"`(?:pytest|python) ([^ `]+)", page)
    assert {"part_0", "hint.py", "done.py", "one_file.py"} == set(named)
    assert all((folder / name).exists() for name in named)

    def command(*words: str) -> tuple[int, str]:
        run = subprocess.run(
            [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        return run.returncode, run.stdout + run.stderr

    quiet = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "part_2")
    code, text = command(*quiet, "-k", "2_1")
    assert code == 1
    assert "NotImplementedError: Task " in text
    assert "5 failed" in text
    code, text = command(*quiet, "--solutions")
    assert code == 0
    assert "14 passed" in text
    # A student who copies the solutions of parts has solved them.
    for part in (1, 2):
        shutil.copy(folder / "solutions" / f"part_{part}.py", folder / f"part_{part}")
    (folder / "solutions").rename(tmp_path / "solutions")
    assert command("done.py", "2") == (0, "5 4 2048\n6 3 1536\nAs on the page.\n")
    assert command("done.py")[0] == 1
    shutil.copy(tmp_path / "solutions" / "part_3.py", folder / "part_3")
    assert command("one_file.py") == (0, MINI)
    code, text = command("hint.py", "2.1", "1")
    assert (code, text.count("\n")) == (0, 1)
    assert text.startswith("Keep a set of the values that are live")
    assert command("hint.py", "2.9", "1")[0] == 1
    assert command("hint.py")[0] == 1
    assert "has no solutions/part_?.py" in command(*quiet, "--solutions")[1]
