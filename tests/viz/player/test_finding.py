"""Search, expanded groups, links and history in the player."""

from pathlib import Path

import pytest

import tinyckpt as tc
from tests.viz.conftest import Open
from tests.viz.player.player_driver import TICK, choose_largest, traces_of, until, written
from tests.viz.player.test_navigation import WHOLE, opened, sight
from tests.viz.player.test_player_page import NAMES, named
from tinyckpt.core.schedule import EVALUATIONS
from tinyckpt.planner.model.value_fates import operator_words, value_words


@pytest.mark.browser
def test_search_marks_and_navigates_to_matches(tmp_path: Path, open_page: Open) -> None:
    (trace,) = traces_of("resnet50", ("sqrt_n",))
    page = opened(tmp_path, open_page, "resnet50", "#step=300")
    graph = trace.graph
    texts = [
        "\n".join(
            [operator_words(graph, o.id), o.scope, o.kind]
            + [value_words(graph, value) for value in o.outputs]
        )
        for o in graph.operators
    ]
    wanted = [i for i, text in enumerate(texts) if "stage3" in text and "conv2d" in text]
    page.keyboard.press("/")
    page.keyboard.type("stage3 conv2d")
    assert page.evaluate("player.navigation.search.items") == wanted
    assert page.inner_text("#search-total") == str(len(wanted))
    evaluated = [
        place for place, step in enumerate(trace.steps)
        if isinstance(step, EVALUATIONS) and step.operator in set(wanted)
    ]  # fmt: skip
    found = "Array.from(player.navigation.search.evaluationsOf(player.models[0]))"
    assert page.evaluate(found) == evaluated
    # Rows with matches are marked, and no others.
    marked = page.evaluate("""() => { const {ledger} = player.panels[0];
        const canvas = ledger.element.querySelector(".found");
        const pixels = canvas.getContext("2d").getImageData(1, 0, 1, canvas.height).data;
        return ledger.rows.names.filter((_, row) => {
            const [high, low] = ledger.lane(ledger.rows.forward[row]);
            return pixels[4 * ((high + low) >> 1) + 3] > 0; }); }""")
    assert marked == [f"stage3/block{i}" for i in (1, 2, 3, 4)]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = operator_words(graph, wanted[1])
    assert page.inner_text("#node-title") == second
    assert page.inner_text("#search-total") == f"2 of {len(wanted)}"
    assert page.is_hidden(".path")
    page.keyboard.press("Enter")  # into the group
    assert page.inner_text(".path").split("\n")[:2] == ["resnet50", "stage3/block1"]
    assert page.evaluate("document.activeElement.id") == "search-input"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    last = operator_words(graph, wanted[-1])
    assert page.inner_text("#node-title") == last
    page.focus("#scrub")
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert page.inner_text("#node-title") == second
    page.keyboard.press("Shift+N")
    page.click("#search-list .row >> nth=2")
    third = operator_words(graph, wanted[2])
    assert page.inner_text("#node-title") == third
    page.keyboard.press("Escape")
    assert page.is_hidden("#search")
    assert not page.evaluate("player.navigation.search.active")
    assert page.evaluate(TICK) == 300


@pytest.mark.browser
def test_search_finds_a_gradient_by_its_words_and_by_its_name(
    tmp_path: Path, open_page: Open
) -> None:
    page = opened(tmp_path, open_page, "residual:2x8", "#step=3")
    found = []
    for query in ("gradient of gelu_1", "gelu_1_vjp"):
        page.keyboard.press("/")
        page.fill("#search-input", query)
        found.append(page.evaluate("player.navigation.search.items"))
        page.keyboard.press("Escape")
    assert found[0] == found[1]
    assert len(found[0]) == 1


@pytest.mark.browser
def test_match_out_of_view_is_scrolled_into_view(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "chain:16", "#step=40&from=60&to=80")
    page.keyboard.press("/")
    page.keyboard.type("f3")
    page.keyboard.press("Enter")
    low, high = sight(page)
    assert high - low == pytest.approx(20)
    (trace,) = traces_of("chain:16", ("sqrt_n",))
    steps = [place for place, step in enumerate(trace.steps) if step == tc.Compute(2)]
    assert any(low <= step < high for step in steps)
    page.fill("#search-input", "nothing is called this")
    assert page.inner_text("#search-total") == "0"
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")


@pytest.mark.browser
def test_hostile_names_are_searchable(tmp_path: Path, open_page: Open) -> None:
    trace = tc.replay(tc.plan(named(NAMES), "store_all"))
    page = open_page(written(tmp_path, [trace], "ledger"))
    page.keyboard.press("/")
    for query in ("<", "(", "[", "\\", ".*", "%", "é"):
        page.fill("#search-input", query)
        page.keyboard.press("ArrowDown")
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# Elsewhere, and links ----------------------------------------------------------------------------


@pytest.mark.browser
def test_expanded_group_shows_activity_elsewhere(tmp_path: Path, open_page: Open) -> None:
    (trace,) = traces_of("resnet50", ("sqrt_n",))
    step = next(
        place for place, step in enumerate(trace.steps)
        if isinstance(step, EVALUATIONS)
        and trace.graph.operators[step.operator].scope == "stage4/block4"
    )  # fmt: skip
    page = opened(tmp_path, open_page, "resnet50", f"#step={step}&open=3")
    held = page.evaluate("""() => { const {strip, ledger, step} = player.panels[0];
        const away = strip.blocks(step).filter(({value}) => value >= 0 && ledger.homeOf[value] < 0);
        return away.reduce((sum, {amount}) => sum + amount, 0); }""")
    words = f"also active elsewhere: {held / 2**20:.0f} MiB held now "
    assert page.inner_text(".elsewhere").replace("\n", " ").startswith(words)
    page.click(".elsewhere button")
    assert page.inner_text(".path [aria-current]") == "stage4/block4"
    assert page.is_hidden(".elsewhere button")
    page.click(".path button >> nth=0")
    assert page.is_hidden(".path")


@pytest.mark.nightly
@pytest.mark.browser
def test_history_navigates_through_views(tmp_path: Path, open_page: Open) -> None:
    page = opened(tmp_path, open_page, "resnet50", "#step=300")
    page.keyboard.press("w")
    until(page, "location.hash.includes('from=')")
    zoomed = sight(page)
    page.click(".rail-row >> nth=-1")
    until(page, "location.hash.includes('open=')")
    page.keyboard.press("ArrowRight")
    until(page, "location.hash.startsWith('#step=301')")
    choose_largest(page)
    until(page, "location.hash.includes('select=')")
    last = page.evaluate("location.hash")
    page.go_back()
    until(page, "location.hash.includes('select=')", False)
    assert page.is_hidden("#node")
    assert page.is_visible(".path")
    page.go_back()
    until(page, "document.querySelector('.path').hidden")
    assert sight(page) == pytest.approx(zoomed)
    page.go_back()
    until(page, WHOLE)
    assert page.evaluate(TICK) == 300
    for _ in range(3):
        page.go_forward()
    until(page, "location.hash", last)
    until(page, "player.tick", 301)
    assert page.is_visible("#node")
    assert sight(page) == pytest.approx(zoomed)
    assert page.is_visible(".path")


@pytest.mark.browser
def test_link_restores_the_whole_view(tmp_path: Path, open_page: Open) -> None:
    traces = traces_of("resnet50", ("sqrt_n", "store_all"))
    path = written(tmp_path, traces, "ledger")
    address = (
        "#step=300&view=graph&open=2,3&select=1.v40&alone=2&from=100.5&to=400&loop=5-9&find=conv2d"
    )
    page = open_page(path, address)
    until(page, "player.address()", address)
    for wrong in (
        "#step=1e9&open=99,-1&select=7.v3&from=a&to=5", "#open=x&select=v99999999&loop=5-&alone=0",
        "#step=3&from=9&to=3&select=c&loop=9999999-3", "#FLOPs=3&from=1e300&to=1e301&alone=9",
    ):  # fmt: skip
        page.evaluate("hash => { location.hash = hash }", wrong)
        page.wait_for_timeout(30)
        assert page.evaluate("player.panels.map(panel => panel.index)") == [0, 0]
        assert page.evaluate("player.navigation.loop") is None
        assert page.evaluate("player.solo") == -1
    assert open_page(path, wrong).is_visible(".ledger")


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("front", ["ledger", "graph"])
def test_link_marks_the_live_interval_of_its_step(
    front: str, tmp_path: Path, open_page: Open
) -> None:
    marked = "() => { player.setFront('ledger'); return player.panels[0].ledger.selected; }"
    choose = """([front, step]) => { player.setFront(front);
        player.seek(step); player.choose(player.panels[0], -1, 2); }"""
    traces = traces_of("chain:16", ("sqrt_n",))
    path = written(tmp_path, traces, front)
    page = open_page(path)
    begins = set()
    for step in range(0, len(traces[0].steps), 3):
        page.evaluate(choose, [front, step])
        address, chosen = page.evaluate("player.address()"), page.evaluate(marked)
        if chosen["begin"] not in begins:
            assert open_page(path, address).evaluate(marked) == chosen
        begins.add(chosen["begin"])
    assert len(begins) == 2  # it is recomputed once
