"""The site: ``make docs`` has Sphinx build it from lessons, gallery and docstrings."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import pages  # noqa: E402  # stand beside this file
import predict  # noqa: E402

project = "tinyckpt"
author = "the tinyckpt authors"
version = release = version_of("tinyckpt")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "**/out"]

html_theme = "furo"
html_title = "tinyckpt"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["lessons.js"]
html_show_copyright = False
html_show_sphinx = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"


def load_late(app: object) -> None:
    """Have browsers load pictures when they come into sight, and never those of the other theme."""
    app.env.settings["image_loading"] = "lazy"  # type: ignore[attr-defined]


def setup(app: object) -> None:
    """Write the pages of the lessons before Sphinx reads, and copy their players after it."""
    app.connect("builder-inited", load_late)  # type: ignore[attr-defined]
    app.connect("builder-inited", pages.write)  # type: ignore[attr-defined]
    app.connect("html-page-context", predict.add_files)  # type: ignore[attr-defined]
    app.connect("build-finished", predict.write_data)  # type: ignore[attr-defined]
    app.connect("build-finished", pages.copy_players)  # type: ignore[attr-defined]
