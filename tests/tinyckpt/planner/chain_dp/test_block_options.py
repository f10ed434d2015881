"""Pareto front of block options: no dominated option, minimum of each memory kept, size capped."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tinyckpt.planner.chain_dp.block_options import MAX_BLOCK_OPTIONS, BlockOption, pareto_front

SIZES = st.tuples(*[st.integers(0, 999)] * 4)


def block_option(cost: int, saved: int, backward_peak: int, forward_peak: int) -> BlockOption:
    """Return a block option of which only cost and memories are set."""
    return BlockOption((), (), (), saved, float(cost), forward_peak, backward_peak)


def takes(option: BlockOption) -> tuple[float, ...]:
    """Return the cost and the memories of an option."""
    return option.cost, option.saved_memory, option.backward_peak, option.forward_peak


def is_better(one: BlockOption, other: BlockOption) -> bool:
    """Whether one option dominates another."""
    pairs = list(zip(takes(one), takes(other), strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def test_thinned_pareto_front_keeps_cheapest_and_smallest_options() -> None:
    options = [block_option(k, 300 - k, 1000, 1000) for k in range(100)]
    kept = pareto_front(options, 1)
    assert [option.cost for option in kept[:3]] == [0.0, 2.0, 5.0]
    assert (kept[0], kept[-1]) == (options[0], options[-1])
    assert len(kept) == MAX_BLOCK_OPTIONS


@settings(max_examples=examples(60))
@given(st.lists(SIZES, min_size=1, max_size=300))
def test_pareto_front_has_no_dominated_option_and_each_minimum(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    options = [block_option(*sizes) for sizes in drawn]
    kept = pareto_front(options, 1)
    assert 1 <= len(kept) <= MAX_BLOCK_OPTIONS + 4
    for option in kept:
        assert not any(is_better(other, option) for other in options)
    for respect in range(4):
        assert min(takes(option)[respect] for option in kept) == min(o[respect] for o in drawn)
