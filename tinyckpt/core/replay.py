"""Abstract interpretation of a schedule: legality, live memory and peak, from shapes alone.

The reference machine of the project, and its verifier of schedules. In: a schedule. Out: the trace
of running it, or a ScheduleError about the first illegal step. It knows shapes and the order of
steps, nothing of kernels or policies. ``execute`` runs the arrays and keeps an independent account,
which tests compare with this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tinyckpt.base.errors import ScheduleError, expect
from tinyckpt.base.tracebacks import short_traceback
from tinyckpt.core.graph import Graph
from tinyckpt.core.schedule import (
    EVALUATIONS,
    MACHINE,
    Compute,
    Evaluation,
    Free,
    Schedule,
    Step,
    step_text,
)
from tinyckpt.core.trace import Trace, memory_kinds, trace_of


@short_traceback
def replay(schedule: Schedule) -> Trace:
    """Run a schedule without arrays, and return its trace; raise on the first illegal step.

    A schedule is legal if every operator's inputs are resident when it is evaluated, no operator is
    evaluated while an output of its previous evaluation is still resident or on the host, only
    resident values are freed or offloaded, only offloaded ones fetched, and all results of the
    graph are resident at the end. Checks of extensions add: no source is read after its update, and
    no non-recomputable operator is evaluated twice.

    >>> import tinyckpt as tc
    >>> trace = tc.replay(tc.plan(tc.networks.chain(16), "sqrt_n"))
    >>> trace.evaluations, trace.recomputations, trace.peak_nodes, trace.peak_bytes
    (42, 9, 9, 4608)
    >>> graph = tc.networks.chain(2)
    >>> tc.replay(tc.Schedule(graph, (tc.Compute(0), tc.Free(1), tc.Compute(1)), "mine"))
    Traceback (most recent call last):
    tinyckpt.base.errors.ScheduleError: step 2: compute f2 needs f1, which was freed at step 1

    Raises:
        ScheduleError: names the first illegal step and the violated requirement.
    """
    expect(schedule, Schedule)
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


# Extensions. A rule executes a kind of step, none of Compute or Free, and returns the workspace in
# use; a check fails if an operator may not be evaluated now, or a result not be returned.
Check = Callable[["ReplayState", int, Evaluation], None]
STEP_RULES: dict[type, Callable[[ReplayState, int, Any], int]] = {}
OPERATOR_CHECKS: list[Callable[[Graph], Mapping[int, Check]]] = []
RESULT_CHECKS: list[Callable[[ReplayState], None]] = []


class ReplayState:
    """The abstract machine state: resident values, and the allocations that they keep alive."""

    def __init__(self, schedule: Schedule) -> None:
        graph = schedule.graph
        self.schedule, self.graph = schedule, graph
        self.kind = memory_kinds(graph)
        # A block is one allocation, with a reference count (``holders``). Each evaluation allocates
        # anew, so a value that is computed twice has two blocks, and a view may keep the first
        # alive while the second exists. A value's block is None where it is not resident, or a
        # source; and -1 for a view of a source: the memory of neither is charged.
        self.block: list[int | None] = [None] * len(graph.data)
        self.holders: list[int] = []
        self.block_kind: list[int] = []
        self.block_bytes: list[int] = []
        self.on_host: set[int] = set()
        self.live = [0, 0, 0]
        self.nodes = self.host = self.evaluations = 0
        self.scratch: dict[str, Any] = {}  # what extensions remember during one run
        self.left: dict[int, tuple[str, int]] = {}  # how and when a value last left the device
        self.checks: dict[int, list[Check]] = {}  # of extensions, by operator
        for checks_of in OPERATOR_CHECKS:
            for operator, check in checks_of(graph).items():
                self.checks.setdefault(operator, []).append(check)

    def take(self, position: int, step: Step) -> int:
        """Execute one step; return the workspace in use during it, in bytes."""
        if isinstance(step, Compute):
            return self.compute(position, step)
        if isinstance(step, Free):
            self.require(position, step, step.data)
            self.release(position, step.data, "freed")
            return 0
        if type(step) not in STEP_RULES:
            self.fail(position, f"no extension replays {step!r}")
        return STEP_RULES[type(step)](self, position, step)

    def compute(self, position: int, step: Evaluation) -> int:
        """Evaluate an operator: check its inputs, allocate its outputs; return its workspace."""
        operator = self.graph.operators[step.operator]
        for check in self.checks.get(step.operator, ()):
            check(self, position, step)
        for data in operator.inputs:
            self.require(position, step, data)
        for data in operator.outputs:
            if self.block[data] is not None or data in self.on_host:
                self.fail(
                    position,
                    f"{step_text(self.graph, step)[0]} {operator.name}, whose result "
                    f"{self.graph.data[data].name} is still resident; free it first",
                )
        for data in operator.outputs:
            base = self.graph.data[data].view_of
            if base is None:
                self.allocate(data)
            else:
                self.hold(data, self.block[base])
        self.evaluations += 1
        return operator.workspace

    def allocate(self, data: int) -> None:
        """Make a value resident in a fresh allocation."""
        nbytes = self.graph.data[data].spec.nbytes
        self.holders.append(0)
        self.block_kind.append(self.kind[data])
        self.block_bytes.append(nbytes)
        self.live[self.kind[data]] += nbytes
        self.hold(data, len(self.holders) - 1)

    def hold(self, data: int, block: int | None) -> None:
        """Make a value resident in a block; for a view of a source, it is None."""
        if block is None:
            block = -1
        elif block >= 0:
            self.holders[block] += 1
        self.block[data] = block
        self.nodes += 1

    def release(self, position: int, data: int, how: str) -> None:
        """End a value's residence, and drop its reference to its block."""
        block = self.block[data]
        assert block is not None
        self.block[data] = None
        self.nodes -= 1
        self.left[data] = how, position
        if block >= 0:
            self.let_go(block)

    def let_go(self, block: int) -> None:
        """Drop one reference to a block; free its memory with the last one."""
        self.holders[block] -= 1
        if self.holders[block] == 0:
            self.live[self.block_kind[block]] -= self.block_bytes[block]

    def require(self, position: int, step: Step, data: int) -> None:
        """Fail unless a value is resident; sources always are, but cannot be freed or moved."""
        if self.block[data] is not None:
            return
        verb, name = step_text(self.graph, step)
        if self.graph.data[data].is_source:
            if isinstance(step, EVALUATIONS):
                return
            self.fail(position, f"{verb} {name}, a source; sources stay with the caller")
        needs = f" needs {self.name(data)}" if isinstance(step, EVALUATIONS) else ""
        need = f"{verb} {name}{needs}, which"
        if data in self.left:
            how, when = self.left[data]
            self.fail(position, f"{need} was {how} at step {when}")
        self.fail(position, f"{need} has not been computed yet")

    def check_outputs(self) -> None:
        """Fail unless every result is resident at the end, and no update has overwritten it."""
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
        for check in RESULT_CHECKS:
            check(self)

    def name(self, data: int) -> str:
        """Return the unique name of a value."""
        return self.graph.data[data].name

    def fail(self, position: int, what: str) -> NoReturn:
        """Raise the ScheduleError of a step."""
        raise ScheduleError(f"step {position}: {what}")


MACHINE["replay"] = replay
