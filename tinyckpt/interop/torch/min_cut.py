"""What PyTorch's own partitioner would do, as schedules: ``min_cut_schedules``, seeds for plans.

By ``min_cut_rematerialization_partition`` a compiled step decides what to keep from the forward to
the backward half, at a setting of ``activation_memory_budget``. Here it runs on copies of the joint
graph, and nothing is compiled.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from math import inf
from time import perf_counter
from typing import Any

from tinyckpt.base.deadline import Clock, checked_seconds
from tinyckpt.base.errors import OptionError, ScheduleError
from tinyckpt.core.replay import replay
from tinyckpt.core.schedule import Schedule
from tinyckpt.interop.torch.capture import copied
from tinyckpt.interop.torch.codegen_fx import min_cut
from tinyckpt.interop.torch.importer import Imported
from tinyckpt.interop.torch.joint import Joint
from tinyckpt.interop.torch.schedule_from_partition import Halves, schedule_of
from tinyckpt.interop.torch.tracing import Traced
from tinyckpt.interop.torch.versions import check_calls
from tinyckpt.planner.model.budget import parse_budget
from tinyckpt.planner.model.liveness import Problem
from tinyckpt.planner.portfolio.plan import Budget, costs_of, peak_of
from tinyckpt.planner.portfolio.search import PORTFOLIO_SECONDS
from tinyckpt.planner.portfolio.seeds import checked_seeds

LOG = logging.getLogger(__name__)
BUDGETS = (1.0, 0.75, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)  # PyTorch's, all of its range
# An operator: PyTorch's partitioner took 1.0 to 1.5 ms, in graphs of 222 to 2,672 of them.
SECONDS = 1.2e-3
# Of the time for a plan, what PyTorch's partitioner may take; the search needs the most of it.
SHARE = 0.25


def min_cut_schedules(
    traced: Traced, budgets: Iterable[float] = BUDGETS, *, time_limit: float = inf
) -> list[Schedule]:
    """Return what PyTorch would evaluate at settings of its ``activation_memory_budget``.

    ::

        traced = tct.trace(model, x, y)
        theirs = tct.min_cut_schedules(traced)
        schedule = tc.plan(traced.graph, budget="2 GiB", seeds=theirs)  # never dearer than they are

    They are schedules like any other: ``tc.replay`` says what they hold, ``viz.player`` plays them
    beside plans. Their ``checkpoints`` are the forward values that PyTorch saves. They draw the
    random numbers of the traced step, which PyTorch's own steps at these settings do not always.

    Args:
        traced: what ``trace`` returned; it is left as it was.
        budgets: the settings, from 0 (save inputs alone) to 1 (recompute only what is cheap).
        time_limit: seconds; a setting that would take longer than what is left is not begun.

    Returns:
        For each setting a schedule, in their order, without repetitions. Settings at which PyTorch
        raises are left out, and logged as warnings.

    Raises:
        OptionError: if a setting is not a number from 0 to 1.
        ScheduleError: if ``traced`` is something else.
    """
    check_calls("min_cut_schedules")
    if not isinstance(traced, Traced):
        raise ScheduleError(f"expected what trace returned, got a {type(traced).__name__}")
    settings, seconds = checked_settings(budgets), checked_seconds(time_limit)
    load_min_cut()  # before the time begins
    clock = Clock(seconds)
    return schedules_at(traced.imported, settings, clock, resident_of(traced.imported.joint))


def checked_settings(budgets: Iterable[float]) -> list[float]:
    """Return settings of ``activation_memory_budget``, or raise an OptionError about the first."""
    settings = list(budgets)
    for setting in settings:
        if not isinstance(setting, int | float) or not 0 <= setting <= 1:
            raise OptionError(
                f"activation_memory_budget {setting!r:.80}; legal are numbers from 0 to 1"
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

    Where PyTorch raises, the setting is left out, and the log says so.

    Args:
        imported: the graph, which is left as it was.
        settings: of ``activation_memory_budget``.
        clock: no setting is begun that would take longer than what is left.
        resident: which inputs are there before and after the step, by their positions.
        fits: whether a schedule is within the budget that is asked for: larger settings come next
            if so, else smaller ones. If not given, they come in their order.
    """
    found: list[Schedule] = []
    expected, left = SECONDS * len(imported.graph.operators), list(settings)
    while left and expected <= clock.left():
        setting = left.pop(0)
        begin = perf_counter()
        try:
            halves = halves_at(imported.joint, setting, resident)
        except Exception as error:  # of any kind: it is PyTorch's, and no reason to have no plan
            LOG.warning(
                "PyTorch's partitioner fails at activation_memory_budget %g, which is left out: %s",
                setting,
                f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
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


def schedule_at(setting: float, halves: Halves, imported: Imported) -> Schedule:
    """Return what PyTorch made of a joint graph at a setting, as a schedule."""
    options = {"activation_memory_budget": setting}
    return schedule_of(halves, imported, "min_cut", options, "what PyTorch's partitioner makes")


def load_min_cut() -> None:
    """Import what PyTorch's partitioner does, parts of Inductor among it: seconds, once a process.

    The second module is one that it would import in its first call, within the time for a plan.
    """
    for module in ("torch._functorch.partitioners", "torch._inductor.pattern_matcher"):
        with suppress(ImportError):  # whoever needs it says so
            import_module(module)


def resident_of(joint: Joint) -> list[int]:
    """Return the positions of parameters and buffers among the inputs: to keep them is free."""
    inputs = [node for node in joint.module.graph.nodes if node.op == "placeholder"]
    kinds = [joint.inputs.get(node, ("", None))[0] for node in inputs if node not in joint.tangents]
    return [place for place, kind in enumerate(kinds) if kind in ("parameter", "buffer")]


def halves_at(joint: Joint, setting: float, resident: Sequence[int]) -> Halves:
    """Return the forward and the backward graph that PyTorch makes of a copy of a joint graph."""
    with min_cut(setting) as partition, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it has to say is of a step that nobody takes
        halves: Halves = partition(
            copied(joint.module),
            (),
            num_fwd_outputs=len(joint.forward),
            static_lifetime_input_indices=list(resident),
        )
    return halves


def seeded(
    imported: Imported, budget: Budget | None, options: Mapping[str, Any], resident: Sequence[int]
) -> dict[str, Any]:
    """Return the options of a plan with PyTorch's schedules among its seeds, and the time left.

    Imports do not count as time, and whatever PyTorch takes, the search keeps its own share.

    The first setting is the one nearest to the share of store-all's peak that the budget is; then
    it is larger ones as long as the budget allows, smaller ones as long as it does not. Nothing is
    added where no search follows, or everything fits.

    Args:
        imported: what is planned.
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
    budget_size, costs = parse_budget(graph, costs_of(graph, options.get("costs")), budget)
    share = budget_size / max(Problem(graph, costs).peak(range(len(graph.operators))), 1)
    if share < 1:
        load_min_cut()  # before the time begins
        clock = Clock(seconds)
        nearest = sorted(BUDGETS, key=lambda setting: abs(setting - share))
        found = schedules_at(
            imported,
            nearest,
            Clock(SHARE * seconds),
            resident,
            lambda schedule: peak_of(replay(schedule), costs) <= budget_size,
        )
        options["seeds"] += tuple(found)
        # A setting that is begun ends when it does; what it takes too long is not the search's.
        options["time_limit"] = max(clock.left(), (1 - SHARE) * seconds)
    return options
