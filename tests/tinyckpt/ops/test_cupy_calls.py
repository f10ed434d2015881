"""CuPy compatibility: the kernels call only functions and arguments that CuPy has."""

import ast
import inspect
import sys

import numpy as np
import pytest

from tests.conftest import require
from tinyckpt.ops import kernels_elementwise
from tinyckpt.ops import special_functions as special


def array_code() -> ast.Module:
    """Return the source of everything that runs on NumPy's arrays or CuPy's."""
    kernels = [own for name, own in sys.modules.items() if name.startswith("tinyckpt.ops.kernels")]
    written = [module for module in (*kernels, special) if module is not kernels_elementwise]
    generated = [kernel.function for kernel in kernels_elementwise.KERNELS.values()]
    return ast.parse("".join(map(inspect.getsource, (*written, *generated))))


def calls_of_xp() -> list[ast.Call]:
    """Return every call ``xp.something(...)`` in the kernels."""
    tree = array_code()
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "xp"
    ]


@pytest.mark.filterwarnings("ignore")  # CuPy warns where it finds no driver
def test_cupy_has_every_function_and_argument_that_the_kernels_use() -> None:
    require("cupy")
    import cupy

    calls = calls_of_xp()
    assert len({call.func.attr for call in calls}) > 20  # type: ignore[attr-defined]
    for call in calls:
        name = call.func.attr  # type: ignore[attr-defined]
        function = getattr(cupy, name)
        keywords = [keyword.arg for keyword in call.keywords if keyword.arg]
        if isinstance(function, cupy.ufunc):
            assert len(call.args) <= function.nin + function.nout, name
            assert set(keywords) <= {"out", "dtype"}, name
        elif name == "uint64":
            assert function is np.uint64
        else:
            arguments = [None] * len(call.args)
            inspect.signature(function).bind(*arguments, **dict.fromkeys(keywords))


@pytest.mark.filterwarnings("ignore")
def test_cupy_arrays_have_every_method_and_attribute_that_the_kernels_use() -> None:
    require("cupy")
    import cupy

    # Everything after a dot that is not xp. or math., nor of those who are told of writes.
    attributes = [node for node in ast.walk(array_code()) if isinstance(node, ast.Attribute)]
    owners = [ast.unparse(node.value) for node in attributes]
    used = set()
    for node, owner in zip(attributes, owners, strict=True):
        function = owner.removeprefix("xp.")
        if function != owner and function.isidentifier():  # its own method, as in xp.add.reduceat
            assert hasattr(getattr(cupy, function), node.attr)
        elif owner not in ("xp", "math", "writes", "WRITES"):
            used.add(node.attr)
    assert used >= {"sum", "max", "reshape", "transpose", "astype", "mT", "shape", "dtype"}
    assert [name for name in used if not hasattr(cupy.ndarray, name)] == []
    machine = {"ndarray", "asarray", "array", "asnumpy"}
    assert all(hasattr(cupy, name) for name in machine)
    assert all(hasattr(cupy.ndarray, name) for name in ("base", "nbytes", "flags", "ravel"))
