"""``tinyckpt pipe``: a network as a pipeline, counted; and under an MPI launcher, run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tinyckpt.cli.ranks import run_rank
from tinyckpt.cli.request import (
    CHARTS,
    COSTS,
    PAGES,
    check_output,
    graph_of,
    number_or_text,
    policies_of,
    wrong_usage,
)
from tinyckpt.graph import TrainingGraph
from tinyckpt.pipeline import (
    PIPELINES,
    Pipeline,
    PipelineTrace,
    PlannedStage,
    StateTrace,
    data_parallel,
    launched_rank,
    partition,
    pipeline_costs,
    plan_stages,
    replay_pipeline,
    replay_state,
    stages_of,
    supervise,
)
from tinyckpt.pipeline.channel import PATIENCE
from tinyckpt.table import table
from tinyckpt.training import adam
from tinyckpt.units import cost_text, size_text

PIPE_HELP = """NETWORK is of one micro-batch. Counted, unless an MPI launcher starts it: then each
process is a device, and works on random arrays, as in
  mpiexec -n 4 tinyckpt pipe mlp:8x64 --stages 4 --micro-batches 16
with --replicas R, R times as many processes, which share out what --zero says; then stages are
what is gathered and scattered at a time, so have several a device, as in
  mpiexec -n 4 tinyckpt pipe mlp:8x64 --stages 1 --micro-batches 2 --schedule interleaved
    --chunks 8 --replicas 4 --zero 3"""


def add_pipe(parser: Any) -> None:
    """Add what ``tinyckpt pipe`` is told."""
    parser.epilog = f"{parser.epilog}\n\n{PIPE_HELP}"
    parser.add_argument("network", metavar="NETWORK", help="what to cut, see below")
    parser.add_argument("--stages", type=int, required=True, metavar="K", help="devices")
    parser.add_argument("--micro-batches", type=int, required=True, metavar="M")
    parser.add_argument(
        "--schedule", action="append", choices=tuple(PIPELINES),
        help="1f1b by default; may be given several times, to be compared",
    )  # fmt: skip
    parser.add_argument(
        "--recompute", choices=("early", "late"),
        help="compute the insides of stages again as the policy says, while waiting or after",
    )  # fmt: skip
    parser.add_argument("--policy", metavar="POLICY", help="of each stage; store_all by default")
    parser.add_argument("--budget", metavar="BUDGET", help="of a micro-batch in a stage")
    parser.add_argument("--cost", default="flops", choices=tuple(COSTS))
    parser.add_argument("--replicas", type=int, default=1, metavar="R", help="for data parallelism")
    parser.add_argument(
        "--zero", type=int, default=0, choices=range(4),
        help="whether replicas share out the optimizer's state (1), gradients too (2), all (3)",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, metavar="SECONDS",
        help="how long a process waits for another before all are ended",
    )  # fmt: skip
    parser.add_argument("--chunks", type=int, metavar="V", help="stages a device, if interleaved")
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="draw devices against time: a .png, .svg or .pdf; or an .html, which plays it",
    )  # fmt: skip
    parser.add_argument("--theme", choices=("auto", "light", "dark"), help="auto for pages only")


def pipe_job(options: Any) -> int:
    """Print what pipelines take, and draw them; under a launcher, run one."""
    schedules = options.schedule or ["1f1b"]
    under_launcher = launched_rank() is not None
    if under_launcher:
        if options.output or len(schedules) > 1:
            wrong_usage(options, "a launcher runs one --schedule, and draws nothing with -o")
        supervise()
    check_output(options, *CHARTS, *PAGES)
    is_page = bool(options.output) and options.output.lower().endswith(PAGES)
    if options.theme == "auto" and not is_page:
        wrong_usage(options, "--theme auto: a chart is light or dark")
    graph, specs = graph_of(options)
    costs = COSTS[options.cost]
    asked = [asked_pipeline(options, schedule) for schedule in schedules]
    if options.chunks is not None and "interleaved" not in schedules:
        wrong_usage(options, f"--chunks is for --schedule interleaved, not {schedules[0]}")
    if options.zero and options.replicas == 1:
        wrong_usage(options, f"--zero {options.zero} is for several --replicas, which share")
    traces = []
    for pipeline in asked:
        cuts = partition(TrainingGraph(graph), pipeline.stages, costs=costs(graph))
        stages = planned_stages(options, TrainingGraph(graph), cuts, pipeline.halves)
        replicated = data_parallel(pipeline, options.replicas, options.zero)
        if under_launcher:
            return run_rank(replicated, stages, specs, options.patience)
        trace = replay_pipeline(
            pipeline, pipeline_costs(pipeline, stages, costs), [each.footprint for each in stages]
        )
        print(summary(trace, stages, cuts, costs(graph).unit))
        if options.replicas > 1:
            print(state_summary(replay_state(replicated, stages, adam(1e-3))))
        traces.append(trace)
    if options.output:
        draw(traces, options)
    return 0


def asked_pipeline(options: Any, schedule: str) -> Pipeline:
    """Return the pipeline of one replica that the options ask for."""
    if options.replicas < 1:
        wrong_usage(options, f"--replicas {options.replicas}: it must be 1 or more")
    given = {"recompute": options.recompute}
    if options.chunks is not None and schedule == "interleaved":
        given["chunks"] = options.chunks
    return PIPELINES[schedule](options.stages, options.micro_batches, **given)


def draw(traces: list[PipelineTrace], options: Any) -> None:
    """Write a picture of pipelines, or a page that plays them."""
    import viz

    if options.output.lower().endswith(PAGES):
        viz.player(traces, options.output, theme=options.theme or "auto")
        print(f"written to {options.output}; open it in a browser")
    else:
        viz.pipeline(traces, options.output, theme=options.theme or "light")
        print(f"written to {options.output}")


def state_summary(trace: StateTrace) -> str:
    """Return what the devices of one replica hold, and exchange with the others."""
    whole = trace.pipeline
    count = whole.devices // whole.replicas
    shared = f"ZeRO-{whole.zero}" if whole.zero else "sharing nothing"
    return (
        f"{whole.replicas} replicas with Adam, {shared}; in bytes when all gradients are there:\n"
        + "\n".join(str(trace).splitlines()[: count + 1])
    )


def planned_stages(
    options: Any, graph: TrainingGraph, cuts: tuple[int, ...], halved: bool
) -> tuple[PlannedStage, ...]:
    """Return the stages, planned as the options say."""
    policy: Any = "store_all" if options.budget is None else None
    if options.policy is not None:
        (policy,) = policies_of(options, [options.policy])
    given = {} if options.budget is None else {"budget": number_or_text(options.budget)}
    stages = stages_of(graph, cuts, halved)
    return plan_stages(stages, policy, early=options.recompute == "early", **given)


def summary(
    trace: PipelineTrace, stages: tuple[PlannedStage, ...], cuts: tuple[int, ...], unit: str
) -> str:
    """Return what a pipeline takes, with a row for each device."""
    pipeline = trace.pipeline
    in_flight = replay_pipeline(pipeline, trace.costs).peaks
    ends = [0, *cuts, stages[0].stage.whole.forward_count]
    rows = []
    for device in range(pipeline.devices):
        own = np.flatnonzero(pipeline.device_of == device).tolist()
        spans = list(pairwise(ends))
        rows.append(
            [
                str(device),
                ", ".join(f"{spans[k][0]} to {spans[k][1] - 1}" for k in own),
                cost_text(float(trace.busy[device]), unit),
                str(in_flight[device]),
                size_text(trace.peaks[device]),
                size_text(sum(stages[k].fixed_bytes for k in own)),
            ]
        )
    header = ["device", "operators", "busy", "in flight", "peak", "parameters and gradients"]
    return (
        f"{table(header, rows)}\n{pipeline.name} of {stages[0].stage.whole.name}, "
        f"{pipeline.micro_batches} micro-batches: {cost_text(float(trace.makespan), unit)} from "
        f"end to end, {100 * float(trace.bubble):.1f} % of all devices' time idle"
    )
