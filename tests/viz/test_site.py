"""The site: what it is made of, and the whole of it in a browser, from a folder."""

import importlib.util
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

import tinyckpt as tc
from tests.conftest import require
from tests.viz.conftest import USUAL, assert_accessible
from tests.viz.player.player_driver import until
from tinyckpt.cli.main import JOBS
from tinyckpt.cli.parser import make_parser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FRAMED = ("out", "labs")  # pages of their own, with tests of their own
MAIN = (
    "index", "install", "guide/index", "lessons", "lessons/05_sqrt_n", "how_to", "torch", "search",
    "gallery/index", "calculator", "known_issues", "leaderboard", "teaching", "exam",
    "reference/policies", "reference/command", "glossary", "reference/index",
    "reference/tinyckpt.planner.portfolio.plan",
)  # fmt: skip


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)


# What it is made of ---------------------------------------------------------------------------


def test_every_public_name_is_once_in_the_reference(docs: None) -> None:
    import reference

    pages = reference.public_names()
    places = Counter(name for names in pages.values() for name in names)
    assert set(places.values()) == {1}
    for package in ("tinyckpt", "tinyckpt.viz"):
        for name in import_module(package).__all__:
            full = f"{package}.{name}"
            assert full in places or f"{package}.{name}" in reference.NAMESPACES, full
    index = reference.index_page()
    for module, names in pages.items():
        text = reference.module_page(module, names)
        for name in names:
            assert re.search(rf"^\.\. (auto|py:)\w+:: .*\b{name.rpartition('.')[2]}\b", text, re.M)
            assert f"{{py:obj}}`~{name}`" in index
        assert f"[{module}]({module}.md)" in index


def test_every_option_is_on_its_command_page(docs: None) -> None:
    import command

    sections = command.command_page().split("\n## ")
    parsers = command.commands(make_parser(JOBS))
    assert set(parsers) == set(JOBS)
    for name, parser in parsers.items():
        (section,) = (text for text in sections if text.startswith(f"{name}\n"))
        shown = re.findall(r"^`{4}\{option\} (.*)\n(.*)$", section, re.MULTILINE)
        options = [action for action in parser._actions if action.dest != "help"]
        assert len(shown) == len(options), name
        for (heading, text), action in zip(shown, options, strict=True):
            for option in action.option_strings:
                assert option in re.split(r"[ ,]+", heading)
            for choice in action.choices or ():
                assert f"`{choice}`" in text
            assert text, f"{name} {heading}"


def test_glossary_names_the_terms_of_the_field_for_each_word() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries: dict[str, str] = {}
    for block in re.findall(r"```\{glossary\}\n(.*?)```", text, re.DOTALL):
        for word, meaning in re.findall(r"^(\S.*)\n((?:  .*\n)+)", block, re.MULTILINE):
            entries[word] = " ".join(meaning.split())
    assert {"value", "checkpoint", "peak", "frontier", "certificate", "view"} <= set(entries)
    assert all(meaning.endswith(".") for meaning in entries.values())
    fields = r"\*(PyTorch|JAX|Papers|Compilers|Solvers|XLA|CUDA)[^*]*:\*"
    without = [word for word, meaning in entries.items() if not re.search(fields, meaning)]
    assert without == ["frontier", "ledger", "prefetch", "stall"]
    for page in ("README.md", "docs/index.md"):
        assert "glossary.md" in (ROOT / page).read_text(encoding="utf-8")


def test_every_policy_has_a_documentation_section(docs: None) -> None:
    import policy_table

    page = policy_table.policies_page()
    for name in tc.POLICIES:
        assert page.count(f"[`{name}`](#policy-{name})") == 1
        assert f"\n(policy-{name})=\n## {name}\n" in page


def test_every_extra_is_documented() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    said = re.findall(r"^\| `(\w+)` \|", (DOCS / "install.md").read_text(encoding="utf-8"), re.M)
    assert set(said) == set(project["optional-dependencies"])
    assert len(said) == len(set(said))


@pytest.mark.long
def test_files_of_the_configuration_are_found_from_any_directory(
    docs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("sphinx")
    monkeypatch.chdir(tmp_path)
    settings = runpy.run_path(str(DOCS / "conf.py"))
    assert "Scorer" in Path(settings["html_search_scorer"]).read_text(encoding="utf-8")
    for name in settings["html_css_files"]:
        assert (DOCS / settings["html_static_path"][0] / name).is_file()


# All of it ------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.browser
def test_built_site_works_in_a_browser(
    tmp_path: Path, browser: Any, subtests: pytest.Subtests
) -> None:
    for module in ("sphinx", "furo", "myst_parser", "jupytext"):
        require(module)
    site = built(tmp_path)
    checks = (
        lessons_show_what_they_draw, links_lead_somewhere, search_works_from_a_folder,
        the_explainer_is_on_the_first_screen, the_lab_is_tried_in_four_actions,
        the_calculator_computes_on_its_page,
        pictures_are_dark_in_the_dark, pages_fit_and_are_accessible,
    )  # fmt: skip
    for check in checks:
        with subtests.test(check.__name__):
            check(site, browser)


def built(folder: Path) -> Path:
    """Return the site, built without a warning."""
    # A copy, since the pages are written beside what they are made of.
    made = shutil.ignore_patterns(
        "_build", "lessons", "gallery", "guide", "reference", "out", "__pycache__"
    )
    shutil.copytree(DOCS, folder / "docs", ignore=made)
    shutil.copytree(ROOT / "lessons", folder / "lessons", ignore=made)
    shutil.copytree(ROOT / "tinyckpt" / "core", folder / "tinyckpt" / "core", ignore=made)
    for name in ("README.md", "CONTRIBUTING.md"):
        shutil.copyfile(ROOT / name, folder / name)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", folder / "trees"]
    run = subprocess.run(
        [*command, "-b", "html", folder / "docs", folder / "site"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert (folder / "site" / ".nojekyll").exists()
    return folder / "site"


def lessons_show_what_they_draw(site: Path, browser: Any) -> None:
    lessons = sorted(path.stem for path in (ROOT / "lessons").glob("[0-9]*.py"))
    assert len(lessons) >= 20
    if importlib.util.find_spec("torch") is None:
        lessons.remove("19_pytorch")
    for name in (*[f"lessons/{lesson}" for lesson in lessons], "gallery/index", "guide/index"):
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        assert '<iframe class="player" src="out/' in text, name
        folded = re.findall(r'<details class="answer".*?</details>', text, re.DOTALL)
        if name.startswith("lessons/"):
            assert "assert" in folded.pop(), name
        script = ROOT / f"{name}.py"
        questions = script.read_text("utf-8").count(" = viz.ask(") if script.exists() else 0
        assert len(folded) == questions, name
        assert all("you said " in answer for answer in folded), name
        assert "you said " not in text.partition('<details class="answer"')[0], name
        asks = "data-predict=" in text
        assert asks == ("_static/predict-data.js" in text) == ("predict/start.js" in text), name


class Links(HTMLParser):
    """What a page points to, what it loads, and what can be pointed to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = dict(attributes)
        self.anchors |= {known[name] or "" for name in ("id", "name") if name in known}
        if "src" in known:
            self.loaded.append(known["src"] or "")
        if known.get("href") and tag == "link":
            self.loaded.append(known["href"] or "")
        elif known.get("href"):
            self.targets.append(known["href"] or "")


def links_lead_somewhere(site: Path, browser: Any) -> None:
    paths = [
        path for path in site.rglob("*.html") if path.relative_to(site).parent.name not in FRAMED
    ]
    pages = {path: Links(path) for path in paths}
    assert len(pages) > 100
    wrong = []
    for path, page in pages.items():
        wrong += [(path, target) for target in page.loaded if re.match(r"\w+://|//", target)]
        for target in page.targets + page.loaded:
            if re.match(r"\w+:|//", target):
                continue
            file, anchor = urldefrag(target)
            there = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if not there.exists() or (
                anchor
                and there in pages
                and "_modules" not in path.parts
                and (unquote(anchor) not in pages[there].anchors)
            ):
                wrong.append((path, target))
    assert [(path.relative_to(site).as_posix(), target) for path, target in wrong] == []
    # Whatever is listed in the reference leads to its place.
    listed = (site / "reference" / "index.html").read_text(encoding="utf-8")
    names = re.findall(r'(<a [^>]*>)?<code class="xref py py-obj[^>]*><span class="pre">', listed)
    assert len(names) > 400
    assert all(names)


class Visit:
    """Pages in a context of their own, opened from the folder; none must complain, or ask."""

    def __init__(self, site: Path, browser: Any, **options: Any) -> None:
        self.site = site
        self.context = browser.new_context(**USUAL | options)
        self.context.new_page()  # as for the tests of pages: others are opened sooner beside it
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def opened(self, name: str, query: str = "") -> Any:
        page = self.context.new_page()
        page.on("console", self.heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto((self.site / f"{name}.html").as_uri() + query)
        return page

    def heard(self, message: Any) -> None:
        if message.type in ("warning", "error"):  # the theme says which colours it has
            self.complaints.append(message.text)

    def close(self) -> None:
        self.context.close()
        self.check()

    def check(self) -> None:
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []


def search_works_from_a_folder(site: Path, browser: Any) -> None:
    visit = Visit(site, browser)
    expected = {
        "install": "install.html",
        "offload": "offload.html",
        "sqrt_n": "reference/policies.html#policy-sqrt-n",
        "checkpoint": "glossary.html#term-checkpoint",
        "conv2d": "reference/tinyckpt.ops.convolution.html#tinyckpt.conv2d",
    }
    for word, place in expected.items():
        page = visit.opened("index")
        page.fill(".front input", word)
        page.press(".front input", "Enter")
        page.wait_for_selector("#search-results li a")
        page.wait_for_function("() => /found/.test(document.body.innerText)")
        found = page.eval_on_selector_all(
            "#search-results li a", "links => links.map(link => link.getAttribute('href'))"
        )
        # The questions of users have each of these words in a heading.
        found = [target.partition("?")[0] for target in found if "known_issues" not in target]
        assert place in found[:3], (word, found[:5])
        page.close()
    visit.close()


def the_explainer_is_on_the_first_screen(site: Path, browser: Any) -> None:
    for width, height in ((1280, 800), (390, 844)):
        visit = Visit(site, browser, viewport={"width": width, "height": height})
        page = visit.opened("index")
        caption = page.locator("tiny-ckpt .caption").nth(1)
        assert caption.inner_text() == "Layers 9, 10, 11 again, from layer 8"
        for seen in (caption, page.locator("tiny-ckpt .play")):
            box = seen.bounding_box()
            assert box["y"] + box["height"] < height
        visit.close()


def the_lab_is_tried_in_four_actions(site: Path, browser: Any) -> None:
    visit = Visit(site, browser)
    page = visit.opened("index")
    page.wait_for_selector("iframe.lab")
    frame = page.frame("lab")
    frame.wait_for_selector("html[data-ready]")
    whole = "() => player.models[0].peaks.at(-1)"
    before = frame.evaluate(whole)
    assert "needs 2.53 GiB to train" in frame.inner_text("h1")
    assert frame.inner_text(".panel .caption").startswith("Memory is fullest: ")
    page.locator("iframe.lab").evaluate("frame => frame.scrollIntoView({ behavior: 'instant' })")
    line = frame.locator(".budget-line .knob").bounding_box()
    page.mouse.move(line["x"] + 8, line["y"] + 8)
    page.mouse.down()
    page.mouse.move(line["x"] + 8, line["y"] + 60, steps=4)
    page.mouse.up()
    until(frame, f"({whole})() < {before}")
    # It is at the peak of each plan; of store-all, a bar has a button that lowers it.
    assert frame.inner_text("[data-counter=live]") == frame.inner_text("[data-counter=peak]")
    frame.press(".budget-line", "End")
    assert frame.inner_text("[data-counter=live]") == frame.inner_text("[data-counter=peak]")
    before = frame.evaluate(whole)
    drop = frame.locator(".bars .act").first
    assert drop.inner_text().startswith("drop: \u2212")
    drop.click()
    until(frame, f"({whole})() < {before}")
    frame.click("#lab-more")
    # A drag from the right end of the curve to its middle changes schedule and counters at once.
    shown = frame.inner_text("#lab-now"), frame.inner_text("[data-counter=evaluations]")
    handle = frame.locator(".frontier .handle").bounding_box()
    plot = frame.locator(".frontier").bounding_box()
    page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
    page.mouse.down()
    page.mouse.move(plot["x"] + 0.4 * plot["width"], plot["y"] + 0.6 * plot["height"], steps=4)
    page.mouse.up()
    now = frame.inner_text("#lab-now"), frame.inner_text("[data-counter=evaluations]")
    assert all(text != other for text, other in zip(shown, now, strict=True))
    # The other lab takes the same place.
    page.click("a[target=lab] >> nth=1")
    frame.wait_for_selector("h1 >> text=A chain of 16 layers")
    assert page.locator("a[target=lab][aria-current]").inner_text() == "a chain of 16 layers"
    visit.close()


def the_calculator_computes_on_its_page(site: Path, browser: Any) -> None:
    visit = Visit(site, browser, color_scheme="light")
    page = visit.opened("calculator")
    frame = page.frames[1]
    frame.wait_for_selector("html[data-ready]")
    assert frame.inner_text("h1").startswith("GPT 12\u00d7768 needs 14.2 GiB to train, or ")
    # A frame out of sight draws nothing.
    page.locator("iframe.player").evaluate("frame => frame.scrollIntoView({ behavior: 'instant' })")
    frame.locator("#calc-lab").evaluate("lab => lab.scrollIntoView({ behavior: 'instant' })")
    lab = frame.query_selector("#calc-lab").content_frame()
    lab.wait_for_selector("html[data-ready]")
    page.click(".theme-toggle-content .theme-toggle")  # from the system's to the other one
    until(lab, "() => document.documentElement.dataset.theme === 'dark'")
    assert frame.evaluate("() => document.documentElement.dataset.theme") == "dark"
    visit.close()


def pictures_are_dark_in_the_dark(site: Path, browser: Any) -> None:
    visit = Visit(site, browser, color_scheme="light")
    visible = """() => [...document.querySelectorAll("article img")]
        .filter(image => image.checkVisibility()).map(image => image.getAttribute("src"))"""
    scheme = "() => getComputedStyle(document.documentElement).colorScheme"
    page = visit.opened("lessons/05_sqrt_n")
    frame = page.frames[1]
    frame.wait_for_selector("html[data-ready]")
    light = page.evaluate(visible)
    assert len(light) == 2
    assert (not any("-dark" in name for name in light), frame.evaluate(scheme)) == (True, "light")
    page.click(".theme-toggle-content .theme-toggle")  # from the system's to the other one
    assert page.evaluate("() => document.body.dataset.theme") == "dark"
    assert all("-dark" in name for name in page.evaluate(visible))
    assert len(page.evaluate(visible)) == 2
    frame.wait_for_selector("html[data-theme=dark]")
    visit.close()
    visit = Visit(site, browser, color_scheme="dark")
    page = visit.opened("lessons/05_sqrt_n")
    page.frames[1].wait_for_selector("html[data-ready]")
    assert all("-dark" in name for name in page.evaluate(visible))
    assert page.frames[1].evaluate(scheme) == "dark"
    visit.close()


def pages_fit_and_are_accessible(site: Path, browser: Any) -> None:
    wider = "() => document.documentElement.scrollWidth - innerWidth"
    visit = Visit(site, browser)
    for name in MAIN:
        page = visit.opened(name, "?q=peak" if name == "search" else "")
        for width, height in (
            (320, 640), (360, 640), (390, 844), (800, 800), (1024, 800), (1100, 800), (1320, 800),
            (2560, 1440), (3840, 2160), (1280, 800),
        ):  # fmt: skip
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate(wider) <= 0, (name, width)
            if name.startswith("lessons/"):  # the player is on the first screen, to its foot
                box = page.locator("iframe.player").first.bounding_box()
                assert box["y"] + box["height"] <= height, (name, width)
                assert box["height"] >= 380
        visit.check()  # before the audit, which asks for style sheets
        for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=scheme)
            assert_accessible(page, minor=True, iframes=False, **rules)
        page.close()
        for heard in (visit.complaints, visit.requests):
            heard.clear()
    visit.close()
