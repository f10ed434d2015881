"""Part 6 is solved when these tests pass."""

from fractions import Fraction
from itertools import product
from random import Random

import pytest
from part_6 import (
    KEPT,
    Layer,
    attention,
    choose,
    mlp,
    peak_bytes,
    recompute_flops,
    saved,
    selective,
    step_flops,
)

GPT3 = Layer(tokens=2048, batch=1, width=12288, heads=96)
MT_NLG = Layer(tokens=2048, batch=1, width=20480, heads=128)
SMALL = Layer(tokens=4, batch=2, width=8, heads=2)  # sbh is 64, as²b is 64
LAYERS = (GPT3, MT_NLG, SMALL, Layer(tokens=3, batch=5, width=14, heads=7))


def total(tensors, kind):
    return sum(tensor.nbytes for tensor in tensors if tensor.kind == kind)


def lines(tensors):
    """Return tensors as text, one per line: "q: 128 bytes, 1024 FLOPs"."""
    return "\n".join(f"{name}: {nbytes} bytes, {flops} FLOPs" for name, _, nbytes, flops in tensors)


ATTENTION = """\
input of q, k, v: 128 bytes, 64 FLOPs
q: 128 bytes, 1024 FLOPs
k: 128 bytes, 1024 FLOPs
v: 128 bytes, 1024 FLOPs
softmax: 128 bytes, 576 FLOPs
mask of softmax: 64 bytes, 64 FLOPs
dropout of softmax: 128 bytes, 64 FLOPs
input of projection: 128 bytes, 512 FLOPs
mask of attention: 64 bytes, 64 FLOPs"""

MLP = """\
input of fc1: 128 bytes, 64 FLOPs
input of gelu: 512 bytes, 4096 FLOPs
input of fc2: 512 bytes, 256 FLOPs
mask of MLP: 64 bytes, 64 FLOPs"""


def test_6_1_attention_and_its_core_have_the_bytes_of_the_paper():
    for layer in LAYERS:
        s, b, h, a = layer
        assert total(attention(layer), "attention") == 11 * s * b * h
        assert total(attention(layer), "core") == 5 * a * s * s * b


def test_6_1_attention_tensor_by_tensor():
    assert lines(attention(SMALL)) == ATTENTION


def test_6_2_mlp_has_the_bytes_of_the_paper():
    for layer in LAYERS:
        s, b, h, _ = layer
        assert total(mlp(layer), "MLP") == 19 * s * b * h


def test_6_2_mlp_tensor_by_tensor():
    assert lines(mlp(SMALL)) == MLP


def test_6_3_layer_has_the_bytes_of_the_formula():
    for layer in LAYERS:
        s, b, h, a = layer
        assert total(saved(layer), "norms") == 4 * s * b * h
        nbytes = sum(tensor.nbytes for tensor in saved(layer))
        assert nbytes == s * b * h * (34 + Fraction(5 * a * s, h))


def test_6_3_flops_of_recomputing_a_whole_layer():
    # All products of a forward pass but that of fc2, which no saved tensor is the result of; one
    # FLOP per element of two norms, two masks, dropout and sum; four for gelu; the core's three.
    for layer in LAYERS:
        s, b, h, a = layer
        products = 16 * s * b * h * h + 4 * s * s * b * h
        found = sum(tensor.flops for tensor in saved(layer))
        assert found == products + 10 * s * b * h + 3 * a * s * s * b


def test_6_4_shares_of_the_paper():
    for layer, share in ((GPT3, Fraction(80, 114)), (MT_NLG, Fraction(64, 98))):
        assert selective(layer)[0] == share


def test_6_4_recomputing_the_core_costs_half_a_percent():
    s, b, h, a = GPT3
    extra = Fraction(2 * s * s * b * h + 3 * a * s * s * b, 72 * s * b * h * h + 12 * s * s * b * h)
    assert selective(GPT3)[1] == extra
    assert round(100 * float(extra), 2) == 0.46


def test_6_5_peak_of_plans():
    # A layer is 2496 bytes, 320 of them the core.
    core = {"softmax", "mask of softmax", "dropout of softmax"}
    assert peak_bytes(SMALL, [()] * 4) == 4 * 2496
    assert peak_bytes(SMALL, [core] * 3 + [()]) == 3 * (2496 - 320) + 2496
    assert peak_bytes(SMALL, [core, (), (), ()]) == 4 * 2496 - 320


def test_6_5_recomputing_in_the_last_layer_frees_nothing():
    every = {tensor.name for tensor in saved(SMALL)} - {KEPT}
    assert peak_bytes(SMALL, [()] * 3 + [every]) == peak_bytes(SMALL, [()] * 4)
    assert peak_bytes(SMALL, [every]) == peak_bytes(SMALL, [()])


def test_6_5_peak_of_random_plans_is_that_of_a_simulation():
    draw = Random(0)
    for _ in range(20):
        names = [tensor.name for tensor in saved(SMALL) if tensor.name != KEPT]
        plan = [{name for name in names if draw.random() < 0.5} for _ in range(5)]
        live, found = [], 0
        for again in plan:
            live.append({t.name: t.nbytes for t in saved(SMALL) if t.name not in again})
        for again in reversed(plan):
            live[-1] |= {t.name: t.nbytes for t in saved(SMALL) if t.name in again}
            found = max(found, sum(sum(tensors.values()) for tensors in live))
            live.pop()
        assert peak_bytes(SMALL, plan) == found, f"plan {plan}"


def test_6_6_nothing_is_recomputed_if_everything_fits():
    assert choose(SMALL, 3, peak_bytes(SMALL, [()] * 3)) == [set(), set(), set()]


def test_6_6_plan_is_within_the_budget_and_no_set_is_cheaper():
    tensors = saved(SMALL)[1:]
    # All sets of the fourteen tensors of the first of two layers.
    sets = [(0, 0)]
    for tensor in tensors:
        sets += [(freed + tensor.nbytes, flops + tensor.flops) for freed, flops in sets]
    full = peak_bytes(SMALL, [()] * 2)
    for need in (1, 64, 65, 200, 500, 1000, 1500, 2000, 2368):
        plan = choose(SMALL, 2, full - need)
        assert peak_bytes(SMALL, plan) <= full - need
        assert recompute_flops(SMALL, plan) == min(f for freed, f in sets if freed >= need)
        assert plan[1] == set()


def test_6_6_knapsack_over_three_layers_is_exact():
    # The cheapest set of one layer for each number of bytes, and all pairs of them.
    cheapest = {0: 0}
    for tensor in saved(SMALL)[1:]:
        for freed, flops in list(cheapest.items()):
            more = freed + tensor.nbytes
            cheapest[more] = min(cheapest.get(more, flops + tensor.flops), flops + tensor.flops)
    full = peak_bytes(SMALL, [()] * 3)
    for need in (100, 1000, 2500, 4000):
        best = min(f + g for (m, f), (n, g) in product(cheapest.items(), repeat=2) if m + n >= need)
        assert recompute_flops(SMALL, choose(SMALL, 3, full - need)) == best


def test_6_6_budget_for_half_of_twelve_layers_of_gpt_3():
    full = peak_bytes(GPT3, [()] * 12)
    plan = choose(GPT3, 12, full // 2)
    assert peak_bytes(GPT3, plan) <= full // 2
    # In units of sbh, 684 bytes have to be freed. Eleven layers free 44 each for 22 FLOPs by the
    # dropout of the softmax, gelu and two norms. Ten masks free 16 each, a softmax 32 for 4112
    # FLOPs, and eight small masks the rest.
    unit = GPT3.tokens * GPT3.batch * GPT3.width
    assert recompute_flops(GPT3, plan) == (11 * 22 + 10 * 16 + 4112 + 8) * unit
    assert recompute_flops(GPT3, plan) < 12 * step_flops(GPT3) // 2000


def test_6_6_budget_that_cannot_be_met_is_refused_with_the_least_peak():
    least = 2 * 128 + 2496  # two layers save their inputs; all of the third
    assert peak_bytes(SMALL, choose(SMALL, 3, least)) == least
    with pytest.raises(ValueError, match=str(least)):
        choose(SMALL, 3, least - 1)
