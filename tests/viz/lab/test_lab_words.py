"""Texts of the lab: links, commands, programs, challenges, the price of more memory."""

import shlex
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.viz.conftest import Open
from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import (
    KEEPING,
    LAYER,
    SHOWN,
    STATE,
    at_work,
    expected,
    steps_of,
    workbench,
)
from tinyckpt.cli import main
from viz.scene import subtitle_of

pytestmark = pytest.mark.browser


def test_subtitle_of_an_order_is_that_of_python(lab: OpenLab) -> None:
    page, graph = lab("chain:16"), tc.networks.chain(16)
    for policy in ("sqrt_n", "recompute_all", "store_all"):
        steps = tc.plan(graph, policy).steps
        order = [step.operator for step in steps if isinstance(step, tc.Compute)]
        told = page.evaluate(
            """order => player.offers.subtitle({ key: `mine ${order.length}`, kind: "named",
                title: "", note: "", policy: "mine", order, checkpoints: [] })""",
            order,
        )
        assert told == subtitle_of(tc.replay(tc.from_order(graph, order)))


@pytest.mark.nightly
def test_link_restores_the_saved_set(lab: OpenLab) -> None:
    page = workbench(lab, "chain:16")
    for cell in (2, 3, 4, 9):
        page.click(LAYER["ledger"].format(cell))
    page.keyboard.press("p")
    shown, tick = page.evaluate(SHOWN), page.evaluate("() => player.tick")
    page.click("#lab-link")
    link = page.input_value("#lab-text")
    again = workbench(lab, "chain:16", link[link.index("#") :])
    assert again.evaluate(SHOWN) == shown
    assert again.evaluate("() => player.tick") == tick
    for wrong in ("keep=1-99999999", "keep=a", "keep=5-1", "policy=none", "budget=1", "budget=x"):
        page = workbench(lab, "chain:16", f"#{wrong}")
        assert page.evaluate(STATE) == "budget=4608", wrong
    assert workbench(lab, "chain:16", "#keep=none").evaluate(KEEPING) == []


@pytest.mark.parametrize(
    "network", ["chain:16", pytest.param("residual:4x8", marks=pytest.mark.nightly)]
)
def test_copied_command_and_program_reproduce_the_schedule(
    network: str, lab: OpenLab, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    page = workbench(lab, network)
    page.click(LAYER["ledger"].format(2))
    for choose in (
        None, "player.take(player.offers.named[1])", "player.take(player.offers.points[0])",
        "player.take(player.offers.points.at(-1))", "player.take(player.offers.keeping([]))",
    ):  # fmt: skip
        if choose:
            page.evaluate(f"() => {choose}")
        page.click("#lab-python")
        found: dict[str, Any] = {}
        exec(page.input_value("#lab-text"), found)
        assert steps_of(found["schedule"]) == page.evaluate(SHOWN), choose
        rings = page.evaluate("() => player.offers.plan(player.choice).checkpoints")
        assert expected(found["schedule"])[9] == rings
        page.click("#lab-command")
        command = shlex.split(page.input_value("#lab-text"))
        assert command[:3] == ["tinyckpt", "play", network]
        assert main(command[1:]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"kept.html", "sqrt_n.html", "plan.html"}


def test_price_of_more_memory_equals_explain(tmp_path: Path, open_page: Open) -> None:
    graph = tc.networks.network_from_text("residual:2x8")[0]
    assert tc.frontier(graph, time_limit=60).complete  # so that both know the same
    page = at_work(open_page(viz.lab(graph, tmp_path / "lab.html")))
    orders = page.evaluate("() => player.offers.points.map(p => Array.from(p.order))")
    assert len(orders) > 2
    for number, order in enumerate(orders):
        page.evaluate("i => player.take(player.offers.points[i])", number)
        said = str(tc.explain(tc.from_order(graph, order))).splitlines()[-1]
        assert page.inner_text("#lab-advice") == said
    for policy in ("sqrt_n", "recompute_all"):
        page.select_option("#lab-policy", policy)
        said = str(tc.explain(tc.plan(graph, policy))).splitlines()[-1]
        assert page.inner_text("#lab-advice") == said.replace(": plan with a budget", "")


def test_challenge_reports_the_distance_to_the_budget(lab: OpenLab) -> None:
    page = workbench(lab, "chain:16")
    page.select_option("#lab-policy", "store_all")
    page.click("#lab-challenge")
    asked = page.evaluate("() => player.offers.challenges()")
    page.evaluate("() => player.take(player.offers.keeping(player.offers.candidates))")
    text = page.inner_text("#lab-asked")
    assert text.startswith(f"1 of {len(asked)}: stay within ")
    assert "too much" in text
    reached = 0
    for number, challenge in enumerate(asked, 1):
        assert page.inner_text("#lab-asked").startswith(f"{number} of {len(asked)}: ")
        nodes = challenge["budget"] // 512
        best = tc.replay(tc.plan(tc.networks.chain(16), budget=f"{nodes} nodes"))
        assert challenge["best"] == best.evaluations
        page.evaluate("b => player.take(player.offers.within(b))", challenge["budget"])
        assert "This one was planned" in page.inner_text("#lab-asked")
        own = "() => player.take(player.offers.keeping(player.offers.keptBy(player.choice)))"
        page.evaluate(own)
        reached += "Done: nothing within it costs less." in page.inner_text("#lab-asked")
        page.click("#lab-challenge")
    assert reached == len(asked)
    page.evaluate("() => player.take(player.offers.keeping([3]))")
    assert "% above the optimum" in page.inner_text("#lab-asked")


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the lab page of ResNet-50."""
    graph = tc.load_graph(Path(tc.__file__).parent / "data" / "graphs" / "resnet50.json")
    return viz.lab(graph, tmp_path_factory.mktemp("resnet") / "lab.html", time_limit=1)


@pytest.mark.nightly
def test_resnet_peak_is_explained_and_lowered_in_four_actions(
    open_page: Open, resnet: Path
) -> None:
    page = at_work(open_page(resnet))
    page.select_option("#lab-policy", "store_all")
    before = page.evaluate("() => player.offers.plan(player.choice).peak")
    assert page.evaluate("player.tick === player.models[0].peakStep")
    # Three actions: a stage, a block, the value that they lead to. The fourth drops it.
    largest = page.locator("#filling-list .bar").first
    for _ in range(3):
        assert largest.get_attribute("aria-pressed") != "true"
        largest.click()
    assert largest.get_attribute("aria-pressed") == "true"
    name = largest.locator(".name").inner_text()
    offered = page.inner_text("#lab-flip")
    assert offered.startswith(f"drop {name.split('/')[-1]}: peak \u2212")
    page.click("#lab-flip")
    assert page.evaluate("() => player.offers.plan(player.choice).peak") < before
    after = page.evaluate("() => player.models[0].peaks.at(-1)")
    assert after == page.evaluate("() => player.offers.plan(player.choice).peak")


def test_first_time_user_finds_and_lowers_the_peak_by_keyboard(
    open_page: Open, resnet: Path
) -> None:
    page = open_page(resnet)
    before = page.evaluate("() => player.offers.plan(player.choice).peak")
    head = page.inner_text(".callout b")
    tab_to(page, ".budget-line", 8)
    for _ in range(4):  # plans may be so near to each other that their words are the same
        page.keyboard.press("ArrowDown")
        after = page.evaluate("() => player.offers.plan(player.choice).peak")
        assert after < before
        before, said = after, page.inner_text(".callout b")
        if said != head:
            break
    assert said != head
    assert page.get_attribute(".budget-line", "aria-valuetext").startswith(f"{said}, ")
    # What is in memory follows the budget at once, its largest bar first.
    tab_to(page, "#filling-list .bar", 1)
    opened = page.locator("#filling-list .bar").first.get_attribute("aria-label")
    assert opened is not None
    assert opened.endswith(", opens")
    page.keyboard.press("Enter")
    assert page.is_visible("#filling-back")
    assert page.evaluate("document.activeElement.className") == "bar"


def tab_to(page: Any, selector: str, most: int) -> None:
    """Press Tab until an element has the focus, at most so many times."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("s => document.activeElement === document.querySelector(s)", selector):
            return
    raise AssertionError(f"{selector} is not reached by {most} Tabs")
