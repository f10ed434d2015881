"""Path simplification and minification of an SVG that matplotlib wrote: a tenth of its size.

In: the document, with text as ``<text>``. Out: the same picture without groups, metadata and
repeated styles. Coordinates are rounded to a tenth of a point, which is what is seen; repeated and
collinear points are left out; paths that follow one another in one style become one; a hatch is one
small tile instead of 72 points of strokes; an image is a PNG of as few colours as it has. The
letters that occur are embedded as a font.

Not done here: dropping data. How many points a curve needs is decided where it is drawn.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, groupby, pairwise
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ..vector.marks import number
from ..vector.path_data import Command, Place, commands_of, path_data, subpaths
from ..vector.webfont import subset_faces

SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
FAMILY = "Inter,DejaVu Sans,system-ui,sans-serif"  # the bundled font, then those that it may lack
SIDES = ("x", "y", "width", "height")
HALO = "halo"  # begins the id of a text with a rim; its colour ends it
FEW = 4  # rectangles, from which they are drawn as lines
FEW_DASHES = 4  # bars of one width and pitch, from which they are one dashed line
LONG = 60  # letters of a marker's path, from which it is defined once and referenced
PAINT = (
    "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-dashoffset",
    "stroke-opacity", "stroke-linecap", "stroke-linejoin", "opacity",
)  # fmt: skip
DEFAULTS = {
    "stroke-width": "1", "stroke-dashoffset": "0", "stroke-linecap": "butt",
    "stroke-linejoin": "round", "opacity": "1",
}  # fmt: skip


class Element(NamedTuple):
    """What is drawn.

    Attributes:
        kind: ``path``, ``text`` or any other element.
        shared: its paint, clip and font, which neighbours may share, as attributes.
        content: of a path its commands; of others the element without the shared attributes.
    """

    kind: str
    shared: dict[str, str]
    content: Any


def compact(document: bytes) -> bytes:
    """Return a document of matplotlib in few bytes.

    >>> text = (
    ...     '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" width="9pt" height="9pt">'
    ...     '<g id="a"><path d="M 0 0 L 1 0 L 2.0001 0 L 2 3 z" style="fill: #123456"/></g></svg>'
    ... )
    >>> compact(text.encode()).decode().partition("</style>")[2]
    '<path fill="#123456" d="M0 0h2v3z"/></svg>\\n'
    """
    root = ElementTree.fromstring(document)
    names: dict[str, str] = {}
    markers = {path.get("id", ""): path for path in root.iter(f"{SVG}path") if path.get("id")}
    body = "".join(joined(elements_of(root, markers, names)))
    definitions = "".join(definition(element, names) for element in defined(root, names))
    letters = {600: "", 400: ""}
    for text in root.iter(f"{SVG}text"):
        letters[weight_of(text)] += "".join(text.itertext())
    sizes = " ".join(
        f'{name}="{renamed(root.get(name, ""), {})}"' for name in ("width", "height", "viewBox")
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{sizes} font-family="{FAMILY}"><style>*{{stroke-linejoin:round}}'
        f"{subset_faces(letters[400], letters[600])}</style>"
        f"{f'<defs>{definitions}</defs>' if definitions else ''}{body}</svg>\n"
    ).encode()


# Elements -----------------------------------------------------------------------------------------


def elements_of(
    root: ElementTree.Element, markers: dict[str, ElementTree.Element], names: dict[str, str]
) -> Iterator[Element]:
    """Yield what is drawn, in order; ``names`` receives the ids that are referenced."""
    pending = [root]
    while pending:
        element = pending.pop()
        tag = element.tag.removeprefix(SVG)
        if tag in ("defs", "metadata", "style"):
            continue
        style = style_of(element)
        if element.get("id", "").startswith(HALO):
            halo = element.get("id", "").removeprefix(HALO)
            yield from (text_of(text, style_of(text), halo) for text in element)
            continue
        if tag == "g" and "transform" in element.attrib:
            yield formula_of(element, style)
            continue
        paint = paint_of(element, style, names)
        if tag == "path":
            yield Element("path", paint, commands_of(element.get("d", "")))
        elif tag == "use":
            yield marker(element, markers[element.get(f"{XLINK}href", "")[1:]], paint, names)
        elif tag == "text":
            yield text_of(element, style)
        elif tag == "image":
            yield image_of(element, paint)
        pending += reversed(element)


def joined(elements: Iterator[Element]) -> Iterator[str]:
    """Yield the elements as text: neighbours of one style share it.

    Texts, which overlap nothing, and neighbours of one colour, whose order nobody sees, are sorted
    by style before.
    """
    for (kind, ink), stretch in groupby(elements, lambda element: (element.kind, ink_of(element))):
        ordered = list(stretch)
        if ink is not None:
            ordered.sort(key=lambda element: str(element.shared))
        for shared, run in groupby(ordered, lambda element: element.shared):
            contents = [element.content for element in run]
            if kind != "path":
                inside = letters_by_line(contents) if kind == "text" else "".join(contents)
                yield f"<g{attributes(shared)}>{inside}</g>"
                continue
            apart = any("opacity" in name for name in shared)
            for commands in contents if apart else [list(chain.from_iterable(contents))]:
                yield rows_of_bars(commands, shared) or (
                    f'<path{attributes(shared)} d="{path_data(commands)}"/>'
                )


def ink_of(element: Element) -> str | None:
    """Return the one colour of an opaque path; empty for text, None for anything else."""
    if element.kind == "text":
        return ""
    inks = {element.shared.get(name, "none") for name in ("fill", "stroke")} - {"none"}
    apart = any("opacity" in name for name in element.shared)
    return inks.pop() if len(inks) == 1 and not apart else None


def letters_by_line(texts: Sequence[str]) -> str:
    """Return texts, those of a single letter joined by line: each letter has its own place.

    >>> letters_by_line(['<text x="1" y="2">a</text>', '<text x="5" y="2">b</text>'])
    '<text y="2" x="1 5">ab</text>'
    """
    lines: dict[str, list[tuple[str, str]]] = {}
    others = []
    for text in texts:
        if found := re.fullmatch(r'<text x="([^"]+)" y="([^"]+)">([^<&\s])</text>', text):
            x, y, letter = found.groups()
            lines.setdefault(y, []).append((x, letter))
        else:
            others.append(text)
    for y, places in lines.items():
        xs, letters = zip(*places, strict=True)
        others.append(f'<text y="{y}" x="{" ".join(xs)}">{"".join(letters)}</text>')
    return "".join(others)


def rows_of_bars(commands: Sequence[Command], shared: dict[str, str]) -> str:
    """Return upright rectangles as thick lines, which say each height once; empty if not shorter.

    >>> bars = [("M", (0, 0)), ("L", (2, 0)), ("L", (2, 6)), ("L", (0, 6)), ("Z", ())] * 4
    >>> rows_of_bars(bars, {"fill": "#123456"})
    '<path fill="none" stroke="#123456" stroke-width="6" d="M0 3h2"/>'
    """
    fill, rim = shared.get("fill", "#000000"), shared.get("stroke", "none")
    boxes = [box_of(points) if closed else None for points, closed in subpaths(commands, 1)]
    if len(boxes) < FEW or None in boxes or fill == "none" or rim not in ("none", fill):
        return ""
    beyond = 5 * float(shared.get("stroke-width", 1)) if rim == fill else 0
    rows: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for left, top, right, bottom in filter(None, boxes):
        height = bottom - top  # rounded, it is a unit more in one row than in another
        height = next(
            (known for known in (height, height - 1, height + 1) if known in rows), height
        )
        ends = rows.setdefault(height, {}).setdefault(bottom + top, [])
        ends.append((left, right))
    rest = {name: at for name, at in shared.items() if not name.startswith(("fill", "stroke"))}
    found = ""
    for height, lines in rows.items():
        data: dict[str, list[Command]] = {}  # by dashes
        for twice, ends in lines.items():
            spans = [(left - beyond, right + beyond) for left, right in merged(sorted(ends))]
            for begin, end, dashes in dashed(spans, data):
                data.setdefault(dashes, []).append(("M", (begin / 10, twice / 20)))
                data[dashes].append(("L", (end / 10, twice / 20)))
        paint = {"fill": "none", "stroke": fill, "stroke-width": f"{(height + 2 * beyond) / 10:g}"}
        for dashes, drawn in data.items():
            own = {"stroke-dasharray": dashes} if dashes else {}
            found += f'<path{attributes({**paint, **own, **rest})} d="{path_data(drawn, 2)}"/>'
    return found


def dashed(
    spans: Sequence[tuple[float, float]], known: Collection[str]
) -> Iterator[tuple[float, float, str]]:
    """Yield spans of a row with their dashes: many of one width and pitch are one dashed line.

    In units of the spans, a tenth of a point; the dashes are in points. No end moves by more than a
    unit, to which the spans were rounded; ``known`` dashes are preferred to new ones.

    >>> list(dashed([(0, 3), (9, 11), *((20 + 5 * i, 22 + 5 * i) for i in range(9))], ()))
    [(0, 3, ''), (9, 11, ''), (20, 62.0, '0.2 0.3')]
    """
    place = 0
    while place < len(spans):
        run = spans[place : place + alike(spans[place:])]
        found = fitting_dashes(run, known) if len(run) >= FEW_DASHES else None
        if found is None:
            yield (*spans[place], "")
            place += 1
            continue
        width, pitch = found
        dashes = f"{round(width / 10, 2):g} {round((pitch - width) / 10, 2):g}"
        yield run[0][0], run[0][0] + (len(run) - 1) * pitch + width, dashes
        place += len(run)


def alike(spans: Sequence[tuple[float, float]]) -> int:
    """Return how many spans, from the first, have its width and pitch, to a unit."""
    (left, right), *rest = spans
    width, pitch = right - left, rest[0][0] - left if rest else 0
    count = 1
    for begin, end in rest:
        if abs(end - begin - width) > 1 or abs(begin - left - pitch) > 1:
            break
        left = begin
        count += 1
    return count


def fitting_dashes(
    run: Sequence[tuple[float, float]], known: Collection[str]
) -> tuple[float, float] | None:
    """Return the width and pitch of a run, known ones if they fit; None if no end is near."""
    last, begin = len(run) - 1, run[0][0]
    tried = [[10 * float(part) for part in text.split()] for text in known if text]
    own = sum(right - left for left, right in run) / len(run), (run[-1][0] - begin) / last
    for width, pitch in (*((wide, wide + gap) for wide, gap in tried), own):
        ideal = (begin + at * pitch for at in range(len(run)))
        if all(
            max(abs(at - left), abs(at + width - right)) <= 1
            for at, (left, right) in zip(ideal, run, strict=True)
        ):
            return width, pitch
    return None


def box_of(points: Sequence[Place]) -> Place | None:
    """Return the sides of an upright rectangle; None for another shape."""
    if len(points) != 4 or any(len(place) != 2 for place in points):
        return None
    xs, ys = zip(*points, strict=True)
    sides = (min(xs), min(ys), max(xs), max(ys))
    around = all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise([*points, points[0]]))
    return sides if around else None


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted spans, those that touch as one."""
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def style_of(element: ElementTree.Element) -> dict[str, str]:
    """Return the declarations of an element's style."""
    parts = (part.partition(":") for part in element.get("style", "").split(";"))
    return {name.strip(): value.strip() for name, _, value in parts if name.strip()}


def paint_of(
    element: ElementTree.Element, style: dict[str, str], names: dict[str, str]
) -> dict[str, str]:
    """Return paint and clip as attributes."""
    found = {name: renamed(style[name], names) for name in PAINT if name in style}
    if "clip-path" in element.attrib:
        found["clip-path"] = renamed(element.attrib["clip-path"], names)
    if found.get("stroke", "none") == "none":
        found = {name: value for name, value in found.items() if not name.startswith("stroke")}
    return {name: at for name, at in found.items() if DEFAULTS.get(name) != at}


def renamed(value: str, names: dict[str, str]) -> str:
    """Return a value with short ids, and numbers rounded to two decimals."""
    if value.startswith("url(#"):
        return f"url(#{names.setdefault(value[5:-1], f'd{len(names)}')})"
    if value.startswith("#"):
        return value
    return re.sub(
        r"\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value
    )


def attributes(values: dict[str, str]) -> str:
    """Format attributes, each after a space."""
    return "".join(f' {name}="{html.escape(value)}"' for name, value in values.items())


def marker(
    use: ElementTree.Element,
    shape: ElementTree.Element,
    paint: dict[str, str],
    names: dict[str, str],
) -> Element:
    """Return a marker at its place: a short one as a path, a long one as a reference."""
    x, y = float(use.get("x", 0)), float(use.get("y", 0))
    data = shape.get("d", "")
    if len(data) < LONG:
        moved = [
            (name, tuple(value + (x, y)[place % 2] for place, value in enumerate(values)))
            for name, values in commands_of(data)
        ]
        return Element("path", paint, moved)
    name = names.setdefault(shape.get("id", ""), f"d{len(names)}")
    return Element("use", paint, f'<use xlink:href="#{name}" x="{number(x)}" y="{number(y)}"/>')


def text_of(text: ElementTree.Element, style: dict[str, str], halo: str = "") -> Element:
    """Return a line of text as text; ``halo`` is the colour of a rim of a point around it."""
    shared: dict[str, str] = {}
    shared |= {name: style[name] for name in ("fill", "opacity", "text-anchor") if name in style}
    if shared.get("text-anchor") == "start":
        del shared["text-anchor"]
    shared["font-size"] = renamed(style["font-size"].removesuffix("px"), {})
    if weight_of(text) != 400:
        shared["font-weight"] = str(weight_of(text))
    if halo:
        shared |= {"stroke": halo, "stroke-width": "2", "paint-order": "stroke"}
    own: dict[str, str] = {}
    own |= {name: number(float(text.get(name, ""))) for name in ("x", "y") if name in text.attrib}
    turn = renamed(text.get("transform", ""), {}).replace(" rotate(-0)", "")
    if turn and not turn.startswith("rotate(-0 "):
        own["transform"] = turn
    return Element("text", shared, f"<text{attributes(own)}>{html.escape(text.text or '')}</text>")


def formula_of(group: ElementTree.Element, style: dict[str, str]) -> Element:
    """Return a formula, such as the power of ten at a tick: each letter has its place and size."""
    shared: dict[str, str] = {}
    shared |= {name: style[name] for name in ("fill", "opacity") if name in style}
    letters = ""
    own: dict[str, str]
    for letter in group.iter(f"{SVG}tspan"):
        own = {name: renamed(letter.get(name, ""), {}) for name in ("x", "y")}
        own["font-size"] = renamed(style_of(letter)["font-size"].removesuffix("px"), {})
        letters += f"<tspan{attributes(own)}>{html.escape(letter.text or '')}</tspan>"
    turn = renamed(group.get("transform", ""), {}).replace(" rotate(-0)", "")
    return Element("text", shared, f'<text transform="{turn}">{letters}</text>')


def weight_of(text: ElementTree.Element) -> int:
    """Return the weight of a text's font."""
    return int(style_of(text).get("font-weight", 400))


def image_of(image: ElementTree.Element, paint: dict[str, str]) -> Element:
    """Return an image, encoded anew: with a palette, if it has at most 256 colours."""
    from PIL import Image

    encoded = image.get(f"{XLINK}href", "").partition(",")[2]
    with Image.open(io.BytesIO(base64.b64decode(encoded))) as read:
        drawn = read.convert("RGB") if read.getextrema()[-1] == (255, 255) else read.copy()
    colours = drawn.getcolors(256) if drawn.mode == "RGB" else None
    if colours:
        drawn = drawn.quantize(len(colours), dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    drawn.save(buffer, "PNG", optimize=True)
    source = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    names = ("x", "y", "width", "height", "transform", "style", "preserveAspectRatio")
    own = {name: image.attrib[name] for name in names if name in image.attrib}
    return Element("image", paint, f"<image{attributes({**own, 'xlink:href': source})}/>")


# Definitions --------------------------------------------------------------------------------------


def defined(root: ElementTree.Element, names: dict[str, str]) -> Iterator[ElementTree.Element]:
    """Yield the definitions that are referenced, in the order of the document."""
    yield from (element for element in root.iter() if element.get("id") in names)


def definition(element: ElementTree.Element, names: dict[str, str]) -> str:
    """Return a marker, a clip or a hatch."""
    name = names[element.get("id", "")]
    if element.tag == f"{SVG}path":
        return f'<path id="{name}" d="{path_data(commands_of(element.get("d", "")), 2)}"/>'
    children = list(element)
    if element.tag == f"{SVG}clipPath":
        corners = {side: number(float(children[0].get(side, 0))) for side in SIDES}
        return f'<clipPath id="{name}"><rect{attributes(corners)}/></clipPath>'
    rectangle, path = children
    width, height, data = tile_of(commands_of(path.get("d", "")))
    sides = f'width="{width:g}" height="{height:g}"'
    ground = rectangle.get("fill", "none")
    filled = "" if ground == "none" else f'<rect {sides} fill="{ground}"/>'
    return (
        f'<pattern id="{name}" patternUnits="userSpaceOnUse" {sides}>{filled}'
        f'<path{attributes(paint_of(path, style_of(path), names))} d="{data}"/></pattern>'
    )


def tile_of(strokes: Sequence[Command]) -> tuple[float, float, str]:
    """Return the smallest tile of a hatch: width, height and path data.

    matplotlib draws a square of 72 points; within it a hatch repeats: ``n + 1`` diagonals every
    ``72 / n``, ``n`` lines across, or rows of dots, every other one shifted by half of a gap.
    """
    starts = [values for name, values in strokes if name == "M"]
    if any(name == "C" for name, _ in strokes):
        gap = starts[1][0] - starts[0][0]
        radius = starts[0][1] - 72
        half = f"a{radius:.2g} {radius:.2g} 0 1 0"
        dot = f"{half} {2 * radius:.2g} 0{half}-{2 * radius:.2g} 0z"
        places = ((0, 0), (gap, 0), (gap / 2, gap), (0, 2 * gap), (gap, 2 * gap))
        return gap, 2 * gap, "".join(f"M{x - radius:.4g} {y:g}{dot}" for x, y in places)
    (x, y), (right, down) = strokes[0][1], strokes[1][1]
    if y == down:
        gap = 72 / len(starts)
        return gap, gap, f"M0 {gap / 2:g}h{gap:g}"
    assert (right - x) * (down - y) < 0, "only /, - and . are hatches here"
    gap = 72 / (len(starts) - 1)
    return gap, gap, f"M-1 1l2-2M0 {gap:g}l{gap:g}-{gap:g}M{gap - 1:g} {gap + 1:g}l2-2"
