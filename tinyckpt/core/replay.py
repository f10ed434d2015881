"""The reference machine: runs a schedule without arrays and says whether it is legal.

It knows shapes and the order of steps, nothing of kernels and nothing of policies. Every number
that this project prints about memory has passed through here, and the machine with the arrays
(``execute``) keeps its own account to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tinyckpt.base.errors import ScheduleError
from tinyckpt.core.graph import UPDATE, old_source
from tinyckpt.core.schedule import (
    EVALUATIONS,
    Compute,
    Evaluation,
    Fetch,
    Free,
    Offload,
    Schedule,
    Step,
    Update,
    step_text,
)
from tinyckpt.core.trace import Trace, memory_kinds, trace_of


def replay(schedule: Schedule) -> Trace:
    """Return the trace of a schedule, or raise a ScheduleError that names the first bad step.

    A schedule is legal if every operator finds its inputs resident, nothing is computed while a
    result of its last evaluation is still resident, nothing is freed or moved that is not there,
    no source is read after its update, nothing that may be evaluated once is evaluated twice, and
    all results of the graph are resident at the end.

    >>> import tinyckpt as tc
    >>> trace = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    >>> trace.evaluations, trace.recomputations, trace.peak_nodes, trace.peak_bytes
    (42, 9, 9, 4608)
    >>> graph = tc.networks.chain(2)
    >>> tc.replay(tc.Schedule(graph, (tc.Compute(0), tc.Free(1), tc.Compute(1)), "mine"))
    Traceback (most recent call last):
    tinyckpt.base.errors.ScheduleError: step 2: compute f2 needs f1, which was freed at step 1

    Raises:
        ScheduleError: names the first step that is not legal, and what it lacks.
    """
    machine = ReplayState(schedule)
    rows: list[int] = []
    for position, step in enumerate(schedule.steps):
        workspace = machine.take(position, step)
        activation, cotangent, output = machine.live
        rows += (
            machine.nodes, activation, cotangent, output, workspace, machine.host,
            machine.evaluations,
        )  # fmt: skip
    machine.check_outputs()
    return trace_of(schedule, rows)


class ReplayState:
    """The state of a replay: which values are resident, and which memory that holds."""

    def __init__(self, schedule: Schedule) -> None:
        graph = schedule.graph
        self.schedule, self.graph = schedule, graph
        self.kind = memory_kinds(graph)
        # A block is one allocation. Each evaluation allocates anew, so a value that is computed
        # twice has two blocks, and a view may hold the first while the second exists.
        self.block: list[int | None] = [None] * len(graph.data)
        self.holders: list[int] = []
        self.block_kind: list[int] = []
        self.block_bytes: list[int] = []
        self.on_host: dict[int, int] = {}
        self.live = [0, 0, 0]
        self.nodes = self.host = self.evaluations = 0
        self.freed_at: dict[int, int] = {}
        self.updated_at: dict[int, int] = {}  # by source
        self.once_at: dict[int, int] = {}  # by operator that may not be evaluated twice

    def take(self, position: int, step: Step) -> int:
        """Do one step; return the workspace that it holds while it is done."""
        workspace = 0
        if isinstance(step, Compute):
            workspace = self.compute(position, step)
        elif isinstance(step, Update):
            workspace = self.compute(position, step)
            self.updated_at[self.graph.operators[step.operator].inputs[0]] = position
        elif isinstance(step, Free):
            self.require(position, step, step.data)
            self.release(position, step.data)
        elif isinstance(step, Offload):
            self.require(position, step, step.data)
            self.host += self.graph.data[step.data].spec.nbytes
            self.on_host[step.data] = position
            self.release(position, step.data)
        else:
            self.fetch(position, step)
        return workspace

    def compute(self, position: int, step: Evaluation) -> int:
        """Evaluate an operator; return its workspace."""
        operator = self.graph.operators[step.operator]
        if (operator.kind == UPDATE) != (type(step) is Update):
            right = "update" if operator.is_update else "compute"
            self.fail(position, f"{step_text(self.graph, step)[0]} {operator.name}; {right} it")
        if operator.once and self.once_at.setdefault(operator.id, position) != position:
            self.fail(
                position,
                f"{step_text(self.graph, step)[0]} {operator.name}, which may not be evaluated "
                f"twice and was at step {self.once_at[operator.id]}; keep what it makes",
            )
        for data in operator.inputs:
            self.require(position, step, data)
        for data in operator.inputs if self.updated_at else ():
            self.require_old(position, step, data)
        for data in operator.outputs:
            if self.block[data] is not None or data in self.on_host:
                self.fail(
                    position,
                    f"{step_text(self.graph, step)[0]} {operator.name}, whose result "
                    f"{self.graph.data[data].name} is still there; free it first",
                )
        for data in operator.outputs:
            base = self.graph.data[data].view_of
            if base is None:
                self.allocate(data)
            else:
                self.hold(data, self.block[base])
        self.evaluations += 1
        return operator.workspace

    def fetch(self, position: int, step: Fetch) -> None:
        """Move a value back from the host, into memory of its own."""
        if step.data not in self.on_host:
            self.fail(position, f"fetch {self.name(step.data)}, which is not on the host")
        del self.on_host[step.data]
        self.host -= self.graph.data[step.data].spec.nbytes
        self.allocate(step.data)

    def allocate(self, data: int) -> None:
        """Give a value memory of its own."""
        nbytes = self.graph.data[data].spec.nbytes
        self.holders.append(0)
        self.block_kind.append(self.kind[data])
        self.block_bytes.append(nbytes)
        self.live[self.kind[data]] += nbytes
        self.hold(data, len(self.holders) - 1)

    def hold(self, data: int, block: int | None) -> None:
        """Make a value resident in a block; a view of a source has none and holds nothing."""
        if block is None:
            block = -1
        elif block >= 0:
            self.holders[block] += 1
        self.block[data] = block
        self.nodes += 1

    def release(self, position: int, data: int) -> None:
        """End a value's residence; its block goes with the last value that holds it."""
        block = self.block[data]
        assert block is not None
        self.block[data] = None
        self.nodes -= 1
        self.freed_at[data] = position
        if block >= 0:
            self.let_go(block)

    def let_go(self, block: int) -> None:
        """End what one holder takes of a block; with the last one its memory goes."""
        self.holders[block] -= 1
        if self.holders[block] == 0:
            self.live[self.block_kind[block]] -= self.block_bytes[block]

    def require(self, position: int, step: Step, data: int) -> None:
        """Fail unless a value is there: a source may be read, but not freed or moved."""
        if self.block[data] is not None:
            return
        verb, name = step_text(self.graph, step)
        if self.graph.data[data].is_source:
            if isinstance(step, EVALUATIONS):
                return
            self.fail(position, f"{verb} {name}, a source; sources stay with the caller")
        needs = f" needs {self.name(data)}" if isinstance(step, EVALUATIONS) else ""
        need = f"{verb} {name}{needs}, which"
        if data in self.on_host:
            self.fail(position, f"{need} was moved to the host at step {self.on_host[data]}")
        if data in self.freed_at:
            self.fail(position, f"{need} was freed at step {self.freed_at[data]}")
        self.fail(position, f"{need} has not been computed yet")

    def require_old(self, position: int, step: Step, data: int) -> None:
        """Fail if a value shows a source that has been updated."""
        source = old_source(self.graph, data)
        if source in self.updated_at:
            verb, name = step_text(self.graph, step)
            shows = "" if source == data else f", a view of {self.name(source)}"
            self.fail(
                position,
                f"{verb} {name} needs {self.name(data)}{shows} as it was before its update "
                f"at step {self.updated_at[source]}",
            )

    def check_outputs(self) -> None:
        """Fail unless every result is resident at the end, and shows what was computed."""
        missing: Sequence[str] = [
            self.name(data)
            for data in self.graph.outputs
            if self.block[data] is None and not self.graph.data[data].is_source
        ]
        if missing:
            raise ScheduleError(
                f"{self.schedule.policy}: the schedule ends without {', '.join(missing)}; every "
                "result must be computed and not freed"
            )
        for data in self.graph.outputs if self.updated_at else ():
            if old_source(self.graph, data) in self.updated_at:
                raise ScheduleError(
                    f"{self.schedule.policy}: the result {self.name(data)} shows a source that is "
                    "updated; return what it is updated to, or a copy"
                )

    def name(self, data: int) -> str:
        """Return the name of a value."""
        return self.graph.data[data].name

    def fail(self, position: int, what: str) -> NoReturn:
        """Raise the ScheduleError of one step."""
        raise ScheduleError(f"step {position}: {what}")
