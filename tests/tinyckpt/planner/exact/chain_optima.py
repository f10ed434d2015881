"""Oracle: the least makespan of a chain with a host, by breadth-first search over machine states.

Independent of ``tinyckpt.planner.exact``: there, steps are handed over and times are maxima; here,
a machine ticks, and at each tick it may begin any possible operation. A state is the placement of
all values and the time that each engine is still busy. All states of a tick are expanded at once,
in arrays; only the first tick at which a state was reached matters, and no state is compared with
another except for equality.

Values of ``chain(n)`` all have the same size: memory is counted in values. Number 0 is the
cotangent, ``l`` and then each ``b``; number k is ``f`` of layer k. Every value may be moved,
cotangents too. What is pruned cannot help, for all times are maxima of sums, so that with a step
less everything else comes no later:

- a backward operator is evaluated once: forward operators read no results of backward ones, so only
  the evaluations behind the one ``b1`` at the end are of use, one of each;
- a value that is moved out does not stay there, nor come back without being read: it is freed
  instead; so no value after its last reader is on the host or on its way; and a value that comes
  back has left before, since a copy out and a copy back at once give no memory;
- a value is freed where there is no room for the next one to take memory, and as few as that takes;
- a copy begins as soon as its turn has come: it is handed over at that tick. Only where an
  evaluation lasts for two ticks may that be in the middle of it, and then it is handed over before
  the evaluation, one per engine: memory for a value that comes back is taken then, and a value that
  leaves is not read any more;
- a fetch that is handed over early gives its place on the host up at once. This is of use where the
  host is full, and another value is to leave meanwhile.

An upper limit of the makespan prunes states that cannot be within it: each operator that must be
evaluated is evaluated once more, and all values on the host come back, one after another, before
they are read.

    python -m tests.tinyckpt.planner.exact.chain_optima 8
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Codes = Any  # an array of states, each packed into a whole number
NONE = 15  # no value
MOST_WAITING = 3  # fetches that were handed over early, at once
MOST_STATES = 60_000_000  # 8 bytes each, held twice at worst

# Where each part of a state begins in its number, and how many bits it has.
DEVICE, HOST, LEFT, OUT, OUT_TICKS, BACK, BACK_TICKS, QUEUED, WAITING = (
    (0, 9), (9, 9), (18, 4), (22, 4), (26, 4), (30, 4), (34, 4), (38, 4), (42, 12),
)  # fmt: skip
NOTHING_WAITS = (1 << 12) - 1


def part(codes: Codes, field: tuple[int, int]) -> Codes:
    """Return one part of each state."""
    return codes >> field[0] & ((1 << field[1]) - 1)


def with_part(codes: Codes, field: tuple[int, int], value: Any) -> Codes:
    """Return the states with one part replaced."""
    mask = np.int64(((1 << field[1]) - 1) << field[0])
    return (codes & ~mask) | (np.asarray(value, np.int64) << field[0])


def ones(sets: Codes) -> Codes:
    """Return how many values are in each set."""
    return np.bitwise_count(sets.astype(np.uint64)).astype(np.int64)


def is_one(values: Codes) -> Codes:
    """Return 1 where there is a value, and 0 where there is none."""
    return (values != NONE).astype(np.int64)


def as_sets(values: Codes) -> Codes:
    """Return the set of each value, and the empty one of none."""
    return np.where(values == NONE, 0, np.int64(1) << values)


def waiting(codes: Codes) -> list[Codes]:
    """Return the fetches that wait for their turn, in order."""
    return [part(codes, (WAITING[0] + 4 * place, 4)) for place in range(MOST_WAITING)]


@dataclass(frozen=True, slots=True)
class Machine:
    """A chain, its memory and its link.

    Attributes:
        n: layers.
        budget, host: values; ``host`` is None without limit.
        engines: 1 or 2.
        evaluation, copy: ticks; an evaluation takes 1 or 2.
    """

    n: int
    budget: int
    host: int | None
    engines: int
    evaluation: int
    copy: int

    def least(self, limit: int) -> int | None:
        """Return the least ticks that the chain takes, if it is within a limit."""
        start = with_part(np.zeros(1, np.int64), LEFT, self.n + 1)
        for field in (OUT, BACK, QUEUED):
            start = with_part(start, field, NONE)
        start = with_part(start, WAITING, NOTHING_WAITS)
        seen: list[Codes] = []
        layers: dict[int, list[Codes]] = {0: [start]}
        for tick in range(limit + 1):
            arrived = layers.pop(tick, None)
            if arrived is None:
                continue
            if any((part(codes, LEFT) == 0).any() for codes in arrived):
                return tick
            states = self.new(np.unique(np.concatenate(arrived)), seen)
            states = self.begun(states, seen)
            for later, codes in self.followed(states):
                within = codes[tick + later + self.remaining(codes) <= limit]
                if len(within):
                    layers.setdefault(tick + later, []).append(np.unique(within))
        return None

    def new(self, states: Codes, seen: list[Codes]) -> Codes:
        """Return the states that were not seen before, and note them."""
        for known in seen:
            if len(states):
                places = np.minimum(np.searchsorted(known, states), len(known) - 1)
                states = states[known[places] != states]
        if len(states):
            seen.append(states)
            while len(seen) > 1 and len(seen[-2]) < 2 * len(seen[-1]):
                last = seen.pop()
                seen[-1] = np.union1d(seen[-1], last)
            if len(seen[0]) > MOST_STATES:
                raise MemoryError("too many states")
        return states

    def held(self, codes: Codes) -> Codes:
        """Return the number of values that take the device's memory."""
        device = ones(part(codes, DEVICE))
        coming = sum(is_one(value) for value in (part(codes, BACK), *waiting(codes)))
        return device + coming + is_one(part(codes, OUT)) + is_one(part(codes, QUEUED))

    def on_host(self, codes: Codes) -> Codes:
        """Return the number of values with a place on the host."""
        leaving = is_one(part(codes, OUT)) + is_one(part(codes, QUEUED))
        return ones(part(codes, HOST)) + leaving

    def anywhere(self, codes: Codes) -> Codes:
        """Return the set of the values that exist anywhere."""
        found = part(codes, DEVICE) | part(codes, HOST)
        for value in (part(codes, OUT), part(codes, BACK), part(codes, QUEUED), *waiting(codes)):
            found |= as_sets(value)
        return found

    def remaining(self, codes: Codes) -> Codes:
        """Return a lower bound on the remaining ticks of each state."""
        left, back = part(codes, LEFT), part(codes, BACK)
        needed = (np.int64(2) << np.minimum(left, self.n)) - 2
        missing = ones(needed & ~self.anywhere(codes))
        least = self.evaluation * (left + missing)
        line = part(codes, BACK_TICKS)
        least = np.maximum(least, np.where(back == NONE, 0, line + self.evaluation * back))
        if self.engines == 1:
            line = np.maximum(line, part(codes, OUT_TICKS))
        line = line + self.copy * sum(is_one(value) for value in waiting(codes))
        there = part(codes, HOST) | as_sets(part(codes, OUT)) | as_sets(part(codes, QUEUED))
        for value in range(self.n + 1):
            fetched = self.copy * ones(there >> value)
            evaluated = self.evaluation * (left if value == 0 else value)
            if value == 0:
                fetched = np.full(len(codes), self.copy)
            bound = line + fetched + evaluated
            least = np.where(there >> value & 1, np.maximum(least, bound), least)
        return least

    # What can be begun, in no time ----------------------------------------------------------------

    def begun(self, states: Codes, seen: list[Codes]) -> Codes:
        """Return the states and all successors by beginning or handing over copies."""
        found, fresh = [states], states
        while len(fresh):
            made = [*self.offloaded(fresh), *self.fetched(fresh)]
            fresh = self.new(np.unique(np.concatenate([*made, fresh[:0]])), seen)
            found.append(fresh)
        return np.concatenate(found)

    def is_free(self, codes: Codes, field: tuple[int, int]) -> Codes:
        """Whether an engine is free, and nothing is handed over to it."""
        if self.engines == 1:
            busy = (part(codes, OUT) != NONE) | (part(codes, BACK) != NONE)
        else:
            busy = part(codes, field) != NONE
        line = part(codes, QUEUED) if field == OUT else waiting(codes)[0]
        return ~busy & (line == NONE)

    def ends_midway(self, codes: Codes, field: tuple[int, int]) -> Codes:
        """Whether an engine will be free in the middle of an evaluation, and nothing waits."""
        if self.evaluation == 1:
            return np.zeros(len(codes), bool)
        queued, waits = part(codes, QUEUED), waiting(codes)[0]
        if self.engines == 2:
            ticks = part(codes, OUT_TICKS if field == OUT else BACK_TICKS)
            return (ticks == 1) & ((queued if field == OUT else waits) == NONE)
        ticks = np.maximum(part(codes, OUT_TICKS), part(codes, BACK_TICKS))
        return (ticks == 1) & (queued == NONE) & (waits == NONE)

    def offloaded(self, codes: Codes) -> Iterator[Codes]:
        """Yield the states with one more value on its way to the host."""
        if self.host is not None:
            codes = codes[self.on_host(codes) < self.host]
        for value in range(self.n + 1):
            some = codes[part(codes, DEVICE) >> value & 1 == 1]
            gone = some - (1 << value)
            now = gone[self.is_free(some, OUT)]
            if self.copy == 0:
                yield with_part(now, HOST, part(now, HOST) | 1 << value)
                continue
            yield with_part(with_part(now, OUT, value), OUT_TICKS, self.copy)
            yield with_part(gone[self.ends_midway(some, OUT)], QUEUED, value)

    def fetched(self, codes: Codes) -> Iterator[Codes]:
        """Yield the states with one more value on its way back, and as little freed as it takes."""
        for value in range(self.n + 1):
            some = codes[part(codes, HOST) >> value & 1 == 1]
            for room in self.with_room(some, 0):
                gone = with_part(room, HOST, part(room, HOST) & ~(1 << value))
                now = gone[self.is_free(gone, BACK)]
                if self.copy == 0:
                    yield with_part(now, DEVICE, part(now, DEVICE) | 1 << value)
                    continue
                yield with_part(with_part(now, BACK, value), BACK_TICKS, self.copy)
                yield from self.early(gone[self.ends_midway(gone, BACK)], value)
            if self.host is not None and self.engines == 2 and self.copy:
                full = some[self.on_host(some) >= self.host]
                gone = with_part(full, HOST, part(full, HOST) & ~(1 << value))
                leaving = is_one(part(gone, OUT)) + is_one(part(gone, QUEUED))
                fits = self.held(gone) - leaving < self.budget
                yield from self.early(gone[fits], value)
                for freed in range(1, self.n + 1):
                    other = gone[~fits & (part(gone, DEVICE) >> freed & 1 == 1)]
                    yield from self.early(other - (1 << freed), value)

    def early(self, codes: Codes, value: int) -> Iterator[Codes]:
        """Yield the states with a fetch that was handed over and waits for its turn."""
        before = waiting(codes)
        for place in range(MOST_WAITING):
            here = before[place] == NONE
            if place:
                here &= before[place - 1] != NONE
            yield with_part(codes[here], (WAITING[0] + 4 * place, 4), value)
        assert not (before[-1] != NONE).any(), "more wait than there is room for"

    def with_room(self, codes: Codes, fixed: int) -> Iterator[Codes]:
        """Yield the states with room for one more value, one freed if it takes one."""
        held = self.held(codes)
        yield codes[held < self.budget]
        full = codes[held == self.budget]
        for value in range(1, self.n + 1):
            if not fixed >> value & 1:
                yield full[part(full, DEVICE) >> value & 1 == 1] - (1 << value)

    # What time does -------------------------------------------------------------------------------

    def followed(self, codes: Codes) -> Iterator[tuple[int, Codes]]:
        """Yield what follows, and how many ticks later: evaluations, and waiting for a copy."""
        ticks = part(codes, OUT_TICKS), part(codes, BACK_TICKS)
        longest = 1 << 4
        first = np.minimum(*(np.where(each, each, longest) for each in ticks))
        for wait in range(1, self.copy + 1):
            yield wait, self.passed(codes[first == wait], wait)
        left, device, there = part(codes, LEFT), part(codes, DEVICE), self.anywhere(codes)
        for k in range(1, self.n + 1):
            before = 1 << (k - 1) if k > 1 else 0
            may = (there >> k & 1 == 0) & (left >= k) & (device & before == before)
            for room in self.with_room(codes[may], before):
                yield self.evaluation, self.passed(room, self.evaluation) + (1 << k)
        for which in range(1, self.n + 2):  # b of a layer, or l
            reads = 1 << which | 1 if which <= self.n else 1 << self.n
            may = (left == which) & (device & reads == reads)
            for room in self.with_room(codes[may], reads):
                after = self.passed(room, self.evaluation)
                after = after - (1 << which) if which <= self.n else after + 1
                yield self.evaluation, with_part(after, LEFT, which - 1)

    def passed(self, codes: Codes, ticks: int) -> Codes:
        """Return the states some ticks later."""
        for _ in range(ticks):
            codes = self.one_passed(codes)
        return codes

    def one_passed(self, codes: Codes) -> Codes:
        """Return the states a tick later: copies end, and what waits for its turn begins."""
        for field, clock, target in ((OUT, OUT_TICKS, HOST), (BACK, BACK_TICKS, DEVICE)):
            ticks, value = part(codes, clock), part(codes, field)
            ended = ticks == 1
            codes = with_part(codes, clock, np.maximum(ticks - 1, 0))
            codes = with_part(codes, target, part(codes, target) | as_sets(value) * ended)
            codes = with_part(codes, field, np.where(ended, NONE, value))
        queued = part(codes, QUEUED)
        begins = (queued != NONE) & (part(codes, OUT) == NONE)
        if self.engines == 1:
            begins &= part(codes, BACK) == NONE
        codes = with_part(codes, OUT, np.where(begins, queued, part(codes, OUT)))
        codes = with_part(codes, OUT_TICKS, np.where(begins, self.copy, part(codes, OUT_TICKS)))
        codes = with_part(codes, QUEUED, np.where(begins, NONE, queued))
        first = waiting(codes)[0]
        begins = (first != NONE) & (part(codes, BACK) == NONE) & (self.held(codes) <= self.budget)
        if self.engines == 1:
            begins &= part(codes, OUT) == NONE
        codes = with_part(codes, BACK, np.where(begins, first, part(codes, BACK)))
        codes = with_part(codes, BACK_TICKS, np.where(begins, self.copy, part(codes, BACK_TICKS)))
        rest = part(codes, WAITING) >> 4 | NONE << 8
        return with_part(codes, WAITING, np.where(begins, rest, part(codes, WAITING)))


# The table ------------------------------------------------------------------------------------

# Ticks of an evaluation and of a copy: of values of 512 bytes, bandwidths without limit, of 1024,
# 512, 1024/3, 256, 512/3, 128 and 64 bytes for each evaluation.
PACES = ((1, 0), (2, 1), (1, 1), (2, 3), (1, 2), (1, 3), (1, 4), (1, 8))
HOSTS = (None, 0, 1, 2)
STEP = 4  # evaluations that the limit goes up by: lower ones are gone through much faster


def optimum(machine: Machine) -> int:
    """Return the least ticks of a chain."""
    limit = machine.evaluation * (2 * machine.n + 1)
    while (found := machine.least(limit)) is None:
        limit += STEP * machine.evaluation
    return found


def row(n: int, engines: int, host: int | None, evaluation: int, copy: int) -> list[int]:
    """Return the least ticks within each budget from 3 values to all of them, n + 2."""
    return [
        optimum(Machine(n, budget, host, engines, evaluation, copy)) for budget in range(3, n + 3)
    ]


def main() -> None:
    """Print the table of some chains, a row per line: ``ONE_ENGINE``, then ``TWO_ENGINES``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("layers", type=int, nargs="+")
    chains = parser.parse_args().layers
    one: dict[tuple[int, int | None, int, int], list[int]] = {}
    for engines in (1, 2):
        for n in chains:
            for host in HOSTS:
                for evaluation, copy in PACES if host != 0 else PACES[2:3]:
                    key = n, host, evaluation, copy
                    least = row(n, engines, host, evaluation, copy)
                    if one.setdefault(key, least) != least or engines == 1:
                        print(f"    {key}: {tuple(least)},", flush=True)


if __name__ == "__main__":
    main()
