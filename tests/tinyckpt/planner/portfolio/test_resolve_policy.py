"""Policy dispatch: user functions, options and budgets, and the errors of each."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import tinyckpt as tc
from tinyckpt.base.units import memory_text
from tinyckpt.planner.model.budget import budget_in_bytes, parse_budget
from tinyckpt.planner.portfolio.resolve_policy import options_of

CHAIN = tc.networks.chain(4)
STORED = list(range(9))


def test_policy_function_may_return_ids_or_names() -> None:
    def by_id(graph: tc.Graph) -> list[int]:
        return STORED

    def by_name(graph: tc.Graph, costs: tc.Costs) -> Any:
        assert costs.operators == (1,) * 9
        return (operator.name for operator in graph.operators)

    def mixed(graph: tc.Graph, *, again: str = "f1") -> list[Any]:
        return [again, np.int64(0), "f2", 2, 3, 4, *range(5, 9)]

    stored = tc.plan(CHAIN)
    assert tc.plan(CHAIN, by_id).steps == tc.plan(CHAIN, by_name).steps == stored.steps
    schedule = tc.plan(CHAIN, mixed, again="f1")
    assert (schedule.policy, dict(schedule.options)) == ("mixed", {"again": "f1"})
    assert tc.replay(schedule).recomputations == 1
    assert tc.plan(CHAIN, lambda graph: STORED, costs=tc.cost.flops(CHAIN)).policy == "<lambda>"


def test_policy_function_with_budget_is_held_to_it() -> None:
    def bisected(graph: tc.Graph, budget: int, costs: Any = None) -> tc.Schedule:
        return tc.plan(graph, "recompute_all")

    schedule = tc.plan(CHAIN, bisected, budget="3 nodes")
    assert schedule.certificate is not None
    assert schedule.certificate.status == "optimal"
    with pytest.raises(tc.BudgetError, match="recompute_all planned a peak of 3 nodes"):
        tc.plan(CHAIN, bisected, budget="2 nodes")
    with pytest.raises(tc.PolicyOptionError, match="<lambda> takes no budget; give it a keyword"):
        tc.plan(CHAIN, lambda graph: STORED, budget="3 nodes")


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (
            lambda graph: ["f1", "f22"],
            r"order\[1\] is 'f22', which is not an operator of chain:4 \(did",
        ),
        (lambda graph: [0, 99], r"order\[1\]: operator 99 does not exist; chain:4 has 0 to 8"),
        (lambda graph: [0, 10**30], r"order\[1\]: operator 10+ does not exist; chain:4 has 0 to 8"),
        (lambda graph: np.arange(9)[None], r"order\[0\] is a ndarray; operators are given by id"),
        (lambda graph: [0, True], r"order\[1\] is a bool; operators are given by id or name"),
        (lambda graph: [0, 1.5], r"order\[1\] is a float; operators are given by id or name"),
        (lambda graph: STORED[1:], r"evaluates f2, which reads f1 before anything has computed"),
        (lambda graph: STORED[:-1], "the order never computes b1"),
        (lambda graph: "f1", "it returned a str; return the order in which operators"),
        (lambda graph: None, "it returned a NoneType; return the order"),
        (lambda: STORED, r"the policy <lambda>\(\) cannot be called as <lambda>\(graph\) or"),
        (lambda graph, costs, third: STORED, "cannot be called as .* missing a required argument"),
    ],
)
def test_invalid_policy_function_result_is_explained(
    policy: Callable[..., Any], match: str
) -> None:
    with pytest.raises(tc.ScheduleError, match=match):
        tc.plan(CHAIN, policy)


def test_unknown_option_of_policy_function_is_rejected() -> None:
    with pytest.raises(tc.ScheduleError, match=r"cannot be called as .*graph, every=\.\.\.\)"):
        tc.plan(CHAIN, lambda graph: STORED, every=3)


def test_value_and_grad_accepts_policy_function() -> None:
    def backwards_twice(graph: tc.Graph) -> list[int]:
        return [0, *range(len(graph.operators))]

    def loss(x: Any) -> Any:
        return tc.sum(tc.tanh(x) ** 2)

    x = np.linspace(-1, 1, 5)
    ours = tc.value_and_grad(loss, policy=backwards_twice)(x)
    theirs = tc.value_and_grad(loss)(x)
    assert ours[0] == theirs[0]
    assert np.array_equal(ours[1], theirs[1])


@pytest.mark.parametrize(
    ("policy", "options", "match"),
    [
        ("sqrtn", {}, r"unknown policy 'sqrtn'; .* \(did you mean sqrt_n\?\)"),
        ("sqrt_n", {"segment": 3}, r"sqrt_n has no option 'segment'; .*did you mean segments\?"),
        (None, {"budget": 0.5, "timelimit": 3}, r"no option 'timelimit'.*did you mean time_limit"),
        ("dtr", {"heuristic": "e_stars"}, r"unknown heuristic 'e_stars'.*did you mean e_star\?"),
        ("saveable", {"rule": "dot_saveable"}, r"did you mean dots_saveable\?"),
        ("sqrt_n", {"budget": 0.5}, "the policy sqrt_n takes no budget; leave the policy out"),
        ("revolve", {"slots": 0}, "slots=0; expected an integer of 1 or more"),
        ("greedy", {"time_limit": -1}, "number of seconds, 0 or more"),
    ],
)
def test_invalid_policy_options_raise_policy_option_error(
    policy: str | None, options: dict[str, Any], match: str
) -> None:
    for kind in (tc.OptionError, tc.ScheduleError):
        with pytest.raises(kind, match=match):
            tc.plan(CHAIN, policy, **options)


@pytest.mark.long
@pytest.mark.parametrize("budget", [9, "9", " 9 "])
def test_bare_number_budget_that_may_mean_nodes_is_rejected(budget: Any) -> None:
    chain = tc.networks.chain(16)
    with pytest.raises(tc.BudgetError, match="budget 9: bytes or nodes\\? '9 nodes' counts values"):
        tc.plan(chain, budget=budget)
    assert tc.plan(chain, budget="9 nodes").certificate is not None
    in_nodes = tc.cost.in_nodes(tc.cost.evaluations(chain))
    assert tc.replay(tc.plan(chain, budget=budget, costs=in_nodes)).peak_nodes <= 9
    with pytest.raises(tc.BudgetError, match="the smallest peak found is"):
        tc.plan(chain, budget="9 B")


BUDGETS = (
    "4 KiB", "4KB", " 4.5 kib ", "64 bytes", "64 B total", "40 KB TOTAL", "50 %", "50% total",
    "100 %", 0.25, 1.0, 2000, "2000", "2000 total", "9 nodes total", "total", "total total",
    "90000 Nodes total",
    "64 KiB total total", "0 %", "101 %", "12.5", -1, True, None, float("nan"), "much",
)  # fmt: skip


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
def test_budget_parsing_agrees_with_and_without_graph(budget: Any) -> None:
    graph = tc.networks.mlp(4, 16, 16).graph()
    whole, sources = tc.replay(tc.plan(graph)).peak_bytes, graph.source_bytes
    assert sources > 64
    found = []
    for read in (
        lambda: parse_budget(graph, tc.cost.evaluations(graph), budget)[0],
        lambda: budget_in_bytes(budget, whole, sources),
    ):
        try:
            found.append(read())
        except tc.BudgetError as error:
            # Of a graph it is known, besides, what any schedule needs.
            said = str(error).replace("'9 nodes', ", "")
            found.append(said.partition("; any schedule needs at least")[0])
    assert found[0] == found[1]


def test_total_budget_counts_the_sources_once() -> None:
    assert budget_in_bytes("50 % total", 1000, 200) == 400
    assert budget_in_bytes("1200 B total", 1000, 200) == 1000
    with pytest.raises(tc.BudgetError, match="expected '64 MiB'"):
        budget_in_bytes("1200 B total total", 1000, 200)
    with pytest.raises(tc.BudgetError, match="budget 50 B total: the sources alone are 200 B"):
        budget_in_bytes("50 B total", 1000, 200)


def test_old_spelling_of_total_budget_warns_and_means_the_same() -> None:
    graph = tc.networks.mlp(4, 16, 16).graph()
    with pytest.warns(DeprecationWarning, match="write '2 MiB total'"):
        old = tc.plan(graph, budget="2 MiB In All", time_limit=0.2)
    assert old.steps == tc.plan(graph, budget="2 MiB total", time_limit=0.2).steps


@pytest.mark.sampled(3)
@pytest.mark.long
@pytest.mark.parametrize("budget", [1, "1 B", "0 %", 0.02, "1 nodes", "1 B total", "5 % total"])
def test_infeasible_budget_error_of_every_policy_names_smallest(budget: str | int | float) -> None:
    graph = tc.networks.mlp(1, 4).graph()
    able = [name for name, policy in tc.POLICIES.items() if "budget" in options_of(policy)]
    for policy in (None, *able):
        if policy == "offload" and budget == "1 nodes":  # memory must be counted in bytes
            continue
        if policy == "optimal" and find_spec("ortools") is None and "CI" not in os.environ:
            continue
        with pytest.raises(tc.BudgetError) as caught:
            tc.plan(graph, policy, budget=budget)
        smallest = caught.value.smallest
        assert smallest is not None, policy
        unit = "nodes" if budget == "1 nodes" else "bytes"
        assert memory_text(smallest, unit) in str(caught.value)
