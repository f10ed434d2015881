"""Min-cut rematerialization by PyTorch's own partitioner: schedules as baselines and warm starts.

By ``min_cut_rematerialization_partition`` a compiled step decides which activations to save for the
backward pass, at a setting of ``activation_memory_budget``. Here it runs on copies of the joint
graph, and nothing is compiled. Out: ``min_cut_schedules``; ``with_min_cut_seeds`` adds them to the
seeds of a plan.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from math import inf
from time import perf_counter
from typing import Any

from tinyckpt.base.deadline import Clock, checked_seconds
from tinyckpt.base.errors import OptionError
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.interop.importer_checks import check_traced, error_text
from tinyckpt.interop.torch.capture import copy_graph
from tinyckpt.interop.torch.importer import Imported
from tinyckpt.interop.torch.joint import JointGraph
from tinyckpt.interop.torch.schedule_from_partition import GraphPair, schedule_of
from tinyckpt.interop.torch.tracing import Traced
from tinyckpt.interop.torch.versions import check_calls, private_attribute
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.portfolio.plan import Budget, costs_of, peak_of
from tinyckpt.planner.portfolio.search import PORTFOLIO_SECONDS
from tinyckpt.planner.portfolio.seeds import checked_seeds

LOG = logging.getLogger(__name__)
BUDGETS = (1.0, 0.75, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)  # settings over PyTorch's whole range
# Seconds per operator: PyTorch's partitioner took 1.0 to 1.5 ms, in graphs of 222 to 2,672.
SECONDS = 1.2e-3
# PyTorch's partitioner's share of the time for a plan; the search needs most of it.
SHARE = 0.25


def min_cut_schedules(
    traced: Traced, budgets: Iterable[float] = BUDGETS, *, time_limit: float = inf
) -> list[Schedule]:
    """Run PyTorch's min-cut partitioner at several memory budgets; return its schedules.

    ::

        traced = tct.trace(model, x, y)
        theirs = tct.min_cut_schedules(traced)
        schedule = tc.plan(traced.graph, budget="2 GiB", seeds=theirs)  # never costs more than
            theirs

    They are schedules like any other: ``tc.replay`` gives their peaks, ``viz.player`` plays them
    beside plans. Their ``checkpoints`` are the forward values that PyTorch saves. They draw the
    random numbers of the traced step; PyTorch's own steps at these settings do not always.

    Args:
        traced: the result of ``trace``; it is left unchanged.
        budgets: the settings, from 0 (save inputs alone) to 1 (recompute only what is cheap).
        time_limit: seconds; a setting expected to take longer than the time left is not started.

    Returns:
        One schedule per setting, in order, without duplicates. Settings at which PyTorch raises are
            left out, and logged as warnings.

    Raises:
        OptionError: if a setting is not a number from 0 to 1.
        ScheduleError: if ``traced`` is not the result of ``trace``.
    """
    check_calls("min_cut_schedules")
    check_traced(traced, Traced)
    settings, seconds = checked_settings(budgets), checked_seconds(time_limit)
    load_min_cut()  # before the clock starts
    clock = Clock(seconds)
    return schedules_at(traced.imported, settings, clock, resident_of(traced.imported.joint))


def checked_settings(budgets: Iterable[float]) -> list[float]:
    """Validate settings of ``activation_memory_budget``; raise an OptionError otherwise."""
    settings = list(budgets)
    for setting in settings:
        if not isinstance(setting, int | float) or not 0 <= setting <= 1:
            raise OptionError(
                f"activation_memory_budget {setting!r:.80}; expected a number from 0 to 1"
            )
    return settings


def schedules_at(
    imported: Imported,
    settings: Iterable[float],
    clock: Clock,
    resident: Sequence[int],
    fits: Callable[[Schedule], bool] | None = None,
) -> list[Schedule]:
    """Return PyTorch's schedules at some settings, as many as there is time for.

    Settings at which PyTorch raises are left out, and logged.

    Args:
        imported: the graph, which is left unchanged.
        settings: of ``activation_memory_budget``.
        clock: no setting is started that is expected to take longer than the time left.
        resident: positions of the inputs that are resident before and after the step.
        fits: whether a schedule is within the requested budget: larger settings follow if so, else
            smaller ones. Without it, settings are tried in order.
    """
    found: list[Schedule] = []
    expected, left = SECONDS * len(imported.graph.operators), list(settings)
    while left and expected <= clock.left():
        setting = left.pop(0)
        begin = perf_counter()
        try:
            halves = partition_at(imported.joint, setting, resident)
        except Exception as error:  # of any kind: PyTorch's failure must not fail the plan
            LOG.warning(
                "PyTorch's partitioner fails at activation_memory_budget %g, which is left out: %s",
                setting,
                error_text(error),
            )
            continue
        finally:
            expected = max(expected, perf_counter() - begin)
        schedule = schedule_at(setting, halves, imported)
        if all(schedule.steps != other.steps for other in found):
            found.append(schedule)
        if fits is not None:
            below = fits(schedule)
            left.sort(key=lambda other: other < setting if below else other > setting)
    return found


def schedule_at(setting: float, halves: GraphPair, imported: Imported) -> Schedule:
    """Convert PyTorch's partition at one setting to a schedule."""
    options = {"activation_memory_budget": setting}
    return schedule_of(halves, imported, "min_cut", options, "what PyTorch's partitioner makes")


def load_min_cut() -> None:
    """Import PyTorch's partitioner, parts of Inductor with it: seconds, once per process.

    The second module is one that it would import during its first call, within the time limit.
    """
    for module in ("torch._functorch.partitioners", "torch._inductor.pattern_matcher"):
        with suppress(ImportError):  # its caller raises then
            import_module(module)


def resident_of(joint: JointGraph) -> list[int]:
    """Return the positions of parameters and buffers among the inputs: saving them is free."""
    inputs = [node for node in joint.module.graph.nodes if node.op == "placeholder"]
    kinds = [joint.inputs.get(node, ("", None))[0] for node in inputs if node not in joint.tangents]
    return [place for place, kind in enumerate(kinds) if kind in ("parameter", "buffer")]


@contextmanager
def min_cut_partitioner(budget: float) -> Iterator[Callable[..., Any]]:
    """Set PyTorch's ``activation_memory_budget``; yield its min-cut partitioner.

    The partitioner mutates the graph that it is given.
    """
    # Imported here, since it imports parts of Inductor.
    from torch._functorch import config

    cut = private_attribute("torch._functorch.partitioners:min_cut_rematerialization_partition")
    with config.patch(activation_memory_budget=budget, enable_autograd_cache=False):
        yield cut


def partition_at(joint: JointGraph, setting: float, resident: Sequence[int]) -> GraphPair:
    """Partition a copy of a joint graph by PyTorch's min-cut at one setting."""
    with min_cut_partitioner(setting) as partition, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its warnings are about a step that is never run
        halves: GraphPair = partition(
            copy_graph(joint.module),
            (),
            num_fwd_outputs=len(joint.forward),
            static_lifetime_input_indices=list(resident),
        )
    return halves


def with_min_cut_seeds(
    imported: Imported, budget: Budget | None, options: Mapping[str, Any], resident: Sequence[int]
) -> dict[str, Any]:
    """Add PyTorch's schedules to the seeds of a plan; return its options, time limit reduced.

    Imports do not count as time, and however long PyTorch takes, the search keeps its own share.

    Settings are tried from the one nearest to the budget's share of store-all's peak: then larger
    ones as long as the budget allows, smaller ones as long as it does not. Nothing is added if no
    search follows, or if everything fits.

    Args:
        imported: the graph to plan.
        budget, options: of ``tc.plan``.
        resident: as in ``schedules_at``.

    Raises:
        As ``tc.plan``, of the same options.
    """
    options = dict(options)
    if budget is None or options.get("policy") is not None:
        return options
    graph = imported.graph
    seconds = checked_seconds(options.get("time_limit", PORTFOLIO_SECONDS))
    options["seeds"] = checked_seeds(graph, options.get("seeds", ()))
    budget_size, problem = parse_budget(graph, costs_of(graph, options.get("costs")), budget)
    share = budget_size / max(problem.peak(range(len(graph.operators))), 1)
    if share < 1:
        load_min_cut()  # before the clock starts
        clock = Clock(seconds)
        nearest = sorted(BUDGETS, key=lambda setting: abs(setting - share))
        found = schedules_at(
            imported,
            nearest,
            Clock(SHARE * seconds),
            resident,
            lambda schedule: peak_of(replay(schedule), problem.costs) <= budget_size,
        )
        options["seeds"] += tuple(found)
        # A setting cannot be interrupted; its overtime is not taken from the search.
        options["time_limit"] = max(clock.left(), (1 - SHARE) * seconds)
    return options
