"""The ways through a block: which of many are looked at."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tinyckpt.planner.chain_dp.block_options import MOST_WAYS, Way, worth_it

SIZES = st.tuples(*[st.integers(0, 999)] * 4)


def made(cost: int, held: int, back_peak: int, there_peak: int) -> Way:
    """Return a way of which only what it takes is known."""
    return Way((), (), (), held, float(cost), there_peak, back_peak)


def takes(way: Way) -> tuple[float, ...]:
    """Return what a way takes."""
    return way.cost, way.held, way.back_peak, way.there_peak


def is_better(one: Way, other: Way) -> bool:
    """Whether one way takes no more of anything than another, and less of something."""
    pairs = list(zip(takes(one), takes(other), strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def test_of_many_ways_the_dearest_is_kept_which_holds_least() -> None:
    ways = [made(k, 300 - k, 1000, 1000) for k in range(100)]
    kept = worth_it(ways, 1)
    assert [way.cost for way in kept[:3]] == [0.0, 2.0, 5.0]
    assert (kept[0], kept[-1]) == (ways[0], ways[-1])
    assert len(kept) == MOST_WAYS


@settings(max_examples=examples(60))
@given(st.lists(SIZES, min_size=1, max_size=300))
def test_none_that_is_kept_is_worse_and_the_least_of_everything_is(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    ways = [made(*sizes) for sizes in drawn]
    kept = worth_it(ways, 1)
    assert 1 <= len(kept) <= MOST_WAYS + 4
    for way in kept:
        assert not any(is_better(other, way) for other in ways)
    for respect in range(4):
        assert min(takes(way)[respect] for way in kept) == min(o[respect] for o in drawn)
