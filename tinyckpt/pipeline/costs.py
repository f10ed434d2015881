"""What the actions of a pipeline take: time, and memory of their device."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.pipeline.program import (
    ALL_REDUCE,
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    COLLECTIVES,
    FORWARD,
    KINDS,
    RECOMPUTE,
    REDUCE_SCATTER,
    UPDATE,
    Integers,
)

LARGEST = 2**62  # what int64 holds, and a bit for a sum of two
Number = int | float | Fraction
OfStages = Number | Sequence[Number]  # one for all stages, or one for each


@dataclass(frozen=True, slots=True)
class PipelineCosts:
    """How long actions take, of one micro-batch in one stage; in any one unit.

    Each is a number for all stages, or a sequence with one for each. Integers and Fractions are
    reckoned with exactly, as long as all of a pipeline's are less than 2**62 of their greatest
    common measure; beyond that they are taken as floats, and so are results.

    Attributes:
        forward: F of the papers.
        backward_input, backward_weight: B and W of the papers that part them; a whole backward
            takes their sum, which is the B of the others.
        recompute: R; that of a forward if not given.
        communication: from a send until what was sent is there.
        update: of a stage's parameters, once.
        collective: of gathering a stage's parameters from all replicas, or of reducing and
            scattering its gradients; an all-reduce takes twice that. All of them are there first.
        measure: what they are, such as FLOPs; for texts and pictures alone.
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
        """Return the duration of each kind in each stage, the communication, and their unit.

        Args:
            stages, micro_batches: how many there are.

        Returns:
            An array (kinds, stages) and a number, both in units of 1/``unit``: integers, or with
            a unit of 1 floats if any of the costs is one, or all are too many for integers.

        Raises:
            OptionError: if a cost is negative or not a number, if there are not as many as stages,
                or if they add up to more than a float can hold.
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
        table[BACKWARD] = table[BACKWARD_INPUT] + table[BACKWARD_WEIGHT]
        table[ALL_REDUCE] = 2 * table[REDUCE_SCATTER]
        return table, dtype(count(own["communication"][0] * unit)), unit

    def unit_of(
        self, own: dict[str, list[Number]], stages: int, micro_batches: int
    ) -> int | Fraction | None:
        """Return the unit in which all costs are integers that can be added up; None for floats."""
        numbers = [number for column in own.values() for number in column]

        def total(of: Callable[[Any], Any]) -> Any:
            # No device's clock can be beyond the sum of everything, each message by itself.
            # Each collective is waited for by itself as well: at most four a micro-batch and stage.
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
        """Return one of the costs for every stage."""
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
                    f"{name}: {one_text(number)}; a cost is a finite number of 0 or more"
                )
        return column


def one_text(value: Any) -> str:
    """Return what somebody gave, not too long."""
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
    FORWARD: "forward",
    RECOMPUTE: "recompute",
    BACKWARD_INPUT: "backward_input",
    BACKWARD_WEIGHT: "backward_weight",
    UPDATE: "update",
    **dict.fromkeys(COLLECTIVES, "collective"),
}


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one micro-batch in one stage holds of its device's memory; bytes, or any one unit.

    ``during`` an action it holds one number, and from its end on another, until the next action on
    that micro-batch. As it stands here, a micro-batch that is underway weighs 1 until the last part
    of its backward has ended: the peak is the number of micro-batches in flight.

    Attributes:
        forward, held: during the forward; and from then on.
        recompute, recomputed: during the recomputation, if there is one; and from then on.
        backward: during a whole backward.
        backward_input: during one of the inputs alone.
        waiting: between a backward of the inputs and that of the weights.
        weight: during that of the weights.
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
    """Raise an OptionError unless all is whole, not negative, and can be added up.

    Args:
        footprints: one a stage.
        micro_batches: how many may hold as much at a time.
    """
    largest = 0
    for stage, own in enumerate(footprints):
        for each in fields(own):
            size = getattr(own, each.name)
            if not isinstance(size, int | np.integer) or size < 0:
                raise OptionError(
                    f"stage {stage}, footprint: {each.name}={one_text(size)}; it is a whole number "
                    "of 0 or more"
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
    """Return by kind and stage what an action adds while it runs, and what it leaves added.

    Args:
        footprints: one a stage.
        recomputes: for each stage whether it is recomputed before its backward.
    """
    during = np.zeros((len(KINDS), len(footprints)), np.int64)
    after = np.zeros_like(during)
    for stage, own in enumerate(footprints):
        before = own.recomputed if recomputes[stage] else own.held
        for kind, earlier, while_it_runs, later in (
            (FORWARD, 0, own.forward, own.held),
            (RECOMPUTE, own.held, own.recompute, own.recomputed),
            (BACKWARD, before, own.backward, 0),
            (BACKWARD_INPUT, before, own.backward_input, own.waiting),
            (BACKWARD_WEIGHT, own.waiting, own.weight, 0),
        ):
            during[kind, stage] = while_it_runs - earlier
            after[kind, stage] = later - earlier
    return during, after
