"""Scope hoisting of ES modules: a page's scripts as one, in order of their imports, as Rollup does.

Modules import and export by name, and top-level names are unique among the modules of a page, so
that all of them share one scope: a module comes after those that it imports, and its import and
export keywords are removed. Nothing is renamed, and no tool is needed when a page is made.

Source: R. Harris, Rollup (2015).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"(?:[\w.]+/)*(\w+)\.js";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async )?function\b|class\b|const\b|let\b)", re.M)
DECLARED = re.compile(r"^(?:(?:async )?function\*?|class|const|let) (\w+|\[[^]=]*\])", re.M)
OTHER = re.compile(r"^(?:import|export)\b.*", re.M)


def bundled(
    read: Callable[[str], str], entries: Sequence[str], left_out: Collection[str] = ()
) -> str:
    """Concatenate modules and all that they import, each after its imports.

    Args:
        read: the source of a module by its name.
        entries: names of the modules that start the page, in order.
        left_out: names of modules that are left out, with what only they import: parts that are
            called only for data that the page does not have.

    Raises:
        ValueError: if a top-level name is declared twice, or an import or export is not by name.

    >>> modules = {
    ...     "area": 'import { square } from "./square.js";\\nexport const area = square(3);\\n',
    ...     "square": "export function square(x) {\\n  return x * x;\\n}\\n",
    ... }
    >>> print(bundled(modules.__getitem__, ["area"]), end="")
    function square(x) {
      return x * x;
    }
    const area = square(3);
    """
    sources: dict[str, str] = {}
    order: list[str] = []
    # Depth first, as a browser evaluates modules: of those in a cycle, the first one met is last.
    pending: list[tuple[str, Iterator[str]]] = []

    def enter(name: str) -> None:
        if name not in sources and name not in left_out:
            sources[name] = read(name)
            pending.append((name, iter([found[1] for found in IMPORT.finditer(sources[name])])))

    for entry in entries:
        enter(entry)
        while pending:
            name, imports = pending[-1]
            following = next(imports, None)
            if following is not None:
                enter(following)
            else:
                order.append(name)
                pending.pop()
    return "".join(scripts(sources, order))


def scripts(sources: dict[str, str], order: Sequence[str]) -> Iterator[str]:
    """Yield the modules without import and export; raise ValueError where they cannot be one."""
    declared: dict[str, str] = {}
    for name in order:
        code = EXPORT.sub("", IMPORT.sub("", sources[name]))
        if other := OTHER.search(code):
            raise ValueError(f"{name}.js: {other[0]}; expected imports and exports by name")
        for names in DECLARED.findall(code):
            for own in re.findall(r"\w+", names):
                if (first := declared.setdefault(own, name)) != name:
                    raise ValueError(f"{name}.js: {own} is declared in {first}.js too")
        yield code
