"""Kernels of elementwise functions, generated from the expressions of ``elementwise_table``.

The kernel of a function of one operation returns its expression, which ``compile`` inlines. Any
other, a derivative's or an optimiser's, evaluates its expression in place: each operation writes
into the buffer that holds one of its operands, if that is a result of an earlier operation
(destination-driven code generation). So ``(y * y + 1) * g`` becomes::

    def tan_vjp(xp, y, g):
        t0 = xp.asarray(xp.multiply(y, y))
        t0 += 1
        t0 *= g
        return t0

Operations and buffers are counted: the FLOPs, and the workspace beyond the result. The rules for
all kernels are in ``kernels``.

Source: Dybvig, Hieb and Butler, "Destination-driven code generation", Indiana University technical
report 302, 1990.
"""

from __future__ import annotations

import ast
import linecache
import math  # noqa: F401  # generated kernels use it

from tinyckpt.ops.elementwise_table import DERIVATIVES, ROWS, UPDATES, Kernel

# An operator in place, and the ufunc for a result in the right operand's buffer.
IN_PLACE: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "add"),
    ast.Sub: ("-", "subtract"),
    ast.Mult: ("*", "multiply"),
    ast.Div: ("/", "divide"),
    ast.Pow: ("**", "power"),
}


class InPlace:
    """The statements that evaluate an expression in place, with its operations and buffers."""

    def __init__(self, expression: str, operands: set[str]) -> None:
        self.operands, self.lines, self.buffers, self.flops = operands, list[str](), 0, 0
        self.result, _ = self.evaluate(ast.parse(expression, mode="eval").body)

    def is_array(self, node: ast.AST) -> bool:
        """Whether an expression is one of arrays; ``x.dtype`` is none."""
        if isinstance(node, ast.Attribute):
            return False
        if isinstance(node, ast.Name):
            return node.id in self.operands
        return any(map(self.is_array, ast.iter_child_nodes(node)))

    def evaluate(self, node: ast.expr) -> tuple[str, bool]:
        """Emit the evaluation of an expression: its text, and whether that names a buffer."""
        if isinstance(node, ast.Name):
            return node.id, False
        if not self.is_array(node):
            text = ast.unparse(node)
            return f"({text})" if isinstance(node, ast.BinOp) else text, False
        if isinstance(node, ast.BinOp):
            sign, ufunc = IN_PLACE[type(node.op)]
            (left, own), (right, spare) = self.evaluate(node.left), self.evaluate(node.right)
            if own:
                return self.emit(f"{left} {sign}= {right}", left)
            if not spare:
                return self.allocate(f"xp.{ufunc}({left}, {right})")
            return self.emit(f"xp.{ufunc}({left}, {right}, out={right})", right)
        if isinstance(node, ast.UnaryOp):
            assert isinstance(node.op, ast.USub)
            function, parts = "xp.negative", [self.evaluate(node.operand)]
        else:
            assert isinstance(node, ast.Call)
            function, parts = ast.unparse(node.func), [self.evaluate(part) for part in node.args]
        call = f"{function}({', '.join(text for text, _ in parts)}"
        for text, own in parts:
            if own:
                return self.emit(f"{call}, out={text})", text)
        return self.allocate(f"{call})")

    def allocate(self, value: str) -> tuple[str, bool]:
        """Emit an operation into a new buffer."""
        buffer, self.buffers = f"t{self.buffers}", self.buffers + 1
        return self.emit(f"{buffer} = xp.asarray({value})", buffer)

    def emit(self, line: str, result: str) -> tuple[str, bool]:
        """Emit an operation whose result is in a buffer."""
        self.lines.append(line)
        self.flops += 1
        return result, True


def kernel_source(name: str, operands: str, attrs: str, expression: str) -> tuple[str, int, int]:
    """Return the source of an expression's kernel, with its FLOPs and temporaries."""
    lines, flops, arrays = [f"return {expression}"], 1, 0
    if name not in ROWS or expression.count("xp.") > 1:
        steps = InPlace(expression, {*operands.split(", ")})
        lines, flops, arrays = steps.lines, steps.flops, steps.buffers - 1
        lines.append(f"return {steps.result}")
    parameters = ", ".join(filter(None, ("xp", operands, attrs)))
    return "\n    ".join([f"def {name}({parameters}):", *lines]), flops, arrays


def define_kernels() -> dict[str, Kernel]:
    """Define the kernels of the rows in this module, where compiled programs import them."""
    listed = [
        (name, operands, row.attrs, value)
        for row in (*ROWS.values(), *DERIVATIVES, *UPDATES)
        for name, operands, value in (
            (row.name, row.of, row.value), (f"{row.name}_vjp", f"{row.reads}, g", row.slope),
        )
        if value
    ]  # fmt: skip
    made = {
        name: kernel_source(name, operands, attrs, value)
        for name, operands, attrs, value in listed
        if isinstance(value, str)
    }
    # For tracebacks, and for ``inspect``, by which ``compile`` reads a kernel's expression. All in
    # one: compiled each by itself, they take twice as long.
    file, source = (
        "<elementwise kernels>",
        "\n\n\n".join(text for text, _, _ in made.values()) + "\n",
    )
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), globals())
    return {
        name: value if isinstance(value, Kernel) else Kernel(globals()[name], *made[name][1:])
        for name, _, _, value in listed
    }


KERNELS = define_kernels()  # by name; those that are written out stand in their own module
