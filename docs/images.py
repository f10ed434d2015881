"""Makes the pictures of the README: ``make images``."""

from pathlib import Path

import tinyckpt as tc
import viz

FOLDER = Path(__file__).parent / "images"
POLICIES = ("store_all", "sqrt_n", "recompute_all")


def main() -> None:
    """Write every picture, and say which."""
    FOLDER.mkdir(exist_ok=True)
    short = [tc.replay(tc.plan(tc.networks.chain(9), policy)) for policy in POLICIES]
    print(viz.gif(short, FOLDER / "chain9.gif", fps=8))
    traces = [tc.replay(tc.plan(tc.networks.chain(16), policy)) for policy in POLICIES]
    print(viz.timeline(traces, FOLDER / "chain16-timeline.png"))
    deep = tc.replay(tc.plan(tc.networks.chain(256), "sqrt_n"))
    print(viz.save_still(deep, FOLDER / "chain256.png", 1000))
    graph, _ = tc.networks.network_from_text("branching:3x8")
    trace = tc.replay(tc.plan(graph, "sqrt_n"))
    print(viz.save_still(trace, FOLDER / "branching-dark.png", 60, theme="dark"))


if __name__ == "__main__":
    main()
