"""The ``tinyckpt`` command: the composition root, and the one place here that imports viz."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

from tinyckpt.api import plan, run
from tinyckpt.backend import BACKENDS
from tinyckpt.demo import demo
from tinyckpt.errors import BackendError, GraphError, TinyckptError
from tinyckpt.graph import Graph
from tinyckpt.networks import NETWORKS, network_from_text, random_arrays
from tinyckpt.policies import POLICIES
from tinyckpt.replay import replay
from tinyckpt.serialize import load_trace, save_trace
from tinyckpt.table import TRACE_HEADER, table, trace_row
from tinyckpt.trace import Trace

FORMS = "\n".join(f"  {form:24} {what}" for form, what in NETWORKS.values())
NETWORK_HELP = f"""NETWORK is one of
{FORMS}
  {"path/to/file.py:function":24} a function that returns a tinyckpt.networks.Network"""
POLICY_HELP = "POLICY is one of\n" + "\n".join(
    f"  {policy.name:24} {policy.summary}" for policy in POLICIES.values()
)
EXAMPLES = """start here
  tinyckpt demo                                  see everything, in seconds
  tinyckpt compare chain:16                      what each policy costs
  tinyckpt plan chain:4 --policy sqrt_n          one schedule, step by step
  tinyckpt gif chain:16 -o sqrt.gif              watch it
  tinyckpt gif mlp:6x64 --policy store_all --policy sqrt_n -o both.gif"""
DEFAULT_POLICIES = ("store_all", "sqrt_n", "recompute_all")
PRINTED_STEPS = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0, 1 for a failed job, 2 for wrong usage."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        result: int = options.job(options, parser)
    except TinyckptError as error:
        print(f"tinyckpt: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tinyckpt: interrupted", file=sys.stderr)
        return 130
    return result


def make_parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    parser = argparse.ArgumentParser(
        prog="tinyckpt",
        description="See, understand and plan gradient checkpointing.",
        epilog=f"{EXAMPLES}\n\n{NETWORK_HELP}\n\n{POLICY_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, job: Any, text: str, *, policies: bool = True) -> Any:
        sub = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"{NETWORK_HELP}\n\n{POLICY_HELP}" if policies else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(job=job)
        return sub

    sub = command("demo", demo_job, "see everything, in seconds", policies=False)
    sub.add_argument("-o", "--output", default="demo-out", metavar="FOLDER", help="for pictures")

    sub = command("plan", plan_job, "print one schedule, and what it costs")
    add_network(sub)
    add_policy(sub)
    sub.add_argument("-o", "--output", metavar="FILE.json", help="write the trace as JSON")

    sub = command("run", run_job, "execute one schedule on random arrays, and measure it")
    add_network(sub)
    add_policy(sub)
    sub.add_argument("--backend", default="numpy", choices=BACKENDS)

    sub = command("compare", compare_job, "compare policies: evaluations, peak, time")
    add_network(sub)
    add_policies(sub)
    sub.add_argument("--backend", default="numpy", choices=BACKENDS)

    sub = command("gif", gif_job, "draw policies as an animated GIF, in step")
    add_network(sub, "NETWORK, or a trace that plan wrote, ending in .json")
    add_policies(sub)
    sub.add_argument("-o", "--output", required=True, metavar="OUT.gif")
    sub.add_argument("--theme", default="light", choices=("light", "dark"))
    sub.add_argument("--scale", type=int, default=1, choices=(1, 2, 3), help="800 pixels each")
    sub.add_argument("--fps", type=float, default=8.0, help="frames a second, at most 50")
    sub.add_argument("--title", help="in place of the policy's name")
    sub.add_argument("--still", type=int, metavar="STEP", help="also write OUT.png of this step")
    return parser


def add_network(parser: Any, text: str = "what to plan, see below") -> None:
    """Add the positional argument NETWORK."""
    parser.add_argument("network", metavar="NETWORK", help=text)


def add_policy(parser: Any) -> None:
    """Add one policy and its options."""
    parser.add_argument("--policy", default="sqrt_n", choices=tuple(POLICIES), metavar="POLICY")
    add_policy_options(parser)


def add_policies(parser: Any) -> None:
    """Add any number of policies and their options."""
    parser.add_argument(
        "--policy",
        action="append",
        choices=tuple(POLICIES),
        metavar="POLICY",
        help="may be given several times",
    )
    add_policy_options(parser)


def add_policy_options(parser: Any) -> None:
    """Add what some policies can be told."""
    parser.add_argument("--segments", type=int, metavar="N", help="for sqrt_n: how many segments")
    parser.add_argument(
        "--keep", action="append", metavar="NAME", help="for retain: a value to keep, by its name"
    )


def graph_of(options: Any, parser: argparse.ArgumentParser) -> tuple[Graph, Any]:
    """Return the network's graph and specs; a name that means nothing is wrong usage."""
    try:
        return network_from_text(options.network)
    except GraphError as error:
        parser.error(str(error))


def trace_of_policy(graph: Graph, policy: str, options: Any) -> Trace:
    """Return the replayed trace of one policy with the options meant for it."""
    extra: dict[str, Any] = {}
    if policy == "sqrt_n" and options.segments is not None:
        extra["segments"] = options.segments
    if policy == "retain":
        extra["keep"] = options.keep or []
    return replay(plan(graph, policy, **extra))


def demo_job(options: Any, parser: argparse.ArgumentParser) -> int:
    """Show everything."""
    demo(viz_module(), Path(options.output), print)
    return 0


def plan_job(options: Any, parser: argparse.ArgumentParser) -> int:
    """Print a schedule, and write its trace."""
    graph, _ = graph_of(options, parser)
    trace = trace_of_policy(graph, options.policy, options)
    if len(trace.steps) <= PRINTED_STEPS:
        print("\n".join(trace.lines()))
    else:
        print(f"{len(trace.steps)} steps, too many to print; -o FILE.json writes them")
    print(trace.summary())
    print(trace.schedule.note)
    if options.output:
        save_trace(trace, options.output)
        print(f"written to {options.output}")
    return 0


def run_job(options: Any, parser: argparse.ArgumentParser) -> int:
    """Execute a schedule."""
    graph, specs = graph_of(options, parser)
    expected = trace_of_policy(graph, options.policy, options)
    begin = perf_counter()
    result = run(expected.schedule, *random_arrays(specs), backend=options.backend)
    seconds = perf_counter() - begin
    print(result.trace.summary())
    if result.value is not None:
        print(f"loss {float(result.value):.6g}")
    print(f"{1000 * seconds:.1f} ms on {options.backend}")
    agree = "agrees with" if result.trace == expected else "DIFFERS from"
    print(f"what was measured from the arrays {agree} the replay")
    return 0 if result.trace == expected else 1


def compare_job(options: Any, parser: argparse.ArgumentParser) -> int:
    """Print a table of policies."""
    graph, specs = graph_of(options, parser)
    arrays = random_arrays(specs)
    rows = []
    for policy in options.policy or DEFAULT_POLICIES:
        trace = trace_of_policy(graph, policy, options)
        run(trace.schedule, *arrays, backend=options.backend)  # once to warm up
        begin = perf_counter()
        run(trace.schedule, *arrays, backend=options.backend)
        rows.append([*trace_row(trace), f"{1000 * (perf_counter() - begin):.1f} ms"])
    print(f"{graph.name}: {len(graph.operators)} operators, {graph.forward_count} of them forward")
    print(table([*TRACE_HEADER, "time"], rows))
    return 0


def gif_job(options: Any, parser: argparse.ArgumentParser) -> int:
    """Write a GIF."""
    viz = viz_module()
    if options.network.endswith(".json"):
        traces = [load_trace(options.network)]
    else:
        graph, _ = graph_of(options, parser)
        traces = [
            trace_of_policy(graph, policy, options) for policy in options.policy or ("sqrt_n",)
        ]
    look = {"theme": options.theme, "scale": options.scale, "title": options.title}
    viz.gif(traces, options.output, fps=options.fps, progress=True, **look)
    print(f"written to {options.output}")
    if options.still is not None:
        path = Path(options.output).with_suffix(".png")
        viz.save_still(traces, path, options.still, **look)
        print(f"written to {path}")
    return 0


def viz_module() -> ModuleType:
    """Return the package of pictures, or raise a BackendError that says how to install it."""
    try:
        import viz
    except ImportError as error:
        raise BackendError(
            f"pictures need {error.name}, which is not installed: pip install 'tinyckpt[viz]'"
        ) from error
    return viz
