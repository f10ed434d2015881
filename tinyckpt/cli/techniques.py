"""``tinyckpt compare --techniques``: every memory-saving technique on one network, in one table."""

from __future__ import annotations

import json
import math
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.files import write_atomically
from tinyckpt.cli.resolve_options import (
    CHARTS,
    COSTS,
    check_output,
    number_or_text,
    progress_line,
    refuse_given,
    time_to_search,
    wrong_usage,
)
from tinyckpt.networks import network_or_graph
from tinyckpt.planner.model.link import Link
from tinyckpt.techniques import BUDGET, compare_techniques

SHARES = 8  # of a time limit: one for each of six plans, two for measuring all rows
OF_POLICIES = ("policy", "segments", "keep", "set")  # options of policies only


def techniques_job(options: Any) -> int:
    """Print the comparison, and draw or write it."""
    check(options)
    try:
        what = network_or_graph(options.network)
    except GraphError as error:
        wrong_usage(options, str(error))
    own = {name: getattr(options, name) for name in ("stages", "chunks")}
    with progress_line(options.network) as progress:
        found = compare_techniques(
            what,
            budget=BUDGET if options.budget is None else number_or_text(options.budget),
            costs=None if options.cost == "given" else COSTS[options.cost],
            link=None if options.bandwidth is None else Link(options.bandwidth),
            time_limit=time_to_search(options) / (1 if options.time_limit is None else SHARES),
            backend=options.backend,
            progress=progress,
            **{name: value for name, value in own.items() if value is not None},
        )
    print(found)
    if not options.output:
        return 0
    if options.output.lower().endswith(".json"):
        text = json.dumps(found.document(), indent=1, allow_nan=False)
        write_atomically(options.output, f"{text}\n".encode())
    else:
        from tinyckpt import viz

        viz.techniques(found, options.output)
    print(f"written to {options.output}")
    return 0


def check(options: Any) -> None:
    """Refuse options in conflict with ``--techniques``, before any work is done."""
    refuse_given(options, OF_POLICIES, "--{} is about policies; leave it out, or --techniques")
    if options.bandwidth is not None and not 0 <= options.bandwidth < math.inf:
        wrong_usage(options, f"--bandwidth {options.bandwidth}: it must be 0 or more, and finite")
    check_output(options, ".json", *CHARTS)
