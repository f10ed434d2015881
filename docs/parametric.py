"""Parametric training graphs: a template that gives a family's graph for any choice of sizes.

Traces of one network with so many layers and with one more go in. They differ by copies of one
layer, in the sources, in the forward and in the backward pass, so that every number in them (a
value's id, the counter in a name) is ``a + b copies + c copy``. Extents, FLOPs and workspaces are
polynomials of the sizes with rational coefficients, fitted exactly to traces at several sizes: one
monomial where that will do. What comes out is plain data, which the calculator's page evaluates
(``template.js``).

A template that does not give the graphs of further traces, entry by entry, is an error here and
never a wrong number there. Workspaces of kernels that work in blocks are no polynomials: the page
has their rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations, groupby, product
from math import prod
from typing import Any, NamedTuple

from tinyckpt.base.tree import leaves
from tinyckpt.core.cuts import separators
from tinyckpt.core.graph import Graph, Operator

Sizes = dict[str, int]  # of a network, by symbol
Row = tuple[Any, tuple[int, ...]]  # what is the same in every graph of a family, and its numbers
NUMBER = re.compile(r"\d+")
LAYER = re.compile(r"layer(\d+)|params\['layers'\]\[(\d+)\]|params\[(\d+)\]")
HIGHEST = 2  # exponent of a symbol
MOST_TERMS = 3  # of a polynomial
# Kinds whose workspace depends on blocks, or is the larger of two amounts; and the FLOPs of some.
BY_RULE_WHOLLY = ("fused_attention", "fused_attention_vjp")
BY_RULE = (
    *BY_RULE_WHOLLY, "conv2d", "conv2d_input_vjp", "conv2d_weight_vjp", "max_pool", "max_pool_vjp",
    "causal_softmax", "cross_entropy_vjp", "take_vjp",
)  # fmt: skip


class Trace(NamedTuple):
    """A graph as rows, with the layer of each: 0 for what belongs to none."""

    graph: Graph
    rows: tuple[list[Row], list[Row]]  # values, operators
    layers: tuple[list[int], list[int]]


def skeleton(text: str) -> tuple[str, list[int]]:
    """Split a text into what surrounds its numbers, and its numbers.

    >>> skeleton("layer_norm_12_vjp_2")
    ('layer_norm_#_vjp_#', [12, 2])
    """
    return NUMBER.sub("#", text), [int(number) for number in NUMBER.findall(text)]


def traced(graph: Graph, layers: int) -> Trace:
    """Return a graph as rows: values, then operators."""
    gradients, separating = set(leaves(graph.gradients)), set(separators(graph))
    scopes = [layer_of(operator.scope, layers) for operator in graph.operators]
    data, of_data = [], []
    for node in graph.data:
        name, numbers = ("constant", []) if node.role == "constant" else skeleton(node.name)
        result = 2 if node.id in gradients else int(node.id in graph.outputs)
        separates, rank = int(node.id in separating), len(node.spec.shape)
        key = (name, node.role, str(node.spec.dtype), node.label, result, separates, rank)
        data.append((key, (*numbers, maybe(node.view_of), maybe(node.producer))))
        of_source = layer_of(node.name, layers, 1)
        of_data.append(of_source if node.producer is None else scopes[node.producer])
    operators = []
    for operator in graph.operators:
        name, numbers = skeleton(operator.name)
        scope, more = skeleton(operator.scope)
        if operator.regions:
            raise ValueError(f"{graph.name}: {operator.name} is in a region, which no template has")
        shape = (len(operator.inputs), len(operator.outputs))
        key = (name, operator.kind, scope, operator.phase, operator.once, *shape, facts(operator))
        wires = (*operator.inputs, *operator.outputs, maybe(operator.adjoint_of))
        operators.append((key, (*numbers, *more, *wires)))
    return Trace(graph, (data, operators), (of_data, scopes))


def maybe(number: int | None) -> int:
    """Return a number, or -1 for none."""
    return -1 if number is None else number


def layer_of(text: str, layers: int, first: int = 0) -> int:
    """Return the layer, from 1, that a scope or a source's path names; 0 if none."""
    found = LAYER.match(text)
    layer = first + int(next(filter(None, found.groups()))) if found else 0
    return layer if layer <= layers else 0


def facts(operator: Operator) -> list[int]:
    """Return what the rule of a workspace needs besides shapes: a stride of 1, padding, a mask."""
    attrs = operator.attrs
    if operator.kind in BY_RULE_WHOLLY:
        return [int(attrs["causal"])]
    if operator.kind.startswith("conv2d"):
        if attrs["dilation"] != (1, 1) or attrs["groups"] != 1:
            raise ValueError(f"{operator.name}: no rule is known for dilation and groups")
        return [int(attrs["stride"] == (1, 1)), max(attrs["padding"])]
    return []


# The structure: rows and their numbers ------------------------------------------------------------


def sections(
    rows: Sequence[Row], layers: Sequence[int], last: int
) -> list[tuple[bool, list[list[Row]]]]:
    """Split rows into stretches that every graph has, and runs of copies: layers 2 to ``last``."""
    found = []
    for is_copied, run in groupby(range(len(rows)), key=lambda i: 1 < layers[i] <= last):
        copies = [list(copy) for _, copy in groupby(run, key=lambda i: layers[i] * is_copied)]
        found.append((is_copied, [[rows[i] for i in copy] for copy in copies]))
    return found


def fitted(small: Sequence[Any], large: Sequence[Any]) -> list[tuple[bool, list[Any]]]:
    """Fit the numbers of rows to the sections of graphs with one copy of a layer, and with two.

    A number is ``a + b copies + c copy``, with each copy counted from 0 in the order of the rows.
    """
    if [(kind, len(copies[0])) for kind, copies in small] != [
        (kind, len(copies[0])) for kind, copies in large
    ]:
        raise ValueError("graphs with a layer more differ by more than its copy")
    found = []
    for (is_copied, [low]), (_, high) in zip(small, large, strict=True):
        rows = []
        for i, (key, numbers) in enumerate(low):
            ends = (numbers, high[0][i][1], high[-1][i][1])
            affine = [
                (2 * at - first, first - at, last - first if is_copied else 0)
                for at, first, last in zip(*ends, strict=True)
            ]
            rows.append((key, affine))
        found.append((is_copied, rows))
    return found


def unrolled(template: Sequence[tuple[bool, list[Any]]], copies: int) -> list[Row]:
    """Return the rows of a template for a number of copies."""
    return [
        (key, tuple(a + b * copies + c * copy for a, b, c in affine))
        for is_copied, rows in template
        for copy in range(copies if is_copied else 1)
        for key, affine in rows
    ]


# The sizes: polynomials ---------------------------------------------------------------------------


class Polynomials:
    """Exact fit of integers at several sizes by polynomials of the symbols, each kept once.

    A polynomial is a list of terms ``(numerator, denominator, exponents)``.
    """

    def __init__(self, samples: Sequence[Sizes]) -> None:
        self.samples = samples
        self.symbols = list(samples[0])
        self.known: dict[Any, int] = {}
        self.monomials: dict[tuple[Fraction, ...], tuple[int, ...]] = {}
        powers = product(range(HIGHEST + 1), repeat=len(self.symbols))
        for exponents in sorted(powers, key=sum):
            self.monomials.setdefault(normal(self.values(exponents)), exponents)

    def values(self, exponents: Sequence[int]) -> list[int]:
        """Return a monomial at every sample."""
        return [
            prod(size**power for size, power in zip(sample.values(), exponents, strict=True))
            for sample in self.samples
        ]

    def fit(self, numbers: Sequence[int], candidates: Iterable[tuple[int, ...]] = ()) -> int:
        """Return the index of the polynomial that is these numbers at the samples.

        Raises:
            ValueError: if none is, with a few of the candidates' monomials.
        """
        terms = self.single(numbers) or self.several(numbers, list(dict.fromkeys(candidates)))
        return self.known.setdefault(tuple(terms), len(self.known))

    def single(self, numbers: Sequence[int]) -> list[Any]:
        exponents = self.monomials.get(normal(numbers)) if all(numbers) else None
        if exponents is None:
            return [] if any(numbers) else [(0, 1, (0,) * len(self.symbols))]
        ratio = Fraction(numbers[0], self.values(exponents)[0])
        return [(ratio.numerator, ratio.denominator, exponents)]

    def several(self, numbers: Sequence[int], candidates: list[tuple[int, ...]]) -> list[Any]:
        columns = {exponents: self.values(exponents) for exponents in candidates}
        for count in range(2, MOST_TERMS + 1):
            for chosen in combinations(candidates, count):
                rows = zip(*(columns[each] for each in chosen), strict=True)
                if ratios := solution(list(rows), numbers):
                    return [
                        (ratio.numerator, ratio.denominator, exponents)
                        for ratio, exponents in zip(ratios, chosen, strict=True)
                        if ratio
                    ]
        raise ValueError(f"no polynomial of {', '.join(self.symbols)} is {list(numbers)}")

    def at(self, index: int, sizes: Sizes) -> Fraction:
        """Evaluate a polynomial."""
        terms = list(self.known)[index]
        return sum(
            (
                Fraction(above, below)
                * prod(sizes[s] ** p for s, p in zip(self.symbols, powers, strict=True))
                for above, below, powers in terms
            ),
            Fraction(0),
        )


def normal(numbers: Sequence[int]) -> tuple[Fraction, ...]:
    """Return numbers in proportion to the first, by which multiples of a monomial are found."""
    return tuple(Fraction(number, numbers[0]) for number in numbers) if numbers[0] else ()


def solution(rows: Sequence[Sequence[int]], right: Sequence[int]) -> list[Fraction]:
    """Solve a linear system of as many equations or more exactly, by Gauss-Jordan elimination.

    In integers, without a division. Empty if no solution satisfies all equations, or several do.
    """
    matrix = [[*row, value] for row, value in zip(rows, right, strict=True)]
    count = len(rows[0])
    for column in range(count):
        pivot = next((i for i in range(column, len(matrix)) if matrix[i][column]), None)
        if pivot is None:
            return []
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        top = matrix[column]
        for i, row in enumerate(matrix):
            if i != column and (lead := row[column]):
                matrix[i] = [top[column] * x - lead * y for x, y in zip(row, top, strict=True)]
    if any(row[-1] for row in matrix[count:]):
        return []
    return [Fraction(row[-1], row[i]) for i, row in enumerate(matrix[:count])]


def subproducts(extents: Sequence[tuple[int, ...]], symbols: int) -> list[tuple[int, ...]]:
    """Return the products of some of a value's extents, as exponents."""
    found = [(0,) * symbols]
    for extent in extents:
        found += [tuple(map(sum, zip(one, extent, strict=True))) for one in found]
    return list(dict.fromkeys(found))


# The template -------------------------------------------------------------------------------------


def template(
    trace: Callable[[int, Sizes], Graph], samples: Sequence[Sizes], least: int = 1
) -> dict[str, Any]:
    """Derive a family's template, and verify it on graphs with no copy and with four.

    Args:
        trace: the graph for a number of layers and sizes.
        samples: sizes to fit, and as the last one those to verify.
        least: the smallest number of layers: 1; 2 where the last one is read as no other is; 0 for
            a network without layers to repeat.

    Raises:
        ValueError: if no template fits.
    """
    *fitting, further = samples
    low = [traced(trace(least + 1, sizes), least + 1) for sizes in fitting]
    high = traced(trace(least + 2, fitting[0]), least + 2) if least else low[0]
    rows = []
    for part in (0, 1):
        ends = zip((low[0], high), (2, 3), strict=True)
        rows.append(fitted(*(sections(t.rows[part], t.layers[part], end) for t, end in ends)))
    fit = Polynomials(fitting)
    extents = [
        [fit.fit(each) for each in zip(*(node.spec.shape for node in nodes), strict=True)]
        for nodes in zip(*(t.graph.data for t in low), strict=True)
    ]
    operators = zip(*(t.graph.operators for t in low), strict=True)
    costs = [costs_of(fit, each, extents) for each in operators]
    made = {
        "least": least,
        "symbols": fit.symbols,
        "data": with_sizes(rows[0], extents),
        "operators": with_sizes(rows[1], costs),
        "polynomials": [list(terms) for terms in fit.known],
    }
    for copies, sizes in ((0, fitting[1]), (4, further)) if least else ((0, further),):
        verify(made, fit, trace(least + copies, sizes), copies, sizes)
    return made


def costs_of(
    fit: Polynomials, operators: Sequence[Operator], extents: list[list[int]]
) -> list[int]:
    """Return the polynomials of an operator's FLOPs and workspace; -1 for a rule of the page."""
    first = operators[0]
    terms = list(fit.known)
    shapes = [[terms[i][0][2] for i in extents[data]] for data in (*first.inputs, *first.outputs)]
    candidates = [p for shape in shapes for p in subproducts(shape, len(fit.symbols))]
    if first.kind.startswith(
        "conv2d"
    ):  # each element of the result is a sum over the weight's other axes
        result, inner = shapes[-1], shapes[1][1:]
        candidates.append(tuple(map(sum, zip(*result, *inner, strict=True))))
    return [
        -1 if first.kind in by_rule else fit.fit([getattr(o, what) for o in operators], candidates)
        for what, by_rule in (("flops", BY_RULE_WHOLLY), ("workspace", BY_RULE))
    ]


def with_sizes(sections: list[tuple[bool, list[Any]]], sizes: list[list[int]]) -> list[Any]:
    """Add the sizes to each row of a template."""
    own = iter(sizes)
    return [(is_copied, [(*row, next(own)) for row in rows]) for is_copied, rows in sections]


def verify(made: dict[str, Any], fit: Polynomials, graph: Graph, copies: int, sizes: Sizes) -> None:
    """Raise a ValueError unless a template gives a graph: all rows, extents, FLOPs, workspaces."""
    expected = traced(graph, made["least"] + copies)
    for part, nodes in enumerate((graph.data, graph.operators)):
        template = made[("data", "operators")[part]]
        if (
            unrolled([(copied, [row[:2] for row in rows]) for copied, rows in template], copies)
            != (expected.rows[part])
        ):
            raise ValueError(f"{graph.name}: the template's rows are not those of the graph")
        own = [
            row[2]
            for copied, rows in template
            for _ in range(copies if copied else 1)
            for row in rows
        ]
        for node, indices in zip(nodes, own, strict=True):
            known = node.spec.shape if part == 0 else (node.flops, node.workspace)
            if any(i >= 0 and fit.at(i, sizes) != x for i, x in zip(indices, known, strict=True)):
                raise ValueError(f"{graph.name}: {node.name} has other sizes than its template")


# What the page reads ------------------------------------------------------------------------------


def compact(made: dict[str, Any]) -> dict[str, Any]:
    """Write a template as plain data that deflates well: keys once, wires relative to their row.

    A row is the index of its key, its numbers, and the polynomials of its sizes. A number is an
    integer, or ``[a, b, c]`` where it changes with the copies. Outputs follow from their order.
    """
    keys: dict[str, int] = {}
    parts: dict[str, list[Any]] = {}
    for part in ("data", "operators"):
        fixed = each = 0  # rows so far, and of them in each copy
        parts[part] = []
        for is_copied, rows in made[part]:
            written = []
            for place, (key, numbers, sizes) in enumerate(rows):
                own = (fixed + place, each, len(rows) * is_copied)
                relative = by_value if part == "data" else by_operator
                index = keys.setdefault(json.dumps(key), len(keys))
                written.append([index, *map(plain, relative(key, numbers, own)), *sizes])
            fixed, each = fixed + len(rows) * (not is_copied), each + len(rows) * is_copied
            parts[part].append([int(is_copied), written])
    listed = [json.loads(key) for key in keys]
    return {**made, **parts, "keys": listed}


Affine = tuple[int, int, int]


def by_value(key: Any, numbers: Sequence[Affine], own: Affine) -> list[Affine]:
    """Return a value's numbers with the distance to what it is a view of, 0 for none."""
    *name, view, _ = numbers
    return [*name, (0, 0, 0) if view[0] < 0 and not any(view[1:]) else distance(own, view)]


def by_operator(key: Any, numbers: Sequence[Affine], own: Affine) -> list[Affine]:
    """Return an operator's numbers with distances: first output to inputs, itself to adjoint."""
    inputs, outputs = key[5:7]
    *rest, adjoint = numbers
    name, wires = rest[: -inputs - outputs], rest[len(rest) - inputs - outputs :]
    last = (0, 0, 0) if adjoint[0] < 0 and not any(adjoint[1:]) else distance(own, adjoint)
    return [*name, *(distance(wires[inputs], wire) for wire in wires[:inputs]), last]


def distance(one: Affine, other: Affine) -> Affine:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def plain(number: Affine) -> Any:
    """Return a number that is the same in every graph as itself."""
    return list(number) if any(number[1:]) else number[0]
