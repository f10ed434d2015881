"""Min-cut rematerialization of a block, against exhaustion over all sets of saved values."""

from itertools import combinations, pairwise
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tinyckpt.planner.chain_dp.min_cut import (
    MAX_HULL_CORNERS,
    RecomputeGraph,
    SavedSet,
    evaluate_choice,
    hull_corners,
    minimum_cut,
)


@st.composite
def recompute_graphs(draw: st.DrawFn) -> tuple[RecomputeGraph, list[int]]:
    """Draw a small recompute graph, one operator per value, and the values wanted of it."""
    count = draw(st.integers(1, 6))
    reads: dict[int, list[int]] = {}
    for value in range(count):
        before = st.lists(st.integers(0, value - 1), max_size=3, unique=True)
        reads[value] = draw(before) if value else []
    cost = {value: float(draw(st.integers(0, 9))) for value in range(count)}
    size = {value: draw(st.integers(0, 9)) for value in range(count)}
    wanted = draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    return RecomputeGraph(reads, {value: value for value in range(count)}, cost, size), wanted


def all_choices(recompute: RecomputeGraph, wanted: list[int]) -> list[SavedSet]:
    """Return the choices of all sets of saved values."""
    return [
        evaluate_choice(recompute, wanted, set(some))
        for number in range(len(recompute.size) + 1)
        for some in combinations(recompute.size, number)
    ]


@settings(max_examples=examples(60))
@given(recompute_graphs(), st.floats(0.01, 100.0))
def test_minimum_cut_is_optimal_at_its_price(
    case: tuple[RecomputeGraph, list[int]], price: float
) -> None:
    recompute, wanted = case
    found = minimum_cut(recompute, wanted, price)
    least = min(choice.cost + price * choice.memory for choice in all_choices(recompute, wanted))
    assert abs(found.cost + price * found.memory - least) <= 1e-6 * (1 + least)
    assert found == evaluate_choice(recompute, wanted, found.saved)


@settings(max_examples=examples(60))
@given(recompute_graphs())
def test_extreme_prices_save_everything_costly_or_nothing(
    case: tuple[RecomputeGraph, list[int]],
) -> None:
    recompute, wanted = case
    every = all_choices(recompute, wanted)
    assert minimum_cut(recompute, wanted, 0.0).cost == min(choice.cost for choice in every) == 0
    assert minimum_cut(recompute, wanted, inf).memory == min(choice.memory for choice in every) == 0


@settings(max_examples=examples(60))
@given(recompute_graphs())
def test_no_choice_lies_below_the_hull(case: tuple[RecomputeGraph, list[int]]) -> None:
    recompute, wanted = case
    corners = hull_corners(recompute, wanted)
    for choice in all_choices(recompute, wanted):
        for more, less in pairwise(corners):
            if less.memory <= choice.memory <= more.memory and more.memory > less.memory:
                slope = (less.cost - more.cost) / (more.memory - less.memory)
                line = more.cost + slope * (more.memory - choice.memory)
                assert choice.cost >= line - 1e-6 * (1 + line)


def test_capped_hull_corners_are_spread_over_the_hull() -> None:
    # Every value is more expensive to recompute, and smaller, than the one before: a corner each.
    count = 200
    recompute = RecomputeGraph(
        reads={value: [] for value in range(count)},
        maker={value: value for value in range(count)},
        cost={value: float(value + 1) for value in range(count)},
        size={value: count - value for value in range(count)},
    )
    corners = hull_corners(recompute, list(range(count)))
    assert len(corners) == MAX_HULL_CORNERS
    whole = corners[0].memory
    assert (corners[0].cost, corners[-1].memory, corners[-1].cost) == (0.0, 0, float(whole))
    for more, less in pairwise(corners):
        assert more.memory - less.memory <= whole / 7
        assert less.cost - more.cost <= whole / 7


def test_hull_corners_of_transformer_block_match_expert_choices() -> None:
    # x -> norm -> product -> gelu -> product; the norm and the gelu cost next to nothing.
    norm, product, gelu = 0, 1, 2
    recompute = RecomputeGraph(
        reads={norm: [], product: [norm], gelu: [product]},
        maker={norm: norm, product: product, gelu: gelu},
        cost={norm: 1.0, product: 100.0, gelu: 2.0},
        size={norm: 10, product: 40, gelu: 40},
    )
    wanted = [norm, product, gelu]
    assert [(sorted(c.saved), c.memory, c.cost) for c in hull_corners(recompute, wanted)] == [
        ([norm, product, gelu], 90, 0.0),
        ([norm, product], 50, 2.0),
        ([product], 40, 3.0),
        ([], 0, 103.0),
    ]
