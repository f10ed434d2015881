"""The ``tinyckpt`` command: the composition root, and the one place here that imports viz."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, NoReturn

from tinyckpt.api import RunResult, run
from tinyckpt.backend import BACKENDS
from tinyckpt.demo import demo
from tinyckpt.errors import BackendError, GraphError, ScheduleError, TinyckptError
from tinyckpt.graph import Graph
from tinyckpt.networks import NETWORKS, network_from_text, random_arrays
from tinyckpt.planning import plan
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
        result: int = options.job(options)
        sys.stdout.flush()
    except TinyckptError as error:
        return failed(str(error))
    except MemoryError as error:
        return failed(f"not enough memory: {error}")
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python must not flush into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return failed(str(error))
    except KeyboardInterrupt:
        print("tinyckpt: interrupted", file=sys.stderr)
        return 130
    return result


def failed(reason: str) -> int:
    """Say why a job failed; return its exit code."""
    print(f"tinyckpt: {reason}", file=sys.stderr)
    return 1


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
        sub.set_defaults(job=job, parser=sub)
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
    sub.add_argument(
        "--still",
        type=int,
        metavar="STEP",
        help="also write OUT.png: this step, as plan numbers them from 0",
    )
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


def wrong_usage(options: Any, reason: str) -> NoReturn:
    """Print the command's usage and the reason; exit with 2."""
    parser: argparse.ArgumentParser = options.parser
    parser.error(reason)


def graph_of(options: Any) -> tuple[Graph, Any]:
    """Return the network's graph and specs; a name that means nothing is wrong usage."""
    try:
        return network_from_text(options.network)
    except GraphError as error:
        wrong_usage(options, str(error))


def policy_options(options: Any, policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each policy's own options; one that no chosen policy has is wrong usage."""
    given = {"sqrt_n": {"segments": options.segments}, "retain": {"keep": options.keep}}
    for policy, values in given.items():
        for name, value in values.items():
            if value is not None and policy not in policies:
                wrong_usage(options, f"--{name} is an option of {policy}, which was not asked for")
    return {
        policy: {name: value for name, value in given.get(policy, {}).items() if value is not None}
        for policy in policies
    }


def traces_of(graph: Graph, policies: Sequence[str], options: Any) -> list[Trace]:
    """Return the replayed traces of some policies."""
    own = policy_options(options, policies)
    try:
        return [replay(plan(graph, policy, **own[policy])) for policy in policies]
    except ScheduleError as error:
        wrong_usage(options, str(error))


def seconds_of(trace: Trace, arrays: Sequence[Any], backend: str) -> tuple[RunResult, float]:
    """Run a schedule twice; return the second result, and the seconds it took."""
    run(trace.schedule, *arrays, backend=backend)  # warms up caches and kernels
    begin = perf_counter()
    result = run(trace.schedule, *arrays, backend=backend)
    return result, perf_counter() - begin


def demo_job(options: Any) -> int:
    """Show everything."""
    demo(viz_module(), Path(options.output), print)
    return 0


def plan_job(options: Any) -> int:
    """Print a schedule, and write its trace."""
    graph, _ = graph_of(options)
    (trace,) = traces_of(graph, [options.policy], options)
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


def run_job(options: Any) -> int:
    """Execute a schedule."""
    graph, specs = graph_of(options)
    (expected,) = traces_of(graph, [options.policy], options)
    result, seconds = seconds_of(expected, random_arrays(specs), options.backend)
    print(result.trace.summary())
    if result.value is not None:
        print(f"loss {float(result.value):.6g}")
    print(f"{1000 * seconds:.1f} ms on {options.backend}, after one run to warm up")
    agree = "agrees with" if result.trace == expected else "DIFFERS from"
    print(f"what was measured from the arrays {agree} the replay")
    return 0 if result.trace == expected else 1


def compare_job(options: Any) -> int:
    """Print a table of policies."""
    graph, specs = graph_of(options)
    arrays = random_arrays(specs)
    rows = []
    for trace in traces_of(graph, options.policy or DEFAULT_POLICIES, options):
        _, seconds = seconds_of(trace, arrays, options.backend)
        rows.append([*trace_row(trace), f"{1000 * seconds:.1f} ms"])
    print(f"{graph.name}: {len(graph.operators)} operators, {graph.forward_count} of them forward")
    print(table([*TRACE_HEADER, "time"], rows))
    return 0


def gif_job(options: Any) -> int:
    """Write a GIF."""
    viz = viz_module()
    if options.network.endswith(".json"):
        if options.policy or options.segments is not None or options.keep:
            wrong_usage(options, "a trace has its policy already; leave --policy and its like out")
        traces = [load_trace(options.network)]
    else:
        graph, _ = graph_of(options)
        traces = traces_of(graph, options.policy or ("sqrt_n",), options)
    if options.title is not None and len(traces) > 1:
        wrong_usage(options, "--title is for one policy; several are called by their names")
    last = max(len(trace.steps) for trace in traces) - 1
    if options.still is not None and not 0 <= options.still <= last:
        wrong_usage(options, f"--still {options.still}: the steps are numbered 0 to {last}")
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
        for needed in ("graphviz", "imageio.v3", "matplotlib", "PIL", "tqdm"):
            importlib.import_module(needed)
        return importlib.import_module("viz")
    except ImportError as error:
        raise BackendError(
            f"pictures need {error.name}, which is not installed: pip install 'tinyckpt[viz]'"
        ) from error
