"""Static memory planning: an offset in one buffer for every allocation of a schedule.

Live bytes are what a schedule needs if memory had no addresses; an arena is one buffer, in which
allocations with overlapping lifetimes have disjoint ranges. In: a legal schedule. Out: a lifetime
and an offset for each allocation. Lifetimes are those of ``core.replay``, whose account of storages
is followed allocation by allocation, so that at alignment 1 the peak of live bytes equals the
trace's. The packing itself is ``codegen.offset_assignment``.
Compare OLLA (Steiner et al. 2022, arXiv 2210.12924), whose second stage assigns addresses offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tinyckpt.base.errors import OptionError, expect
from tinyckpt.base.units import counted, size_text
from tinyckpt.core.replay import ReplayState
from tinyckpt.core.schedule import EVALUATIONS, Schedule

ALIGNMENT = 64  # bytes: a cache line, which NumPy's vectorised loops like; CUDA rounds to 512


@dataclass(frozen=True, slots=True)
class Allocation:
    """One allocation of a schedule: its size, and the half-open range of steps in which it is live.

    >>> import tinyckpt as tc
    >>> allocations_of(tc.plan(tc.networks.chain(1)))[0]
    Allocation(storage=1, start=0, stop=3, nbytes=512, kind='value')

    Attributes:
        storage: data id of the value that owns the memory; views of it have no allocation of their
            own, and keep it alive. Of a workspace: id of the operator that uses it.
        start: the step that allocates it: an evaluation or a fetch.
        stop: the first step after which, or in which, it is no longer live; ``len(schedule)`` for
            results.
        nbytes: bytes, before any rounding; may be 0 for an empty value.
        kind: ``value``; or ``workspace``, scratch memory of one evaluation.
    """

    storage: int
    start: int
    stop: int
    nbytes: int
    kind: Literal["value", "workspace"]


def allocations_of(schedule: Schedule) -> tuple[Allocation, ...]:
    """Return the allocations of a schedule, by step; those of one step in order of data ids.

    A value that is recomputed or fetched has several. Sources have none.

    Raises:
        ScheduleError: if the schedule is illegal.
    """
    expect(schedule, Schedule)
    machine = ReplayState(schedule)
    # By block of the machine: the value that owns it, and the steps of its lifetime.
    owner: list[int] = []
    start: list[int] = []
    stop: list[int] = []
    workspaces = []
    for position, step in enumerate(schedule.steps):
        allocated: Sequence[int] = ()
        if isinstance(step, EVALUATIONS):
            allocated = schedule.graph.operators[step.operator].outputs
            if nbytes := machine.take(position, step):
                workspace = Allocation(step.operator, position, position + 1, nbytes, "workspace")
                workspaces.append(workspace)
        else:
            left = machine.block[step.data]
            machine.take(position, step)
            if left is not None and left >= 0 and machine.holders[left] == 0:
                stop[left] = position
            allocated = (step.data,)  # by a fetch
        for data in allocated:
            if machine.block[data] == len(owner):  # a new block: they are numbered in order
                owner.append(data)
                start.append(position)
                stop.append(len(schedule))
    machine.check_outputs()
    columns = zip(owner, start, stop, machine.block_bytes, strict=True)
    values = [Allocation(*column, "value") for column in columns]
    return tuple(sorted([*values, *workspaces], key=lambda each: each.start))


@dataclass(frozen=True, slots=True, repr=False)
class Arena:
    """One buffer for a schedule: an offset for every allocation.

    >>> import tinyckpt as tc
    >>> tc.arena(tc.plan(tc.networks.chain(16), "sqrt_n"))
    <Arena sqrt_n of chain:16: 42 allocations in 4.5 KiB, optimal>

    Attributes:
        schedule: the schedule.
        allocations: its allocations, in order of their first step.
        offsets: bytes from the buffer's start to each of them; multiples of ``alignment``.
        nbytes: the buffer's size: the height of the packing.
        lower_bound: peak of live bytes, with every size rounded up to ``alignment``; no packing is
            lower.
        optimal: whether no packing is lower: ``nbytes`` equals the bound, or a solver proved it.
        alignment: bytes.
    """

    schedule: Schedule = field(repr=False)
    allocations: tuple[Allocation, ...]
    offsets: tuple[int, ...]
    nbytes: int
    lower_bound: int
    optimal: bool
    alignment: int = ALIGNMENT

    def __repr__(self) -> str:
        what = f"{self.schedule.policy} of {self.schedule.graph.name}"
        count = counted(len(self.allocations), "allocation")
        above = f"{self.nbytes / max(self.lower_bound, 1):.3f} times the peak of live bytes"
        rank = "optimal" if self.optimal else above
        return f"<Arena {what}: {count} in {size_text(self.nbytes)}, {rank}>"


def arena(
    schedule: Schedule,
    alignment: int = ALIGNMENT,
    deadline: float | None = None,
    seed: int = 0,
) -> Arena:
    """Plan one buffer for a schedule: offsets at which no two live allocations overlap.

    Args:
        schedule: a legal schedule.
        alignment: bytes, a power of two; every offset is a multiple of it.
        deadline: seconds that the search for a lower packing may take. With none it does a bounded
            amount of work, seconds for most and half a minute for thousands of allocations that
            are hard to pack, and its result depends on the arguments only.
        seed: of the search.

    Raises:
        ScheduleError: if the schedule is illegal.
        OptionError: if an option is out of range.

    >>> import tinyckpt as tc
    >>> schedule = tc.plan(tc.networks.chain(8), "revolve")
    >>> plan = tc.arena(schedule)
    >>> plan.nbytes == plan.lower_bound == tc.replay(schedule).peak_bytes
    True
    """
    return packed(schedule, allocations_of(schedule), alignment, deadline, seed)


def packed(
    schedule: Schedule,
    allocations: tuple[Allocation, ...],
    alignment: int = ALIGNMENT,
    deadline: float | None = None,
    seed: int = 0,
) -> Arena:
    """Plan one buffer for some of a schedule's allocations."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise OptionError(f"seed={seed!r:.80}; expected an integer, 0 or more")
    from tinyckpt.codegen.offset_assignment import assign_offsets  # which few programs need

    packing = assign_offsets(
        [each.start for each in allocations],
        [each.stop for each in allocations],
        [each.nbytes for each in allocations],
        alignment,
        deadline,
        seed,
    )
    return Arena(
        schedule,
        allocations,
        packing.offsets,
        packing.nbytes,
        packing.lower_bound,
        packing.optimal,
        alignment,
    )
