"""Pipeline cost model: duration and memory of each action per stage, in exact integers if possible.

Durations of forward (F), backward of inputs (B), backward of weights (W), recomputation,
communication, update and collectives go in; out comes a table of integers in a common unit, so that
replay adds them without rounding, or of floats where no such unit exists. A ``Footprint`` is the
memory of one micro-batch in one stage during and after each action.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline.program import COLLECTIVES, KINDS, Integers, Kind

LARGEST = 2**62  # of int64's 63 bits, one is left for a sum of two
Number = int | float | Fraction
OfStages = Number | Sequence[Number]  # one number for all stages, or one for each


@dataclass(frozen=True, slots=True)
class PipelineCosts:
    """Durations of the actions on one micro-batch in one stage, in any one unit.

    Each is a number for all stages, or a sequence with one per stage. Arithmetic on integers and
    Fractions is exact as long as a pipeline's total is less than 2**62 of their greatest common
    measure; beyond that they are taken as floats, and so are results.

    Attributes:
        forward: F of the papers.
        backward_input, backward_weight: B and W of the papers that split the backward; a whole
            backward takes their sum, which is the B of the other papers.
        recompute: R; the duration of a forward if not given.
        communication: from a send until its message has arrived.
        update: of a stage's parameters, once.
        collective: of an all-gather of a stage's parameters, or a reduce-scatter of its gradients;
            an all-reduce takes twice that. It starts when all replicas have arrived.
        measure: the unit, such as FLOPs; for texts and pictures only.

    >>> from tinyckpt.pipeline import gpipe, replay_pipeline
    >>> replay_pipeline(gpipe(2, 2), PipelineCosts(backward_weight=2, communication=1)).makespan
    14
    """

    forward: OfStages = 1
    backward_input: OfStages = 1
    backward_weight: OfStages = 1
    recompute: OfStages | None = None
    communication: Number = 0
    update: OfStages = 0
    collective: OfStages = 0
    measure: str = ""

    def scaled(self, stages: int, micro_batches: int = 1) -> tuple[Any, Any, int | Fraction]:
        """Return the duration of each kind in each stage, the communication time, and their unit.

        Args:
            stages, micro_batches: their numbers.

        Returns:
            An array (kinds, stages) and a number, both in units of 1/``unit``: integers; or floats
            with a unit of 1, if any of the costs is a float or the total overflows integers.

        Raises:
            OptionError: if a cost is negative or not a number, if there are not as many as stages,
                or if the total overflows a float.
        """
        own = {name: self.of_stages(name, stages) for name in NAMES}
        unit = self.unit_of(own, stages, micro_batches)
        exact = unit is not None
        unit = 1 if unit is None else unit
        dtype = np.int64 if exact else np.float64
        count: Callable[[Any], Any] = int if exact else as_float
        table: Any = np.zeros((len(KINDS), stages), dtype)
        for kind, name in KIND_NAMES.items():
            table[kind] = [count(number * unit) for number in own[name]]
        table[Kind.BACKWARD] = table[Kind.BACKWARD_INPUT] + table[Kind.BACKWARD_WEIGHT]
        table[Kind.ALL_REDUCE] = 2 * table[Kind.REDUCE_SCATTER]
        return table, dtype(count(own["communication"][0] * unit)), unit

    def unit_of(
        self, own: dict[str, list[Number]], stages: int, micro_batches: int
    ) -> int | Fraction | None:
        """Return the unit in which all costs are integers whose total fits; None for floats."""
        numbers = [number for column in own.values() for number in column]

        def total(of: Callable[[Any], Any]) -> Any:
            # Upper bound of every clock: the sum of all durations, as if nothing overlapped. That
            # includes each message, and at most four collectives per micro-batch and stage.
            ways = 2 * stages * of(own["communication"][0]) + 4 * sum(map(of, own["collective"]))
            return micro_batches * (sum(map(of, numbers)) + ways)

        if not math.isfinite(total(as_float)):
            raise OptionError(
                f"the costs of the pipeline add up to more than {sys.float_info.max:.3g}, the most "
                "that a float holds; give them in a larger unit"
            )
        if any(isinstance(number, float) for number in numbers):
            return None
        unit = Fraction(math.lcm(*{Fraction(number).denominator for number in numbers}))
        if (whole := total(Fraction)) * unit >= LARGEST:
            unit /= math.gcd(*{int(number * unit) for number in numbers})
        if whole * unit >= LARGEST:
            return None
        return unit.numerator if unit.denominator == 1 else unit

    def of_stages(self, name: str, stages: int) -> list[Number]:
        """Return one of the costs for every stage, after checking it."""
        given = getattr(self, name)
        if given is None and name == "recompute":
            name, given = "forward", self.forward
        if name == "communication" and isinstance(given, Sequence):
            raise OptionError(f"communication={given!r:.80}; it is one number, for every message")
        given = given.tolist() if isinstance(given, np.ndarray | np.generic) else given
        column = list(given) if isinstance(given, Sequence) else [given] * stages
        if len(column) != stages:
            raise OptionError(f"{name} has {len(column)} costs; the pipeline has {stages} stages")
        for number in column:
            is_number = isinstance(number, int | float | Fraction)
            if not is_number or not number >= 0 or number == math.inf:
                raise OptionError(
                    f"{name}: {short_repr(number)}; a cost is a finite number of 0 or more"
                )
        return column


def short_repr(value: Any) -> str:
    """Return the repr of a caller's value, cut to 80 characters."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python writes no integers of very many digits
        return f"{type(value).__name__} of very many digits"


def as_float(number: Any) -> float:
    """Return a number as a float; infinite if it is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


NAMES = tuple(field.name for field in fields(PipelineCosts) if field.name != "measure")
KIND_NAMES = {
    Kind.FORWARD: "forward",
    Kind.RECOMPUTE: "recompute",
    Kind.BACKWARD_INPUT: "backward_input",
    Kind.BACKWARD_WEIGHT: "backward_weight",
    Kind.UPDATE: "update",
    **dict.fromkeys(COLLECTIVES, "collective"),
}


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of one micro-batch in one stage on its device; bytes, or any one unit.

    It has one size during an action, and another from its end until the next action on that
    micro-batch. With the defaults, a micro-batch weighs 1 until the last part of its backward has
    ended: the peak is the number of micro-batches in flight.

    Attributes:
        forward, held: during the forward, and after it.
        recompute, recomputed: during the recomputation, if there is one, and after it.
        backward: during a whole backward.
        backward_input: during the backward of the inputs alone.
        waiting: between the backward of the inputs and that of the weights.
        weight: during the backward of the weights.

    >>> from tinyckpt.pipeline import one_f_one_b, replay_pipeline
    >>> replay_pipeline(one_f_one_b(2, 4), footprints=Footprint(forward=5, held=3)).peaks
    (8, 5)
    """

    forward: int = 1
    held: int = 1
    recompute: int = 1
    recomputed: int = 1
    backward: int = 1
    backward_input: int = 1
    waiting: int = 1
    weight: int = 1


def check_footprints(footprints: Sequence[Footprint], micro_batches: int) -> None:
    """Raise an OptionError unless all sizes are integers of 0 or more whose sum cannot overflow.

    Args:
        footprints: one per stage.
        micro_batches: the most that are in flight at a time.
    """
    largest = 0
    for stage, own in enumerate(footprints):
        for each in fields(own):
            size = getattr(own, each.name)
            if not isinstance(size, int | np.integer) or size < 0:
                raise OptionError(
                    f"stage {stage}, footprint: {each.name}={short_repr(size)}; it must be an "
                    "integer of 0 or more"
                )
        largest += max(int(getattr(own, each.name)) for each in fields(own))
    if micro_batches * largest >= LARGEST:
        raise OptionError(
            f"{micro_batches:,} micro-batches hold more than {LARGEST:,} in all stages; give "
            "footprints in a larger unit"
        )


def memory_tables(
    footprints: Sequence[Footprint], recomputes: Sequence[bool]
) -> tuple[Integers, Integers]:
    """Return the memory change of each action: while it runs, and after it; (kinds, stages) each.

    Args:
        footprints: one per stage.
        recomputes: for each stage whether it is recomputed before its backward.
    """
    during = np.zeros((len(KINDS), len(footprints)), np.int64)
    after = np.zeros_like(during)
    for stage, own in enumerate(footprints):
        before = own.recomputed if recomputes[stage] else own.held
        for kind, earlier, while_it_runs, later in (
            (Kind.FORWARD, 0, own.forward, own.held),
            (Kind.RECOMPUTE, own.held, own.recompute, own.recomputed),
            (Kind.BACKWARD, before, own.backward, 0),
            (Kind.BACKWARD_INPUT, before, own.backward_input, own.waiting),
            (Kind.BACKWARD_WEIGHT, own.waiting, own.weight, 0),
        ):
            during[kind, stage] = while_it_runs - earlier
            after[kind, stage] = later - earlier
    return during, after
