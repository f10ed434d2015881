"""Sphinx configuration: ``make docs`` builds the site from lessons, gallery and docstrings."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import calculator  # noqa: E402  # modules in this folder
import known_issues  # noqa: E402
import labs  # noqa: E402
import leaderboard_cells  # noqa: E402
import notebooks  # noqa: E402
import pages  # noqa: E402
import predict  # noqa: E402
import puzzles  # noqa: E402
import read_core  # noqa: E402
import reference  # noqa: E402
import slides  # noqa: E402
import teaching  # noqa: E402
import widgets  # noqa: E402

project = "tinyckpt"
author = "the tinyckpt authors"
version = release = version_of("tinyckpt")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.githubpages",
]
exclude_patterns = ["_build", "**/out", "slides"]

html_theme = "furo"
html_title = "tinyckpt"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["lessons.js", ("site.js", {"defer": "defer"})]
html_search_scorer = str(HERE / "scorer.js")  # Sphinx would look in the working directory
html_copy_source = False  # the repository has it
html_show_copyright = False
html_show_sphinx = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 2  # links to a heading, as GitHub names it

autodoc_typehints = "signature"
autodoc_member_order = "bysource"


def load_late(app: object) -> None:
    """Load pictures lazily: when they come into view, and never those of the other theme."""
    app.env.settings["image_loading"] = "lazy"  # type: ignore[attr-defined]


def setup(app: object) -> None:
    """Generate pages before Sphinx reads its sources, and the pages shown in frames after it."""
    app.connect("builder-inited", load_late)  # type: ignore[attr-defined]
    app.connect("builder-inited", pages.write)  # type: ignore[attr-defined]
    app.connect("builder-inited", widgets.write)  # type: ignore[attr-defined]
    app.connect("builder-inited", leaderboard_cells.write)  # type: ignore[attr-defined]
    app.connect("builder-inited", known_issues.write)  # type: ignore[attr-defined]
    app.connect("builder-inited", read_core.write)  # type: ignore[attr-defined]
    app.connect("builder-inited", reference.write)  # type: ignore[attr-defined]
    app.connect("builder-inited", teaching.write)  # type: ignore[attr-defined]
    app.connect("builder-inited", puzzles.write)  # type: ignore[attr-defined]
    app.connect("builder-inited", slides.write_list)  # type: ignore[attr-defined]
    app.connect("html-page-context", predict.add_files)  # type: ignore[attr-defined]
    app.connect("build-finished", predict.write_data)  # type: ignore[attr-defined]
    app.connect("build-finished", labs.write)  # type: ignore[attr-defined]
    app.connect("build-finished", leaderboard_cells.write_pages)  # type: ignore[attr-defined]
    app.connect("build-finished", notebooks.write)  # type: ignore[attr-defined]
    app.connect("build-finished", slides.write)  # type: ignore[attr-defined]
    app.connect("build-finished", calculator.write)  # type: ignore[attr-defined]
    app.connect("build-finished", pages.copy_players)  # type: ignore[attr-defined]
    app.connect("build-finished", widgets.write_script)  # type: ignore[attr-defined]
