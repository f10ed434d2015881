"""User-defined pipeline schedules: build a pipeline from explicit lists of actions.

Indices, kinds and counts are checked here; whether the actions are legal in their order is checked
by ``replay``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyckpt.base.errors import OptionError, ScheduleError
from tinyckpt.pipeline.program import KINDS, OF_THE_BATCH, Action, Lane, Pipeline, concatenate_lanes


def pipeline_of(
    name: str,
    device_of: Sequence[int],
    micro_batches: int,
    lanes: Iterable[Iterable[Action]],
    replicas: int = 1,
    zero: int = 0,
) -> Pipeline:
    """Build a pipeline from explicit actions: a user-defined schedule.

    >>> from tinyckpt.pipeline import Action, pipeline_of, replay_pipeline
    >>> lane = [Action("forward", 0), Action("backward", 0), Action("update", 0)]
    >>> print(replay_pipeline(pipeline_of("alone", [0], 1, [lane])))
    alone, 1 devices, 1 micro-batches: makespan 3, bubble 0.0%, peaks 1

    Args:
        name: for tables and errors.
        device_of: for every stage its device.
        micro_batches: number of micro-batches of a batch.
        lanes: for every device its actions, in order: messages, updates and collectives included.
        replicas, zero: as in a Pipeline.

    Raises:
        OptionError: if a number is out of its range.
        ScheduleError: if an action has an unknown kind, or a stage or micro-batch out of range;
            names device and step. Whether their order is legal is checked by ``replay_pipeline``.
    """
    rows = [list(lane) for lane in lanes]
    check_numbers(name, list(device_of), len(rows), micro_batches, replicas, zero)
    for device, row in enumerate(rows):
        for step, action in enumerate(row):
            if not is_action(action, len(device_of), micro_batches):
                told = tuple(action) if isinstance(action, Action) else action
                raise ScheduleError(
                    f"device {device}, step {step}: {told!r:.80} is not an action; {name} has "
                    f"stages 0 to {len(device_of) - 1}, micro-batches 0 to {micro_batches - 1}, "
                    f"and kinds {', '.join(KINDS)}"
                )
    columns = [
        Lane(
            np.array([KINDS.index(action.kind) for action in row], np.int8),
            np.array([action.stage for action in row], np.int32),
            np.array([action.micro_batch for action in row], np.int32),
        )
        for row in rows
    ]
    whole = concatenate_lanes(name, np.array(device_of, np.int32), micro_batches, columns)
    return replace(whole, replicas=replicas, zero=zero)


def is_action(action: Any, stages: int, micro_batches: int) -> bool:
    """Whether an object is an action with a known kind, and stage and micro-batch in range."""
    return (
        isinstance(action, Action)
        and action.kind in KINDS
        and is_count(action.stage, stages)
        and is_count(action.micro_batch, micro_batches)
        and not (action.kind in OF_THE_BATCH and action.micro_batch)
    )


def is_count(number: Any, end: int) -> bool:
    """Whether an object is an integer from 0 to ``end - 1``."""
    return isinstance(number, int | np.integer) and bool(0 <= number < end)


def check_numbers(
    name: str, device_of: list[Any], devices: int, micro_batches: Any, replicas: Any, zero: Any
) -> None:
    """Raise an OptionError unless the counts of a pipeline are legal and consistent."""
    for what, count in (("micro-batches", micro_batches), ("replicas", replicas)):
        if type(count) is not int or not 1 <= count < 2**31:
            raise OptionError(f"{name}: {what} must be an integer from 1 to {2**31 - 1:,}")
    if type(zero) is not int or zero not in range(4):
        raise OptionError(f"{name}: zero must be 0, 1, 2 or 3")
    if not device_of or not all(is_count(device, devices) for device in device_of):
        raise OptionError(
            f"{name}: device_of={device_of!r:.80}; expected for each of one or more stages the "
            f"index of its device; there are {devices} devices"
        )
    stages, own = len(device_of) // replicas, devices // replicas
    first = device_of[:stages] * replicas
    repeated = [device + index // stages * own for index, device in enumerate(first) if stages]
    if len(device_of) % replicas or devices % replicas or repeated != device_of:
        raise OptionError(
            f"{name}: {len(device_of)} stages on {devices} devices are not {replicas} replicas of "
            "a pipeline: each has as many of both, in the same order"
        )
