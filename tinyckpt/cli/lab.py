"""``tinyckpt lab``: write an interactive HTML page for choosing a budget and the saved values."""

from __future__ import annotations

from typing import Any

from tinyckpt.cli.common_args import add_costs, add_page, known_policy
from tinyckpt.cli.measured_args import add_measured, measured_of
from tinyckpt.cli.resolve_options import (
    COSTS,
    PAGES,
    check_output,
    graph_of,
    progress_line,
    time_to_search,
    wrong_usage,
)


def lab_job(options: Any) -> int:
    """Write the lab page of a network."""
    from tinyckpt import viz

    check_output(options, *PAGES)
    if options.empty or options.network is None:
        return empty_job(options)
    measured = measured_of(options)
    graph, _ = graph_of(options)
    look = {name: getattr(options, name) for name in ("theme", "title", "labels", "group")}
    with progress_line(options.network) as progress:
        viz.lab(
            graph,
            options.output,
            costs=COSTS[options.cost](graph),
            policies=options.policy,
            points=options.points,
            challenge=options.challenge,
            time_limit=time_to_search(options),
            network=options.network,
            measured=measured,
            progress=progress,
            **look,
        )
    print(f"written to {options.output}; open it in a browser")
    return 0


def empty_job(options: Any) -> int:
    """Write the lab page without a network, which opens dropped files."""
    from tinyckpt import viz

    if not options.empty:
        wrong_usage(options, "NETWORK is missing; or --empty, onto which one drops a file")
    own = {"network": None, "policy": None, "points": None, "challenge": None, "cost": "given"}
    own |= {"measured": None, "title": None, "labels": None, "group": None}
    for name, default in own.items():
        if getattr(options, name) != default:
            wrong_usage(options, f"--empty has nothing in it: leave {name} out")
    measured_of(options)  # for its usage errors
    viz.empty_lab(options.output, theme=options.theme)
    print(f"written to {options.output}; open it in a browser, and drop a file onto it")
    return 0


def add_lab(parser: Any) -> None:
    """Add the arguments of ``tinyckpt lab``."""
    parser.add_argument("network", metavar="NETWORK", nargs="?", help="what to plan, see below")
    parser.add_argument(
        "--empty", action="store_true",
        help="instead of NETWORK: a page onto which one drops a graph, a trace or a snapshot",
    )  # fmt: skip
    parser.add_argument(
        "--policy", action="append", type=known_policy, metavar="POLICY",
        help="to be shown beside the frontier; store_all, sqrt_n and recompute_all by default",
    )  # fmt: skip
    parser.add_argument(
        "--points", type=int, metavar="N", help="schedules along the frontier, at most; 2 to 200"
    )
    parser.add_argument(
        "--challenge", metavar="BUDGET",
        help="begin with nothing kept, and ask to get within '9 nodes', '64 MiB', '50 %%'",
    )  # fmt: skip
    add_costs(parser)
    parser.add_argument("-o", "--output", required=True, metavar="OUT.html")
    add_page(parser)
    add_measured(parser)
