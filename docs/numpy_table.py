"""Write docs/numpy.md: which of NumPy's names work on values of a function being traced.

The rows come from the examples that the tests run and from the tables that answer NumPy::

    python docs/numpy_table.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import tinyckpt as tc  # noqa: E402  # the checkout that this file is in
from tests.numpy_examples import ALIASES, EXAMPLES  # noqa: E402
from tinyckpt.ops.numpy_names import ACCUMULATIONS, INSTEAD, REDUCTIONS  # noqa: E402

PAGE = HERE / "numpy.md"
TEXT = """# NumPy's names

A function that is traced may be written with NumPy's own functions: `np.tanh(x)` of a value `x` of
the graph adds the operator that `tc.tanh(x)` adds. {count} names work. `python docs/numpy_table.py`
writes this page from the examples that the tests run: each is compared with NumPy in values, dtype
and shape, its first and second derivative with differences, and it runs on a backend that refuses
NumPy's arrays, as CuPy does.

Below, `tc` says that the package has the name, too, and `x.` that values have it as a method.
`np.ndim`, `np.shape` and `np.size` give Python's numbers, as ever; `@`, `//`, `%`, `**`, `&`, `|`,
`~`, comparisons, `abs(x)` and `round(x)` are there as on arrays.

## What works

{works}

Only tinyckpt has {own}.

Arguments that write in place (`out=`), choose elements (`where=`) or convert what is computed
(`dtype=`) are refused with what to write instead. Of the methods of NumPy's functions, `outer`,
`reduce` (of {reductions}) and `accumulate` (of {accumulations}) are answered.

## Indices

`x[key]` takes integers, slices, `None` and `...`, which make views, and arrays of integers, lists
and values of the graph, which copy: `table[tokens]`, `x[rows, columns]`, `x[:, 0, places]`, by
NumPy's rules. What is picked twice gets both cotangents. An array that is known is checked when the
graph is built. An index that is data is checked by NumPy when it is used; CuPy wraps it around. A
mask of booleans is refused, since the shape of the result would not be known: use
`tc.where(mask, x, other)`.

## Dtypes

They are NumPy's (NEP 50): Python's numbers take the dtype of the array they meet, NumPy's own keep
theirs, and integers become the floats that NumPy computes in. It differs in this: `sum`, `prod` and
their like of `uint8` are `int64` (graphs have no `uint64`), and arithmetic refuses booleans.

## Where there is no derivative

Where a function jumps or is flat, it is taken as 0: `sign`, `floor`, `ceil`, `trunc`, `round` and
`//`; `argmax`, `argsort` and comparisons have none. At a kink it is 0 for `abs`, `relu` and a norm
at 0. Elements that tie share it: in `max`, `min`, `maximum`, `minimum`, and in `clip` at a bound.
`std` has none where all elements are equal, `hypot` and `arctan2` none at the origin: it comes out
as NaN.

## What does not work

{missing}

Whatever else NumPy has, such as `np.fft.fft`, refuses values of the graph and points here.
"""


def row(cells: list[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def has(owner: object, name: str) -> bool:
    """Whether there is something of a dotted name."""
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return callable(owner) or isinstance(owner, property)


def works() -> str:
    """Return the table of names that work."""
    others: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        others.setdefault(name, []).append(alias)
    lines = [row(["NumPy", "also called", "tc", "x.", "differs in"]), row(["---"] * 5)]
    for name in sorted(EXAMPLES):
        cells = [
            f"`{name}`",
            ", ".join(f"`{alias}`" for alias in sorted(others.get(name, []))),
            "tc" if has(tc, name) else "",
            "x." if hasattr(np.ndarray, name) and has(tc.Var, name) else "",
            EXAMPLES[name].differs,
        ]
        lines.append(row(cells))
    return "\n".join(lines)


def own() -> str:
    """Return the functions of values that NumPy has not."""
    families = ("activation", "functions", "nn", "random", "statistics")
    names = [
        name
        for name in tc.__all__
        if getattr(getattr(tc, name), "__module__", "").removeprefix("tinyckpt.ops.") in families
        and name not in EXAMPLES
    ]
    *most, last = (f"`{name}`" for name in names)
    return f"{', '.join(most)} and {last}"


def missing() -> str:
    """Return the table of names that are refused with something better to say."""
    rows = [row([f"`{name}`", INSTEAD[name]]) for name in sorted(INSTEAD)]
    return "\n".join([row(["NumPy", "instead"]), row(["---"] * 2), *rows])


def page() -> str:
    """Return the page."""
    return TEXT.format(
        count=len(EXAMPLES) + len(ALIASES),
        works=works(),
        own=own(),
        reductions=", ".join(f"`{name}`" for name in REDUCTIONS),
        accumulations=", ".join(f"`{name}`" for name in ACCUMULATIONS),
        missing=missing(),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
