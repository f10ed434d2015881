"""Offloading on chains: the planner against exhaustive optima, and monotonicity of the optima."""

from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Any

import pytest

import tinyckpt as tc
from tests.conftest import PROFILE
from tests.tinyckpt.planner.exact.chain_optima import HOSTS, PACES, Machine, optimum, row
from tests.tinyckpt.planner.exact.chain_table import LEAST
from tests.tinyckpt.planner.exact.exhaustive_search import exhaustive
from tinyckpt.planner.model.binomial_bound import fewest_evaluations

BYTES = 512
Row = tuple[int, int, int | None, int, int]
# To make the table takes long, and so does 8 layers within 3 values for the planner: some
# of it by default, and most of it in deep runs.
CELLS = [(of, at + 3) for of, least in LEAST.items() for at in range(len(least))]
MADE: list[Row] = [of for of in LEAST if of[0] < 6]
PLANNED = [(of, budget) for of, budget in CELLS if of[0] < 8 or budget > 3]
if PROFILE != "deep":
    MADE = [(4, 2, None, 1, 2), (4, 1, 1, 2, 3), (4, 2, 2, 1, 1)]
    PLANNED = [(of, budget) for of, budget in CELLS if of[0] == 4 and budget < 5]
    # In the last one a cotangent waits on a host that is full, and changes places with a value.
    PLANNED += [((5, 2, None, 1, 2), 4), ((6, 1, None, 2, 3), 5), ((6, 2, 2, 2, 1), 3)]


def link_of(of: Row) -> tc.Link:
    """Return the link of a row."""
    _, engines, host, evaluation, copy = of
    bandwidth: Any = Fraction(BYTES * evaluation, copy) if copy else inf
    return tc.Link(0 if host == 0 else bandwidth, engines=engines)


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("of", MADE, ids=str)
def test_chain_table_equals_exhaustive_optima(of: Any) -> None:
    assert tuple(row(*of)) == LEAST[of]


@pytest.mark.sampled(15)
@pytest.mark.long
@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("evaluation", "copy"), PACES[:5])
def test_chain_machine_agrees_with_exhaustive_search(
    evaluation: int, copy: int, host: int | None, engines: int
) -> None:
    # Cotangents are moved as well there, and backward operators evaluated again.
    graph = tc.networks.chain(2)
    link = link_of((2, engines, host, evaluation, copy))
    room = inf if host is None else host * BYTES
    costs = tc.cost.evaluations(graph)
    found = optimum(Machine(2, 3, host, engines, evaluation, copy))
    assert exhaustive(graph, costs, link, 3 * BYTES, room) == Fraction(found, evaluation)


@pytest.mark.sampled(30)
@pytest.mark.long
@pytest.mark.parametrize(("of", "budget"), PLANNED, ids=str)
def test_plan_with_host_attains_exhaustive_optimum(of: Row, budget: int) -> None:
    n, _, host, evaluation, _ = of
    graph, link = tc.networks.chain(n), link_of(of)
    room = None if host is None else host * BYTES
    plan = tc.plan_with_host(graph, link, budget=budget * BYTES, host_budget=room)
    line = tc.timed(plan, link, budget=budget * BYTES)
    assert line.makespan == Fraction(LEAST[of][budget - 3], evaluation)
    assert line.peak_bytes <= budget * BYTES
    assert max(tc.replay(plan).host) <= (inf if room is None else room)
    assert plan.certificate is not None
    assert plan.certificate.status.startswith("optimal")


def test_chain_optima_are_monotone_and_match_closed_forms() -> None:
    for of, least in LEAST.items():
        n, engines, host, evaluation, copy = of
        spans = [Fraction(ticks, evaluation) for ticks in least]
        assert spans == sorted(spans, reverse=True), of  # in budget
        revolve = [fewest_evaluations(n, nodes) for nodes in range(3, n + 3)]
        assert all(2 * n + 1 <= own <= one for own, one in zip(spans, revolve, strict=True))
        if host == 0:
            assert spans == revolve
        if host is None and copy == 0:
            assert set(spans) == {2 * n + 1}
        if engines == 2:
            assert no_slower(spans, (n, 1, host, evaluation, copy))
        for fewer in (host for host in HOSTS if host is not None):
            if host is None or fewer < host:
                assert no_slower(spans, (n, engines, fewer, evaluation, copy))
        slower = sorted(PACES, key=lambda pace: pace[1] / pace[0])
        for quick, slow in pairwise(slower):
            if (evaluation, copy) == quick:
                assert no_slower(spans, (n, engines, host, *slow))


def no_slower(spans: list[Fraction], than: Row) -> bool:
    """Whether makespans are no longer than those of another row, if there is one."""
    others = LEAST.get(than)
    if others is None:
        return True
    return all(own * than[3] <= other for own, other in zip(spans, others, strict=True))
