"""Join your parts 1 to 3 to one file, the complete engine: ``python one_file.py > mini.py``."""

import ast
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
HEAD = '''"""Reverse-mode autograd with gradient checkpointing, in one file: parts 1 to 3.

A function becomes a graph of operators, its backward pass joins the graph, a policy chooses the
order of evaluations, liveness analysis frees each value after its last use, and a machine runs the
steps and counts memory. It needs NumPy alone. ``tinyckpt.core`` does the same for more operators;
its tests compare it with the course's solution on ten networks, step by step.
"""
'''


def joined(paths: Iterable[Path]) -> str:
    """Return the parts as one text: imports come first and once, none is of another part."""
    imports: list[str] = []
    imported: set[str] = set()
    sections = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        lines: list[str | None] = [*text.splitlines()]
        for node in ast.parse(text).body:
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            if is_import and not ast.unparse(node).startswith("from part_"):
                names = {alias.asname or alias.name for alias in node.names}
                imports += [] if names <= imported else [ast.unparse(node)]
                imported |= names
            if is_import or isinstance(node, ast.Expr):  # the docstring
                for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                    lines[number] = None
        code = "\n".join(line for line in lines if line is not None).strip("\n")
        sections.append(f"# {path.stem} {'-' * (97 - len(path.stem))}\n\n{code}\n")
    return "\n\n".join(["\n".join([HEAD, *imports]), *sections])


if __name__ == "__main__":
    print(joined(HERE / f"part_{part}" / f"part_{part}.py" for part in (1, 2, 3)), end="")
