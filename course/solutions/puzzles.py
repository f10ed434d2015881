"""An answer to each puzzle, at its proven optimum: ``tinyckpt puzzle N`` states it."""

from math import comb

import tinyckpt as tc
from tinyckpt.pipeline import one_f_one_b, zb_h1


def recompute_from_the_input(graph):
    """Before each backward operator, evaluate again the layers whose output it reads."""
    layers = graph.forward_count
    order = [f"f{layer}" for layer in range(1, layers + 1)] + ["l", f"b{layers}"]
    for layer in range(layers - 1, 0, -1):
        order += [f"f{before}" for before in range(1, layer + 1)] + [f"b{layer}"]
    return order


def sqrt_n(graph):
    """Save every fourth layer; recompute each segment but the last once."""
    order = [f"f{layer}" for layer in range(1, 17)] + ["l"]
    for segment in (13, 9, 5, 1):
        if segment < 13:
            order += [f"f{layer}" for layer in range(segment, segment + 3)]
        order += [f"b{layer}" for layer in range(segment + 3, segment - 1, -1)]
    return order


def lanes(pipeline):
    """Return the lanes of a published schedule as texts."""
    return [line.partition(": ")[2] for line in str(pipeline).splitlines()]


def words(text):
    """Return the words of a text."""
    return text.split()


ANSWERS = {
    1: ["f4", "f7"],  # segments of 4, 3 and 2: a later one is there beside fewer checkpoints
    2: recompute_from_the_input,
    3: sqrt_n,
    4: lambda graph: tc.plan(graph, "revolve", budget="5 nodes"),
    5: lambda n: 2 * n + 1 + (round(n**0.5) - 1) ** 2,
    6: lambda s, r: comb(s + r, s),
    # Depth first: the sum of a half is done before the other begins.
    7: words("v0 v1 s0 v2 v3 s1 s4 v4 v5 s2 v6 v7 s3 s5 s6"),
    8: ["a3", "b2", "c2"],
    9: ["conv1", "conv3", "conv4"],
    # All but scores1, softmax1, gelu's input and softmax2, which are cheap for their size.
    10: words("qkv1 mix1 add1 up1 down1 qkv2 scores2 mix2 add2 up2 gelu2 down2"),
    11: words("v0 v5 v3 v2 v1 v7 v4 v8 v11 v12 v6 v9 v10 v14 v13 v15"),
    12: words(
        "d1 d2 d3 e1 e2 e3 m1 m2 m3 u1 u2 v1 v2 v3 l b_l b_v3 v2 b_v2 m1 m2 b_v1 m3 u1 u2 "
        "b_u2 b_u1 b_m3 d1 b_m2 b_m1 b_e3 d2 d3 e1 e2 b_e2 b_e1 d3 b_d3 d1 b_d2 b_d1"
    ),
    13: lanes(one_f_one_b(4, 8)),
    14: lanes(zb_h1(4, 8)),
    # v3 is there to the end, so it goes to the bottom; v6 on top of the place of v7.
    15: [2, 4, 8, 0, 6, 2, 7, 2, 8, 0],
}
