"""What the actions of a pipeline take: time, and memory of their device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np

from tinyckpt.errors import OptionError
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

LARGEST_CLOCK = 2**62  # what int64 holds, and a bit for a sum of two
Number = int | float | Fraction
OfStages = Number | Sequence[Number]  # one for all stages, or one for each


@dataclass(frozen=True, slots=True)
class PipelineCosts:
    """How long actions take, of one micro-batch in one stage; in any one unit.

    Each is a number for all stages, or a sequence with one for each. Integers and Fractions are
    reckoned with exactly.

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

    def scaled(self, stages: int, micro_batches: int = 1) -> tuple[Any, Any, int]:
        """Return the duration of each kind in each stage, the communication, and their unit.

        Args:
            stages, micro_batches: how many there are.

        Returns:
            An array (kinds, stages) and a number, both in units of 1/``unit``: integers, or with
            a unit of 1 floats if any of the costs is one.

        Raises:
            OptionError: if a cost is negative or not a number, if there are not as many as stages,
                or if they are too large to be added up exactly.
        """
        own = {name: self.of_stages(name, stages) for name in NAMES}
        numbers = [number for column in own.values() for number in column]
        if any(isinstance(number, float) for number in numbers):
            exact, unit = False, 1
        else:
            exact = True
            unit = math.lcm(*{Fraction(number).denominator for number in numbers})
        # No device's clock can be beyond the sum of everything, each message by itself.
        # Each collective is waited for by itself as well: at most four a micro-batch and stage.
        ways = 2 * stages * own["communication"][0] + 4 * sum(own["collective"])
        total = micro_batches * unit * (sum(numbers) + ways)
        if exact and total >= LARGEST_CLOCK:
            raise OptionError(
                f"the costs of the pipeline add up to {float(total):.3g} of their common unit, and "
                f"only less than {float(LARGEST_CLOCK):.3g} can be reckoned with exactly; give "
                "them as floats, or round them"
            )
        dtype = np.int64 if exact else np.float64
        table: Any = np.zeros((len(KINDS), stages), dtype)
        for kind, name in KIND_NAMES.items():
            table[kind] = [number * unit for number in own[name]]
        table[BACKWARD] = table[BACKWARD_INPUT] + table[BACKWARD_WEIGHT]
        table[ALL_REDUCE] = 2 * table[REDUCE_SCATTER]
        return table, dtype(own["communication"][0] * unit), unit

    def of_stages(self, name: str, stages: int) -> list[Number]:
        """Return one of the costs for every stage."""
        given = getattr(self, name)
        if given is None:
            name, given = "forward", self.forward
        if name == "communication" and isinstance(given, Sequence):
            raise OptionError(f"communication={given!r:.80}; it is one number, for every message")
        column = list(given) if isinstance(given, Sequence) else [given] * stages
        if len(column) != stages:
            raise OptionError(f"{name} has {len(column)} costs; the pipeline has {stages} stages")
        for number in column:
            if (
                not isinstance(number, int | float | Fraction)
                or not math.isfinite(number)
                or number < 0
            ):
                raise OptionError(f"{name}={number!r}; a cost is a finite number of 0 or more")
        return column


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
