"""Generator of the README's images (``make images``); one is a screenshot and needs Chromium."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

import tinyckpt as tc
from tinyckpt import viz
from tinyckpt.pipeline import one_f_one_b, replay_pipeline, zb_h1
from tinyckpt.techniques import compare_techniques

FOLDER = Path(__file__).parent / "images"
POLICIES = ("store_all", "sqrt_n", "recompute_all")
NAMED = (*POLICIES, "chen_recursive", "revolve")


def main() -> None:
    """Write every picture, and print its path."""
    FOLDER.mkdir(exist_ok=True)
    nine = tc.networks.chain(9)
    short = [tc.replay(tc.plan(nine, policy)) for policy in POLICIES]
    print(viz.gif(short, FOLDER / "chain9.gif"))
    chain = tc.networks.chain(16)
    explained = tc.replay(tc.plan(chain, "sqrt_n"))
    command = "tinyckpt gif chain:16 --style explainer"
    for theme, suffix in (("light", ""), ("dark", "-dark")):
        path = FOLDER / f"explainer{suffix}.gif"
        print(viz.explainer(explained, path, theme=theme, command=command))
    print(viz.explainer(tc.replay(tc.plan(layers(), "sqrt_n")), FOLDER / "layers16.png"))
    traces = [tc.replay(tc.plan(chain, policy)) for policy in NAMED]
    found = tc.frontier(chain)
    print(viz.frontier(found, FOLDER / "frontier.png", traces=traces, bound=found.bounds()))
    print(viz.timeline(traces[:3], FOLDER / "chain16-timeline.png"))
    deep = tc.replay(tc.plan(tc.networks.chain(256), "sqrt_n"))
    print(viz.save_still(deep, FOLDER / "chain256.png", 1000))
    unet, _ = tc.networks.network_from_text("unet")
    trace = tc.replay(tc.plan(unet, "sqrt_n"))
    print(viz.save_still(trace, FOLDER / "unet-dark.png", trace.peak_step, theme="dark"))
    made = one_f_one_b(4, 8), zb_h1(4, 8)
    pipelines = [replay_pipeline(pipeline) for pipeline in made]
    print(viz.pipeline(pipelines, FOLDER / "pipelines.png"))
    weighed = compare_techniques(tc.networks.transformer(), measure=False)
    print(viz.techniques(weighed, FOLDER / "techniques.png"))
    print(viz.techniques(weighed, FOLDER / "techniques-dark.png", theme="dark"))
    print(screenshot(traces[:2], FOLDER / "player.png"))


def layers() -> tc.TrainingGraph:
    """Return the graph of the README's example."""

    def loss(params: list[Any], x: Any) -> Any:
        for number, w in enumerate(params, start=1):
            with tc.scope(f"layer{number}"):
                x = tc.tanh(x @ w)
        return tc.mean(x**2)

    return tc.differentiate(tc.build(loss, [tc.Spec((64, 64))] * 16, tc.Spec((256, 64))))


def screenshot(traces: list[tc.Trace], path: Path) -> Path:
    """Write a screenshot of a player at the peak of the last trace."""
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_path = viz.player(traces, Path(folder) / "player.html", show="all")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": 1280, "height": 900}, device_scale_factor=1.25,
            reduced_motion="reduce",
        )  # fmt: skip
        page.goto(f"{page_path.as_uri()}#step={traces[-1].peak_step}")
        page.wait_for_selector("html[data-ready]")
        page.locator(".panel").last.locator(".node").nth(9).click()
        page.screenshot(path=path)
        browser.close()
    return path


if __name__ == "__main__":
    main()
