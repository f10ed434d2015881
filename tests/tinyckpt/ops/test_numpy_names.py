"""Dispatch tables of NumPy's names: complete, up to date, and errors that name a replacement."""

import importlib.util
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.numpy_examples import ALIASES, EXAMPLES, found
from tinyckpt.ops.elementwise_table import TABLE
from tinyckpt.ops.numpy_names import ACCUMULATIONS, FUNCTIONS, REDUCTIONS, REPLACEMENTS, UFUNCS

ROOT = Path(__file__).parents[3]
X = tc.Spec((2, 3))


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: x[[0, 2]], r"index of float64\[2,3\]: index 2 is out of range; expected -2"),
        (lambda x: x[:, [-4]], "index -4 is out of range; expected -3 to 2"),
        (lambda x: x[[0.5]], "an index of dtype float64; expected integers"),
        (lambda x: x[x > 0], r"boolean index bool\[2,3\].*use tc\.where"),
        (lambda x: x[np.array([True, False])], r"boolean index bool\[2\].*use tc\.where"),
        (lambda x: x[[0], [1], [2]], r"3 indices for float64\[2,3\], which has 2 axes"),
        (lambda x: x["a"], "index 'a': expected integers, slices, None, Ellipsis or arrays"),
        (lambda x: tc.take(x, 3, axis=1), r"take from float64\[2,3\]: index 3 is out of range"),
        (lambda x: tc.take_along_axis(x, [0], 1), "must have equally many axes"),
        (lambda x: np.add(x, x, out=np.ones((2, 3))), r"np\.add: out= is not supported: values"),
        (lambda x: np.exp(x, where=x > 0), r"np\.exp: where= is not supported: choose with tc"),
        (lambda x: np.exp(x, dtype="float32"), r"np\.exp: dtype= is not supported: convert with x"),
        (lambda x: np.sum(x, dtype="float32"), r"np\.sum: dtype= is not supported: convert with x"),
        (lambda x: np.sum(x, where=x > 0), r"np\.sum: where= is not supported"),
        (lambda x: np.max(x, initial=0.0), r"np\.max: initial= is not supported.*tc\.maximum"),
        (lambda x: np.take(x, [0], mode="clip"), r"np\.take: mode= is not supported"),
        (lambda x: np.ravel(x, order="F"), r"np\.ravel: order= is not supported"),
        (lambda x: np.average(x, returned=True), r"np\.average: returned= is not supported"),
        (lambda x: np.add.reduceat(x, [0]), r"np\.add\.reduceat: supported accumulations: add"),
        (lambda x: np.subtract.reduce(x), r"np\.subtract\.reduce: supported reductions: add"),
        (lambda x: np.maximum.accumulate(x), r"np\.maximum\.accumulate: supported accumulations"),
        (lambda x: np.add.at(x, [0], 1.0), r"np\.add\.at: an in-place update"),
        (lambda x: np.linalg.svd(x), r"np\.linalg\.svd: there are no matrix decompositions"),
        (lambda x: np.fft.fft(x), r"np\.fft\.fft: not supported on traced values"),
        (lambda x: np.unique(x), r"np\.unique: the shape of its result depends.*tc\.where"),
        (lambda x: np.where(x > 0), "where: give the condition, x and y"),
        (lambda x: np.pad(x, 1, mode="mean"), "'mean'; expected one of constant, edge, reflect"),
        (lambda x: np.array([x, x]), r"conversion to an array of x.*tc\.stack or tc\.concat"),
        (lambda x: x.sum().item(), r"item\(\) of sum_1.*keep it a Var"),
        (lambda x: x.tolist(), r"tolist\(\) of x"),
        (lambda x: x.sort(), r"sort\(\) in place of x.*use tc\.sort"),
        (lambda x: x.fill(0), r"fill\(\) in place of x"),
        (lambda x: x.nonzero(), r"nonzero\(\) of x.*tc\.where"),
        (lambda x: x & x, r"bitwise_and: needs integers or booleans, got float64\[2,3\].*compare"),
        (lambda x: x.astype("int64") ** -1, "integers have no negative powers"),
        (lambda x: tc.einsum("ij,jk,kl->il", x, x, x), "3 operands; expected one or two"),
        (lambda x: tc.einsum("ij->ik", x), "every label of the result must occur in an operand"),
        (lambda x: tc.einsum("ijk->i", x), "'ijk' describes 3 axes of 2"),
        (lambda x: tc.einsum("ij,ij->ij", x, x.T), "the axes 'i' have 2 and 3 elements"),
        (lambda x: tc.einsum("ii", x), "have 2 and 3"),
        (lambda x: tc.einsum(x, [0, 1]), "begin with the subscripts as a string"),
        (lambda x: tc.tensordot(x, x, 1), "tensordot: the axes 1 of"),
        (lambda x: tc.linalg.norm(x, 2, axis=(0, 1)), "expected 'fro', 1, -1, inf or -inf"),
        (lambda x: tc.linalg.norm(x, "nuc", axis=0), "norm of vectors: ord 'nuc'"),
        (lambda x: tc.var(x, ddof=6), "6 elements of .* at ddof=6; more are needed"),
        (lambda x: tc.squeeze(x, 0), r"squeeze: axis 0 of float64\[2,3\] is not of length 1"),
        (lambda x: tc.repeat(x, [1, 2], axis=1), "give one number of 0 or more, or 3"),
        (lambda x: tc.roll(x, 1, axis=2), "axis 2 is out of range for 2 axes"),
    ],
)  # fmt: skip
def test_unsupported_call_raises_naming_alternative(function: Any, match: str) -> None:
    with pytest.raises(tc.GraphError, match=match):
        tc.build(function, X)


def numpy_functions() -> dict[str, Any]:
    """Return NumPy's functions that take arrays, by name."""
    submodules = [f"{m}.{name}" for m in ("linalg", "fft") for name in found(np, m).__all__]
    names = {name: found(np, name) for name in (*np.__all__, *submodules)}
    return {
        name: function
        for name, function in names.items()
        if isinstance(function, np.ufunc) or hasattr(function, "_implementation")
    }


def hints(message: str) -> set[str]:
    """Return the names of tinyckpt in a message."""
    return set(re.findall(r"\btc\.([\w.]*\w)", message))


def refusal(function: Any) -> str:
    """Return a Var's error message for one of NumPy's functions, or nothing if it is supported."""

    def use(x: Any) -> Any:
        if isinstance(function, np.ufunc):
            x.__array_ufunc__(function, "__call__", *[x] * function.nin)
        else:
            x.__array_function__(function, (tc.Var,), (x,), {})
        return x

    try:
        tc.build(use, tc.Spec((2, 2)))
    except (tc.GraphError, TypeError) as error:
        return str(error)
    return ""


def test_replacements_in_errors_exist() -> None:
    messages = {name: refusal(function) for name, function in numpy_functions().items()}
    recommended = {hint for message in messages.values() for hint in hints(message)}
    assert len(recommended) > 15
    assert [hint for hint in recommended if not callable(found(tc, hint))] == []
    for name, message in messages.items():
        if message.startswith("np.") and name not in REPLACEMENTS:
            assert "docs/numpy.md" in message, name


def test_every_matrix_decomposition_is_named_as_missing() -> None:
    names = [
        "cholesky",
        "det",
        "eig",
        "eigh",
        "eigvals",
        "eigvalsh",
        "inv",
        "pinv",
        "qr",
        "slogdet",
        "svd",
        "svdvals",
    ]
    for name in names:
        assert "there are no matrix decompositions" in REPLACEMENTS.get(f"linalg.{name}", ""), name


def test_every_tc_name_in_source_text_exists() -> None:
    sources = (ROOT / "tinyckpt").rglob("*.py")
    named = set().union(*(hints(path.read_text(encoding="utf-8")) for path in sources))
    assert len(named) > 30
    assert sorted(name for name in named if found(tc, name) is None) == []


def test_dispatch_tables_cover_numpys_names() -> None:
    functions = numpy_functions()
    newer = {"cumulative_prod", "cumulative_sum", "matvec", "unstack", "vecmat"}  # since 2.1, 2.2
    answered = set(UFUNCS) | set(FUNCTIONS)
    assert answered - set(functions) <= newer
    assert not answered & set(REPLACEMENTS)
    assert set(REPLACEMENTS) <= set(functions) | {"cross"}
    assert set(REDUCTIONS) | set(ACCUMULATIONS) <= set(UFUNCS)
    plain = {"iscomplexobj", "isrealobj", "ndim", "shape", "size"}  # no arrays come out
    assert answered - plain == set(EXAMPLES)
    assert set(ALIASES.values()) <= set(EXAMPLES)
    assert len(EXAMPLES) >= 120
    for alias, name in ALIASES.items():
        assert found(np, alias) in (found(np, name), None)


@pytest.mark.parametrize("module", TABLE)
def test_rows_with_a_docstring_are_public_functions(module: str) -> None:
    bound = vars(importlib.import_module(f"tinyckpt.ops.{module}"))
    for name in (row.name for row in TABLE[module] if row.text):
        assert name in bound, f"bind {name} in tinyckpt/ops/{module}.py, as its neighbours are"
        assert name in tc.__all__, f"import {name} in tinyckpt/__init__.py, and add it to __all__"


def test_numpy_names_page_is_up_to_date() -> None:
    path = ROOT / "docs" / "numpy_table.py"
    spec = importlib.util.spec_from_file_location("numpy_table", path)
    assert spec is not None
    assert spec.loader is not None
    writer: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    written = (ROOT / "docs" / "numpy.md").read_text(encoding="utf-8")
    assert writer.page() == written, "run python docs/numpy_table.py"


def test_submodules_are_not_package_attributes() -> None:
    import tinyckpt.core.trace as module
    from tinyckpt.core import trace

    assert trace is module is importlib.import_module("tinyckpt.core.trace")
    assert trace.Trace is tc.Trace
    assert pickle.loads(pickle.dumps(tc.Spec((2,)))) == tc.Spec((2,))
    # In a process of its own: whoever imports one later, such as another test, sets it again.
    code = (
        "import types, tinyckpt as tc; "
        "print(*sorted(n for n, value in vars(tc).items() if type(value) is types.ModuleType))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    public = ["checkpoint_policies", "cost", "linalg", "networks", "techniques", "tree"]
    assert found.stdout.split() == public
    assert dir(tc) == sorted(tc.__all__)
    with pytest.raises(AttributeError, match=r"no attribute 'trace'; .*np\.trace\(x\) works"):
        tc.trace  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'cross'; instead of np\.cross: write"):
        tc.cross  # noqa: B018
    assert not hasattr(tc, "table")
    assert inspect.signature(tc.sum).parameters.keys() == {"x", "axis", "keepdims"}
