"""Activation memory of a transformer layer, term by term against Korthikanti et al.

Per layer sbh(34 + 5as/h) bytes at 16 bits: 11sbh + 5as²b of attention, 19sbh of the perceptron,
4sbh of two norms (arXiv 2205.05198, section 4.1). Norms are not here.
"""

import doctest
from pathlib import Path
from typing import Any

import tinyckpt as tc

S, B, A, H = 32, 3, 4, 64
SBH, AS2B = S * B * H, A * S * S * B
ROWS, HEAD = (B * S, H), (B, S, A, H // A)


def kept(graph: tc.Graph) -> dict[str, int]:
    """Return the forward values' bytes that the backward pass reads, by label."""
    read = {data for o in graph.operators if o.phase == "backward" for data in o.inputs}
    owners = set()
    for data in read:
        while (base := graph.data[data].view_of) is not None:
            data = base
        owners.add(data)
    nodes = [graph.data[data] for data in sorted(owners)]
    return {n.label or n.name: n.nbytes for n in nodes if n.role == "activation"}


def heads(x: Any) -> Any:
    """Return rows of the width as heads."""
    return tc.transpose(tc.reshape(x, HEAD), (0, 2, 1, 3))


def rows(x: Any) -> Any:
    """Return heads as rows of the width."""
    return tc.reshape(tc.transpose(x, (0, 2, 1, 3)), ROWS)


def core(q: Any, k: Any, v: Any) -> Any:
    """Return attention with dropout of the weights, as the paper has it."""
    weights = tc.name(tc.causal_softmax((q * 0.25) @ k.mT), "softmax's output")
    return tc.name(tc.dropout(weights, 0.1, seed=1), "dropout's output") @ v


def attention_kept(form: Any) -> dict[str, int]:
    """Return an attention layer's saved values: projections, the form, a projection, dropout."""
    w = tc.Spec((H, H), "float16")

    def layer(wq: Any, wk: Any, wv: Any, wo: Any, x: Any) -> Any:
        x = tc.name(x * 1.0, "input")  # an activation, as behind a norm
        q, k, v = (heads(tc.name(x @ w, n)) for w, n in ((wq, "query"), (wk, "key"), (wv, "value")))
        return tc.sum(tc.dropout(rows(form(q, k, v)) @ wo, 0.1, seed=2))

    built = tc.build(layer, w, w, w, w, tc.Spec(ROWS, "float16"))
    return kept(tc.differentiate(built, (0, 1, 2, 3, 4)))


def test_attention_layer_saves_published_bytes_except_masks() -> None:
    assert attention_kept(core) == {
        "input": 2 * SBH,
        "multiply_2": 2 * SBH,  # the query, scaled
        "key": 2 * SBH,
        "value": 2 * SBH,
        "softmax's output": 2 * AS2B,
        "dropout's output": 2 * AS2B,
        "contiguous_1": 2 * SBH,  # the projection's input
    }
    # Of 11sbh + 5as²b there are 10sbh + 4as²b: a mask, a byte per element, is regenerated.
    assert sum(attention_kept(core).values()) == 10 * SBH + 4 * AS2B


def test_unfused_saves_weights_and_fused_saves_one_number_per_row() -> None:
    unfused = attention_kept(lambda q, k, v: tc.attention(q, k, v, causal=True))
    assert sum(unfused.values()) == 10 * SBH + 2 * AS2B
    assert unfused["attention_scores"] == 2 * AS2B
    fused = attention_kept(lambda q, k, v: tc.attention(q, k, v, causal=True, fused=True))
    assert fused == {
        "input": 2 * SBH,
        "query": 2 * SBH,
        "key": 2 * SBH,
        "value": 2 * SBH,
        "fused_attention_1.0": 2 * SBH,
        "fused_attention_1.1": 4 * A * S * B,
        # The projection's input: the output again, with the heads of a token side by side.
        "contiguous_1": 2 * SBH,
    }


def test_mlp_saves_published_bytes_except_mask() -> None:
    def layer(w1: Any, w2: Any, x: Any) -> Any:
        x = tc.name(x * 1.0, "input")
        hidden = tc.name(x @ w1, "gelu's input")
        return tc.sum(tc.dropout(tc.name(tc.gelu(hidden), "gelu's output") @ w2, 0.1, seed=3))

    wide, tall = tc.Spec((H, 4 * H), "float16"), tc.Spec((4 * H, H), "float16")
    graph = tc.differentiate(tc.build(layer, wide, tall, tc.Spec(ROWS, "float16")), (0, 1, 2))
    assert kept(graph) == {
        "input": 2 * SBH,
        "gelu's input": 8 * SBH,
        "gelu's output": 8 * SBH,
    }  # of 19sbh, 18: again the mask


def test_attention_page_documents_the_counted_values() -> None:
    page = Path(__file__).parents[3] / "docs" / "attention.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert (failed, tried > 5) == (0, True)
