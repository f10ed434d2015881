"""``tinyckpt pipe``: simulate a pipeline-parallel schedule; under an MPI launcher, execute it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from typing import Any

from tinyckpt.base.errors import OptionError
from tinyckpt.base.text_table import table
from tinyckpt.base.units import cost_text, size_text
from tinyckpt.cli.mpi_rank import run_rank
from tinyckpt.cli.resolve_options import (
    CHARTS,
    COSTS,
    PAGES,
    check_output,
    graph_of,
    number_or_text,
    policies_of,
    refuse_given,
    wrong_usage,
)
from tinyckpt.core.graph import TrainingGraph
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
)
from tinyckpt.pipeline.mpi import DEFAULT_TIMEOUT, get_mpi
from tinyckpt.training import Optimizer, adam, adamw, momentum, sgd

OPTIMIZERS: dict[str, Callable[[float], Optimizer]] = {
    "sgd": sgd, "momentum": momentum, "adam": adam, "adamw": adamw,
}  # fmt: skip
RATE = 1e-3
SIZE_NAMES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")  # launchers' variables for the number of ranks
RUNNING = ("steps", "rate", "patience")  # options of an executed pipeline only


def pipe_job(options: Any) -> int:
    """Print and draw the time and memory of pipelines; under a launcher, execute one."""
    under_launcher = launched_rank() is not None
    schedules = options.schedule or ["1f1b"]
    check(options, schedules, under_launcher)
    if options.stages is None:
        options.stages = max(1, processes(options.patience or DEFAULT_TIMEOUT) // options.replicas)
    name, optimizer = requested_optimizer(options)
    graph, specs = graph_of(options)
    costs = COSTS[options.cost]
    pipelines = [requested_pipeline(options, schedule) for schedule in schedules]
    traces = []
    for pipeline in pipelines:
        cuts = partition(TrainingGraph(graph), pipeline.stages, costs=costs(graph))
        stages = planned_stages(options, TrainingGraph(graph), cuts, pipeline.halves)
        replicated = data_parallel(pipeline, options.replicas, options.zero)
        if under_launcher:
            steps, patience = options.steps or 1, options.patience or DEFAULT_TIMEOUT
            return run_rank(replicated, stages, specs, optimizer, steps, patience)
        trace = replay_pipeline(
            pipeline, pipeline_costs(pipeline, stages, costs), [each.footprint for each in stages]
        )
        print(summary(trace, stages, cuts, costs(graph).unit))
        if options.replicas > 1 or optimizer is not None:
            print(state_summary(replay_state(replicated, stages, optimizer or sgd(0.0)), name))
        traces.append(trace)
    if options.output:
        draw(traces, options)
    return 0


def check(options: Any, schedules: Sequence[str], under_launcher: bool) -> None:
    """Refuse options without effect, or in conflict, before any work is done."""
    if under_launcher and (options.output or len(schedules) > 1):
        wrong_usage(options, "a launcher runs one --schedule, and draws nothing with -o")
    if not under_launcher and options.stages is None:
        wrong_usage(options, "the following arguments are required: --stages; a launcher knows it")
    if not under_launcher:
        reason = (
            "--{} is for what runs; start it by mpiexec, as --help says, or leave it out: without, "
            "everything is counted"
        )
        refuse_given(options, RUNNING, reason)
    check_output(options, *CHARTS, *PAGES)
    is_page = bool(options.output) and options.output.lower().endswith(PAGES)
    if options.theme is not None and not options.output:
        wrong_usage(options, f"--theme {options.theme} is for what -o draws")
    if options.theme == "auto" and not is_page:
        wrong_usage(options, "--theme auto: a chart is light or dark")
    if options.recompute and options.budget is None and options.policy in (None, "store_all"):
        wrong_usage(
            options, f"--recompute {options.recompute}: store_all computes nothing again; give "
            "another --policy, or a --budget"
        )  # fmt: skip
    if options.chunks is not None and "interleaved" not in schedules:
        wrong_usage(options, f"--chunks is for --schedule interleaved, not {schedules[0]}")
    if options.replicas < 1:
        wrong_usage(options, f"--replicas {options.replicas}: it must be 1 or more")
    if options.zero and options.replicas == 1:
        wrong_usage(options, f"--zero {options.zero} is for several --replicas, which share")
    if options.steps is not None and options.steps < 1:
        wrong_usage(options, f"--steps {options.steps}: it must be 1 or more")
    if options.patience is not None and not 0 < options.patience < inf:
        wrong_usage(options, f"--patience {options.patience}: it must be a number of seconds")


def processes(patience: float) -> int:
    """Return the number of processes that the launcher started.

    Raises:
        OptionError: if its MPI is not the one that mpi4py was built for: each process would then
            be alone in its communicator.
    """
    size = int(get_mpi(patience).COMM_WORLD.Get_size())
    told = [os.environ.get(name, "") for name in SIZE_NAMES]
    if any(text.isdecimal() and int(text) != size for text in told):
        raise OptionError(
            f"the launcher started {next(filter(None, told))} processes, and MPI knows of {size}: "
            "is it the launcher of the MPI that mpi4py was built for?"
        )
    return size


def requested_optimizer(options: Any) -> tuple[str, Optimizer | None]:
    """Return the requested optimiser's name, and the optimiser; None if there is none."""
    name = options.optimizer or ("adam" if options.replicas > 1 else "none")
    if name == "none":
        for option in ("zero", "steps", "rate"):
            if getattr(options, option):
                wrong_usage(options, f"--{option} is about an --optimizer, and there is none")
        return name, None
    rate = RATE if options.rate is None else options.rate
    if not 0 < rate < inf:
        wrong_usage(options, f"--rate {rate}: it must be a number above 0")
    return name, OPTIMIZERS[name](rate)


def requested_pipeline(options: Any, schedule: str) -> Pipeline:
    """Return the requested pipeline, of one replica."""
    given = {"recompute": options.recompute}
    if options.chunks is not None and schedule == "interleaved":
        given["chunks"] = options.chunks
    return PIPELINES[schedule](options.stages, options.micro_batches, **given)


def draw(traces: list[PipelineTrace], options: Any) -> None:
    """Write a chart of pipelines, or the player page."""
    from tinyckpt import viz

    if options.output.lower().endswith(PAGES):
        viz.player(traces, options.output, theme=options.theme or "auto")
        print(f"written to {options.output}; open it in a browser")
    else:
        viz.pipeline(traces, options.output, theme=options.theme or "light")
        print(f"written to {options.output}")


def state_summary(trace: StateTrace, optimizer: str) -> str:
    """Return a table of the memory of one replica's devices, and of its communication."""
    whole = trace.pipeline
    count = whole.replica_devices
    shared = f"ZeRO-{whole.zero}" if whole.zero else "sharing nothing"
    replicas = "" if whole.replicas == 1 else f"{whole.replicas} replicas, {shared}; "
    return (
        f"{replicas}optimizer: {optimizer}; in bytes when all gradients are there:\n"
        + "\n".join(str(trace).splitlines()[: count + 1])
    )


def planned_stages(
    options: Any, graph: TrainingGraph, cuts: tuple[int, ...], halved: bool
) -> tuple[PlannedStage, ...]:
    """Plan the stages by the requested policy or budget."""
    policy: Any = "store_all" if options.budget is None else None
    if options.policy is not None:
        (policy,) = policies_of(options, [options.policy])
    given = {} if options.budget is None else {"budget": number_or_text(options.budget)}
    stages = stages_of(graph, cuts, halved)
    return plan_stages(stages, policy, early=options.recompute == "early", **given)


def summary(
    trace: PipelineTrace, stages: tuple[PlannedStage, ...], cuts: tuple[int, ...], unit: str
) -> str:
    """Return a table of a pipeline's time and memory, one row per device."""
    pipeline = trace.pipeline
    in_flight, by_stage = trace.in_flight, " by stage" if pipeline.folded else ""
    ends = [0, *cuts, stages[0].stage.whole.forward_count]
    rows = []
    for device in range(pipeline.devices):
        own = pipeline.stages_on(device)
        spans = list(pairwise(ends))
        rows.append(
            [
                str(device),
                ", ".join(f"{spans[k][0]} to {spans[k][1] - 1}" for k in own),
                cost_text(float(trace.busy[device]), unit),
                f"{in_flight[device]}{by_stage}",
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
