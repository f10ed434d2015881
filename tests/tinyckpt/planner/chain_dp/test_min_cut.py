"""What to save of a block: the cuts against all choices there are."""

from itertools import combinations, pairwise
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tinyckpt.planner.chain_dp.min_cut import (
    MOST_CORNERS,
    Making,
    SavedSet,
    best_choices,
    chosen,
    cut,
)


@st.composite
def makings(draw: st.DrawFn) -> tuple[Making, list[int]]:
    """Return a small block, each value made by an operator of its own, and what is wanted of it."""
    count = draw(st.integers(1, 6))
    reads: dict[int, list[int]] = {}
    for value in range(count):
        before = st.lists(st.integers(0, value - 1), max_size=3, unique=True)
        reads[value] = draw(before) if value else []
    cost = {value: float(draw(st.integers(0, 9))) for value in range(count)}
    size = {value: draw(st.integers(0, 9)) for value in range(count)}
    wanted = draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    return Making(reads, {value: value for value in range(count)}, cost, size), wanted


def all_choices(making: Making, wanted: list[int]) -> list[SavedSet]:
    """Return what every set of values amounts to."""
    return [
        chosen(making, wanted, set(some))
        for number in range(len(making.size) + 1)
        for some in combinations(making.size, number)
    ]


@settings(max_examples=examples(60))
@given(makings(), st.floats(0.01, 100.0))
def test_a_cut_is_the_best_choice_at_its_price(
    case: tuple[Making, list[int]], price: float
) -> None:
    making, wanted = case
    found = cut(making, wanted, price)
    least = min(choice.cost + price * choice.memory for choice in all_choices(making, wanted))
    assert abs(found.cost + price * found.memory - least) <= 1e-6 * (1 + least)
    assert found == chosen(making, wanted, found.saved)


@settings(max_examples=examples(60))
@given(makings())
def test_the_ends_save_what_costs_and_nothing(case: tuple[Making, list[int]]) -> None:
    making, wanted = case
    every = all_choices(making, wanted)
    assert cut(making, wanted, 0.0).cost == min(choice.cost for choice in every) == 0
    assert cut(making, wanted, inf).memory == min(choice.memory for choice in every) == 0


@settings(max_examples=examples(60))
@given(makings())
def test_nothing_is_below_the_corners(case: tuple[Making, list[int]]) -> None:
    making, wanted = case
    corners = best_choices(making, wanted)
    for choice in all_choices(making, wanted):
        for more, less in pairwise(corners):
            if less.memory <= choice.memory <= more.memory and more.memory > less.memory:
                slope = (less.cost - more.cost) / (more.memory - less.memory)
                line = more.cost + slope * (more.memory - choice.memory)
                assert choice.cost >= line - 1e-6 * (1 + line)


def test_of_many_corners_those_that_are_kept_are_spread() -> None:
    # Every value is dearer to make again, and smaller, than the one before: each adds a corner.
    count = 200
    making = Making(
        reads={value: [] for value in range(count)},
        maker={value: value for value in range(count)},
        cost={value: float(value + 1) for value in range(count)},
        size={value: count - value for value in range(count)},
    )
    corners = best_choices(making, list(range(count)))
    assert len(corners) == MOST_CORNERS
    whole = corners[0].memory
    assert (corners[0].cost, corners[-1].memory, corners[-1].cost) == (0.0, 0, float(whole))
    for more, less in pairwise(corners):
        assert more.memory - less.memory <= whole / 7
        assert less.cost - more.cost <= whole / 7


def test_the_corners_of_a_block_of_a_transformer_read_as_one_would_choose() -> None:
    # x -> norm -> product -> gelu -> product; the norm and the gelu cost next to nothing.
    norm, product, gelu = 0, 1, 2
    making = Making(
        reads={norm: [], product: [norm], gelu: [product]},
        maker={norm: norm, product: product, gelu: gelu},
        cost={norm: 1.0, product: 100.0, gelu: 2.0},
        size={norm: 10, product: 40, gelu: 40},
    )
    wanted = [norm, product, gelu]
    assert [(sorted(c.saved), c.memory, c.cost) for c in best_choices(making, wanted)] == [
        ([norm, product, gelu], 90, 0.0),
        ([norm, product], 50, 2.0),
        ([product], 40, 3.0),
        ([], 0, 103.0),
    ]
