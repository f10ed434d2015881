"""Static check of collectives across data-parallel replicas: the same ones in the same order.

A collective has no partner to look up: MPI matches collectives in the order in which replicas reach
them. So the replicas of a device must issue the same ones in the same order (or they deadlock).
Their place within a replica is checked for each replica by itself: gradients are reduced after
their last backward and before the update, parameters are gathered before they are read and freed
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tinyckpt.pipeline.check_dependencies import ABSENT, ActionPositions, Complaint, needs, says
from tinyckpt.pipeline.program import (
    ALL_REDUCE,
    BACKWARD,
    BACKWARD_WEIGHT,
    COLLECTIVES,
    FORWARD,
    FREE_BACKWARD,
    FREE_FORWARD,
    GATHER_BACKWARD,
    GATHER_FORWARD,
    GATHER_UPDATED,
    KINDS,
    RECOMPUTE,
    REDUCE_SCATTER,
    UPDATE,
    Action,
    Integers,
)

# The collectives and frees that each ZeRO stage (0 to 3) has.
LEGAL = (
    (ALL_REDUCE,),
    (REDUCE_SCATTER, GATHER_UPDATED),
    (REDUCE_SCATTER, GATHER_UPDATED),
    (REDUCE_SCATTER, GATHER_FORWARD, FREE_FORWARD, GATHER_BACKWARD, FREE_BACKWARD),
)


def collective_complaints(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield the first mismatched, misplaced or missing collectives of a pipeline's replicas."""
    own, of = positions.pipeline, positions.of
    legal = LEGAL[own.zero] if own.replicas > 1 else ()
    why = f"there is none with {own.replicas} replicas and zero={own.zero}"
    for kind in (*COLLECTIVES, FREE_FORWARD, FREE_BACKWARD):
        if kind not in legal:
            yield from positions.first_of(kind, of[kind] != ABSENT, says(why))
    if own.replicas == 1:
        return
    yield from mismatched_collectives(positions)
    done = np.maximum(of[BACKWARD], of[BACKWARD_WEIGHT])
    yield from unreduced_gradients(positions, done)
    if own.zero == 3:
        yield from ungathered_parameters(positions, done)


def mismatched_collectives(positions: ActionPositions) -> Iterator[Complaint]:
    """Yield where the collectives of a device's replica first differ from those of replica 0."""
    own = positions.pipeline
    devices = own.devices // own.replicas
    is_together = np.isin(own.kind, COLLECTIVES)
    for device in range(own.devices):
        rows = []
        for each in (device % devices, device):
            begin, end = own.first[each], own.first[each + 1]
            rows.append(begin + np.flatnonzero(is_together[begin:end]))
        theirs, ours = rows
        count = min(len(theirs), len(ours))
        differ = np.flatnonzero(
            (own.kind[theirs[:count]] != own.kind[ours[:count]])
            | (
                own.stage[theirs[:count]] % positions.depth
                != own.stage[ours[:count]] % positions.depth
            )
            | (own.micro_batch[theirs[:count]] != own.micro_batch[ours[:count]])
        )
        if len(theirs) == len(ours) and not len(differ):
            continue
        at = int(differ[0]) if len(differ) else count

        def described(each: int, found: Integers, at: int = at) -> str:
            if at >= len(found):
                return f"device {each} ends"
            step = int(found[at] - own.first[each])
            return f"device {each} does its {own.action(int(found[at]))} at step {step}"

        here = int(ours[at]) if at < len(ours) else int(own.first[device + 1])
        yield (
            device,
            here - int(own.first[device]),
            f"replicas have different collectives: {described(device, ours)}, and "
            f"{described(device % devices, theirs)}",
        )


def missing_actions(positions: ActionPositions, kind: int, wrong: Integers) -> Iterator[Complaint]:
    """Yield the first action of a kind that is missing from its device.

    Args:
        positions: of the actions.
        kind: of the missing actions.
        wrong: array (stages, micro-batches) that marks them.
    """
    for stage, micro_batch in np.argwhere(wrong)[:1].tolist():
        action = Action(KINDS[kind], stage, micro_batch)
        yield *positions.end_of(stage), f"the device ends without the {action}"


def unreduced_gradients(positions: ActionPositions, done: Integers) -> Iterator[Complaint]:
    """Yield reductions of incomplete gradients, updates before a reduction, and missing ones.

    Args:
        positions: of the actions.
        done: for every stage and micro-batch the step at which its gradients are complete.
    """
    of, zero = positions.of, positions.pipeline.zero
    kind = ALL_REDUCE if zero == 0 else REDUCE_SCATTER
    reduced = of[kind]
    if zero < 2:
        # Once per batch, after the last backward.
        complete = done.max(axis=1, keepdims=True)
        again = reduced != ABSENT
        again[:, 0] = False
        yield from positions.first_of(
            kind, again, says("it is done once per batch, as that of micro-batch 0")
        )
        done, reduced = complete, reduced[:, :1]
    wrong = (reduced != ABSENT) & (reduced < done)
    yield from positions.first_of(
        kind, wrong, lambda s, m: f"its gradients are not complete before step {done[s, m]}"
    )
    yield from missing_actions(positions, kind, (done != ABSENT) & (reduced == ABSENT))
    update, last = of[UPDATE][:, :1], reduced.max(axis=1, keepdims=True)
    yield from missing_actions(positions, UPDATE, update == ABSENT)
    yield from positions.first_of(
        UPDATE, (update != ABSENT) & (update < last), needs(KINDS[kind], last)
    )
    if zero in (1, 2):
        gathered = of[GATHER_UPDATED][:, :1]
        wrong = (gathered != ABSENT) & (gathered < update)
        yield from positions.first_of(GATHER_UPDATED, wrong, needs("update", update))
        yield from missing_actions(positions, GATHER_UPDATED, gathered == ABSENT)


def ungathered_parameters(positions: ActionPositions, done: Integers) -> Iterator[Complaint]:
    """Yield reads of parameters that are not gathered, and gathered parameters never freed."""
    of = positions.of
    again = np.where(of[RECOMPUTE] != ABSENT, of[RECOMPUTE], positions.back)
    again_kind = RECOMPUTE if (of[RECOMPUTE] != ABSENT).any() else BACKWARD
    for kind, steps, gather, free, last in (
        (FORWARD, of[FORWARD], GATHER_FORWARD, FREE_FORWARD, of[FORWARD]),
        (again_kind, again, GATHER_BACKWARD, FREE_BACKWARD, done),
    ):
        wrong = (steps != ABSENT) & ((of[gather] == ABSENT) | (of[gather] > steps))
        yield from positions.first_of(kind, wrong, needs(KINDS[gather], of[gather]), steps)
        wrong = (of[free] != ABSENT) & (of[free] < last)
        yield from positions.first_of(free, wrong, needs(KINDS[kind], last))
        yield from missing_actions(positions, free, (steps != ABSENT) & (of[free] == ABSENT))
