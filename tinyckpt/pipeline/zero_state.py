"""ZeRO-1, -2, -3 state of one device: sharded parameters, gradients and optimiser state.

The run-time storage of the training state. Parameters and accumulated gradients are whole or flat
shards, depending on the ZeRO stage; the optimiser state is that of the part which the device
updates. It supplies the inputs of collectives (all-reduce, reduce-scatter, all-gather) and stores
their results; the transport is elsewhere (``run_in_process``, ``mpi``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinyckpt.base.tree import leaves_like, map_leaves
from tinyckpt.pipeline.parameter_shards import padded, parameters_of, share_of, update_of, whole_of
from tinyckpt.pipeline.program import Action, Pipeline
from tinyckpt.pipeline.save_and_resume import NOBODY, Resumed, Slot, slots_of
from tinyckpt.pipeline.stage_schedules import PlannedStage
from tinyckpt.training.optimizers import Optimizer
from tinyckpt.training.transformations import jit

Arrays = dict[int, Any]


class CollectiveRequest(NamedTuple):
    """A device's request for a collective; it blocks until the results arrive.

    Attributes:
        kind: ``all_reduce``, ``reduce_scatter`` or ``gather``; the first two take means.
        arrays: the device's inputs: flat, of the same lengths on all replicas.
    """

    kind: str
    arrays: list[Any]


def sum_dtype(dtype: Any) -> Any:
    """Return the dtype that means accumulate in: float32 for 16-bit floats, against overflow."""
    return np.dtype("float64" if dtype == np.float64 else "float32")


class ArrayView(NamedTuple):
    """The layout of a view within the memory of its base, to recreate it on another base."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any

    @staticmethod
    def of(array: Any) -> ArrayView:
        """Return the layout of an array within the memory of its base."""
        offset = array.__array_interface__["data"][0] - array.base.__array_interface__["data"][0]
        return ArrayView(offset, array.shape, array.strides, array.dtype)

    def again(self, base: Any) -> Any:
        """Create a view of another base with this layout."""
        return np.ndarray(self.shape, self.dtype, base, self.offset, self.strides)


class ZeroState:
    """The training state on one device.

    Attributes:
        gradients: accumulated gradients by data id; with ``zero`` of 2 or more, shards.
        fresh: by stage, gradients of one micro-batch before their reduce-scatter.
        parameters: arrays by data id; with ``zero=3`` shards. Empty without an optimiser and with
            ``zero`` below 3: then the arguments are read directly.
        gathered: all-gathered parameters, by (stage, micro-batch), while they are needed.
        views: layouts of views of freed parameters, by (stage, micro-batch), with the parameter.
        state, slots: optimiser state by stage, and the keys of its arrays in the same nesting.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        device: int,
        stages: Sequence[PlannedStage],
        number: int,
        arguments: Mapping[int, Any],
        optimizer: Optimizer | None,
        begin: Resumed | None = None,
    ) -> None:
        """Copy or shard the device's parameters, and initialise or restore the optimiser state.

        Args:
            pipeline: of one replica.
            device: index within the replica.
            stages: all planned stages.
            number: index of the replica.
            arguments: of the first micro-batch, by data id.
            optimizer: updates the parameters; None for none.
            begin: the optimiser state to resume from; the initial one if not given.
        """
        self.replicas, self.number = pipeline.replicas, number
        self.zero = pipeline.zero_in_effect
        self.stages, self.optimizer, self.steps = stages, optimizer, 0
        self.before = 0 if begin is None else begin.step
        self.gradients: Arrays = {}
        self.fresh: dict[int, Arrays] = {}
        self.parameters: Arrays = {}
        self.gathered: dict[tuple[int, int], Arrays] = {}
        self.views: dict[tuple[int, int], dict[int, tuple[int, ArrayView]]] = {}
        self.state: dict[int, Any] = {}
        self.slots: dict[int, Any] = {}
        if optimizer is None and self.zero < 3:
            return
        self.known = parameters_of(stages)
        for data in self.known.of_device(pipeline, device):
            array = arguments[data]
            is_share = self.zero == 3
            self.parameters[data] = self.share(array) if is_share else np.array(array, order="C")
        if optimizer is not None:
            self.apply = jit(update_of(optimizer))
            for stage in pipeline.stages_on(device):
                updated = [data for data, _ in self.known.updates[stage]]
                self.slots[stage] = slots_of(optimizer, updated, self.known)
                if begin is None:
                    own = [self.share(arguments[data]) for data in updated]
                    self.state[stage] = optimizer.init(own)
                else:
                    self.state[stage] = map_leaves(partial(self.part, begin), self.slots[stage])

    @property
    def parts(self) -> int:
        """Number of shards of gradients and state: as many as replicas, or one."""
        return self.replicas if self.zero else 1

    def share(self, array: Any) -> Any:
        """Return this replica's flat shard of an array."""
        return share_of(array, self.parts, self.number if self.zero else 0)

    def part(self, begin: Resumed, slot: Slot) -> Any:
        """Return a copy of this replica's part of an array of the optimiser state."""
        array = begin.arrays[slot]
        return np.array(array) if slot.data == NOBODY else self.share(array)

    def read(self, stage: int, micro_batch: int) -> Arrays:
        """Return the parameters that a stage reads, by its own ids, and recreate freed views.

        Empty if parameters are read from the arguments.
        """
        if not self.parameters:
            return {}
        local = self.stages[stage].stage.local
        place = stage, micro_batch
        source = self.gathered[place] if self.zero == 3 else self.parameters
        found = {local[data]: source[data] for data in self.known.reads[stage]}
        for key, (data, view) in self.views.pop(place, {}).items():
            found[key] = view.again(source[data].base)
        return found

    def add(self, stage: int, data: int, part: Any) -> None:
        """Accumulate a micro-batch's gradient; with ZeRO-2 and -3 after its reduce-scatter only."""
        if self.zero >= 2:
            self.fresh.setdefault(stage, {})[data] = part
        else:
            self.sum_up(data, part)

    def sum_up(self, data: int, part: Any) -> None:
        """Accumulate into a gradient."""
        self.gradients[data] = self.gradients[data] + part if data in self.gradients else part

    def made(self, stage: int) -> list[int]:
        """Return the gradients that a stage computes, each once."""
        own = self.stages[stage].stage
        known = set(own.graph.gradients)
        return [data for data in own.outputs if own.local[data] in known]

    def offered(self, action: Action) -> CollectiveRequest:
        """Return the device's inputs of a collective action."""
        made = self.made(action.stage)
        if action.kind == "all_reduce":
            return CollectiveRequest(
                "all_reduce", [self.gradients[data].reshape(-1) for data in made]
            )
        if action.kind == "reduce_scatter":
            own = self.fresh.get(action.stage, {}) if self.zero >= 2 else self.gradients
            return CollectiveRequest(
                "reduce_scatter", [padded(own[data], self.replicas) for data in made]
            )
        if action.kind == "gather_updated":
            own = self.parameters
            updated = [data for data, _ in self.known.updates[action.stage]] if own else []
            return CollectiveRequest("gather", [self.share(own[data]) for data in updated])
        reads = self.known.reads[action.stage]
        return CollectiveRequest("gather", [self.parameters[data] for data in reads])

    def received(self, action: Action, arrays: Sequence[Any]) -> None:
        """Store the results of a collective action."""
        made = self.made(action.stage)
        if action.kind == "all_reduce":
            for data, array in zip(made, arrays, strict=True):
                self.gradients[data] = array.reshape(self.gradients[data].shape)
        elif action.kind == "reduce_scatter":
            fresh = self.fresh.pop(action.stage, None)
            for data, array in zip(made, arrays, strict=True):
                if fresh is None:
                    self.gradients[data] = array
                else:
                    self.sum_up(data, array)
        elif action.kind == "gather_updated":
            updates = self.known.updates[action.stage] if self.parameters else ()
            for (data, _), flat in zip(updates, arrays, strict=True):
                self.parameters[data][...] = whole_of(flat, self.known.spec(data))
        else:
            self.gathered[action.stage, action.micro_batch] = {
                data: whole_of(flat, self.known.spec(data))
                for data, flat in zip(self.known.reads[action.stage], arrays, strict=True)
            }

    def free(self, action: Action, values: Arrays) -> None:
        """Free the parameters that were gathered for an action.

        A view of one, such as its transpose, would keep it alive: it is dropped as well, and
        recreated when the parameter is gathered again.

        Args:
            action: the free.
            values: of the stage and micro-batch, by the stage's ids; freed ones are removed.
        """
        place = action.stage, action.micro_batch
        owners = {id(array.base): data for data, array in self.gathered.pop(place).items()}
        local = self.stages[action.stage].stage.local
        for data in owners.values():
            values.pop(local[data], None)
        found = [key for key, array in values.items() if id(array.base) in owners]
        for key in found:
            array = values.pop(key)
            view = ArrayView.of(array)
            self.views.setdefault(place, {})[key] = owners[id(array.base)], view

    def detached(self, array: Any) -> Any:
        """Return an array for another stage of this device, copied if its memory will be freed."""
        is_view = self.zero == 3 and array.base is not None
        return array.copy(order="K") if is_view else array

    def update(self, stage: int) -> None:
        """Run the optimiser on this device's part of a stage's parameters."""
        if self.optimizer is None:
            return
        pairs = self.known.updates[stage]
        own = [self.flat(data) for data, _ in pairs]
        gradients = [self.gradients[gradient].reshape(-1) for _, gradient in pairs]
        for gradient in {gradient for _, gradient in pairs}:
            del self.gradients[gradient]
        if not pairs:
            return
        step = np.int64(self.before + self.steps)
        new, self.state[stage] = self.apply(gradients, self.state[stage], own, step)
        for (data, _), array in zip(pairs, new, strict=True):
            self.write(data, array)

    def flat(self, data: int) -> Any:
        """Return the flat part of a parameter that this device updates."""
        array = self.parameters[data]
        return array if self.zero == 3 else self.share(array)

    def write(self, data: int, array: Any) -> None:
        """Write back the updated part of a parameter."""
        if self.zero == 3:
            self.parameters[data] = array
        elif self.zero == 0:
            self.parameters[data] = array.reshape(self.known.spec(data).shape)
        else:
            begin = self.number * array.size
            flat = self.parameters[data].reshape(-1)  # a view: it is C-contiguous
            part = flat[begin : begin + array.size]
            part[:] = array[: part.size]

    def shares(self) -> Arrays:
        """Return this device's flat parameters: whole, or its shards."""
        return {
            data: array if self.zero == 3 else array.reshape(-1)
            for data, array in self.parameters.items()
        }

    def state_arrays(self) -> dict[Slot, Any]:
        """Return this device's flat optimiser state: whole, or its shards."""
        found: dict[Any, Any] = {}
        for stage, state in self.state.items():
            if self.known.updates[stage]:
                places = leaves_like(self.slots[stage], state, "state")
                found.update({slot: leaf for slot, _, leaf in places})
        return found
