"""``tinyckpt lab``: write an interactive HTML page for choosing a budget and the saved values."""

from __future__ import annotations

from typing import Any

from tinyckpt.cli.resolve_options import (
    COSTS,
    PAGES,
    check_output,
    graph_of,
    measured_of,
    progress_line,
    refuse_given,
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
    names = ("policy", "points", "challenge", "cost", "measured", "title", "labels", "group")
    reason = "--empty has nothing in it: leave {} out"
    refuse_given(options, ("network", *names), reason)
    measured_of(options)  # for its usage errors
    viz.empty_lab(options.output, theme=options.theme)
    print(f"written to {options.output}; open it in a browser, and drop a file onto it")
    return 0
