"""Budget challenges: page and ``viz.challenge`` agree, and the answer stays hidden."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tinyckpt as tc
import viz
from tests.viz.conftest import Open, assert_accessible
from tests.viz.lab.conftest import OpenLab
from tests.viz.lab.lab_driver import LAYER, STATE, at_work
from tests.viz.player.player_driver import until
from tinyckpt.cli import main
from tinyckpt.course.grading import best_answers
from tinyckpt.course.puzzles import POINTS, PUZZLES

GIVEN_AWAY = ("#lab-form", "#lab-known", "#lab-advice", ".stairs", ".dot", ".policy", ".impossible")
NETWORKS = {
    "chain:12": ("6 nodes", [["f6"], ["f3", "f7", "f10"], ["f1", "f7", "f10"], ["f3", "f6"]]),
    "chain:20": ("9 nodes", [[], ["f5", "f10", "f15"], ["f6", "f11", "f15", "f18"]]),
    "residual:4x8": ("60 %", [[], ["add_*"], ["add_2", "add_4", "add_6"], ["gelu_*"]]),
}  # fmt: skip


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the challenge page of a network; each is written once."""
    folder, known = tmp_path_factory.mktemp("challenge"), {}

    def page_of(network: str) -> Path:
        if network not in known:
            graph = tc.networks.network_from_text(network)[0]
            known[network] = viz.lab(
                graph, folder / f"{len(known)}.html", challenge=NETWORKS[network][0], time_limit=2
            )
        return known[network]

    return page_of


@pytest.fixture
def challenge(asking: Callable[[str], Path], open_page: Open) -> OpenLab:
    """Return ``challenge(network, **context)``, which returns the open challenge of a network."""
    return lambda network, **context: at_work(open_page(asking(network), **context))


def visible(page: Any) -> list[str]:
    return [part for part in GIVEN_AWAY if page.locator(f".lab {part}").first.is_visible()]


@pytest.mark.browser
def test_challenge_is_solved_with_the_mouse(challenge: OpenLab) -> None:
    page = challenge("chain:12")
    head = "Stay within 6 values, and recompute as little as you can. "
    assert page.evaluate(STATE) == "keep=none"
    assert (
        page.inner_text("#lab-asked") == f"{head}Now 7 values too much: click layers to keep them."
    )
    assert page.inner_text("#lab-title") == "a challenge"
    assert visible(page) == []
    page.mouse.click(*middle(page.locator(".frontier")))  # where one would drag
    assert page.get_attribute(".budget-line", "aria-disabled") == "true"
    page.focus(".frontier .handle")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(STATE) == "keep=none"
    for layer in (3, 7):
        page.click(LAYER["ledger"].format(layer - 1))
        assert " too much." in page.inner_text("#lab-asked")
    page.click(LAYER["ledger"].format(9))
    assert page.inner_text("#lab-asked") == f"{head}Done: nothing within it costs less."
    assert page.inner_text("#lab-title") == "drag the budget"
    assert page.get_attribute(".budget-line", "aria-disabled") == "false"
    assert len(visible(page)) == len(GIVEN_AWAY)
    page.click("#lab-reset")
    assert page.evaluate(STATE) == "keep=none"


def middle(element: Any) -> tuple[float, float]:
    box = element.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.browser
def test_challenge_is_solved_with_keys_or_given_up(challenge: OpenLab) -> None:
    page = challenge("chain:12")
    for layer in (3, 7, 10):
        page.focus(LAYER["ledger"].format(layer - 1))
        page.keyboard.press("Enter")
    assert "Done: nothing within it costs less." in page.inner_text("#lab-asked")
    page = challenge("chain:12")
    page.focus("#lab-challenge")
    assert page.inner_text("#lab-challenge") == "show the answer"
    assert page.text_content("#lab-proof").startswith("Nothing runs within less than 3 values: ")
    page.keyboard.press("Enter")
    assert page.text_content("#lab-proof").startswith(
        "What is hatched cannot be. Less than 3 values"
    )
    assert len(visible(page)) == len(GIVEN_AWAY)
    page.focus(".frontier .handle")
    page.keyboard.press("Home")
    assert "This one was planned: click layers to keep your own." in page.inner_text("#lab-asked")


@pytest.mark.browser
def test_page_without_a_challenge_says_so(tmp_path: Path, open_page: Open) -> None:
    page = at_work(open_page(viz.lab(tc.networks.chain(1), tmp_path / "lab.html")))
    for _ in range(2):
        page.click("#lab-challenge")
        assert page.inner_text("#lab-said").startswith("No challenge here: ")
        assert page.text_content("#lab-asked") == ""
    page.select_option("#lab-policy", "recompute_all")
    assert page.evaluate(STATE) == "policy=recompute_all"


@pytest.mark.browser
def test_challenge_is_solved_by_touch(challenge: OpenLab) -> None:
    page = challenge(
        "chain:12", viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    for count, layer in enumerate((10, 7, 3), 1):
        row = page.locator(LAYER["ledger"].format(layer - 1))
        row.scroll_into_view_if_needed()
        row.tap()
        page.locator("#lab-flip").tap()
        until(page, "() => player.choice.keep.length", count)
        page.locator("#node-close").tap()
    assert "Done: nothing within it costs less." in page.inner_text("#lab-asked")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("network", NETWORKS)
def test_page_and_python_give_the_same_verdict(network: str, challenge: OpenLab) -> None:
    budget, choices = NETWORKS[network]
    graph = tc.networks.network_from_text(network)[0]
    page = challenge(network)
    for keep in choices:
        schedule = tc.plan(graph, "retain", keep=keep)
        kept = [data for data in schedule.checkpoints if graph.data[data].producer is not None]
        page.evaluate("values => player.take(player.offers.keeping(values))", kept)
        told = page.inner_text("#lab-asked")
        said = viz.challenge(schedule, budget, time_limit=2)
        if "too much" in said:
            assert f"Now {said.partition(' too much')[0]} too much" in told
        elif said.startswith("within"):
            assert f"Within it, {said.partition(' and ')[2].split(':')[0]}." in told
        else:
            assert "Done: " in told
            assert ("nothing within it" in told) == said.startswith("the optimum")


# Keep sets for each puzzle that asks for one; the last is the best.
ANSWERS: dict[int, list[list[str]]] = {
    1: [[], ["f3"], ["f3", "f6"], ["f2", "f4", "f6"], ["f4", "f7"]],
    8: [[], ["a1", "b3"], ["a3", "c1"], ["a3", "b2", "c2"]],
    9: [[], ["relu2"], ["conv2", "conv4"], ["conv1", "conv3", "conv4"]],
    10: [[], ["mix1", "qkv2", "add2"], ["up1", "down1", "scores2"], best_answers()[10]],
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("number", ANSWERS)
def test_page_and_python_give_the_same_points(
    number: int, tmp_path: Path, open_page: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "puzzle.html"
    assert main(["puzzle", str(number), "--lab", str(path)]) == 0
    page, puzzle = open_page(path), PUZZLES[number]
    assert puzzle.graph is not None
    assert page.inner_text("#lab-asked").startswith(f"Puzzle {number}, {puzzle.title}. ")
    given = set()
    for keep in ANSWERS[number]:
        schedule = tc.plan(puzzle.graph(), "retain", keep=keep)
        data = schedule.graph.data
        kept = [data[value] for value in schedule.checkpoints if not data[value].is_source]
        page.evaluate(
            "values => player.take(player.offers.keeping(values))", [node.id for node in kept]
        )
        told = page.inner_text("#lab-asked")
        result = tc.puzzles.check(number, [node.name for node in kept])
        given.add(result.points)
        assert f"Now {result.points} of {POINTS} points: " in told
        assert (" too much." in told or " may be." in told) == (result.points == 0)
        assert ("The best, in grey, keeps " in told) == (result.points == POINTS)
    assert {0, POINTS} <= given
    assert len(given) > 2
    # What is grey now is the best, which is shown as well: they coincide at every first evaluation.
    assert page.evaluate("() => Math.max(...player.scales.ghostOf(player.models[0]))") == (
        page.evaluate("() => Math.max(...player.models[0].live)")
    )
    assert puzzle.proof in told


def test_puzzles_of_other_forms_have_no_lab(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(tc.OptionError, match="no keep set"):
        tc.puzzles.task(3, [])
    for arguments in (["3"], ["1", "answer.py"]):
        with pytest.raises(SystemExit):
            main(["puzzle", *arguments, "--lab", "lab.html"])
        assert "keep set" in capsys.readouterr().err
    assert list(ANSWERS) == [each for each, puzzle in PUZZLES.items() if puzzle.form == "keep"]


@pytest.mark.sampled(1)
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_challenge_page_is_accessible(scheme: str, challenge: OpenLab) -> None:
    page = challenge("chain:20", color_scheme=scheme)
    assert_accessible(page, minor=True)


@pytest.mark.long
def test_challenge_verdicts_match_golden_text() -> None:
    chain = tc.networks.chain(27)
    within = lambda *keep: viz.challenge(  # noqa: E731
        tc.plan(chain, "retain", keep=[f"f{layer}" for layer in keep]), "8 nodes"
    )
    assert within(7, 13, 18, 22, 25) == (
        "the optimum: nothing within 8 values takes less than 76 evaluations"
    )
    assert (
        within(7, 13, 18, 22)
        == "2 values too much: the optimum within 8 values takes 76 evaluations"
    )
    dearer = viz.challenge(tc.plan(chain, "recompute_all"), 0.5)
    assert dearer.startswith("within 7.2 KiB and ")
    assert " % above the optimum: 406 evaluations, where that takes " in dearer
    graph = tc.networks.network_from_text("residual:4x8")[0]
    flops = tc.cost.flops(graph)
    best = tc.plan(graph, costs=flops, budget="70 %", time_limit=2)
    told = viz.challenge(best, "70 %", costs=flops, time_limit=2)
    assert told.startswith(("the optimum: nothing within", "as good as the best known within"))


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize(
    ("network", "budget", "said"),
    [
        ("chain:9", "2 nodes", "smallest peak found is "),
        ("chain:9", "many", "'many'; expected"),
        ("residual:4x8", "20 nodes", "differ in size; expected bytes, or a share"),
    ],
)
def test_illegal_challenge_budgets_are_refused(
    network: str, budget: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tc.networks.network_from_text(network)[0]
    with pytest.raises(tc.BudgetError, match=said):
        viz.lab(graph, tmp_path / "lab.html", challenge=budget, time_limit=0.5)
    arguments = ["lab", network, "-o", str(tmp_path / "lab.html"), "--time-limit", "0.5"]
    assert main([*arguments, "--challenge", budget]) != 0
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(tc.BudgetError):
        viz.challenge(tc.plan(graph), "many")


@pytest.mark.nightly
def test_lab_command_writes_a_challenge(tmp_path: Path) -> None:
    path = tmp_path / "lab.html"
    # Time enough for a frontier that is complete, on a busy machine too.
    asked = ["lab", "chain:9", "-o", str(path), "--challenge", "6 nodes", "--time-limit", "60"]
    assert main(asked) == 0
    expected = viz.lab(
        tc.networks.chain(9), challenge="6 nodes", network="chain:9", time_limit=60
    ).html
    assert path.read_text(encoding="utf-8") == expected
