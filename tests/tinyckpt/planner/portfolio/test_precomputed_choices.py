"""Precomputed plans of the lab: frontier points, named policies, bounds, limits on their size."""

import pytest

import tinyckpt as tc
from tinyckpt.planner.portfolio import precomputed_choices as module
from tinyckpt.planner.portfolio.precomputed_choices import choices


@pytest.mark.long
def test_choices_of_chain_have_points_policies_and_bounds() -> None:
    found = choices(tc.networks.chain(9))
    assert [name for name, _ in found.named] == ["store_all", "sqrt_n", "recompute_all"]
    assert [point.peak for point in found.points] == [512 * nodes for nodes in range(3, 12)]
    assert found.smallest == 3 * 512
    for point in found.points:  # the closed form proves each of them
        assert next(least for budget, least in found.bounds if budget >= point.peak) == point.cost
    assert found.proof[0] == "b9 alone takes 1.5 KiB: inputs, outputs and workspace"


def test_smallest_budget_may_be_set_by_results() -> None:
    def loss(x: tc.Var) -> tuple[tc.Var, tc.Var, tc.Var]:
        return tc.mean(x**2), tc.tanh(x), tc.sin(x)

    graph = tc.differentiate(tc.build(loss, tc.Spec((8, 8))))
    found = choices(graph, policies=())
    assert found.named == ()
    assert found.proof[0].startswith("the results, which are all there at the end, take ")


@pytest.mark.long
def test_chosen_points_are_spread_over_frontier() -> None:
    found = choices(tc.networks.chain(16), points=4)
    peaks = [point.peak for point in found.found.points]
    chosen = [point.peak for point in found.points]
    assert len(chosen) == 4
    assert (chosen[0], chosen[-1]) == (peaks[0], peaks[-1])


@pytest.mark.long
def test_choices_too_long_to_embed_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tc.networks.chain(16)
    monkeypatch.setattr(module, "MAX_CHOICE_EVALUATIONS", 100)
    with pytest.raises(tc.OptionError, match=r"recompute_all takes 153 evaluations; .* 100$"):
        choices(graph)
    found = choices(graph, policies="sqrt_n")
    assert max(len(point.order) for point in found.points) <= 100  # the longest is left out
    monkeypatch.setattr(module, "MAX_TOTAL_CHOICE_EVALUATIONS", 120)
    assert sum(len(point.order) for point in choices(graph, policies=()).points) <= 120
    with pytest.raises(tc.OptionError, match="ask for fewer points"):
        choices(graph, policies=(), points=9)
    monkeypatch.setattr(module, "MAX_CHOICE_EVALUATIONS", 30)
    with pytest.raises(tc.OptionError, match="the shortest schedule takes 33 evaluations"):
        choices(graph, policies=())


@pytest.mark.parametrize("points", [0, 1, 201, True, -3])
def test_choices_reject_invalid_number_of_points(points: int) -> None:
    with pytest.raises(tc.OptionError, match="expected 2 to 200"):
        choices(tc.networks.chain(4), points=points)


def test_choices_reject_unsuitable_graphs_costs_and_policies() -> None:
    forward = tc.build(lambda x: tc.tanh(x), tc.Spec(3))
    with pytest.raises(tc.OptionError, match="no backward pass"):
        choices(forward)
    graph = tc.networks.chain(4)
    with pytest.raises(tc.OptionError, match="must weigh values by their bytes"):
        choices(graph, tc.cost.in_nodes(tc.cost.given(graph)))
    with pytest.raises(tc.OptionError, match="offload moves values to the host"):
        choices(graph, policies=["offload"])
    with pytest.raises(tc.ScheduleError, match="sqrt"):
        choices(graph, policies=["sqrtn"])


def test_long_policy_is_included_only_on_request() -> None:
    graph = tc.networks.chain(256)
    found = choices(graph, time_limit=0.1)
    assert [name for name, _ in found.named] == ["store_all", "sqrt_n"]
    asked = choices(graph, policies=["recompute_all"], time_limit=0.1)
    assert [trace.evaluations for _, trace in asked.named] == [33153]
