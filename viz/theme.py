"""Visual theme: colour palette (Okabe-Ito), fonts, light and dark mode.

The one place where colours are decided. The fills are based on the Okabe-Ito palette, so that they
differ under colour blindness too, and in lightness, so that they differ on a greyscale print; row,
ring, halo and dashes say the same without colour.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from tinyckpt.base.errors import OptionError

RGB = tuple[int, int, int]
FONTS = Path(__file__).parent / "fonts"


def rgb(text: str) -> RGB:
    """Parse a colour ``#RRGGBB``."""
    return (int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16))


def blend(over: RGB, under: RGB, share: float) -> RGB:
    """Alpha-blend one colour over another."""
    red, green, blue = (
        round(share * a + (1 - share) * b) for a, b in zip(over, under, strict=True)
    )
    return (red, green, blue)


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of one mode; ``*_label`` is the text on a fill.

    Pink (``gradient``) is for cotangents: gradients on their way back. Dark pink (``staying``) is
    for gradients that are results, such as weight gradients. Green is for what is only in the first
    of two policies (``difference_colours``).
    """

    name: str
    background: RGB
    panel: RGB
    ink: RGB
    muted: RGB
    edge: RGB
    kept: RGB
    kept_label: RGB
    recomputed: RGB
    recomputed_label: RGB
    gradient: RGB
    gradient_label: RGB
    staying: RGB
    staying_label: RGB
    recomputing: RGB
    recomputing_label: RGB
    halo: RGB
    checkpoint: RGB
    dropped_forward: RGB
    dropped_backward: RGB
    not_yet: RGB
    not_yet_outline: RGB
    workspace: RGB

    @property
    def evaluation(self) -> RGB:
        """Colour of an evaluation in a ledger: far from all fills, so pure white on dark."""
        return self.ink if self.name == "light" else rgb("#FFFFFF")

    @property
    def impossible(self) -> RGB:
        """Colour of the infeasible region of a frontier."""
        return blend(self.not_yet_outline, self.panel, 0.6)

    @property
    def palette(self) -> list[RGB]:
        """The palette of a picture: at most 64 colours.

        The theme's own colours, and three steps between any two that meet along an edge or in a
        letter. Encoding a GIF is much faster below 64 colours than above.
        """
        own = [getattr(self, field.name) for field in fields(self) if field.name != "name"]
        meeting = [
            (self.ink, self.background),
            (self.muted, self.background),
            (self.muted, self.panel),
            (self.edge, self.background),
            (self.kept_label, self.kept),
            (self.recomputed_label, self.recomputed),
            (self.gradient_label, self.gradient),
            (self.staying_label, self.staying),
            (self.recomputing_label, self.recomputing),
            (self.not_yet_outline, self.not_yet),
            (self.dropped_forward, self.background),
            (self.dropped_backward, self.background),
            (self.checkpoint, self.background),
            (self.halo, self.background),
            (self.ink, self.halo),
        ]
        between = [blend(a, b, share) for a, b in meeting for share in (0.25, 0.5, 0.75)]
        colours = list(dict.fromkeys([*own, *between]))
        assert len(colours) <= 64, len(colours)
        return colours


def faint_edge(theme: Theme) -> RGB:
    """Return the colour of arrows that run behind everything else."""
    return blend(theme.edge, theme.background, 0.5)


def ghost(theme: Theme) -> RGB:
    """Return the colour of another schedule's memory, behind the one that is shown."""
    return blend(theme.not_yet_outline, theme.background, 0.28)


def luminance(colour: RGB) -> float:
    """Return the relative luminance of a colour, 0 to 1. Source: WCAG 2.2."""
    shares = [value / 255 for value in colour]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: RGB, other: RGB) -> float:
    """Return the contrast ratio of two colours, 1 to 21. Source: WCAG 2.2."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def legible(colour: RGB, theme: Theme) -> RGB:
    """Return a colour, darker (or lighter on dark) until its contrast on both grounds is 3."""
    steps = (blend(theme.ink, colour, step / 50) for step in range(51))
    grounds = (theme.background, theme.panel)
    return next(ink for ink in steps if min(contrast(ink, ground) for ground in grounds) >= 3)


def difference_colours(theme: Theme) -> dict[str, RGB]:
    """Return the colours of a difference of two traces: in both, only in A, only in B.

    Only-A is dark where only-B is light, and only-B has stripes too.
    """
    light = theme.name == "light"
    return {
        "in_both": rgb("#A7B2C1" if light else "#4C5D75"),
        "only_a": rgb("#00664C" if light else "#35C796"),
        "only_b": rgb("#F0B43C" if light else "#FFC861"),
        "only_b_stripe": rgb("#8A5200" if light else "#A86A10"),
    }


LIGHT = Theme(
    name="light",
    background=rgb("#FFFFFF"),
    panel=rgb("#F4F6F9"),
    ink=rgb("#16233A"),
    muted=rgb("#5B6B80"),
    edge=rgb("#8794A6"),
    kept=rgb("#0072B2"),
    kept_label=rgb("#FFFFFF"),
    recomputed=rgb("#74C4F0"),
    recomputed_label=rgb("#16233A"),
    gradient=rgb("#CC79A7"),
    gradient_label=rgb("#16233A"),
    staying=rgb("#845375"),
    staying_label=rgb("#FFFFFF"),
    recomputing=rgb("#D55E00"),
    recomputing_label=rgb("#0A101C"),
    halo=rgb("#F0E442"),
    checkpoint=rgb("#E69F00"),
    dropped_forward=rgb("#509AC6"),
    dropped_backward=rgb("#C57FA9"),
    not_yet=rgb("#F4F6F9"),
    not_yet_outline=rgb("#8794A6"),
    workspace=rgb("#4F5B6C"),
)
DARK = Theme(
    name="dark",
    background=rgb("#0E1624"),
    panel=rgb("#172235"),
    ink=rgb("#E8EDF5"),
    muted=rgb("#9AA9BD"),
    edge=rgb("#66778C"),
    kept=rgb("#1F86D1"),
    kept_label=rgb("#0E1624"),
    recomputed=rgb("#A6DDFF"),
    recomputed_label=rgb("#0E1624"),
    gradient=rgb("#E08FBF"),
    gradient_label=rgb("#0E1624"),
    staying=rgb("#906184"),
    staying_label=rgb("#FFFFFF"),
    recomputing=rgb("#FF7A1A"),
    recomputing_label=rgb("#0E1624"),
    halo=rgb("#F0E442"),
    checkpoint=rgb("#E69F00"),
    dropped_forward=rgb("#33709C"),
    dropped_backward=rgb("#8A5877"),
    not_yet=rgb("#172235"),
    not_yet_outline=rgb("#566A84"),
    workspace=rgb("#5F6E82"),
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def check_theme(theme: object, *others: str) -> None:
    """Raise an OptionError unless the name of a theme, or one of the others, is known."""
    known = (*others, *THEMES)
    if not isinstance(theme, str) or theme not in known:
        raise OptionError(f"unknown theme {theme!r:.80}; known are {', '.join(known)}")


def font_file(weight: str) -> str:
    """Return the path of the bundled Inter, ``Regular`` or ``SemiBold``."""
    return str(FONTS / f"Inter-{weight}.otf")


@cache
def font(weight: str, size: float) -> Any:
    """Return the bundled Inter, ``Regular`` or ``SemiBold``, at a size in pixels."""
    from PIL import ImageFont

    return ImageFont.truetype(font_file(weight), size)


def css(colour: RGB) -> str:
    """Format a colour as ``#RRGGBB``."""
    return "#{:02X}{:02X}{:02X}".format(*colour)
