"""Pareto fronts of block options and of saved sets: what is dominated, what is kept, sizes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tinyckpt.planner.chain_dp.block_options import (
    MAX_BLOCK_OPTIONS,
    BlockOption,
    pareto_front,
    pareto_layers,
)
from tinyckpt.planner.chain_dp.min_cut import SavedSet

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


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40), st.integers(1, 4))
def test_pareto_layers_are_what_fewer_choices_than_layers_dominate_in_turn(
    drawn: list[tuple[int, int]], count: int
) -> None:
    choices = [
        SavedSet(frozenset({place}), memory, cost) for place, (memory, cost) in enumerate(drawn)
    ]
    left, expected = list(choices), []
    for _ in range(count):
        front = [
            one
            for place, one in enumerate(left)
            if not any(
                (other.memory, other.cost) != (one.memory, one.cost)
                and other.memory <= one.memory
                and other.cost <= one.cost
                for other in left
            )
            # Of equal ones the first.
            and all((o.memory, o.cost) != (one.memory, one.cost) for o in left[:place])
        ]
        left = [one for one in left if one not in front]
        expected += front
    assert sorted(pareto_layers(choices, count), key=choices.index) == sorted(
        expected, key=choices.index
    )
