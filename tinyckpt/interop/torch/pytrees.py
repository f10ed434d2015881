"""Pytrees: the leaves of nested containers, and trees that a function makes of others, fast.

A recording visits the arguments of every operator several times. Nearly all are plain tuples,
lists and dicts of tensors and numbers, which PyTorch's functions take ten times as long for; these
are called for any other container.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

import torch

from tinyckpt.interop.torch.versions import private_attribute

tree_flatten = private_attribute("torch.utils._pytree:tree_flatten")
leaves_of_any = private_attribute("torch.utils._pytree:tree_leaves")
map_any = private_attribute("torch.utils._pytree:tree_map")
LEAVES = {private_attribute("torch._subclasses:FakeTensor"), torch.Tensor, torch.nn.Parameter,
          torch.dtype, torch.device, NoneType, bool, int, float, str}  # fmt: skip


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree."""
    kind = type(tree)
    if kind is tuple or kind is list or kind is dict:
        found: list[Any] = []
        for part in tree.values() if kind is dict else tree:
            found += (part,) if type(part) in LEAVES else tree_leaves(part)
        return found
    return [tree] if kind in LEAVES else list(leaves_of_any(tree))


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of what a function makes of the leaves of another."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return kind([tree_map(function, part) for part in tree])
    if kind is dict:
        return {key: tree_map(function, part) for key, part in tree.items()}
    return function(tree) if kind in LEAVES else map_any(function, tree)


def tensor_leaves(tree: Any) -> list[torch.Tensor]:
    """Return the tensors among the leaves of a tree."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return a tree of what a function makes of another's tensors; its other leaves as they are.

    >>> map_tensors(torch.Tensor.tolist, {"x": torch.ones(2), "rate": 0.1})
    {'x': [1.0, 1.0], 'rate': 0.1}
    """
    return tree_map(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)
