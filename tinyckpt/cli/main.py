"""Entry point of the ``tinyckpt`` command: dispatch to subcommands, exit codes; composition root.

viz is imported only where something is drawn, so that plans need NumPy alone.
"""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tinyckpt.base.errors import OptionError, TinyckptError
from tinyckpt.base.tree import leaves
from tinyckpt.base.units import size_text
from tinyckpt.cli.compare import DEFAULT_POLICIES, compare_job, seconds_of
from tinyckpt.cli.course_command import course_job, grade_job, lessons_job, puzzle_job
from tinyckpt.cli.demo import demo
from tinyckpt.cli.parser import make_parser
from tinyckpt.cli.pipe import pipe_job
from tinyckpt.cli.resolve_options import (
    CHARTS,
    COSTS,
    PAGES,
    check_output,
    graph_of,
    measured_of,
    progress_line,
    refuse_given,
    requested_policy,
    schedules_of,
    time_to_search,
    timed_if_linked,
    traces_of,
    wrong_usage,
)
from tinyckpt.cli.streams_and_signals import (
    escape_unencodable_output,
    flush_output,
    open_closed_streams,
    redirect_to_null,
    report_failure,
    unwinding_on_signals,
)
from tinyckpt.cli.torch_command import torch_job
from tinyckpt.core.replay import replay
from tinyckpt.core.trace import Trace
from tinyckpt.documents.graphs import save_graph
from tinyckpt.documents.schedules import save_trace
from tinyckpt.documents.trace_export import save_chrome_trace, save_csv
from tinyckpt.networks import random_arrays
from tinyckpt.networks.machine_memory import check_memory
from tinyckpt.pipeline.rank_supervisor import supervise
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.portfolio.explain import explain
from tinyckpt.planner.portfolio.pareto import Frontier
from tinyckpt.planner.portfolio.plan import frontier, plan

PRINTED_STEPS = 200
BOUNDS = 16  # lower bounds in a chart of the frontier; each takes seconds on a large graph
# By suffix, longer suffixes first.
TRACE_WRITERS: dict[str, Callable[[Trace, str], None]] = {
    ".chrome.json": save_chrome_trace, ".json": save_trace, ".csv": save_csv,
}  # fmt: skip
ANIMATIONS = (".gif", ".apng", ".png", ".webp", ".mp4", ".webm")
OF_GRAPHS = (  # options of pictures that the explainer decides itself
    "width", "aspect", "arrange", "labels", "group", "title", "fps", "seconds", "hold", "first",
    "last", "every", "align", "still",
)  # fmt: skip
LOOK = ("theme", "scale", "width", "aspect", "arrange", "labels", "group", "title")  # of pictures
CUT = ("first", "last", "every", "align", "fps", "seconds")  # of animations


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0, 1 for a failed job, 2 for wrong usage."""
    open_closed_streams()
    escape_unencodable_output()
    if list(sys.argv[1:] if arguments is None else arguments)[:1] == ["pipe"]:
        supervise()  # if an MPI launcher started this process; before any output
    try:
        code = dispatch(arguments)
    except SystemExit as end:
        raise SystemExit(flush_output(int(end.code or 0))) from None
    return flush_output(code)


@contextmanager
def deprecations_as_notes() -> Iterator[None]:
    """Print tinyckpt's own deprecation warnings as notes on standard error, once each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=DeprecationWarning, module="tinyckpt")
        show, printed = warnings.showwarning, set[str]()

        def show_note(message: Any, category: Any, *details: Any, **options: Any) -> None:
            if category is not DeprecationWarning:
                show(message, category, *details, **options)
            elif str(message) not in printed:
                print(f"note: {message}", file=sys.stderr)
                printed.add(str(message))

        warnings.showwarning = show_note
        yield


def dispatch(arguments: Sequence[str] | None) -> int:
    """Parse the command line and run the subcommand; return the exit code.

    Raises:
        SystemExit: with 2 for wrong usage, with 0 after ``--help``.
    """
    try:
        options = make_parser(JOBS).parse(arguments)
        with unwinding_on_signals(), deprecations_as_notes():
            return int(options.job(options))
    except OptionError as error:
        wrong_usage(options, str(error))
    except TinyckptError as error:
        return report_failure(str(error))
    except ImportError as error:  # extras are imported where they are used, and say what to install
        return report_failure(str(error))
    except MemoryError as error:
        return report_failure(f"not enough memory: {error}")
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
        return 0
    except OSError as error:
        return report_failure(str(error) if error.filename else f"{error.strerror or error}")
    except KeyboardInterrupt:
        report_failure("interrupted")
        return 130


def write_trace(trace: Trace, path: str) -> None:
    """Write a trace in the format of the suffix: data, or a chart of evaluations over time."""
    from tinyckpt import viz

    for suffix, save in TRACE_WRITERS.items():
        if path.lower().endswith(suffix):
            save(trace, path)
            return
    viz.ledger(trace, path)


def write_frontier(found: Frontier, path: str) -> None:
    """Draw a frontier, its lower bound, and the points of the simplest policies."""
    from tinyckpt import viz

    traces = [replay(plan(found.graph, policy, costs=found.costs)) for policy in DEFAULT_POLICIES]
    viz.frontier(found, path, traces=traces, bound=found.bounds(BOUNDS))


def demo_job(options: Any) -> int:
    """Run the demo: on one thread of BLAS, unless the environment says otherwise.

    On a busy machine, threads of a small matrix product wait for each other, which takes many times
    as long.
    """
    from tinyckpt import viz  # first: it says what to install

    decided = any(name in os.environ for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"))
    from threadpoolctl import threadpool_limits

    with threadpool_limits(None if decided else 1, user_api="blas"):
        demo(viz, Path(options.output), print)
    return 0


def plan_job(options: Any) -> int:
    """Print a schedule, its explanation or the frontier, and write its trace."""
    graph, _ = graph_of(options)
    costs = COSTS[options.cost](graph)
    if options.frontier:
        if options.policy or options.explain:
            wrong_usage(options, "--frontier goes with --budget, --cost, --time-limit and -o only")
        check_output(options, *CHARTS)
        nodes = False
        if options.budget is not None:  # only its unit is used
            nodes = parse_budget(graph, costs, options.budget)[1].costs.memory_unit == "nodes"
        with progress_line(options.network) as progress:
            seconds = time_to_search(options)
            found = frontier(graph, costs, nodes=nodes, time_limit=seconds, progress=progress)
        print(found)
        if options.output:
            write_frontier(found, options.output)
            print(f"written to {options.output}")
        return 0
    check_output(options, *TRACE_WRITERS, *CHARTS)
    (schedule,) = schedules_of(graph, requested_policy(options), options, strict=True)
    trace = replay(schedule)
    if options.explain:
        print(explain(schedule, costs, time_limit=time_to_search(options)))
    else:
        if len(trace.steps) <= PRINTED_STEPS:
            print("\n".join(trace.lines()))
        else:
            print(f"{len(trace.steps)} steps, too many to print; -o FILE.json writes them")
        print(trace.summary())
        print(schedule.note)
        if schedule.certificate:
            print(schedule.certificate)
    if options.output:
        write_trace(trace, options.output)
        print(f"written to {options.output}")
    return 0


def graph_job(options: Any) -> int:
    """Print a summary of a graph, and write it."""
    check_output(options, ".json")
    graph, _ = graph_of(options)
    trace = replay(plan(graph))
    print(
        f"{graph.name}: {len(graph.operators)} operators, {graph.forward_count} of them forward; "
        f"sources {size_text(graph.source_bytes)}, store-all's peak {size_text(trace.peak_bytes)}, "
        f"{sum(operator.flops for operator in graph.operators):.4g} FLOPs"
    )
    if options.output:
        save_graph(graph, options.output)
        print(f"written to {options.output}")
    return 0


def run_job(options: Any) -> int:
    """Execute a schedule on random arrays, and compare its trace with the replay."""
    graph, specs = graph_of(options)
    check_memory(f"the arguments of {graph.name} take", graph.source_bytes)
    (schedule,) = schedules_of(graph, requested_policy(options), options, strict=True)
    expected = replay(schedule)
    if options.backend == "numpy":  # whose arrays are in host memory
        held = graph.source_bytes + expected.peak_bytes
        check_memory(f"{graph.name} under {schedule.policy} takes, arguments included,", held)
    result, seconds = seconds_of(expected, random_arrays(specs), options.backend)
    print(result.trace.summary())
    if result.value is not None:
        print(f"loss {float(leaves(result.value)[0]):.6g}")
    print(f"{1000 * seconds:.1f} ms on {options.backend}, after one run to warm up")
    agree = "agrees with" if result.trace == expected else "DIFFERS from"
    print(f"what was measured from the arrays {agree} the replay")
    return 0 if result.trace == expected else 1


def gif_job(options: Any) -> int:
    """Write an animation, and optionally a still."""
    from tinyckpt import viz

    if options.format is None:
        check_output(options, *ANIMATIONS, ".svg")
    if options.style == "explainer":
        reason = (
            "the explainer has its own size, words and times: leave such options out, or --style"
        )
        refuse_given(options, OF_GRAPHS, reason)
        traces = traces_of(options)
        if len(traces) > 2:
            wrong_usage(options, "--style explainer shows one policy, or two")
        command = explainer_command(options)
        look = {name: getattr(options, name) for name in ("theme", "scale", "format")}
        viz.explainer(traces, options.output, command=command, **look)
        print(f"written to {options.output}")
        return 0
    traces = traces_of(options)
    look = {name: getattr(options, name) for name in LOOK}
    cut = {name: getattr(options, name) for name in CUT}
    if options.hold is not None:
        cut["hold"] = options.hold
    last = max(len(trace.steps) for trace in traces) - 1
    if options.still is not None and not 0 <= options.still <= last:
        wrong_usage(options, f"--still {options.still}: the steps are numbered 0 to {last}")
    if options.output.lower().endswith(".svg"):
        step = traces[0].peak_step if options.still is None else options.still
        print(f"written to {viz.save_still(traces, options.output, step, **look)}")
        return 0
    if options.still is not None:
        path = Path(options.output).with_suffix(".png")
        if path == Path(options.output):
            wrong_usage(options, f"--still would overwrite {path}: name the animation otherwise")
    viz.gif(traces, options.output, format=options.format, progress=True, **look, **cut)
    print(f"written to {options.output}")
    if options.still is not None:
        viz.save_still(traces, path, options.still, **look)
        print(f"written to {path}")
    return 0


def explainer_command(options: Any) -> str:
    """Return the command that draws an explainer again, in short, for its end card."""
    budget = ["--budget", options.budget] if options.budget else []
    policies = [word for policy in options.policy or () for word in ("--policy", policy)]
    words = ["tinyckpt", "gif", options.network, *policies, *budget, "--style", "explainer"]
    return shlex.join(words)


def play_job(options: Any) -> int:
    """Write the player page."""
    from tinyckpt import viz

    check_output(options, *PAGES)
    looks = ("theme", "title", "labels", "group", "show", "stop")
    look = {name: getattr(options, name) for name in looks}
    measured = measured_of(options)
    traces = [timed_if_linked(trace, options) for trace in traces_of(options)]
    viz.player(traces, options.output, measured=measured, **look)
    print(f"written to {options.output}; open it in a browser")
    return 0


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


JOBS = {
    "demo": demo_job, "plan": plan_job, "run": run_job, "compare": compare_job,
    "graph": graph_job, "gif": gif_job, "play": play_job, "torch": torch_job,
    "pipe": pipe_job, "lab": lab_job, "lessons": lessons_job, "course": course_job,
    "puzzle": puzzle_job, "grade": grade_job,
}  # fmt: skip
