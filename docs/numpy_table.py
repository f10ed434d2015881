"""Generator of docs/numpy.md, the table of NumPy functions that accept traced values.

The rows come from the tested examples and from the dispatch tables of NumPy's protocols::

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
from tinyckpt.ops.numpy_names import ACCUMULATIONS, REDUCTIONS, REPLACEMENTS  # noqa: E402

PAGE = HERE / "numpy.md"
TEXT = """# NumPy functions

A traced function may be written with NumPy's own functions: `np.tanh(x)` of a traced value `x` adds
the operator that `tc.tanh(x)` adds. {count} names work. `python docs/numpy_table.py` generates this
page from the tested examples: each is compared with NumPy in values, dtype and shape, its first and
second derivative with finite differences, and it runs on a backend that refuses NumPy's arrays, as
CuPy does.

Below, `tc` marks names that the package has too, and `x.` methods of values. `np.ndim`, `np.shape`
and `np.size` return Python numbers, as usual; `@`, `//`, `%`, `**`, `&`, `|`, `~`, comparisons,
`abs(x)` and `round(x)` work as on arrays.

## Supported

{works}

Only tinyckpt has {own}.

Arguments that write in place (`out=`), mask elements (`where=`) or convert the result (`dtype=`)
are refused with an alternative. Of the ufunc methods, `outer`, `reduce` (of {reductions}) and
`accumulate` (of {accumulations}) are supported.

## Indices

`x[key]` takes integers, slices, `None` and `...`, which return views, and arrays of integers, lists
and traced values, which copy: `table[tokens]`, `x[rows, columns]`, `x[:, 0, places]`, by NumPy's
rules. Elements selected twice accumulate both cotangents. A constant index array is checked when
the graph is built. An index that is data is checked by NumPy when it is used; CuPy wraps it around.
A boolean mask is refused, since the shape of the result would depend on the data: use
`tc.where(mask, x, other)`.

## Dtypes

Promotion is NumPy's (NEP 50): Python scalars take the dtype of the array, NumPy scalars keep
theirs, and integers become the floats that NumPy computes in. Differences: `sum`, `prod` and
similar reductions of `uint8` are `int64` (graphs have no `uint64`), and arithmetic refuses
booleans.

## Nondifferentiable points

The derivative is 0 where a function jumps or is flat: `sign`, `floor`, `ceil`, `trunc`, `round` and
`//`; `argmax`, `argsort` and comparisons have none. At a kink it is 0 for `abs`, `relu` and a norm
at 0. Tied elements share it: in `max`, `min`, `maximum`, `minimum`, and in `clip` at a bound. `std`
has none where all elements are equal, `hypot` and `arctan2` none at the origin: the result is NaN.

## Not supported

{missing}

All other NumPy functions, such as `np.fft.fft`, refuse traced values and point here.
"""


def row(cells: list[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def has(owner: object, name: str) -> bool:
    """Whether a dotted name exists and is callable or a property."""
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return callable(owner) or isinstance(owner, property)


def works() -> str:
    """Return the table of supported names."""
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
    """Return the functions that NumPy lacks."""
    families = ("activation", "elementwise_functions", "nn", "random", "statistics")
    names = [
        name
        for name in tc.__all__
        if getattr(getattr(tc, name), "__module__", "").removeprefix("tinyckpt.ops.") in families
        and name not in EXAMPLES
    ]
    *most, last = (f"`{name}`" for name in names)
    return f"{', '.join(most)} and {last}"


def missing() -> str:
    """Return the table of unsupported names with their alternatives."""
    rows = [row([f"`{name}`", REPLACEMENTS[name]]) for name in sorted(REPLACEMENTS)]
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
