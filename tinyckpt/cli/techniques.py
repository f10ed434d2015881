"""``tinyckpt compare --techniques``: every memory-saving technique on one network, in one table."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from tinyckpt.base.errors import GraphError
from tinyckpt.base.files import write_atomically
from tinyckpt.cli.resolve_options import (
    COSTS,
    check_folder,
    number_or_text,
    progress_line,
    time_to_search,
    wrong_usage,
)
from tinyckpt.networks import network_or_graph
from tinyckpt.planner.model.link import Link
from tinyckpt.techniques import BUDGET, CHUNKS, STAGES, compare_techniques

OUTPUTS = (".json", ".png", ".svg", ".pdf")
SHARES = 8  # of a time limit: one for each of six plans, two for measuring all rows
OF_POLICIES = ("policy", "segments", "keep", "set")  # options of policies only


class DeprecatedFlag(argparse.Action):
    """The deprecated flag ``--means``, as version 0.1 called ``--techniques``; to be removed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Set ``techniques``, and print the new name."""
        print("note: --means is now --techniques", file=sys.stderr)
        namespace.techniques = True


def add_techniques(parser: Any) -> None:
    """Add the arguments of ``compare --techniques``."""
    parser.add_argument(
        "--techniques", action="store_true",
        help="compare memory-saving techniques, not policies: recomputation, offload, codes of few "
        "bits, and others; within half of store-all's peak, if no budget is given, and "
        "in FLOPs, if the graph carries no costs; -o draws them, or writes a .json",
    )  # fmt: skip
    parser.add_argument("--means", dest="techniques", action=DeprecatedFlag, help=argparse.SUPPRESS)
    parser.add_argument(
        "--bandwidth", type=float, metavar="X",
        help="with --techniques: bytes that a link copies per unit of cost; PCI Express 4.0 "
        "of an A100 by default, where costs are FLOPs, bytes moved or seconds",
    )  # fmt: skip
    parser.add_argument(
        "--stages",
        type=int,
        metavar="K",
        help=f"with --techniques: of the pipeline; {STAGES} if not given",
    )
    parser.add_argument(
        "--chunks",
        type=int,
        metavar="N",
        help=f"with --techniques: of the loss; {CHUNKS} if not given",
    )


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
    for name in OF_POLICIES:
        if getattr(options, name) not in (None, []):  # 0 counts as given: --segments 0
            wrong_usage(options, f"--{name} is about policies; leave it out, or --techniques")
    if options.bandwidth is not None and not 0 <= options.bandwidth < math.inf:
        wrong_usage(options, f"--bandwidth {options.bandwidth}: it must be 0 or more, and finite")
    if options.output and not options.output.lower().endswith(OUTPUTS):
        wrong_usage(options, f"-o {options.output}: it must end in {', '.join(OUTPUTS)}")
    check_folder(options)
    if options.output and not options.output.lower().endswith(".json"):
        from tinyckpt import viz  # noqa: F401 - fails early if a package is missing


def refuse_technique_options(options: Any) -> None:
    """Refuse options of ``--techniques`` without it."""
    for name in ("bandwidth", "stages", "chunks"):
        if getattr(options, name) is not None:
            wrong_usage(options, f"--{name} goes with --techniques")
