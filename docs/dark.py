"""Dark-theme versions of the pictures that a script draws.

A picture ``name.png`` gets a twin ``name-dark.png``: viz draws it in its own dark theme; a figure
made directly with matplotlib gets a dark background and light text.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import patch

from matplotlib.figure import Figure
from matplotlib.spines import Spine
from matplotlib.text import Text
from tinyckpt.viz.theme import DARK, css

from tinyckpt import viz


def twin(path: Path) -> Path:
    """Return the name of a picture's dark twin."""
    return path.with_stem(f"{path.stem}-dark")


@contextmanager
def drawn_twice() -> Iterator[None]:
    """Draw every picture twice, unless the call sets a theme itself."""
    drawers = {name: getattr(viz, name) for name in viz.__all__}
    with ExitStack() as stack:
        for name, draw in drawers.items():
            theme = signature(draw).parameters.get("theme")
            if theme is not None and theme.default == "light":
                stack.enter_context(patch.object(viz, name, with_twin(draw)))
        stack.enter_context(patch.object(Figure, "savefig", saved_twice(Figure.savefig)))
        yield


def with_twin(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a viz function so that it also draws the file's dark twin."""

    @wraps(draw)
    def both(shown: Any, path: Any = None, *others: Any, **options: Any) -> Any:
        result = draw(shown, path, *others, **options) if path else draw(shown, **options)
        if path and "theme" not in options:
            draw(shown, twin(Path(path)), *others, theme="dark", **options)
        return result

    return both


def saved_twice(save: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Figure.savefig`` so that it also saves the dark twin."""

    @wraps(save)
    def both(figure: Figure, target: Any, **options: Any) -> None:
        save(figure, target, **options)
        if isinstance(target, Path):  # not one of viz's buffers
            other: Figure = pickle.loads(pickle.dumps(figure))
            darken(other)
            save(other, twin(target), **options)

    return both


def darken(figure: Figure) -> None:
    """Give a figure a dark background and light text; plotted data keep their colours."""
    figure.set_facecolor(css(DARK.background))
    for axis in figure.axes:
        axis.set_facecolor(css(DARK.panel))
        axis.tick_params(which="both", color=css(DARK.muted))
    for text in figure.findobj(Text):
        text.set_color(css(DARK.ink))
    for spine in figure.findobj(Spine):
        spine.set_edgecolor(css(DARK.muted))
