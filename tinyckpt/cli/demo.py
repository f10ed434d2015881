"""What ``tinyckpt demo`` shows: policies on a chain and on real data, and a plan in a budget."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from tinyckpt.cost import flops
from tinyckpt.errors import FormatError, TinyckptError
from tinyckpt.networks import chain, resnet50
from tinyckpt.networks.digits import STEPS, accuracy, digits_network, train
from tinyckpt.planning.plan import plan
from tinyckpt.replay import replay
from tinyckpt.table import TRACE_HEADER, table, trace_row
from tinyckpt.trace import Trace

POLICIES = ("store_all", "sqrt_n", "recompute_all")
GOAL = 0.95
PLANNING = 3.0  # seconds
LESSON = Path(__file__).parents[2] / "lessons" / "01_the_graph.py"  # in a clone, not in a wheel


def demo(viz: Any, folder: Path, say: Callable[[str], None]) -> None:
    """Draw and train; say what is seen and where it is.

    Args:
        viz: the package of pictures.
        folder: for the pictures; made if it is not there.
        say: prints a paragraph.

    Raises:
        TinyckptError: if the folder cannot be made, the policies' losses differ in a single bit,
            or the network does not learn the digits.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"cannot make the folder {folder}: {error.strerror}") from error
    say("1. A chain of 16 layers under three policies: the same gradient, three prices.\n")
    traces = [replay(plan(chain(16), policy)) for policy in POLICIES]
    say(table(TRACE_HEADER, [trace_row(trace) for trace in traces]))
    say(f"\n   watch it: {viz.gif(traces, folder / 'chain16.gif', progress=True)}")
    say(f"   step through it, in a browser: {viz.player(traces, folder / 'chain16.html')}")
    say(f"   memory, as a chart: {viz.timeline(traces, folder / 'chain16.svg')}\n")

    say("2. An MLP learns 1,797 handwritten digits, once under each policy.\n")
    graph = digits_network().graph()
    traces = [replay(plan(graph, policy)) for policy in POLICIES]
    say(train_under_all(viz, traces))
    say(f"\n   watch it: {viz.gif(traces, folder / 'digits.gif', progress=True)}")

    say("\n3. ResNet-50, a batch of 32, in half the memory that it takes to store all.\n")
    network = resnet50()
    planned = plan(network, budget=0.5, costs=flops(network), time_limit=PLANNING)
    traces = [replay(plan(network)), replay(planned)]
    for trace in traces:
        say(f"   {trace.summary()}")
    say(f"   {planned.certificate}")
    say(f"\n   step through both: {viz.player(traces, folder / 'resnet50.html')}")
    say(f"\nNext, from this folder:\n\n{next_steps()}")


def train_under_all(viz: Any, traces: list[Trace]) -> str:
    """Train under each policy; return the table of what it took."""
    rows = []
    losses: dict[str, list[float]] = {}
    for trace in traces:
        policy = trace.schedule.policy
        begin = perf_counter()
        steps = list(viz.with_bar(train(policy), STEPS, f"training, {policy}", "step"))
        seconds = perf_counter() - begin
        losses[policy] = [loss for loss, _ in steps]
        reached = accuracy(steps[-1][1])
        if reached <= GOAL:
            raise TinyckptError(f"{policy}: test accuracy {reached:.3f}; expected above {GOAL}")
        rows.append([*trace_row(trace), f"{seconds:.2f} s", f"{100 * reached:.1f} %"])
    first = losses[POLICIES[0]]
    for policy, found in losses.items():
        if found != first:
            raise TinyckptError(f"the losses under {policy} are not those under {POLICIES[0]}")
    header = [*TRACE_HEADER, "time", "accuracy"]
    return (
        f"{table(header, rows)}\n\n   evaluations and peak are those of one step; all {len(first)} "
        f"losses are equal to the last bit,\n   from {first[0]:.3f} to {first[-1]:.3f}"
    )


def next_steps() -> str:
    """Return commands that work in the folder and the terminal where the demo was run."""
    scripts = Path(sysconfig.get_path("scripts"))
    python = spelt(Path(sys.executable))
    found = [path for path in scripts.glob("tinyckpt*") if path.stem == "tinyckpt"]
    tinyckpt = spelt(found[0]) if found else f"{python} -m tinyckpt"
    steps = [
        (f"{tinyckpt} compare chain:64", "what each policy costs"),
        (f"{tinyckpt} plan resnet50 --budget 50% --explain", "a plan, and why"),
        (f"{tinyckpt} --help", "everything that it can do"),
    ]
    if LESSON.exists():
        steps.insert(0, (f"{python} {shortest(LESSON)}", "the first of the lessons"))
    width = max(len(step) for step, _ in steps)
    return "\n".join(f"   {step:{width}}  # {what}" for step, what in steps)


def spelt(program: Path) -> str:
    """Return how a shell finds a program here: by its name alone, if PATH leads to this very one.

    That an environment is not activated is no reason to leave it.
    """
    on_path = shutil.which(program.stem)
    # Not resolved: an environment's interpreter is a link to one that knows nothing of it.
    if on_path and Path(on_path).absolute().parent == program.absolute().parent:
        return program.stem
    return shortest(program)


def shortest(path: Path) -> str:
    """Return a path as seen from here if it is below, quoted for a shell where it must be."""
    path = path.absolute()
    below = path.is_relative_to(Path.cwd())
    return shlex.quote(os.path.relpath(path) if below else str(path))
