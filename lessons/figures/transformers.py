"""Activation memory of a transformer block: sbh(34 + 5as/h), term by term, from its graph.

The block is that of the paper, at 16 bits: separate products for queries, keys and values, dropout
of the weights and after both sublayers. s tokens, a batch of b, a heads, a width of h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tinyckpt as tc
from lessons.figures.figure import Figure, measured, percent, rows

PAPER = "Korthikanti et al. 2022, arXiv 2205.05198"
RATE = 0.1  # of dropout; any


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer's shape: tokens, batch, heads, width."""

    s: int
    b: int
    a: int
    h: int

    @property
    def sbh(self) -> int:
        """Elements of one value of the residual stream."""
        return self.s * self.b * self.h

    @property
    def as2b(self) -> int:
        """Elements of the attention weights of all heads."""
        return self.a * self.s**2 * self.b


GPT3 = Shape(s=2048, b=1, a=96, h=12288)
MT_NLG = Shape(s=2048, b=1, a=128, h=20480)
SMALL = Shape(s=128, b=4, a=4, h=256)  # to run


def graph_of(shape: Shape, dtype: str = "float16") -> tc.TrainingGraph:
    """Return the training graph of a block; saved values are labelled with the paper's terms."""
    s, b, a, h = shape.s, shape.b, shape.a, shape.h

    def by_head(x: Any) -> Any:
        return tc.transpose(tc.reshape(x, (b, s, a, h // a)), (0, 2, 1, 3))

    def block(p: Any, x: Any) -> Any:
        x = tc.name(x * 1.0, "norm 1: input")
        y = tc.name(tc.layer_norm(x, p["g1"], p["c1"]), "attention: input")
        q, k, v = (by_head(y @ p[w]) for w in ("q", "k", "v"))
        q, k = tc.name(q * (h // a) ** -0.5, "attention: query"), tc.name(k, "attention: key")
        weights = tc.name(tc.causal_softmax(q @ k.mT), "core: softmax output")
        weights = tc.name(tc.dropout(weights, RATE, seed=1), "core: dropout output")
        mixed = tc.transpose(weights @ tc.name(v, "attention: value"), (0, 2, 1, 3))
        mixed = tc.name(tc.reshape(mixed, (b * s, h)), "attention: projection's input")
        x = tc.name(x + tc.dropout(mixed @ p["o"], RATE, seed=2), "norm 2: input")
        y = tc.name(tc.layer_norm(x, p["g2"], p["c2"]), "perceptron: input")
        hidden = tc.name(y @ p["w1"] + p["b1"], "perceptron: gelu's input")
        hidden = tc.name(tc.gelu(hidden), "perceptron: gelu's output")
        return x + tc.dropout(hidden @ p["w2"] + p["b2"], RATE, seed=3)

    def spec(*extents: int) -> tc.Spec:
        return tc.Spec(extents, dtype)

    params = {
        **{name: spec(h, h) for name in ("q", "k", "v", "o")},
        **{name: spec(h) for name in ("g1", "c1", "g2", "c2", "b2")},
        "w1": spec(h, 4 * h), "b1": spec(4 * h), "w2": spec(4 * h, h),
    }  # fmt: skip
    return tc.differentiate(tc.build(lambda p, x: tc.sum(block(p, x)), params, spec(b * s, h)))


def label_of(graph: tc.Graph, node: tc.DataNode) -> str:
    """Return the term of a value: its own label, or that of a view of its memory."""
    if node.label is not None:
        return node.label
    for other in graph.data:
        if other.label is not None and memory_of(graph, other) == node.id:
            return other.label
    return "norm: mean and deviation" if "layer_norm" in node.name else node.name


def memory_of(graph: tc.Graph, node: tc.DataNode) -> int:
    """Return the value that owns the memory of a value."""
    while node.view_of is not None:
        node = graph.data[node.view_of]
    return node.id


def kept(graph: tc.Graph) -> dict[str, int]:
    """Return the bytes that store-all saves, by the paper's terms."""
    found: dict[str, int] = {}
    for node in tc.saved_values(graph):
        if node.role == "activation":
            label = label_of(graph, node)
            found[label] = found.get(label, 0) + node.nbytes
    return found


def masks(graph: tc.Graph) -> dict[str, int]:
    """Return the bytes of one-byte masks, one for each dropout of the graph."""
    sizes = [
        graph.data[operator.outputs[0]].spec.size
        for operator in graph.operators[: graph.forward_count]
        if operator.kind == "dropout"
    ]
    names = ("core: mask", "attention: mask", "perceptron: mask")
    return dict(zip(names, sizes, strict=True))


def term(nbytes: int, shape: Shape) -> str:
    """Return bytes in the paper's units: ``2sbh``, ``2as²b``."""
    for unit, size in (("as²b", shape.as2b), ("sbh", shape.sbh), ("sb", shape.s * shape.b)):
        if nbytes and nbytes % size == 0:
            factor = nbytes // size
            return unit if factor == 1 else f"{factor}{unit}"
    return "0" if nbytes == 0 else f"{nbytes:,} bytes"


def terms() -> str:
    """Return the table of the terms, for GPT-3's shape."""
    graph = graph_of(GPT3)
    here, drawn = kept(graph), masks(graph)
    body = []
    for name, nbytes in {**here, **drawn}.items():
        published = 0 if name.startswith("norm: ") else nbytes
        why = {
            "mask": "regenerated from its seed",
            "mean and deviation": "two float32 per row, which the paper neglects",
            "query": "the scaled query, in place of the query",
        }.get(name.partition(": ")[2], "")
        ours = 0 if name in drawn else nbytes
        body.append([name, term(published, GPT3), term(ours, GPT3), why])
    body.sort(key=lambda row: str(row[0]))
    sizes = {"paper": published_bytes(graph, GPT3), "here": sum(here.values())}
    of_sbh = {who: nbytes / GPT3.sbh for who, nbytes in sizes.items()}
    body.append(["total, GPT-3", *(f"{of_sbh[who]:.2f} sbh" for who in ("paper", "here")), ""])
    return rows(("saved value", "paper", "here", "note"), body)


def published_bytes(graph: tc.Graph, shape: Shape) -> int:
    """Return the graph's saved bytes as the paper counts: with masks, without norm statistics."""
    here = kept(graph)
    here.pop("norm: mean and deviation")
    return sum(here.values()) + sum(masks(graph).values())


def core_of(graph: tc.Graph) -> int:
    """Return the bytes of the attention core as the paper counts them."""
    parts = {**kept(graph), **masks(graph)}
    return sum(nbytes for name, nbytes in parts.items() if name.startswith("core"))


def selective(graph: tc.TrainingGraph) -> tc.Schedule:
    """Return the schedule that recomputes the core and nothing else."""
    chosen = [
        node.id
        for node in tc.saved_values(graph)
        if not node.is_source and not label_of(graph, node).startswith("core")
    ]
    return tc.plan(graph, "retain", keep=chosen)


def extra_products(graph: tc.Graph, schedule: tc.Schedule) -> tuple[float, float]:
    """Return shares of all products' FLOPs: those that a schedule recomputes; the core's two.

    The core's products have four axes; the others are of matrices.
    """
    products = [o for o in graph.operators if o.kind == "matmul"]
    once = sum(operator.flops for operator in products)
    made = sum(
        graph.operators[step.operator].flops
        for step in schedule.steps
        if isinstance(step, tc.Compute) and graph.operators[step.operator].kind == "matmul"
    )
    core = [
        operator.flops
        for operator in products
        if operator.phase == "forward" and len(graph.data[operator.inputs[1]].spec.shape) == 4
    ]
    assert len(core) == 2
    return made / once - 1, sum(core) / once


def figures() -> list[Figure]:
    """Return the rows."""
    found = []
    small = graph_of(SMALL, "float32")
    specs = tc.tree.map_leaves(lambda data: small.data[data].spec, tuple(small.arguments))
    args = tc.networks.random_arrays(specs)
    for shape, name in ((GPT3, "GPT-3's"), (MT_NLG, "MT-NLG's")):
        graph = graph_of(shape)
        counted = published_bytes(graph, shape)
        formula = shape.sbh * 34 + 5 * shape.as2b
        found.append(
            Figure(
                f"a layer of {name} shape stores sbh(34 + 5as/h) = {formula / shape.sbh:.0f} sbh",
                PAPER,
                f"{counted / shape.sbh:.2f} sbh with one-byte masks; "
                f"{sum(kept(graph).values()) / shape.sbh:.2f} sbh as implemented",
                counted == formula,
                "Term by term, in the table below; here no mask is saved.",
                f"a block of {SMALL.s} tokens: " + measured(tc.plan(small), *args)
                if shape is GPT3
                else "",
            )
        )
    for shape, name, share, published in (
        (GPT3, "GPT-3's", 0.702, 0.027),
        (MT_NLG, "MT-NLG's", 0.653, 0.016),
    ):
        found += selective_rows(graph_of(shape), shape, name, share, published)
    return found


def selective_rows(
    graph: tc.TrainingGraph, shape: Shape, name: str, share: float, published: float
) -> list[Figure]:
    """Return the rows of recomputing the attention core of a shape."""
    core = core_of(graph) / published_bytes(graph, shape)
    here = kept(graph)
    own = sum(n for label, n in here.items() if label.startswith("core")) / sum(here.values())
    schedule = selective(graph)
    left = sum(graph.data[data].nbytes for data in schedule.checkpoints)
    extra, both = extra_products(graph, schedule)
    return [
        Figure(
            f"the attention core is {percent(share)} of {name} activations",
            PAPER,
            f"{percent(core)} with masks, {percent(own)} without; {left / shape.sbh:.0f} sbh left",
            round(core, 3) == share,
            "Recompute what is large and cheap: two products of scores and a softmax.",
        ),
        Figure(
            f"recomputing it takes {percent(published)} more FLOPs",
            PAPER,
            f"{percent(both, 2)} of all products for the core's two; {percent(extra, 2)} for the "
            f"one that is recomputed; s/6h = {percent(shape.s / (6 * shape.h), 2)}",
            round(both, 3) == published,
            "The published value is s/6h; 4bs²h over 72bsh²(1 + s/6h) is a third of it. And the "
            "second product need not be recomputed: the projection's input is saved.",
        ),
    ]
