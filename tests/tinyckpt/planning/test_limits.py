"""Time limits: what they are of, and what is said when they are up."""

from math import inf
from typing import Any

import pytest

import tinyckpt as tc
from tinyckpt.analysis import limits
from tinyckpt.planning import plan as planning

WAYS = ("greedy", "dtr", "blocks", "rotor", "chen_budget", "revolve")


class Watch:
    """A clock that goes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(limits, "perf_counter", lambda: self.now)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_there_may_be_no_end_to_the_time() -> None:
    graph = tc.networks.residual_mlp(4, 16).graph()
    for way in WAYS:
        schedule = tc.plan(graph, way, budget=0.8, time_limit=inf)
        assert schedule.steps == tc.plan(graph, way, budget=0.8).steps
    endless = tc.plan(graph, budget=0.8, time_limit=inf)
    assert tc.frontier(graph).complete
    assert tc.plan(graph, budget=0.8).certificate == endless.certificate


@pytest.mark.parametrize("way", [None, *WAYS])
def test_what_a_budget_is_takes_of_the_time(
    way: str | None, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tc.networks.residual_mlp(4, 16).graph()
    parse_budget = planning.parse_budget

    def slowly(*arguments: Any) -> Any:
        watch.now += 3.0
        return parse_budget(*arguments)

    monkeypatch.setattr(planning, "parse_budget", slowly)
    with pytest.raises(tc.BudgetError, match=r"in the time given|found nothing in 3 s"):
        tc.plan(graph, way, budget=0.5, time_limit=3)
