"""State rollback: every call leaves the model unchanged, also on errors and interrupts."""

import contextlib
import gc
import random
import sys
from abc import ABC
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

import tinyckpt as tc
from tests.conftest import require

require("torch")

import torch
from torch import nn

from tests import torch_traps
from tests.torch_fingerprint import changes, fingerprint
from tests.torch_traps import CALLS, INTERRUPTED, TRAPS, Interrupt, Trap, trap
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch import state_rollback as preserving

PUBLIC: dict[str, Callable[..., Any]] = {
    "trace": lambda model, x: tct.trace(model, x, workspace=False),
    "advise": lambda model, x: tct.advise(model, x, budget=1.0, workspace=False),
    "selective": lambda model, x: tct.selective(model, x, budget=1.0, workspace=False),
}
# In each run; with the others, in CI.
FEW = ("CachedOnce", "Objects", "Globals", "Hooks", "Drawing", "BuffersAnew", "Named", "Tied")
NAMES = [pytest.param(name, marks=() if name in FEW else pytest.mark.long) for name in TRAPS]
# Whose next forwards compute something else, which is refused.
OTHERWISE = ("Dicts", "Drawing", "Hooks")
OURS = str(Path(preserving.__file__).parent), torch_traps.__file__


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    """Restore the default dtype, which the model ``Modes`` sets."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def left(model: Trap, x: Any) -> Any:
    """Return the fingerprint of a model, its argument and the globals that it writes to."""
    return fingerprint(model, x, torch_traps.SEEN, torch_traps.LATEST)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_public_calls_leave_model_unchanged(name: str) -> None:
    model, x = trap(name)
    before = left(model, x)
    for which, call in PUBLIC.items():
        refused = name in OTHERWISE and which == "trace"
        with pytest.raises(tc.GraphError) if refused else contextlib.nullcontext():
            call(model, x)
        assert changes(before, left(model, x)) == []
    assert type(model(x)) is torch.Tensor


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [each for each in NAMES if each.values[0] not in OTHERWISE])
def test_plans_and_steps_leave_model_unchanged_except_buffers(name: str) -> None:
    model, x = trap(name)
    traced = tct.trace(model, x, workspace=False)
    before = left(model, x)
    tct.min_cut_schedules(traced, [0.5])
    step = tct.step(tc.plan(traced.graph), traced)
    assert changes(before, left(model, x)) == []
    step(x)
    buffers = {id(buffer) for buffer in model.buffers()}
    numbers = ("bytes", "version", "random numbers")
    expected = changes(before, left(model, x))
    assert bool(expected) == bool(buffers or name in ("Dropping", "Checkpointed"))
    assert all(change.split(":")[-2].endswith(numbers) for change in expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("name", NAMES)
def test_error_in_forward_leaves_model_unchanged(
    name: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = trap(name)
    monkeypatch.setattr(Interrupt, "error", error)
    before = left(model, x)
    for call in PUBLIC.values():
        for forwards in (0, 1):
            INTERRUPTED.clear()
            INTERRUPTED.add(next(CALLS) + 1 + forwards)
            with contextlib.suppress(tc.GraphError, KeyboardInterrupt):
                call(model, x)
                pytest.fail("nothing was raised")
            assert changes(before, left(model, x)) == []


class Freezing(Trap):
    def write(self, x: torch.Tensor) -> None:
        self.new = x
        self.layers[0].weight.requires_grad_(False)
        self.layers[1].requires_grad_(False)


def test_forward_that_freezes_parameters_leaves_model_unchanged() -> None:
    model, x = Freezing(), torch.ones(2, 4)
    before = left(model, x)
    for call in PUBLIC.values():
        with contextlib.suppress(tc.GraphError):
            call(model, x)
        assert changes(before, left(model, x)) == []


@pytest.mark.parametrize("name", ["Named", "Drawing"])
def test_infeasible_budget_leaves_model_unchanged(name: str) -> None:
    model, x = trap(name)
    before = left(model, x)
    for call in (tct.advise, tct.selective):
        with pytest.raises(tc.BudgetError):
            call(model, x, budget=10, workspace=False)
        assert changes(before, left(model, x)) == []


@pytest.mark.sampled(1)
@pytest.mark.long
@pytest.mark.parametrize("name", ["Attribute", "OfTheClass", "Buffers", "NamedTwice", "Tied"])
def test_measured_steps_leave_model_unchanged(name: str) -> None:
    model, x = trap(name)
    x.requires_grad_().grad = torch.ones_like(x)
    before = left(model, x)
    compared = tct.compare(model, x, budgets=(0.5,), time_limit=1)
    assert not compared.rows[0].failed
    assert changes(before, left(model, x)) == []
    tct.trace(model, x, cost="measured")
    assert changes(before, left(model, x)) == []


class Unfriendly:
    """Raises on every attribute access."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    __eq__ = __bool__ = __iter__ = __len__ = __getattr__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class UnfriendlyDict(Unfriendly, dict[str, Any]):
    """A dict whose methods raise."""

    items = keys = values = __setitem__ = clear = Unfriendly.__getattr__  # type: ignore[assignment]


class UnfriendlyList(Unfriendly, list[Any]):
    """A list whose methods raise."""

    __setitem__ = clear = extend = Unfriendly.__getattr__  # type: ignore[assignment]


@dataclass(slots=True)
class Record:
    """An object with slots only."""

    rows: list[Any]
    more: Any = None


class Locked:
    """An object shared by several threads."""

    def __init__(self) -> None:
        self.lock, self.rows = Lock(), [0]


def test_rollback_restores_all_object_kinds_except_thread_shared() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"deeper": deep}
    cycle: list[Any] = [deep]
    cycle.append(cycle)
    mapping, members, record = UnfriendlyDict(a=1), UnfriendlyList([1]), Record([1])
    shared, namespace, array = Locked(), SimpleNamespace(a=[1]), np.arange(3)
    objects = [
        Unfriendly(), mapping, members, record, shared, namespace, array, array[::-1], cycle,
        WeakKeyDictionary(), ChainMap({}), iter([1]), torch.ones(2, requires_grad=True) * 2,
        torch.nn.LazyLinear(3), torch.eye(2).to_sparse(), np.zeros(0), np.array([None]), print, ABC,
    ]  # fmt: skip
    state = preserving.ObjectState(objects)
    dict.update(mapping, b=2)
    list.append(members, 2)
    record.rows.append(2)
    record.more = 3
    shared.rows.append(1)
    namespace.a.append(2)
    namespace.b = 2
    array += 1
    cycle.clear()
    state.restore()
    state.restore()
    assert list(dict.items(mapping)) == [("a", 1)]
    assert list.__len__(members) == 1
    assert record == Record([1])
    assert shared.rows == [0, 1]
    assert namespace == SimpleNamespace(a=[1])
    assert array.tolist() == [0, 1, 2]
    assert cycle[0] is deep
    assert cycle[1] is cycle


class Large(Trap):
    def prepare(self) -> None:
        self.rows = np.ones((64, 8))
        self.views = [self.rows[:, 1:], self.rows.T]
        self.small, self.writes = self.rows[:1, :2], ""

    def write(self, x: torch.Tensor) -> torch.Tensor:
        if self.writes == "a view":
            self.views[1][0, 0] = 2
        elif self.writes == "all":
            self.rows.fill(2)
        self.small += 1
        return x * torch.from_numpy(self.views[0]).sum().shape.numel() * len(self.rows[5:])


@pytest.mark.parametrize("writes", ["", "a view", "all"])
def test_large_arrays_are_made_read_only_instead_of_copied(
    writes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preserving, "COPIED", 1024)
    model, x = Large(), torch.ones(2, 4)
    model.writes = writes
    state = preserving.ObjectState(model)
    assert state.copied < 1024 < model.rows.nbytes
    before = left(model, x)
    says = r"writes to a NumPy array that is read-only \(.*test_preserving.py, line \d+\), as large"
    for call in PUBLIC.values():
        with pytest.raises(tc.GraphError, match=says) if writes else contextlib.nullcontext():
            call(model, x)
        assert changes(before, left(model, x)) == []
        assert all(array.flags.writeable for array in (model.rows, *model.views, model.small))


def interrupted(call: Callable[[], Any], at: int) -> int:
    """Raise a KeyboardInterrupt at the given nested call; return the number of calls.

    Python checks for signals at the start of a function. Calls are counted of functions of the
    interop and of models, and of their context managers; PyTorch's own are not interrupt-safe.
    """
    calls = 0

    def traced(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        own = frame.f_back if frame.f_code.co_filename == contextlib.__file__ else frame
        if own.f_code.co_filename.startswith(OURS):
            calls += 1
            if calls == at:
                raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        call()
    except (KeyboardInterrupt, tc.GraphError):
        pass
    finally:
        sys.settrace(before)
    gc.collect()  # what is held by frames of the traceback
    return calls


# One that comes while Python frees something is reported by Python, and lost.
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=getattr(pytest.mark, when))
        for name in ("NamedTwice", "Lists", "Hooks")
        for kind in PUBLIC
        for when in ["long" if (name, kind) == ("NamedTwice", "advise") else "nightly"]
    ],
)
def test_interrupt_at_any_call_leaves_model_unchanged(name: str, kind: str) -> None:
    model, x = trap(name)
    before = left(model, x)
    moments = interrupted(lambda: PUBLIC[kind](model, x), 0)
    # Among a hundred more are some in callbacks from PyTorch's C++ that end the process.
    drawn = random.Random(0).sample(range(2, moments), 8)
    for at in [*range(2, 40, 9), *drawn, *range(moments - 40, moments, 3)]:
        assert interrupted(lambda: PUBLIC[kind](model, x), at) <= moments
        assert changes(before, left(model, x)) == [], at


@pytest.mark.parametrize("frozen", [False, True], ids=["as ever", "frozen by the caller"])
def test_collector_is_left_as_it_was(frozen: bool) -> None:
    model, x, was_frozen = nn.Linear(4, 1), torch.ones(2, 4), gc.get_freeze_count() > 0
    gc.unfreeze()
    try:
        if frozen:
            gc.freeze()
        tct.estimate(model, x, loss=torch.sum, workspace=False)
        with pytest.raises(tc.GraphError):
            tct.estimate(model, x, workspace=False)
        assert (gc.get_freeze_count() > 0) is frozen
    finally:
        gc.unfreeze()
        if was_frozen:  # by the test session
            gc.freeze()
