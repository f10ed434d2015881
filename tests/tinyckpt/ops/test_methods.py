"""Methods of a traced value: what type checkers are told of is installed."""

import ast
from pathlib import Path

import tinyckpt as tc
from tinyckpt.core import tracing
from tinyckpt.ops.methods import METHODS


def test_each_method_declared_for_type_checkers_is_installed() -> None:
    tree = ast.parse(Path(tracing.__file__).read_text(encoding="utf-8"))
    (var,) = [node for node in tree.body if getattr(node, "name", "") == "Var"]
    assert isinstance(var, ast.ClassDef)
    (declared,) = [node for node in var.body if isinstance(node, ast.If)]
    names = {node.name for node in declared.body if isinstance(node, ast.FunctionDef)}
    names |= {
        target.id
        for node in declared.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert len(names) > 30
    assert names - {"__getattr__"} <= METHODS.keys()
    assert all(hasattr(tc.Var, name) for name in METHODS)
