"""Nested arguments: dicts, lists and tuples of leaves, taken apart and put together again.

A *template* is the same nesting with an integer in the place of every leaf: what a graph keeps of
its arguments and results. ``None`` stands for "nothing here" and holds no leaf, as in JAX.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tinyckpt.base.errors import GraphError, TinyckptError

Tree = Any  # leaves nested in dicts, lists and tuples
Template = Any  # the same nesting, an int for every leaf
# The nodes at one depth by their id, each with the id of who holds it, and under which key.
Level = Mapping[int, tuple[Tree, int, Any]]

# Python's own parser reads 200 brackets within each other, and compiled programs are Python.
DEEPEST = 190


def check_depth(what: str, tree: Tree, error: type[TinyckptError] = GraphError) -> None:
    """Raise an error that says where, if a tree contains itself or is nested more than DEEPEST.

    It goes down level by level, with no recursion, and looks once a level at what is held twice.
    """
    levels: list[Level] = [{id(tree): (tree, 0, None)}]
    while len(levels) <= DEEPEST + 1:
        inner = {
            id(value): (value, holder, key)
            for holder, (node, _, _) in levels[-1].items()
            for key, value in children(node)
        }
        if not inner:
            return
        levels.append(inner)
    raise error(f"{what}: {endless(levels)}; dicts, lists and tuples may hold each other")


def children(node: Tree) -> Iterable[tuple[Any, Tree]]:
    """Return what one node of a tree holds, each with its key; nothing if it is a leaf."""
    if isinstance(node, dict):
        return node.items()
    return enumerate(node) if isinstance(node, list | tuple) else ()


def endless(levels: Sequence[Level]) -> str:
    """Return what is wrong with one of the longest ways down a tree, and where that is."""
    node = next(iter(levels[-1]))
    way = []
    for level in reversed(levels):
        _, holder, key = level[node]
        way.append((node, f"[{key!r:.40}]"))
        node = holder
    way.reverse()
    met: dict[int, int] = {}
    for depth, (node, _) in enumerate(way):
        first = met.setdefault(node, depth)
        if first < depth:
            path, again = ("".join(key for _, key in way[1:][:end]) for end in (first, depth))
            return f"contains itself: {again} is {path or 'the whole'} again"
    return f"nested more than {DEEPEST} deep, at {''.join(key for _, key in way[1:])[:80]}..."


def leaves_with_paths(tree: Tree, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every leaf with the expression that reaches it, in order.

    >>> list(leaves_with_paths({"w": 1, "b": [2, 3]}, "params"))
    [("params['w']", 1), ("params['b'][0]", 2), ("params['b'][1]", 3)]
    """
    try:
        yield from paths_below(tree, path)
    except RecursionError:
        check_depth(path, tree)
        raise


def paths_below(tree: Tree, path: str) -> Iterator[tuple[str, Any]]:
    """Yield what ``leaves_with_paths`` does."""
    if tree is None:
        return
    if isinstance(tree, dict):
        for key, value in tree.items():
            if not isinstance(key, str | int):
                raise GraphError(f"{path}: the key {key!r} is neither a string nor an integer")
            yield from paths_below(value, f"{path}[{key!r}]")
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from paths_below(value, f"{path}[{index}]")
    else:
        yield path, tree


def map_leaves(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Return the same nesting with ``function`` applied to every leaf, in order."""
    try:
        return mapped(function, tree)
    except RecursionError:
        check_depth("an argument", tree)
        raise


def mapped(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Return what ``map_leaves`` does."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: mapped(function, value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [mapped(function, value) for value in tree]
    if isinstance(tree, tuple):
        values = [mapped(function, value) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else tuple(values)
    return function(tree)


def leaves(tree: Tree) -> list[Any]:
    """Return the leaves in order."""
    found: list[Any] = []
    try:
        collect(tree, found)
    except RecursionError:
        check_depth("an argument", tree)
        raise
    return found


def collect(tree: Tree, found: list[Any]) -> None:
    """Append the leaves of a tree, in order."""
    if isinstance(tree, dict | list | tuple):
        for value in tree.values() if isinstance(tree, dict) else tree:
            if isinstance(value, dict | list | tuple):
                collect(value, found)
            elif value is not None:
                found.append(value)
    elif tree is not None:
        found.append(tree)


def fill(template: Template, values: Sequence[Any]) -> Tree:
    """Return the template's nesting with ``values[i]`` where the template says ``i``."""
    return map_leaves(lambda index: values[index], template)


def leaves_like(template: Template, tree: Tree, path: str) -> Iterator[tuple[int, str, Any]]:
    """Yield ``(index, path, leaf)`` of ``tree`` for every leaf of the template.

    Dicts are matched by key, so their order does not matter.

    Raises:
        GraphError: where the nesting differs; the message names the path and what was expected.
    """
    if template is None:
        if tree is not None:
            raise GraphError(
                f"{path}: expected None, as when the graph was built, got {kind(tree)}"
            )
    elif isinstance(template, dict):
        if not isinstance(tree, dict):
            raise GraphError(
                f"{path}: expected a dict with the keys {list(template)}, got {kind(tree)}"
            )
        if template.keys() != tree.keys():
            raise GraphError(f"{path}: expected the keys {list(template)}, got {list(tree)}")
        for key, value in template.items():
            yield from leaves_like(value, tree[key], f"{path}[{key!r}]")
    elif isinstance(template, list | tuple):
        if not isinstance(tree, list | tuple) or len(tree) != len(template):
            raise GraphError(
                f"{path}: expected a {type(template).__name__} of {len(template)}, got {kind(tree)}"
            )
        for index, value in enumerate(template):
            yield from leaves_like(value, tree[index], f"{path}[{index}]")
    else:
        if tree is None or isinstance(tree, dict | list | tuple):
            raise GraphError(f"{path}: expected an array, got {kind(tree)}")
        yield template, path, tree


def same_nesting(template: Template, tree: Tree) -> bool:
    """Whether a tree has a template's nesting, dict keys in the same order."""
    if template is None:
        return tree is None
    if isinstance(template, dict):
        if not isinstance(tree, dict) or list(template) != list(tree):
            return False
        return all(map(same_nesting, template.values(), tree.values()))
    if isinstance(template, list | tuple):
        if not isinstance(tree, list | tuple) or len(template) != len(tree):
            return False
        return all(map(same_nesting, template, tree))
    return tree is not None and not isinstance(tree, dict | list | tuple)


def kind(tree: Tree) -> str:
    """Describe one node of a tree for an error message."""
    if isinstance(tree, dict):
        return f"a dict with the keys {list(tree)}"
    if isinstance(tree, list | tuple):
        return f"a {type(tree).__name__} of {len(tree)}"
    return "None" if tree is None else f"a {type(tree).__name__}"
