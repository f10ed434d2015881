"""The planners that the course builds equal tinyckpt's; its certified optima bound them."""

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tests.course.networks import NETWORKS, WIDTH, loss_of
from tests.course.test_parts import SOLUTIONS, import_from, page
from tinyckpt.planner.heuristics.dtr import HEURISTICS
from tinyckpt.planner.heuristics.eviction import Eviction
from tinyckpt.planner.model.binomial_bound import advances, repetitions
from tinyckpt.planner.model.liveness import problem_of


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return all that the solutions of parts 1 to 5 define."""
    import_from(monkeypatch, SOLUTIONS)
    names: dict[str, Any] = {}
    for module in ("part_1", "part_2", "part_3", "part_4", "part_5", "example_losses"):
        names |= vars(import_module(module))
    return SimpleNamespace(**names)


def evaluated(schedule: tc.Schedule) -> list[int]:
    """Return the order of evaluations of a schedule."""
    return [step.operator for step in schedule.steps if isinstance(step, tc.Compute)]


def optimum(n: int, budget: int) -> int:
    """Return the fewest evaluations of a chain within a budget of values, with a certificate."""
    schedule = tc.plan(tc.networks.chain(n), budget=f"{budget} nodes")
    assert schedule.certificate is not None
    assert schedule.certificate.status == "optimal"
    return tc.replay(schedule).evaluations


@pytest.mark.parametrize("n", [1, 2, 4, 8, 9, 16])
def test_eviction_is_dtr_on_chains_and_never_below_the_optimum(n: int, parts: Any) -> None:
    graph = parts.chain(n)
    sizes = {operator.output: 1 for operator in graph.operators}
    for budget in range(3, n + 3):
        order = parts.evicting_order(graph, budget, sizes)
        assert order == evaluated(tc.plan(tc.networks.chain(n), "dtr", budget=f"{budget} nodes"))
        assert len(order) >= optimum(n, budget)


@pytest.mark.parametrize("name", NETWORKS)
def test_eviction_is_dtr_on_ten_networks_within_budgets_in_bytes(name: str, parts: Any) -> None:
    _, count = NETWORKS[name]
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(WIDTH, WIDTH)) for _ in range(count)]
    x = random.normal(size=(8 * WIDTH, WIDTH))
    # Both engines number values in the order of their operators, so that ties fall alike.
    mine = parts.differentiate(loss_of(name, parts), count, 1)
    sizes = parts.sizes_of(mine, [*arrays, x])
    graph = tc.differentiate(tc.build(loss_of(name, tc), arrays, x))
    costs = tc.cost.evaluations(graph)
    # The course counts no workspace.
    problem = problem_of(graph, replace(costs, workspace=(0,) * len(costs.workspace)))
    peak = problem.peak(range(len(graph.operators)))
    for tenths in (10, 9, 8, 7, 6, 5, 4):
        budget = peak * tenths // 10
        try:
            expected = Eviction(problem, budget, HEURISTICS["dtr"]).run()
        except tc.BudgetError:
            with pytest.raises(ValueError, match="have to be live at once, and the budget is"):
                parts.evicting_order(mine, budget, sizes)
        else:
            assert parts.evicting_order(mine, budget, sizes) == expected


@pytest.mark.parametrize("n", [1, 2, 8, 9, 16, 40])
def test_revolve_has_the_counts_of_tinyckpt_and_attains_the_certified_optimum(
    n: int, parts: Any
) -> None:
    graph, x = parts.chain(n), np.ones((4, 4))
    for slots in (1, 2, 3, 5, n, n + 1):
        order = parts.revolve(graph, slots)
        trace = parts.run(graph, parts.free_after_last_use(graph, order), [x])[1]
        planned = tc.replay(tc.plan(tc.networks.chain(n), "revolve", slots=slots))
        assert trace.evaluations == planned.evaluations == optimum(n, slots + 2)
        assert max(trace.live_values) == planned.peak_nodes <= slots + 2


def test_table_and_reach_of_revolve_are_those_of_the_bound(parts: Any) -> None:
    table = parts.fewest_advances(60, 8)
    for length in range(1, 61):
        for slots in range(1, 9):
            assert table[length, slots][0] == advances(length, slots)
            times = repetitions(length, slots)
            assert parts.longest(slots, times) >= length
            assert times == 0 or parts.longest(slots, times - 1) < length


def test_table_of_part_4_has_the_certified_optima(parts: Any) -> None:
    rows = [line.strip("| ").split(" | ") for line in page(4).splitlines() if line[:2] == "| "]
    (budgets,) = (row[1:] for row in rows if row[0] == "budget, in values")
    (found,) = (row[1:] for row in rows if row[0] == "DTR")
    (fewest,) = (row[1:] for row in rows if row[0] == "fewest evaluations of any order")
    graph = parts.chain(16)
    sizes = {operator.output: 1 for operator in graph.operators}
    for budget, mine, least in zip(map(int, budgets), found, fewest, strict=True):
        assert len(parts.evicting_order(graph, budget, sizes)) == int(mine)
        assert optimum(16, budget) == int(least)
