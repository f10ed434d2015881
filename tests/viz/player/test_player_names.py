"""User-defined names in the player."""

import json
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.viz.player.conftest import Player
from viz.player.data import page_data
from viz.scene import Style, scene_of


def texts_of(packed: Any) -> list[str]:
    """Return the unpacked texts of a column."""
    texts: list[str] = json.loads(packed["bytes"])
    return texts


def test_user_names_scopes_and_groups_are_shown() -> None:
    def loss(x: Any) -> Any:
        for layer in (1, 2):
            with tc.scope(f"layer{layer}"):
                x = tc.name(tc.tanh(x * 0.5), "hidden")
        return tc.sum(x)

    trace = tc.replay(tc.plan(tc.differentiate(tc.build(loss, tc.Spec(3)))))
    (graph,) = page_data(scene_of([trace]))["graphs"]
    assert texts_of(graph["operators"]["names"])[:2] == [
        "layer1/multiply_1", "layer1/hidden (tanh_1)",
    ]  # fmt: skip
    assert "layer2/hidden (tanh_2)" in texts_of(graph["data"]["names"])
    assert [heading["text"] for heading in graph["views"][0]["headings"]] == ["layer1", "layer2"]
    assert texts_of(graph["views"][0]["labels"])[1] == "hidden"
    (graph,) = page_data(scene_of([trace], Style(labels={1: "mine"}, group="scope")))["graphs"]
    whole, first = graph["views"][:2]
    assert texts_of(whole["labels"])[:3] == ["layer1", "layer2", "loss"]
    assert texts_of(first["labels"])[:2] == ["×", "mine"]  # noqa: RUF001
    page = viz.player(trace, group=lambda o: "all" if o.id < 4 else None)
    assert "Player" in page._repr_mimebundle_()["text/html"]
    for options in ({"labels": 3}, {"group": "all"}):
        with pytest.raises(tc.OptionError, match="expected "):
            viz.player(trace, **options)


def long_names(letters: int) -> tc.Graph:
    """Return a graph whose names differ only by numbers, or not visibly."""

    def loss(params: list[Any], x: Any) -> Any:
        for layer, weights in enumerate(params):
            with tc.scope(f"scope {layer} " + letters * "s"):
                x = tc.name(tc.tanh(x @ weights), letters * "v" + f" value {layer}")
        return tc.mean(x * x)

    arguments = [tc.Spec((8, 8)) for _ in range(6)], tc.Spec((4, 8))
    return tc.differentiate(tc.build(loss, *arguments))


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
def test_truncated_names_stay_distinct(width: int, player: Player) -> None:
    trace = tc.replay(tc.plan(long_names(10_000), "sqrt_n"))
    page = player(trace, "#step=20", viewport={"width": width, "height": 800})
    names = page.locator(".rail-row .name").all_inner_texts()
    assert len(names) > 10
    assert len(set(names)) == len(names)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for name, whole in page.evaluate(
        """() => [...document.querySelectorAll(".rail-row")].map(
            row => [row.textContent, row.title])"""
    ):
        assert not whole or whole[0] == name[0]
        assert whole or "…" not in name  # what is cut has its whole name as a tip
    shown = """() => [...document.querySelectorAll(".rail-row .name")].every(
        name => name.scrollWidth <= name.clientWidth)"""
    assert page.evaluate(shown)


@pytest.mark.browser
def test_short_names_are_complete_on_a_phone(player: Player) -> None:
    graph = tc.networks.network_from_text("resnet50")[0]
    page = player(tc.replay(tc.plan(graph, "sqrt_n")), viewport={"width": 360, "height": 740})
    names = [name.split()[0] for name in page.locator(".rail-row .name").all_inner_texts()]
    assert {"output", "s4/b5", "s4/b4", "stage1"} <= set(names)
    assert not [name for name in names if "…" in name]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
