"""The element <tiny-ckpt> in a browser: what it shows, what drives it, and how it looks."""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
from tests.viz.conftest import Open, assert_accessible
from tests.viz.widget.conftest import Show
from tinyckpt import viz
from viz.explainer.drawing import caption_of, results_of
from viz.explainer.story import Moment, Story, story_of
from viz.scene import STOPS
from viz.theme import DARK, LIGHT, css
from viz.widget.data import traces_of, widget_data
from viz.widget.element_script import element_script

pytestmark = pytest.mark.browser
WIDTHS = (390, 800, 1280, 3840)
STORY = """widget => widget.moments.map(({ phase, rows }) => ({
    phase,
    rows: rows.map((state, row) => ({
        ...state,
        text: widget.parts.rows.children[row].querySelector(".caption").textContent,
    })),
}))"""
EVENTS = """widget => {
    window.events = [];
    for (const name of ["step", "schedule", "play", "pause", "keep"]) {
        const heard = event => window.events.push([name, event.detail]);
        document.addEventListener(`ckpt-${name}`, heard);
    }
}"""


def chain(policy: str = "sqrt_n") -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.chain(16), policy))


@cache
def resnet() -> tc.Trace:
    return tc.replay(tc.plan(tc.networks.resnet50(), "sqrt_n"))


@cache
def frontier() -> tc.Frontier:
    return tc.frontier(tc.networks.chain(16), nodes=True)


def widget_of(page: Any) -> Any:
    return page.locator("tiny-ckpt")


def place_of(page: Any) -> int:
    return int(widget_of(page).evaluate("widget => widget.place"))


def events_of(page: Any, name: str) -> list[Any]:
    """Details of the events of a name, since they are listened to."""
    return [detail for own, detail in page.evaluate("window.events") if own == name]


def check_moment(story: Story, moment: Moment, shown: Any) -> None:
    """A moment of the widget is that of the explainer, to the digits that its data have."""
    exact = story.in_nodes
    most_work = max(sum(row.done) for row in story.moments[-1].rows)
    assert shown["phase"] == moment.phase
    for row, state in zip(moment.rows, shown["rows"], strict=True):
        for name in ("active", "gradient", "waits"):
            assert state[name] == getattr(row, name), name
        assert state["run"] == (None if row.run is None else list(row.run))
        assert state["computed"] == list(row.computed)
        nearly = 1e-9 if exact else 1 / 60
        kept = [filled - again for filled, again in zip(row.filled, row.again, strict=True)]
        assert state["kept"] == pytest.approx(kept, abs=nearly)
        assert state["again"] == pytest.approx(row.again, abs=nearly)
        assert state["peak"] == pytest.approx(row.peak, abs=0 if exact else story.highest / 4000)
        assert state["done"] == pytest.approx(row.done, abs=0 if exact else most_work / 500)
        far = 1e-6 if exact else story.highest / 20
        assert state["bands"] == pytest.approx(row.bands, abs=far)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shown", [chain, resnet], ids=["chain:16", "resnet50"])
def test_widget_tells_the_story_of_the_explainer(shown: Callable[[], tc.Trace], show: Show) -> None:
    trace = shown()
    page, story = show(trace), story_of(trace)
    moments = widget_of(page).evaluate(STORY)
    assert len(moments) == len(story.moments)
    for moment, told in zip(story.moments, moments, strict=True):
        check_moment(story, moment, told)
    stops = widget_of(page).evaluate("widget => widget.stops")
    assert stops == {stop: story.at(stop) for stop in STOPS}
    captions = widget_of(page).evaluate(
        """widget => widget.moments.map((_, place) => {
            widget.show(place);
            return [...widget.parts.rows.querySelectorAll(".caption")].map(p => p.textContent);
        })"""
    )
    expected = [[caption_of(story, moment, row) for row in (0, 1)] for moment in story.moments]
    assert captions == [["", ""], *expected[1:]]
    sentences = " ".join(sentence for sentence, _ in results_of(story))
    assert page.locator(".result").text_content().strip() == sentences


def test_play_goes_from_moment_to_moment_and_rests_at_the_end(show: Show) -> None:
    page = show(chain())
    page.clock.install()
    widget_of(page).evaluate(EVENTS)
    page.locator(".play").click()
    assert page.locator(".play").get_attribute("aria-label") == "pause"
    page.clock.run_for(20_000)
    last = widget_of(page).evaluate("widget => widget.moments.length - 1")
    assert place_of(page) == last
    assert page.locator(".play").get_attribute("aria-label") == "play"
    places = [detail["place"] for detail in events_of(page, "step")]
    assert places == [*range(places[0], last + 1)]
    assert events_of(page, "play") == events_of(page, "pause") == [{}]
    page.locator(".play").click()
    page.locator(".play").click()
    place = place_of(page)
    assert place < last, "play at the end begins anew"
    page.clock.run_for(20_000)
    assert place_of(page) == place, "a widget that was stopped goes on"


def test_slider_moves_by_keyboard_and_says_what_happens(show: Show) -> None:
    page = show(chain(), stop="start")
    slider = page.locator(".slider")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert place_of(page) == 1
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext") == "The gradient of layer 1"
    assert place_of(page) == int(slider.get_attribute("max"))


def test_links_in_the_text_and_attributes_drive_the_widget(show: Show) -> None:
    text = (
        '<p>See the <a data-ckpt-stop="peak">peak</a>, or <a href="#more" data-ckpt-budget="50 %">'
        'half</a>, <a href="#x" data-ckpt-policy="sqrt_n" data-ckpt-for="none">none</a>.</p>'
    )
    page = show(frontier(), before=text, stop="start", budget=3)
    story = story_of(tc.replay(frontier().cheapest(3, certified=False)))
    widget_of(page).evaluate(EVENTS)
    page.get_by_text("peak", exact=True).focus()
    page.keyboard.press("Enter")
    assert events_of(page, "step")[-1]["stop"] == "peak"
    live = "widget => widget.moments[widget.place].rows[1].bands.reduce((sum, band) => sum + band)"
    assert widget_of(page).evaluate(live) == max(sum(m.rows[1].bands) for m in story.moments)
    page.get_by_text("half").click()
    assert page.url.endswith(".html"), "a link that drives a widget goes nowhere"
    (schedule,) = events_of(page, "schedule")
    assert schedule["peak"] == 9 or schedule["peak"] < 9
    assert page.locator(".heading").nth(1).text_content().startswith("Keep every 4th layer")
    page.get_by_text("none").click()  # names a widget that is not there
    assert page.url.endswith("#x")


@pytest.mark.parametrize(
    ("network", "policy", "legend"),
    [
        ("chain:4", "offload", ["on the host", "result"]),
        ("unet", "sqrt_n", ["thrown away", "result", "workspace"]),
    ],
)
def test_legend_and_caption_name_what_occurs(
    network: str, policy: str, legend: list[str], show: Show
) -> None:
    graph, _ = tc.networks.network_from_text(network)
    page = show(tc.replay(tc.plan(graph, policy)), stop="start")
    said = page.locator(".legend li >> visible=true").all_inner_texts()
    usual = ("in memory", "computed again", "gradient, going back")
    assert [words for words in said if words not in usual] == legend
    page.locator("input[type=range]").press("ArrowRight")
    words = "wait on the host" if policy == "offload" else "are thrown away"
    assert page.locator(".caption >> nth=1").inner_text() == f"The others {words}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("attributes", "peaks"),
    [
        ({}, [18, 3]),
        ({"budget": "3"}, [18, 3]),
        ({"budget": "50 %"}, [18, 9]),
        ({"budget": "1000000000"}, [18]),
        ({"policy": "sqrt_n", "compare": "none"}, [9]),
        ({"policy": "sqrt_n", "compare": "sqrt_n"}, [9]),
    ],
    ids=["usual", "least", "half", "enough", "alone", "itself"],
)
def test_attributes_choose_the_schedules(
    attributes: dict[str, str], peaks: list[int], show: Show
) -> None:
    page = show(frontier(), **attributes)
    found = widget_of(page).evaluate("w => w.shownRows.map(row => w.traceData.rows[row].peak)")
    assert found == peaks
    assert page.locator(".row").count() == len(peaks)


@pytest.mark.parametrize(
    ("attributes", "peaks"),
    [
        ({"budget": "2"}, [18, 3]),
        ({"budget": "1e9"}, [18]),
        ({"policy": "nothing known", "compare": "nothing known"}, [18, 3]),
    ],
    ids=["too small", "enough", "unknown"],
)
def test_attributes_set_in_the_page_choose_the_schedules(
    attributes: dict[str, str], peaks: list[int], show: Show
) -> None:
    page = show(frontier())
    for name, value in attributes.items():
        widget_of(page).evaluate(f"w => w.setAttribute({name!r}, {value!r})")
    found = widget_of(page).evaluate("w => w.shownRows.map(row => w.traceData.rows[row].peak)")
    assert found == peaks


def test_list_chooses_a_schedule_that_no_budget_chooses(show: Show) -> None:
    """Of one peak, the schedule with more work: by its place."""
    below = chain()
    # More memory and more work than sqrt_n.
    own = tc.replay(tc.plan(below.graph, "retain", keep=["f8"]))
    page = show([below, own])
    widget_of(page).evaluate(EVENTS)
    for row in (2, 1, 2):
        page.locator(".schedules").select_option(str(row))
        assert widget_of(page).evaluate("w => w.row") == row
    assert [s["row"] for s in events_of(page, "schedule")] == [2, 1, 2]
    assert widget_of(page).get_attribute("budget") is None


def test_list_of_schedules_chooses_a_budget(show: Show) -> None:
    page = show(frontier())
    widget_of(page).evaluate(EVENTS)
    page.locator(".schedules").select_option(label="peak 9, 27 % more work")
    assert widget_of(page).get_attribute("budget") == "9"
    (schedule,) = events_of(page, "schedule")
    assert {"policy": "sqrt_n", "peak": 9, "work": 42, "budget": "9"}.items() <= schedule.items()
    assert show(chain()).locator(".schedules").is_hidden()


def test_clicked_tiles_are_told_and_say_what_is_kept(show: Show) -> None:
    page = show(chain())
    assert page.locator(".keeps button").count() == 0
    widget_of(page).evaluate("widget => widget.setAttribute('keep', '')")
    widget_of(page).evaluate(EVENTS)
    pressed = page.locator('.keeps button[aria-pressed="true"]')
    assert [each.get_attribute("aria-label") for each in pressed.all()] == [
        "keep layer 4", "keep layer 8", "keep layer 12",
    ]  # fmt: skip
    page.get_by_label("keep layer 8").click()
    page.get_by_label("keep layer 9").click()
    assert events_of(page, "keep") == [{"kept": [4, 12]}, {"kept": [4, 8, 9, 12]}]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_widget_fits_has_the_theme_of_the_page_and_is_accessible(
    width: int, scheme: str, show: Show
) -> None:
    context = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    for shown in (frontier(), resnet()):
        page = show(shown, context=context)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        kept = "getComputedStyle(widget.shadowRoot.querySelector('rect.kept')).fill"
        colour = {"light": LIGHT, "dark": DARK}[scheme].kept
        assert widget_of(page).evaluate(f"widget => {kept}") == f"rgb{colour}"
        beyond = widget_of(page).evaluate(
            """widget => [...widget.shadowRoot.querySelectorAll("text, p, button, select, input")]
                .filter(part => part.getBoundingClientRect().right > innerWidth)
                .map(part => part.outerHTML)"""
        )
        assert beyond == []
        assert_accessible(page)


@pytest.mark.nightly
def test_theme_follows_the_text_around_and_the_attribute_overrides_it(show: Show) -> None:
    page = show(chain())
    kept = "w => getComputedStyle(w.shadowRoot.querySelector('.row:last-of-type rect.kept')).fill"
    family = "w => getComputedStyle(w.shadowRoot.querySelector('.number')).fontFamily"
    page.evaluate("document.body.style = 'color: #eee; background: #111; font-family: monospace'")
    page.wait_for_function(f"({kept})(document.querySelector('tiny-ckpt')) === 'rgb{DARK.kept}'")
    assert widget_of(page).evaluate(family) == "monospace"
    widget_of(page).evaluate("widget => widget.setAttribute('theme', 'light')")
    assert widget_of(page).evaluate(kept) == f"rgb{LIGHT.kept}"


def test_large_type_makes_a_large_widget(show: Show) -> None:
    page = show(chain(), context={"viewport": {"width": 3840, "height": 2160}})
    height = "widget => widget.shadowRoot.querySelector('.marks').getBoundingClientRect().height"
    before = widget_of(page).evaluate(height)
    page.evaluate("document.body.style.fontSize = '48px'")
    page.wait_for_function(
        f"({height})(document.querySelector('tiny-ckpt')) === {3 * before}", timeout=5000
    )


def test_two_widgets_with_fetched_data_replace_it(show: Show, tmp_path: Path) -> None:
    page = show(chain(), after="<tiny-ckpt id='second' policy='sqrt_n' stop='peak'></tiny-ckpt>")
    second = page.locator("#second")
    assert second.evaluate("widget => widget.moments.length") == 0
    data = viz.widget(chain("recompute_all"), tmp_path / "data.json").read_text(encoding="utf-8")
    second.evaluate("(widget, data) => { widget.data = data; }", json.loads(data))
    assert second.locator(".heading").nth(1).text_content().startswith("Keep nothing")
    address = f"data:application/json,{json.dumps({'rows': 0})}"
    second.evaluate("(widget, address) => widget.setAttribute('src', address)", address)
    page.wait_for_function(
        "document.querySelector('#second').shadowRoot.textContent.includes('could not')"
    )


PROBLEM = """widget => new Promise(heard => {
    const shown = () => widget.parts.problem.textContent;
    if (shown()) heard(shown());
    document.addEventListener("ckpt-error", ({ detail }) => heard(detail.message));
})"""


def with_script(tag: str, folder: Path) -> Path:
    """A page with an element as it is written."""
    path = folder / "page.html"
    script = viz.widget_script().replace("</", "<\\/")
    path.write_text(
        f'<!doctype html><html lang="en" data-ready><title>t</title><main>{tag}</main>'
        f"<script>{script}</script></html>",
        encoding="utf-8",
    )
    return path


def test_stop_has_a_short_name_in_attributes_and_links(open_page: Open, tmp_path: Path) -> None:
    tag = viz.widget_tag(chain(), stop="peak").replace('"peak"', '"recomputation"', 1)
    page = open_page(with_script(tag, tmp_path))
    again = page.evaluate("document.querySelector('tiny-ckpt').stops['first recomputation']")
    assert widget_of(page).evaluate("w => w.parts.problem.textContent") == ""
    assert place_of(page) == again
    widget_of(page).evaluate("w => w.goTo('end')")
    assert place_of(page) > again
    widget_of(page).evaluate("w => w.goTo('recomputation')")
    assert place_of(page) == again


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("stop='nowhere'", "stop nowhere: expected one of start, peak, first recomputation, end"),
        ("policy='revolve'", "policy revolve: the data have store_all, sqrt_n"),
        ("compare='x'", "compare x: the data have store_all, sqrt_n"),
        ("budget='much'", "budget much: expected values as in 9, a share as in 50 %, or bytes"),
        ("budget='1 GiB'", "budget 1 GiB: expected values as in 9"),
        ("budget='4'", "budget 4: the least here is 9"),
    ],
)
def test_attribute_that_the_data_do_not_have_is_named(
    attribute: str, said: str, open_page: Open, tmp_path: Path
) -> None:
    tag = viz.widget_tag(chain()).replace("<tiny-ckpt", f"<tiny-ckpt {attribute}", 1)
    page = open_page(with_script(tag, tmp_path))
    assert widget_of(page).evaluate(PROBLEM).startswith(said)
    assert page.locator("tiny-ckpt .marks").count() == 2  # the picture stands
    name = attribute.partition("=")[0]
    widget_of(page).evaluate(f"w => w.removeAttribute({name!r})")
    assert page.locator("tiny-ckpt .problem").inner_text() == ""


def damaged(change: Callable[[dict[str, Any]], Any]) -> str:
    """The element of a chain with changed data."""
    head, _, rest = viz.widget_tag(chain()).partition('<script type="application/json">')
    text, _, tail = rest.partition("</script>")
    data = change(json.loads(text))
    return f'{head}<script type="application/json">{json.dumps(data)}</script>{tail}'


def cut(data: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {**row, "moments": row["moments"].rpartition(".")[0][:200] + "."} for row in data["rows"]
    ]
    return {**data, "rows": rows}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: {}, "expected the data of viz.widget, format 1"),
        (lambda data: {**data, "format": 2}, "expected the data of viz.widget, format 1"),
        (lambda data: {**data, "rows": []}, "no schedule is in them"),
        (lambda data: {**data, "tiles": 0}, "expected 1 to 32 tiles with their sizes"),
        (lambda data: {**data, "sizes": "0"}, "expected 1 to 32 tiles with their sizes"),
        (lambda data: {**data, "rows": [{**data["rows"][0], "moments": "#."}]}, "unexpected #"),
        (cut, "the data are damaged"),
    ],
)
def test_damaged_data_are_refused_by_one_sentence(
    change: Callable[[dict[str, Any]], Any], said: str, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(with_script(damaged(change), tmp_path))
    message = widget_of(page).evaluate(PROBLEM)
    assert message.startswith("The trace could not be read: ")
    assert said in message
    assert page.locator("tiny-ckpt .marks").count() == 0


MODEL = """(() => {
    const values = VALUES, heard = {};
    return {
        values,
        get: name => values[name],
        on: (name, take) => (heard[name] ??= []).push(take),
        off: () => {},
        save_changes: () => {},
        set(name, value) {
            values[name] = value; // some notebooks tell of it also where nothing changes
            for (const take of heard[`change:${name}`] ?? []) take();
        },
    };
})()"""
SHOWN = "() => [...document.querySelectorAll('tiny-ckpt')].map(w => [w.row, w.step])"


def test_every_view_of_a_notebook_shows_what_its_model_says(
    open_page: Open, tmp_path: Path
) -> None:
    data = widget_data(traces_of(frontier()), steps=True)
    values = {"data": data, "attributes": {}, "budget": None, "row": 4, "step": -1, "kept": []}
    path = with_script("", tmp_path)
    code = element_script("notebook") + "window.renderWidget = renderWidget;"
    page = open_page(path)
    page.add_script_tag(content=f"(() => {{ {code} }})()")
    page.add_script_tag(content=f"window.model = {MODEL.replace('VALUES', json.dumps(values))}")
    view = "() => void renderWidget({ model, el: document.querySelector('main') })"
    page.evaluate(view)
    assert page.evaluate(SHOWN) == [[4, -1]]
    page.evaluate("() => window.model.set('row', 2)")
    page.evaluate("() => window.model.set('step', 20)")
    ((row, step),) = page.evaluate(SHOWN)
    assert row == 2
    assert step >= 20
    page.evaluate(view)  # the second view, opened later
    assert page.evaluate(SHOWN) == [[row, step]] * 2
    page.evaluate("() => window.model.set('budget', '9')")
    peak = "() => window.model.get('data').rows[window.model.get('row')].peak"
    assert page.evaluate(peak) == 9
    page.locator(".schedules").nth(1).select_option("1")
    assert page.evaluate("() => [model.get('row'), model.get('budget')]") == [1, "3"]
    assert [row for row, _ in page.evaluate(SHOWN)] == [1, 1]
    # Python shows a new last schedule; some notebooks tell of its row first, some of its data.
    for count, order in (5, ("row", "data")), (8, ("data", "row")), (6, ("data", "row")):
        values = {"data": {**data, "rows": data["rows"][:count]}, "row": count - 1}
        for name in order:
            page.evaluate("([name, value]) => model.set(name, value)", [name, values[name]])
        assert page.evaluate("() => model.get('row')") == count - 1
        assert [row for row, _ in page.evaluate(SHOWN)] == [count - 1] * 2
    page.evaluate("data => model.set('data', data)", data)
    rng = random.Random(28)
    for _ in range(60):  # set by Python, or by one of the views; all agree at once
        change = rng.choice(
            [
                f"model.set('row', {rng.randrange(8)})",
                f"model.set('budget', '{rng.choice(['3', '5', '9', '60 %', '18'])}')",
                f"model.set('step', {rng.randrange(90)})",
                f"widgets[{rng.randrange(2)}].pick({rng.randrange(8)})",
                f"widgets[{rng.randrange(2)}].show({rng.randrange(90)})",
            ]
        )
        page.evaluate(
            f"() => {{ const widgets = document.querySelectorAll('tiny-ckpt'); {change} }}"
        )
        first, second = page.evaluate(SHOWN)
        assert first == second == page.evaluate("() => [model.get('row'), model.get('step')]"), (
            change
        )


def test_still_picture_is_shown_where_no_script_runs(open_page: Open, tmp_path: Path) -> None:
    path = viz.widget(chain(), tmp_path / "still.html")
    page = open_page(path, java_script_enabled=False)
    assert page.get_by_text("Keep every 4th layer, compute the rest again").is_visible()
    assert page.get_by_text("Layers 9, 10, 11 again, from layer 8").is_visible()


def test_palette_of_the_script_is_the_theme_of_the_pictures() -> None:
    script = viz.widget_script()
    for theme in (LIGHT, DARK):
        assert f"--kept:{css(theme.kept)};" in script
