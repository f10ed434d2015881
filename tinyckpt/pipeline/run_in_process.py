"""In-process execution of a pipeline on arrays: all devices as coroutines, run round-robin.

Each device and replica is a generator (``device_executor``); messages wait in dictionaries, and a
collective happens when all replicas of a device have arrived at it. Values, gradients, parameters
and state are then gathered into the nesting of the function. For timing without arrays see
``replay``; for one process per device ``mpi``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.errors import OptionError
from tinyckpt.base.tree import Tree, map_leaves
from tinyckpt.pipeline.data_parallelism import replica_of
from tinyckpt.pipeline.device_executor import Arrays, DeviceState, Message, Outcome, device_program
from tinyckpt.pipeline.parameter_shards import check_by_element, parameters_of, whole_of
from tinyckpt.pipeline.program import Pipeline
from tinyckpt.pipeline.replay import replay_pipeline
from tinyckpt.pipeline.save_and_resume import checked_state, whole_state
from tinyckpt.pipeline.stage_schedules import PlannedStage
from tinyckpt.pipeline.zero_state import CollectiveRequest, sum_dtype
from tinyckpt.training.optimizers import Optimizer


class PipelineResult(NamedTuple):
    """The result of running a pipeline on one batch, or several.

    Attributes:
        values: the function's result for each micro-batch.
        gradients: their mean over micro-batches, in the nesting of the arguments that the gradient
            was taken with respect to; None with an optimiser, which has consumed them.
        parameters: with an optimiser, the updated parameters, in their nesting; else None.
        state: with an optimiser, the training state to resume from: a dict of ``parameters``,
            ``optimizer`` and ``step``, each in the nesting of ``TrainStep.init``; else None.

    >>> import numpy as np
    >>> PipelineResult([np.float64(2.5)], {"w": np.zeros(2)}).parameters is None
    True
    """

    values: list[Any]
    gradients: Any
    parameters: Any = None
    state: Any = None


def check_arguments(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    batches: Sequence[tuple[Any, ...]],
    optimizer: Optimizer | None = None,
) -> None:
    """Raise an error unless a pipeline is legal and matches stages, batches and optimiser."""
    depth, count = pipeline.replica_stages, pipeline.micro_batches * pipeline.replicas
    steps = len(batches) // count if optimizer is not None and batches else 1
    if len(stages) != depth or len(batches) != count * steps:
        of = "" if pipeline.replicas == 1 else f" ({pipeline.micro_batches} in each replica)"
        raise OptionError(
            f"{pipeline.name} has {depth} stages and {count} micro-batches{of}; got "
            f"{len(stages)} and {len(batches)}"
        )
    replay_pipeline(pipeline)
    if optimizer is None:
        return
    known = parameters_of(stages)
    check_by_element(optimizer, known)
    updates = {data: k for k, pairs in enumerate(known.updates) for data, _ in pairs}
    for stage, reads in enumerate(known.reads):
        for data in reads:
            devices = [int(pipeline.device_of[k]) for k in (stage, updates[data])]
            if devices[0] != devices[1]:
                raise OptionError(
                    f"{known.whole.data[data].name} is read on device {devices[0]} and updated on "
                    f"device {devices[1]}, which would have to send it; with an optimiser, cut the "
                    "graph so that each parameter is on one device"
                )


def run_pipeline(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    batches: Sequence[tuple[Any, ...]],
    optimizer: Optimizer | None = None,
    state: Any = None,
) -> PipelineResult:
    """Run all devices of a pipeline, of all replicas, in this process.

    >>> import numpy as np, tinyckpt as tc
    >>> from tinyckpt.pipeline import gpipe, partition, plan_stages, stages_of
    >>> def loss(w, x):
    ...     return tc.half_squared_norm(tc.tanh(x @ w) @ w)
    >>> w, x = np.eye(2) / 2, np.ones((1, 2))
    >>> graph = tc.differentiate(tc.build(loss, w, x))
    >>> stages = plan_stages(stages_of(graph, partition(graph, 2)))
    >>> result = run_pipeline(gpipe(2, 2), stages, [(w, x), (w, 2 * x)])
    >>> [round(float(value), 3) for value in result.values], result.gradients.round(3).tolist()
    ([0.053, 0.145], [[0.324, 0.324], [0.324, 0.324]])

    Args:
        pipeline: the actions of each device.
        stages: planned, as many as a replica has.
        batches: the function's arguments for each micro-batch; parameters are the same in all.
            The first M are those of replica 0, the next M those of replica 1. Any sequence: a
            micro-batch is looked up when its step begins.
        optimizer: updates the parameters, from its initial state; then there may be batches for
            several steps, one after the other. It must be elementwise.
        state: a result's ``state``, to resume from; then batches contain the arguments after
        the parameters only. It is copied, not modified.

    Raises:
        ScheduleError: if the pipeline is not legal.
        OptionError: if the numbers of stages or micro-batches differ, or if the optimiser or the
            state does not fit.
        GraphError: if an argument's shape or dtype differs from the graph's.
        BackendError: if an operator fails.
    """
    check_arguments(pipeline, stages, batches, optimizer)
    begin = None if state is None else checked_state(state, optimizer, parameters_of(stages))
    devices = pipeline.replica_devices
    sent: list[dict[Message, list[Any]]] = [{} for _ in range(pipeline.replicas)]
    programs = [
        device_program(
            DeviceState(
                replica_of(pipeline, number), device, stages,
                MicroBatches(pipeline, batches, number, state),
                sent[number].__setitem__, number, optimizer, begin,
            )
        )
        for number in range(pipeline.replicas)
        for device in range(devices)
    ]  # fmt: skip
    outcomes: dict[int, Outcome] = {}
    wanted: dict[int, Message | CollectiveRequest | None] = dict.fromkeys(range(pipeline.devices))
    while wanted:
        # A pipeline that was replayed has no deadlock: at least one device can go on.
        for device in list(wanted):
            if device not in wanted:
                continue
            for number, arrays in deliveries(device, wanted, sent, devices):
                try:
                    wanted[number] = programs[number].send(arrays)
                except StopIteration as end:
                    outcomes[number] = end.value
                    del wanted[number]
    found = [outcomes[number] for number in range(pipeline.devices)]
    return gather_outcomes(pipeline, stages, found, optimizer)


class MicroBatches(Sequence[Any]):
    """A replica's micro-batches, of all steps, each looked up on access.

    Attributes:
        whole: those of all replicas.
        places: the positions of the replica's own.
        parameters: put before each, if they come from a training state; else empty.
    """

    def __init__(
        self, pipeline: Pipeline, whole: Sequence[Any], number: int, state: Any = None
    ) -> None:
        self.whole, own = whole, pipeline.micro_batches
        begins = range(number * own, len(whole), own * pipeline.replicas)
        self.places = [place for begin in begins for place in range(begin, begin + own)]
        self.parameters: tuple[Any, ...] = () if state is None else (state["parameters"],)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: Any) -> Any:
        batch = self.whole[self.places[number]]
        return (*self.parameters, *batch) if self.parameters else batch


def deliveries(
    device: int,
    wanted: dict[int, Message | CollectiveRequest | None],
    sent: list[dict[Message, list[Any]]],
    devices: int,
) -> list[tuple[int, Any]]:
    """Return the arrays that a device waits for, if they have arrived; a collective's for all.

    Args:
        device: index among the devices of all replicas.
        wanted: for every device the message or collective that it waits for; None before its
            first step.
        sent: undelivered messages, by replica.
        devices: number of devices of a replica.

    Returns:
        (device, arrays) pairs: none, one, or for a collective one for every replica.
    """
    own = wanted[device]
    if own is None:
        return [(device, None)]
    if isinstance(own, Message):
        messages = sent[device // devices]
        return [(device, messages.pop(own))] if own in messages else []
    group = range(device % devices, devices * len(sent), devices)
    brought = [
        each.arrays for each in map(wanted.get, group) if isinstance(each, CollectiveRequest)
    ]
    if len(brought) < len(group):
        return []
    return list(zip(group, run_collective(own.kind, brought), strict=True))


def run_collective(kind: str, brought: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Run a collective in one process: return the results of every replica."""
    count = len(brought)
    got: list[list[Any]] = [[] for _ in brought]
    for arrays in zip(*brought, strict=True):
        if kind == "gather":
            made = [np.concatenate(arrays)] * count
        else:
            mean = mean_of(arrays)
            made = [mean] * count if kind == "all_reduce" else np.split(mean, count)
        for each, array in zip(got, made, strict=True):
            each.append(array.copy())
    return got


def mean_of(arrays: Sequence[Any]) -> Any:
    """Return the mean of arrays, accumulated in order."""
    dtype = arrays[0].dtype
    wide = sum_dtype(dtype)
    total = reduce(np.add, [array.astype(wide, copy=False) for array in arrays])
    return (total / wide.type(len(arrays))).astype(dtype)


def gather_outcomes(
    pipeline: Pipeline,
    stages: Sequence[PlannedStage],
    outcomes: Sequence[Outcome],
    optimizer: Optimizer | None,
    collect: bool = True,
) -> PipelineResult:
    """Gather the outcomes of all devices into one result, in the function's nesting.

    Args:
        pipeline: of all replicas.
        stages: of one replica.
        outcomes: of every device.
        optimizer: that updated the parameters, if any.
        collect: whether to gather everything; if not, only values.
    """
    whole, devices = stages[0].stage.whole, pipeline.replica_devices
    replicas = [
        one_replica_result(outcomes[k : k + devices]) for k in range(0, len(outcomes), devices)
    ]
    steps = len(replicas[0].results) // pipeline.micro_batches
    batches = [
        results
        for step in range(steps)
        for each in replicas
        for results in each.results[step * pipeline.micro_batches :][: pipeline.micro_batches]
    ]
    values = [map_leaves(partial(dict.__getitem__, batch), whole.results) for batch in batches]
    if not collect:
        return PipelineResult(values, None)

    def joined(ids: Tree, shares: Sequence[Arrays], is_shared: bool) -> Tree:
        def array(data: int) -> Any:
            parts = [own[data] for own in shares] if is_shared else [shares[0][data]]
            return whole_of(np.concatenate([part.reshape(-1) for part in parts]), spec_of(data))

        return map_leaves(array, ids)

    def spec_of(data: int) -> Any:
        return whole.data[data].spec

    zero = pipeline.zero_in_effect
    if optimizer is not None:
        shares = [each.parameters for each in replicas]
        parameters = joined(whole.arguments[0], shares, zero == 3)
        of_state = [each.state for each in (replicas if zero else replicas[:1])]
        known, steps = parameters_of(stages), outcomes[0].steps
        state = whole_state(optimizer, known, parameters, of_state, steps)
        return PipelineResult(values, None, parameters, state)
    sums = [each.gradients for each in replicas]
    return PipelineResult(values, joined(whole.gradients, sums, zero >= 1))


def one_replica_result(outcomes: Sequence[Outcome]) -> Outcome:
    """Merge the outcomes of one replica's devices, as if it were one device."""
    gradients = {data: array for each in outcomes for data, array in each.gradients.items()}
    parameters = {data: array for each in outcomes for data, array in each.parameters.items()}
    results = [
        {data: array for own in every for data, array in own.items()}
        for every in zip(*(each.results for each in outcomes), strict=True)
    ]
    state = {slot: array for each in outcomes for slot, array in each.state.items()}
    return Outcome(gradients, results, parameters, state, outcomes[0].steps)
