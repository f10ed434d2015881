"""Inlining of one-expression kernels into generated source, by AST substitution.

``compile`` asks for the expression of an operator; where there is none, it emits a call of the
kernel. Only tinyckpt's own kernels with a single ``return`` statement are inlined.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

# Cache: expressions by kernel, number of operands and attributes; a program has few distinct ones.
Known = dict[tuple[Any, ...], list[str | int] | None]


def is_own(kernel: Callable[..., Any]) -> bool:
    """Whether a kernel is one of tinyckpt's own, which stand in the modules ``ops.kernels*``.

    Their names are unique across these modules: compiled programs import them by name.
    """
    module, name = str(getattr(kernel, "__module__", "")), getattr(kernel, "__name__", "")
    is_ours = module.startswith(f"{__package__}.kernels")
    return is_ours and getattr(sys.modules.get(module), name, None) is kernel


def literal(value: Any) -> str:
    """Return the source text of a number, string, slice or tuple of these."""
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return f"float({str(value)!r})"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def constant_line(name: str, value: Any) -> str:
    """Return the line of source that defines a constant; a large one is only described."""
    if value.ndim == 0:
        return f"{name} = np.array({literal(value.item())}, {value.dtype.name!r})"
    return f"# {name}: a {value.dtype.name} array of shape {value.shape}, captured by the function"


@cache
def expression_of(kernel: Callable[..., Any]) -> tuple[list[str], str | None, ast.expr] | None:
    """Parse a kernel with one ``return``: (parameters, variadic parameter, expression), or None."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(kernel))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(function, ast.FunctionDef) or len(function.body) != 1:
        return None
    (statement,) = function.body
    if not isinstance(statement, ast.Return) or statement.value is None:
        return None
    # Names of the kernel's own module are not in scope elsewhere.
    known = {name.arg for name in (*function.args.args, *function.args.kwonlyargs)}
    if function.args.vararg:
        known.add(function.args.vararg.arg)
    used = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
    if not used <= known | {"tuple"}:
        return None
    variadic = function.args.vararg.arg if function.args.vararg else None
    return [parameter.arg for parameter in function.args.args], variadic, statement.value


def inline_kernel(
    kernel: Callable[..., Any], operands: Sequence[str], attrs: Any, known: Known
) -> str | None:
    """Inline a kernel: its expression with operands and attributes substituted, or None.

    Args:
        kernel: inlined if it is one of tinyckpt's own, and a single expression.
        operands: the Python names of its arrays.
        attrs: its attributes, by name.
        known: the cache of expressions, looked up and extended.
    """
    if not is_own(kernel):
        return None
    key = (kernel, len(operands), *((name, literal(value)) for name, value in attrs.items()))
    if key not in known:
        known[key] = expand_expression(kernel, len(operands), attrs)
    pieces = known[key]
    if pieces is None:
        return None
    return "".join([operands[piece] if isinstance(piece, int) else piece for piece in pieces])


def expand_expression(kernel: Callable[..., Any], count: int, attrs: Any) -> list[str | int] | None:
    """Return a kernel's expression as pieces of text and operand positions in between, or None."""
    found = expression_of(kernel)
    if found is None:
        return None
    parameters, variadic, expression = found
    replacements: dict[str, ast.expr] = {parameters[0]: ast.Name("np")}
    # A sentinel marks each operand: its position between NUL characters, which no source contains.
    markers: list[ast.expr] = [ast.Name(f"\0{position}\0") for position in range(count)]
    if variadic is not None:
        replacements[variadic] = ast.Tuple(markers)
    else:
        replacements.update(zip(parameters[1:], markers, strict=False))
    for key, value in attrs.items():
        replacements[key] = ast.parse(literal(value), mode="eval").body
    # A fresh copy: the transformer mutates the tree.
    copied = ast.parse(ast.unparse(expression), mode="eval").body
    text = ast.unparse(Substitution(replacements, attrs).visit(copied))
    return [int(piece) if number % 2 else piece for number, piece in enumerate(text.split("\0"))]


class Substitution(ast.NodeTransformer):
    """Substitute operands and attributes for a kernel's parameters."""

    def __init__(self, replacements: dict[str, ast.expr], attrs: Any) -> None:
        self.replacements, self.attrs = replacements, attrs

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a parameter."""
        return self.replacements.get(node.id, node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Fold a conditional whose test is an attribute (constant folding)."""
        if isinstance(node.test, ast.Name) and node.test.id in self.attrs:
            chosen: ast.AST = self.visit(node.body if self.attrs[node.test.id] else node.orelse)
            return chosen
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Write ``x[0:2, ...]`` rather than ``x[(slice(0, 2, None), Ellipsis)]``."""
        if isinstance(node.slice, ast.Name) and isinstance(self.attrs.get(node.slice.id), tuple):
            parts = [subscript_part(part) for part in self.attrs[node.slice.id]]
            return ast.Subscript(self.visit(node.value), ast.Tuple(parts))
        return self.generic_visit(node)


def subscript_part(part: Any) -> ast.expr:
    """Return one part of an index as an AST node, as Python writes it between brackets."""
    if isinstance(part, slice):
        bounds = [
            None if bound is None else ast.Constant(int(bound))
            for bound in (part.start, part.stop, part.step)
        ]
        return ast.Slice(*bounds)
    return ast.Constant(part)
