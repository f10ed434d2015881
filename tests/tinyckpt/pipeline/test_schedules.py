"""Published pipeline schedules: orders as text; bubble and in-flight counts by formula."""

import gc
import tracemalloc
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline import (
    PIPELINES,
    Footprint,
    PipelineCosts,
    data_parallel,
    gpipe,
    interleaved,
    one_f_one_b,
    pipeline_of,
    replay_pipeline,
    v_half,
    v_min,
    zb_h1,
)
from tinyckpt.pipeline import simulator_memory_limit as limits
from tinyckpt.pipeline import v_schedules as vshape


def test_schedules_equal_the_papers_figures() -> None:
    assert str(one_f_one_b(4, 5)).splitlines() == [
        "device 0: F0 F1 F2 F3 B0 F4 B1 B2 B3 B4",
        "device 1: F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
        "device 2: F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
        "device 3: F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
    ]
    assert str(zb_h1(3, 4)).splitlines() == [
        "device 0: F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3",
        "device 1: F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3",
        "device 2: F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3",
    ]


def test_messages_are_adjacent_to_producers_and_readers() -> None:
    first, second = gpipe(2, 1, recompute="early").actions(0), gpipe(2, 1, "late").actions(0)
    assert [action.kind for action in first] == [
        "forward", "send_activation", "recompute", "recv_cotangent", "backward", "update",
    ]  # fmt: skip
    assert [action.kind for action in second] == [
        "forward", "send_activation", "recv_cotangent", "recompute", "backward", "update",
    ]  # fmt: skip


@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
def test_early_recomputation_is_hidden_on_all_devices_but_one(make: type) -> None:
    spans = [
        replay_pipeline(make(8, 32, recompute)).makespan for recompute in (None, "late", "early")
    ]
    assert spans == [117, 156, 149]


def test_gpipe_memory_is_boundaries_plus_one_recomputed_stage() -> None:
    # 24 layers on 4 devices, a batch of 64 in 8 parts: N + (L/K) (N/M), in layers times samples.
    own = Footprint(forward=8 + 48, held=8, recompute=8 + 48, recomputed=8 + 48, backward=8 + 48)
    assert max(replay_pipeline(gpipe(4, 8, "late"), None, own).peaks) == 64 + 48


UNEQUAL = [
    (1, 1, 1), (4, 5, 3), (5, 3, 2), (1, 2, 3), (3, 1, 1), (1, 3, 0), (0, 1, 1), (1, 0, 5),
    (Fraction(4, 3), 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
@pytest.mark.parametrize(
    ("devices", "count"),
    [(1, 1), (1, 3), (4, 2), (4, 8), (4, 16), (5, 3), (7, 1), (8, 32), (9, 40)],
)
def test_flushing_bubble_and_in_flight_equal_their_formulas(
    make: Any, devices: int, count: int
) -> None:
    trace = replay_pipeline(make(devices, count))
    assert trace.bubble == Fraction(devices - 1, count + devices - 1)
    assert trace.makespan == 3 * (count + devices - 1)
    most = [count if make is gpipe else devices - k for k in range(devices)]
    assert trace.peaks == tuple(min(own, count) for own in most)


@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
@pytest.mark.parametrize("each", UNEQUAL)
def test_flushing_makespan_equals_its_formula(make: Any, each: Any) -> None:
    for devices, micro_batches in product(range(1, 6), range(1, 9)):
        trace = replay_pipeline(make(devices, micro_batches), PipelineCosts(*each))
        assert trace.makespan == (micro_batches + devices - 1) * sum(each)


@pytest.mark.parametrize("each", UNEQUAL)
def test_interleaved_bubble_and_in_flight_equal_their_formulas(each: tuple[int, int, int]) -> None:
    for devices, groups, chunks in product(range(1, 5), range(1, 4), range(2, 4)):
        count = devices * groups
        trace = replay_pipeline(interleaved(devices, count, chunks), PipelineCosts(*each))
        # In units of a chunk; the bubble is that of 1F1B divided by the chunks.
        assert trace.makespan == (chunks * count + devices - 1) * sum(each)
        ahead = [2 * (devices - 1 - k) + (chunks - 1) * devices + 1 for k in range(devices)]
        assert trace.peaks == tuple(min(most, chunks * count) for most in ahead)
    with pytest.raises(OptionError, match="it needs a multiple of 4, such as 8"):
        interleaved(4, 6)


def test_interleaved_with_one_chunk_is_1f1b() -> None:
    for devices, micro_batches in product(range(1, 6), range(1, 9)):
        ours, theirs = interleaved(devices, micro_batches, 1), one_f_one_b(devices, micro_batches)
        for name in ("kind", "stage", "micro_batch", "first", "device_of"):
            assert (getattr(ours, name) == getattr(theirs, name)).all()


@pytest.mark.parametrize("each", UNEQUAL)
def test_zb_h1_bubble_equals_its_formula_only_where_that_applies(
    each: tuple[int, int, int],
) -> None:
    forward, inputs, weights = each
    for devices, micro_batches in product((2, 3, 4, 5, 7), (*range(1, 13), 21)):
        trace = replay_pipeline(zb_h1(devices, micro_batches), PipelineCosts(*each))
        bubble = trace.makespan - micro_batches * sum(each)
        holds = weights <= min(forward, inputs) and (micro_batches >= devices or not weights)
        assert (bubble == (devices - 1) * (forward + inputs - weights)) == holds
        assert trace.peaks == (min(devices, micro_batches),) * devices


@pytest.mark.sampled(8)
@pytest.mark.long
@pytest.mark.parametrize("devices", range(1, 41))
def test_v_schedules_reach_the_published_memory(devices: int) -> None:
    count = 4 * devices + 10
    # A device holds two stages, each half of its micro-batch.
    assert max(replay_pipeline(v_min(devices, count)).peaks) == 2 * ((devices + 4) // 3)
    assert max(replay_pipeline(v_half(devices, count)).peaks) == 2 * ((devices + 2) // 2)


@pytest.mark.sampled(3)
@pytest.mark.long
@pytest.mark.parametrize("devices", [1, 2, 3, 5, 6, 12, 16])
def test_v_schedules_never_exceed_the_published_memory(devices: int) -> None:
    for make, most in ((v_min, (devices + 4) // 3), (v_half, (devices + 2) // 2)):
        peaks = [max(replay_pipeline(make(devices, count)).peaks) for count in range(1, 40)]
        assert peaks == sorted(peaks)
        # As many micro-batches as can be in flight, or one more, fill it.
        assert peaks[most] == peaks[-1] == 2 * most


@pytest.mark.sampled(3)
@pytest.mark.long
@pytest.mark.parametrize("devices", [*range(1, 14), 24, 33])
def test_v_schedule_bubbles_equal_their_formulas(devices: int) -> None:
    for count in sorted({*range(1, devices + 3), 4 * devices + 3, 5 * devices + 7}):
        least, half, flush = (
            replay_pipeline(make(devices, count), PipelineCosts(*each)).makespan - 6 * count
            for make, each in ((v_min, (1, 1, 1)), (v_half, (1, 1, 1)), (one_f_one_b, (2, 2, 2)))
        )
        if devices == 1:
            assert least == half == flush == 0
            continue
        # The paper's estimates are 2K/3 and K/2 micro-batches of 6 units: 4K and 3K.
        assert least == 4 * devices - (3 if devices % 3 == 0 and count > 1 else 5)
        formula = 3 * devices - (4 if devices % 2 else 3)
        assert half == formula if count > devices // 2 or devices == 2 else half > formula
        assert least < flush == 6 * (devices - 1)
        assert half <= flush


@pytest.mark.parametrize("make", [v_min, v_half])
def test_periodic_extension_equals_full_schedule(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for devices in (1, 2, 3, 4, 6, 9):
        count = 5 * devices + 6
        short = make(devices, count)
        with monkeypatch.context() as patch:
            patch.setattr(vshape, "LEAD", 1000)
            assert str(make(devices, count)) == str(short)


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("recompute", [None, "early", "late"])
@pytest.mark.parametrize("devices", [1, 2, 3, 6])
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_published_schedules_are_legal_at_any_cost(
    name: str, recompute: str, devices: int, groups: int
) -> None:
    pipeline = PIPELINES[name](devices, devices * groups, recompute=recompute)
    costs = PipelineCosts(3, Fraction(5, 2), 2, 1, communication=Fraction(7, 3), update=1)
    trace = replay_pipeline(pipeline, costs)
    each = 3 + Fraction(9, 2) + (recompute is not None)
    own = pipeline.stages // devices
    assert trace.busy == (own * (devices * groups * each + 1),) * devices
    assert trace.makespan >= max(trace.busy)


def test_pipeline_beyond_memory_limit_is_refused_before_it_is_built() -> None:
    with pytest.raises(OptionError, match=r"1,000,000 devices x 4,096 micro batches takes about"):
        gpipe(1_000_000, 4096)
    with pytest.raises(OptionError, match=r"2 stages x 4 micro batches x 99,999,999 replicas"):
        data_parallel(gpipe(2, 4), 99_999_999)
    with pytest.raises(OptionError, match="gpipe: more than 4,294,967,296 micro batches"):
        gpipe(1, 10**5000)
    with pytest.raises(OptionError, match=r"mine of 1 stages x 1,000,000,000 micro batches takes"):
        replay_pipeline(pipeline_of("mine", [0], 10**9, [[]]))
    with pytest.raises(OptionError, match="micro-batches=0; it must be an integer of 1 or more"):
        one_f_one_b(4, 0)
    with pytest.raises(OptionError, match="recompute='never'; expected"):
        zb_h1(4, 4, recompute="never")  # type: ignore[arg-type]


@pytest.mark.sampled(6)
@pytest.mark.long
@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("recompute", [None, "late"])
@pytest.mark.parametrize(("devices", "micro_batches"), [(1, 4096), (16, 64), (32, 32)])
@pytest.mark.parametrize("replicas", [1, 4])
def test_memory_of_replay_is_bounded_by_the_estimate(
    name: str, recompute: Any, devices: int, micro_batches: int, replicas: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if replicas > 1:
        devices, micro_batches = -(-devices // 4), -(-micro_batches // 4)
    known = []
    monkeypatch.setattr(limits, "check_size", lambda what, size: known.append(size))
    gc.collect()
    tracemalloc.start()
    try:
        pipeline = PIPELINES[name](devices, micro_batches, recompute=recompute)
        if replicas > 1:
            pipeline = data_parallel(pipeline, replicas, zero=3)
        replay_pipeline(pipeline)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The last two are about the same: made, and replayed.
    assert known[-2] == pytest.approx(known[-1], rel=0.15)
    assert taken < known[-1] < 1.5 * taken
