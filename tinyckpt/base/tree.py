"""Pytrees: dicts, lists and tuples of leaves, flattened, mapped and rebuilt (as in JAX).

A *template* is a tree whose leaves are integers: a graph stores its arguments and results as
templates of data ids. ``None`` is an empty subtree and holds no leaf, as in JAX.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tinyckpt.base.errors import GraphError, TinyckptError

Tree = Any  # leaves nested in dicts, lists and tuples
Template = Any  # the same nesting, an int for every leaf
# The nodes at one depth, by ``id()``: each with the ``id()`` of its parent, and its key there.
Level = Mapping[int, tuple[Tree, int, Any]]

# Python's parser accepts 200 nested brackets, and compiled programs contain the nesting as source.
DEEPEST = 190


def check_depth(what: str, tree: Tree, error: type[TinyckptError] = GraphError) -> None:
    """Raise an error with the path if a tree contains itself or is nested too deep (DEEPEST).

    Breadth first, without recursion; a node that several parents share is visited once per level.
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
    raise error(
        f"{what}: {cycle_or_depth_text(levels)}; dicts, lists and tuples may hold each other"
    )


def children(node: Tree) -> Iterable[tuple[Any, Tree]]:
    """Return a node's children with their keys; empty for a leaf."""
    if isinstance(node, dict):
        return node.items()
    return enumerate(node) if isinstance(node, list | tuple) else ()


def cycle_or_depth_text(levels: Sequence[Level]) -> str:
    """Describe a cycle, or excessive depth, along one of the longest paths of a tree."""
    node = next(iter(levels[-1]))
    path = []
    for level in reversed(levels):
        _, parent, key = level[node]
        path.append((node, f"[{key!r:.40}]"))
        node = parent
    path.reverse()
    first_depth: dict[int, int] = {}
    for depth, (node, _) in enumerate(path):
        first = first_depth.setdefault(node, depth)
        if first < depth:
            outer, inner = ("".join(key for _, key in path[1:][:end]) for end in (first, depth))
            return f"contains itself: {inner} is {outer or 'the whole'} again"
    return f"nested more than {DEEPEST} deep, at {''.join(key for _, key in path[1:])[:80]}..."


def leaves_with_paths(tree: Tree, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its path, as the expression that reaches it, in order.

    >>> list(leaves_with_paths({"w": 1, "b": [2, 3]}, "params"))
    [("params['w']", 1), ("params['b'][0]", 2), ("params['b'][1]", 3)]
    """
    try:
        yield from paths_below(tree, path)
    except RecursionError:
        check_depth(path, tree)
        raise


def paths_below(tree: Tree, path: str) -> Iterator[tuple[str, Any]]:
    """Recursive part of ``leaves_with_paths``."""
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
    """Apply ``function`` to every leaf, in order, keeping the nesting.

    >>> map_leaves(str, {"w": 1, "b": (2, None)})
    {'w': '1', 'b': ('2', None)}
    """
    try:
        return mapped(function, tree)
    except RecursionError:
        check_depth("an argument", tree)
        raise


def mapped(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Recursive part of ``map_leaves``."""
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
    """Flatten a tree to the list of its leaves, in order.

    >>> leaves({"w": 1, "b": (2, None, [3])})
    [1, 2, 3]
    """
    found: list[Any] = []
    try:
        collect(tree, found)
    except RecursionError:
        check_depth("an argument", tree)
        raise
    return found


def collect(tree: Tree, found: list[Any]) -> None:
    """Recursive part of ``leaves``: append the leaves of a tree."""
    if isinstance(tree, dict | list | tuple):
        for value in tree.values() if isinstance(tree, dict) else tree:
            if isinstance(value, dict | list | tuple):
                collect(value, found)
            elif value is not None:
                found.append(value)
    elif tree is not None:
        found.append(tree)


def fill(template: Template, values: Sequence[Any]) -> Tree:
    """Rebuild a tree from a template: ``values[i]`` where the template says ``i``."""
    return map_leaves(lambda index: values[index], template)


def leaves_like(template: Template, tree: Tree, path: str) -> Iterator[tuple[int, str, Any]]:
    """Match a tree against a template; yield ``(index, path, leaf)`` for every leaf.

    Dicts are matched by key, regardless of order.

    Raises:
        GraphError: where the nesting differs; the message has the path and the expected node.
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


def tree_map(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply a function to every leaf, with the leaves of further trees of the same nesting.

    The name and the order of arguments are JAX's.

    >>> import tinyckpt as tc
    >>> tc.tree_map(lambda w, g: w - 0.5 * g, {"w": 1.0, "b": [2.0]}, {"w": 2.0, "b": [4.0]})
    {'w': 0.0, 'b': [0.0]}

    Raises:
        GraphError: where the nesting of another tree differs; the message has the path.
    """
    if not rest:
        return map_leaves(function, tree)
    count = iter(range(len(leaves(tree))))
    template = map_leaves(lambda leaf: next(count), tree)
    columns = [leaves(tree)]
    for number, other in enumerate(rest, start=2):
        found = {index: leaf for index, _, leaf in leaves_like(template, other, f"tree {number}")}
        columns.append([found[index] for index in range(len(found))])
    return fill(template, [function(*row) for row in zip(*columns, strict=True)])


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
    """Describe a node's type and size for an error message."""
    if isinstance(tree, dict):
        return f"a dict with the keys {list(tree)}"
    if isinstance(tree, list | tuple):
        return f"a {type(tree).__name__} of {len(tree)}"
    return "None" if tree is None else f"a {type(tree).__name__}"
