"""Destination-driven code generation: a kernel as statements that write into a given array.

The destination is an array that the caller has: a place in one buffer (``arena_program``), or an
operand that is read for the last time (``in_place``). In: one of tinyckpt's own kernels, or the
expression that inlining made of it. Out: calls of ufuncs with ``out=``, or None for a kernel that
needs other arrays.

Source: Dybvig, Hieb and Butler, "Destination-driven code generation", Indiana University technical
report 302, 1990.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tinyckpt.codegen.kernel_memory import FAULTY_IN_CUPY
from tinyckpt.ops.kernel_inlining import Substitution, is_own, literal

UFUNCS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.Pow: "power", ast.MatMult: "matmul", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "left_shift", ast.RShift: "right_shift",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder",
}  # fmt: skip
UNARY: dict[type, str] = {ast.USub: "negative", ast.Invert: "invert"}
REDUCTIONS = {"sum", "max", "min", "mean", "prod"}  # methods with ``out=``


def is_operand(node: ast.expr) -> bool:
    """Whether an expression allocates no array: a name, a number, an attribute, a view."""
    if isinstance(node, ast.Name | ast.Constant):
        return True
    if isinstance(node, ast.Attribute):
        return is_operand(node.value)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "np.expand_dims"


def written_into(expression: str, out: str, ufuncs: Any) -> str | None:
    """Return the statement that writes an inlined kernel's value into ``out``, or None.

    >>> written_into("x @ y.mT", "z", np)
    'np.matmul(x, y.mT, out=z)'
    >>> written_into("x.sum(axis=(0,))", "z", np)
    'x.sum(axis=(0,), out=z)'
    >>> written_into("0.5 * (x * x).sum()", "z", np) is None
    True
    """
    node = ast.parse(expression, mode="eval").body
    if isinstance(node, ast.BinOp) and is_operand(node.left) and is_operand(node.right):
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        ufunc = UFUNCS.get(type(node.op))
        if ufunc == "power" and ufuncs is not np:  # CuPy's x ** 2 has other bits than power(x, 2)
            return None
        return f"np.{ufunc}({left}, {right}, out={out})" if ufunc else None
    if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY and is_operand(node.operand):
        return f"np.{UNARY[type(node.op)]}({ast.unparse(node.operand)}, out={out})"
    if not isinstance(node, ast.Call) or not all(map(is_operand, node.args)):
        return None
    function = node.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return None
    is_ufunc = function.value.id == "np" and isinstance(
        getattr(ufuncs, function.attr, None), ufuncs.ufunc
    )
    reductions = REDUCTIONS if ufuncs is np else REDUCTIONS - FAULTY_IN_CUPY
    if is_ufunc or (function.value.id != "np" and function.attr in reductions):
        node.keywords.append(ast.keyword("out", ast.Name(out)))
        return ast.unparse(node)
    return None


def steps_into(
    kernel: Callable[..., Any], operands: Sequence[str], attrs: Any, out: str
) -> list[str] | None:
    """Return the statements of a kernel that evaluates in one buffer, its result; None for others.

    >>> from tinyckpt.ops.kernels_elementwise import KERNELS
    >>> steps_into(KERNELS["tanh_vjp"].function, ["f1", "b2"], {}, "b1")
    ['np.multiply(f1, f1, out=b1)', 'np.subtract(1, b1, out=b1)', 'np.multiply(b1, b2, out=b1)']
    """
    parsed = statements_of(kernel) if is_own(kernel) else None
    if parsed is None:
        return None
    parameters, statements = parsed
    replacements: dict[str, ast.expr] = {parameters[0]: ast.Name("np")}
    replacements.update(zip(parameters[1:], map(ast.Name, operands), strict=False))
    replacements.update({key: ast.parse(literal(attrs[key]), mode="eval").body for key in attrs})
    replacements["t0"] = ast.Name(out)
    # A fresh copy: the transformer changes the tree.
    copied = [ast.parse(text, mode="eval").body for text in statements]
    return [ast.unparse(Substitution(replacements, attrs).visit(node)) for node in copied]


@cache
def statements_of(kernel: Callable[..., Any]) -> tuple[list[str], list[str]] | None:
    """Parse a kernel of elementwise steps on one buffer, t0: its parameters, and the calls."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(kernel))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    assert isinstance(function, ast.FunctionDef)
    if function.args.vararg or not isinstance(function.body[-1], ast.Return):
        return None
    calls: list[ast.expr | None] = [step_into_t0(node) for node in function.body[:-1]]
    if ast.unparse(function.body[-1]) != "return t0" or not all(calls):
        return None
    parameters = [parameter.arg for parameter in function.args.args]
    return parameters, [ast.unparse(call) for call in calls if call is not None]


def step_into_t0(node: ast.stmt) -> ast.expr | None:
    """Return a statement of a generated kernel as one call that writes t0, or None."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        if node.target.id != "t0" or not is_operand(node.value) or type(node.op) not in UFUNCS:
            return None
        text = f"xp.{UFUNCS[type(node.op)]}(t0, {ast.unparse(node.value)}, out=t0)"
        return ast.parse(text, mode="eval").body
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "t0":
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "xp.asarray":
            (call,) = call.args
        if not isinstance(call, ast.Call) or not hasattr(np, ast.unparse(call.func)[3:]):
            return None
        call.keywords.append(ast.keyword("out", ast.Name("t0")))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if not ast.unparse(call).endswith("out=t0)"):
            return None
    else:
        return None
    is_ufunc = isinstance(getattr(np, ast.unparse(call.func)[3:], None), np.ufunc)
    return call if is_ufunc and all(map(is_operand, call.args)) else None
