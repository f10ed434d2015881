"""Common statements about checkpointing that can be counted, checked by the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

import tinyckpt as tc
from lessons.figures import transformers
from lessons.figures.figure import Figure, percent
from tinyckpt.networks import mlp

TAUGHT = "commonly taught"
LAYERS, SQUARE, ROWS = 16, tc.Spec((64, 64)), tc.Spec((1024, 64))


def deep(params: Any, x: Any) -> Any:
    """Return the output of a chain of linear layers with tanh."""
    for w in params:
        x = tc.tanh(x @ w)
    return x


def graph_of(function: Any) -> tc.TrainingGraph:
    """Return the training graph of a function of many layers, squared and summed."""

    def loss(params: Any, x: Any) -> Any:
        return tc.half_squared_norm(function(params, x))

    return tc.differentiate(tc.build(loss, [SQUARE] * LAYERS, ROWS))


def figures() -> list[Figure]:
    """Return the rows."""
    return [
        adjoints(), lone(), whole(), expensive(), reentrant(), sweep(), forward_only(), saveable(),
        elsewhere(), pieces(),
    ]  # fmt: skip


def adjoints() -> Figure:
    """Return the row of the dependencies of recomputation."""
    graph = graph_of(deep)
    schedule = tc.plan(graph, "recompute_all")
    computed = [step.operator for step in schedule.steps if isinstance(step, tc.Compute)]
    again = [o for i, o in enumerate(computed) if o in set(computed[:i])]
    reads = sum(
        graph.data[data].role == "cotangent" for o in again for data in graph.operators[o].inputs
    )
    return Figure(
        "recomputation is independent of the backward pass",
        TAUGHT,
        f"{len(again)} recomputations read {reads} cotangents",
        reads == 0,
        "It is independent of cotangents and can begin before they arrive. The backward pass "
        "determines when it is needed, and what it may evict.",
    )


def lone() -> Figure:
    """Return the row of one linear layer in a checkpoint of its own."""

    def marked(params: Any, x: Any) -> Any:
        for w in params:
            x = tc.checkpoint(lambda x, w: x @ w)(x, w)
        return x

    graph = graph_of(marked)
    peaks = [tc.replay(tc.plan(graph, policy)).peak_bytes for policy in ("store_all", "regions")]
    return Figure(
        "checkpointing a lone linear layer saves memory",
        TAUGHT,
        f"{peaks[0] - peaks[1]} bytes of {peaks[0]:,} saved",
        peaks[1] < peaks[0],
        "Its input is saved in either case, and its output if another adjoint reads it.",
    )


def whole() -> Figure:
    """Return the row of one checkpoint around everything."""
    graph = graph_of(tc.checkpoint(deep))
    stored, once = (tc.replay(tc.plan(graph, policy)) for policy in ("store_all", "regions"))
    per_block = tc.replay(tc.plan(graph, "sqrt_n"))
    return Figure(
        "wrapping the whole model in one checkpoint saves memory",
        TAUGHT,
        f"peak {once.peak_bytes:,} bytes, with store-all {stored.peak_bytes:,}, with √n "
        f"{per_block.peak_bytes:,}; {once.recomputations} recomputations",
        once.peak_bytes < 0.9 * stored.peak_bytes,
        "All of it is recomputed before the first adjoint runs. Wrap blocks instead.",
    )


def expensive() -> Figure:
    """Return the row of the values to recompute in a transformer block."""
    graph = transformers.graph_of(transformers.GPT3)
    core = transformers.core_of(graph) / transformers.published_bytes(graph, transformers.GPT3)
    _, both = transformers.extra_products(graph, transformers.selective(graph))
    return Figure(
        "recompute what is expensive to compute",
        TAUGHT,
        f"GPT-3's attention core: {percent(core)} of bytes, {percent(both, 2)} of products' FLOPs",
        both > core,
        "The reverse: recompute what is large and cheap, keep the results of matrix products.",
    )


def reentrant() -> Figure:
    """Return the row of bitwise equality of gradients."""
    network = mlp(8, 32)
    graph, args = network.graph(), network.arrays()
    results = [
        [g.tobytes() for g in tc.tree.leaves(tc.run(tc.plan(graph, policy), *args).gradients)]
        for policy in ("store_all", "sqrt_n", "recompute_all", "chen_recursive")
    ]
    same = all(result == results[0] for result in results)
    return Figure(
        "recomputed gradients are inexact",
        TAUGHT,
        "the same operators on the same values",
        not same,
        "With deterministic kernels they are bitwise equal, reentrant or not. PyTorch's reentrant "
        "form omits gradients where no input requires one.",
        "bitwise equal under 4 policies" if same else "bits differ",
    )


def sweep() -> Figure:
    """Return the row of the memory against the number of segments."""
    graph = tc.networks.chain(64)
    peaks = {
        count: tc.replay(tc.plan(graph, "sqrt_n", segments=count)).peak_nodes
        for count in (1, 2, 4, 8, 16, 32, 64)
    }
    values = list(peaks.values())
    best = values.index(min(values))
    return Figure(
        "more checkpoints, more memory: so bisect for the number that fits",
        TAUGHT,
        ", ".join(map(str, values)) + " nodes for " + ", ".join(map(str, peaks)) + " segments",
        values == sorted(values),
        "It is U-shaped: fewer checkpoints make longer segments."
        if 0 < best < len(values) - 1
        else "It falls.",
    )


def forward_only() -> Figure:
    """Return the row of the position of the peak."""
    graph = graph_of(deep)
    trace = tc.replay(tc.plan(graph, "sqrt_n"))
    first = next(
        position
        for position, step in enumerate(trace.steps)
        if isinstance(step, tc.Compute) and step.operator >= graph.forward_count
    )
    forward = max(trace.live_bytes[:first])
    return Figure(
        "measuring the forward pass gives the peak",
        TAUGHT,
        f"{forward:,} bytes in the forward pass, {trace.peak_bytes:,} total",
        trace.peak_step < first,
        "The peak is in the backward pass, where a segment is resident again, with cotangents.",
    )


def saveable() -> Figure:
    """Return the row of the meaning of a policy's name."""
    graph = graph_of(deep)
    counts = {
        rule: tc.replay(tc.plan(graph, "saveable", rule=rule)).recomputations
        for rule in ("everything_saveable", "nothing_saveable")
    }
    return Figure(
        "`everything_saveable` checkpoints everything",
        TAUGHT,
        ", ".join(f"{rule}: {count} recomputations" for rule, count in counts.items()),
        counts["everything_saveable"] > 0,
        "It means that everything may be saved: nothing is recomputed.",
    )


def elsewhere() -> Figure:
    """Return the row of layers that run on the CPU without gradients."""
    graph = graph_of(deep)
    moved = tc.replay(tc.plan(graph, "offload"))
    half = LAYERS // 2
    upper = tc.differentiate(
        tc.build(lambda params, h: tc.half_squared_norm(deep(params, h)), [SQUARE] * half, ROWS)
    )
    every, trained = (len(tc.tree.leaves(known.gradients)) for known in (graph, upper))
    stored = tc.replay(tc.plan(graph)).peak_bytes
    return Figure(
        "running layers on the CPU, without gradients, offloads them",
        TAUGHT,
        f"half of the layers on the CPU: {trained} of {every} gradients; with activations on the "
        f"host {len(tc.tree.leaves(moved.graph.gradients))}, and a peak of {moved.peak_bytes:,} "
        f"bytes instead of {stored:,}",
        trained == every,
        "A value computed elsewhere without gradients is an input, and nothing before it is "
        "trained. Offload copies saved values to the host, and fetches them.",
    )


def pieces() -> Figure:
    """Return the row of attention over chunks of a sequence."""
    x = np.random.default_rng(0).normal(size=(1, 8, 4))
    w = np.random.default_rng(1).normal(size=(4, 4))

    def attention(x: Any, w: Any) -> Any:
        return tc.attention(x @ w, x, x)

    def perceptron(x: Any, w: Any) -> Any:
        return tc.gelu(x @ w)

    off = {}
    for function in (attention, perceptron):
        called = tc.jit(function)
        whole = called(x, w)
        off[function] = abs(
            np.concatenate([called(part, w) for part in np.split(x, 2, axis=1)], 1) - whole
        )
    try:
        tc.build(tc.chunked(attention, 2, axis=1), x, w)
        refused = "not refused"
    except tc.GraphError as error:
        refused = str(error)
    equal = float(off[perceptron].max()) < 1e-12
    return Figure(
        "a long sequence can be processed in chunks, with any layer",
        TAUGHT,
        f"`tc.chunked` of attention: {refused}",
        float(off[attention].max()) < 1e-12,
        "Each token attends to all others. Token-wise layers can be chunked: perceptrons, norms "
        "of a token, the loss.",
        f"by hand, attention is off by up to {off[attention].max():.1f}, a perceptron "
        + ("not at all" if equal else "as well"),
    )
