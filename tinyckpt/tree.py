"""Nested arguments: dicts, lists and tuples of leaves, taken apart and put together again.

A *template* is the same nesting with an integer in the place of every leaf: what a graph keeps of
its arguments and results. ``None`` stands for "nothing here" and holds no leaf, as in JAX.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tinyckpt.errors import GraphError

Tree = Any  # leaves nested in dicts, lists and tuples
Template = Any  # the same nesting, an int for every leaf


# Python's own parser reads 200 brackets within each other, and compiled programs are Python.
DEEPEST = 190


def check_depth(what: str, tree: Tree) -> None:
    """Raise a GraphError if a tree contains itself, or is nested too deep to be written out."""
    level = [tree]
    for _ in range(DEEPEST + 1):
        inner = [leaf for node in level for leaf in children(node)]
        level = list({id(node): node for node in inner}.values())
        if not level:
            return
    raise too_deep(what)


def children(node: Tree) -> Sequence[Tree]:
    """Return what one node of a tree holds; nothing if it is a leaf."""
    if isinstance(node, dict):
        return tuple(node.values())
    return node if isinstance(node, list | tuple) else ()


def too_deep(what: str) -> GraphError:
    """Return the error about a tree without an end."""
    return GraphError(
        f"{what}: contains itself, or is nested more than {DEEPEST} deep; dicts, lists and tuples "
        "may hold each other, not themselves"
    )


def leaves_with_paths(tree: Tree, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every leaf with the expression that reaches it, in order.

    >>> list(leaves_with_paths({"w": 1, "b": [2, 3]}, "params"))
    [("params['w']", 1), ("params['b'][0]", 2), ("params['b'][1]", 3)]
    """
    if tree is None:
        return
    if isinstance(tree, dict):
        for key, value in tree.items():
            if not isinstance(key, str | int):
                raise GraphError(f"{path}: the key {key!r} is neither a string nor an integer")
            yield from leaves_with_paths(value, f"{path}[{key!r}]")
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from leaves_with_paths(value, f"{path}[{index}]")
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
    if tree is None:
        return []
    if not isinstance(tree, dict | list | tuple):
        return [tree]
    found = []
    for value in tree.values() if isinstance(tree, dict) else tree:
        if value is None or isinstance(value, dict | list | tuple):
            found.extend(leaves(value))
        else:
            found.append(value)
    return found


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
