"""Linter of a checkpointed model: what each ``torch.utils.checkpoint`` in it saves and costs.

In: a model that calls ``checkpoint``, by itself, by transformers or as advised, and arguments. Out:
per call (a *wrap*) the bytes that it frees when the plain step's memory peaks, what the peak would
rise by without it, its FLOPs, and what is wrong with it. The step is recorded as it is and, with
every ``checkpoint`` a plain call, as a plain step. If ``checkpoint_memory`` predicts the first from
the second, it says what each wrap does; if not (selective policies, nested wraps, reentrant ones),
the step is recorded once more without each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import nn
from torch.utils.checkpoint import CheckpointFunction, CheckpointPolicy

from tinyckpt.base.text_table import html_table, table
from tinyckpt.base.units import cost_text, size_text
from tinyckpt.interop.torch.call_with_loss import Loss, returning_loss
from tinyckpt.interop.torch.candidate_modules import lines_by_reason, shortened_list
from tinyckpt.interop.torch.capture import checkpoint_calls_replaced, checkpoint_generator
from tinyckpt.interop.torch.checkpoint_memory import Wrapping
from tinyckpt.interop.torch.choose_modules import ModuleSearch
from tinyckpt.interop.torch.eager import ModuleCall, Recording, StepWatch, record
from tinyckpt.interop.torch.state_rollback import preserving
from tinyckpt.interop.torch.versions import check_calls

HEADER = ("wrap", "frees at the plain peak", "peak without it", "FLOPs")
ATTENTION = "aten._scaled_dot_product"  # fused kernels, which keep no scores
SAVING = (True, CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


@dataclass(frozen=True, slots=True)
class Wrap:
    """A call of ``checkpoint`` in the forward pass.

    Attributes:
        name: of the module whose forward it wraps, or of a function in a module.
        frees: bytes fewer in memory because of it at the moment when a plain step's peaks; may be
            negative, since it keeps its arguments.
        saves: bytes by which the step's peak would rise without it alone.
        flops: of its recomputation.
        findings: what is wrong with it, a sentence each.
    """

    name: str
    frees: int
    saves: int
    flops: int
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lint:
    """The wraps of a model.

    Attributes:
        model: the name of its class.
        wraps: in the order of their calls.
        peak: peak bytes of the step as it is, as in ``Estimate``.
        plain_peak: the same with no wrap.
        cost: FLOPs of the step as it is, as a multiple of the plain one's.
        enough: names of the cheapest wraps found with which the peak is no higher; None unless
            whole modules are wrapped, side by side.
        enough_cost: FLOPs with these alone, as ``cost``.
    """

    model: str
    wraps: tuple[Wrap, ...]
    peak: int
    plain_peak: int
    cost: float
    enough: tuple[str, ...] | None = None
    enough_cost: float = field(default=1.0, repr=False)

    def __str__(self) -> str:
        head = (
            f"{self.model}: {size_text(self.peak)} at the peak instead of "
            f"{size_text(self.plain_peak)}, at {self.cost:.3f} times the FLOPs"
        )
        if not self.wraps:
            return f"{self.model}: nothing in it calls torch.utils.checkpoint"
        found = [(wrap.name, finding) for wrap in self.wraps for finding in wrap.findings]
        lines = [head, "", table(HEADER, self.texts()), *lines_by_reason(found, "Findings:")]
        if self.enough is not None and len(self.enough) < len(self.wraps):
            lines += [
                "",
                f"{len(self.enough)} of {len(self.wraps)} are enough for this peak, at "
                f"{self.enough_cost:.3f} times the FLOPs: {shortened_list(self.enough) or 'none'}",
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table(HEADER, self.texts())

    def texts(self) -> list[list[str]]:
        """Return the rows of the table."""
        return [
            [
                wrap.name,
                size_text(wrap.frees) if wrap.frees > 0 else "0 B",
                f"{size_text(wrap.saves)} more" if wrap.saves > 0 else "0 B more",
                cost_text(wrap.flops, "FLOPs").removesuffix("FLOPs").strip(),
            ]
            for wrap in self.wraps
        ]


@preserving
def lint(
    model: nn.Module,
    *args: Any,
    workspace: bool = True,
    loss: Loss | None = None,
    targets: Any = (),
    **named: Any,
) -> Lint:
    """Say what each ``torch.utils.checkpoint`` in a model saves and costs; runs no step.

    Args:
        model, args, named, loss, targets, workspace: as in ``advise``, but already checkpointed.

    Raises:
        GraphError: if the model cannot run as a training step.

    >>> import torch
    >>> from functools import partial
    >>> from torch.utils.checkpoint import checkpoint
    >>> from tinyckpt.interop import torch as tct
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> model[1].forward = partial(checkpoint, model[1].forward, use_reentrant=False)
    >>> found = tct.lint(model, torch.ones(64, 8), loss=torch.mean, workspace=False)
    >>> for finding in found.wraps[0].findings:
    ...     print(finding)
    saves nothing, because what autograd saves in it is kept by 2 anyway
    the peak is 9.9 KiB lower without it
    """
    check_calls("lint")
    with returning_loss(model, args, named, loss, targets) as packed:

        def recorded(bypass: Callable[[Key], bool]) -> tuple[Recording, dict[Key, WrapCall]]:
            watches: list[CheckpointWatch] = []

            @contextmanager
            def around(step: StepWatch) -> Iterator[None]:
                watches.append(CheckpointWatch(model, step, bypass))
                with watches[-1].watching():
                    yield

            recording = record(model, packed, {}, workspace, by_module=True, around=around)
            return recording, watches[0].calls  # the second pass is forward alone

        recording, calls = recorded(lambda key: False)
        plain, bare = recorded(lambda key: True)
        plain.calls = {call.name: [call.call] for call in bare.values()}
        peak, flops = Wrapping(recording).evaluate(())
        wrapping = Wrapping(plain)
        whole, once = [call.name for call in calls.values()], wrapping.flops
        is_modelled = (
            not any(len(key) > 1 or call.decided for key, call in calls.items())
            and wrapping.evaluate(whole) == (peak, flops)
        )  # fmt: skip
        wraps = []
        for key, call in calls.items():
            if is_modelled:
                others = wrapping.evaluate([name for name in whole if name != call.name])
            else:
                others = Wrapping(recorded(key.__eq__)[0]).evaluate(())
            alone = replace(plain, calls={call.name: plain.calls[call.name]})
            frees, findings = judged(Wrapping(alone), key, calls)
            saves = others[0] - peak
            if saves < 0:
                findings.append(f"the peak is {size_text(-saves)} lower without it")
            elif saves == 0 and not findings:
                findings.append("the peak is the same without it")
            wraps.append(Wrap(call.name, frees, saves, flops - others[1], tuple(findings)))
    found = ModuleSearch(whole, wrapping.evaluate).search(peak) if is_modelled else None
    return Lint(
        type(model).__name__, tuple(wraps), peak, wrapping.evaluate(())[0], flops / max(once, 1),
        found.names if found else None, found.flops / max(once, 1) if found else 1.0,
    )  # fmt: skip


# Findings -----------------------------------------------------------------------------------------


def judged(wrapping: Wrapping, key: Key, calls: Mapping[Key, WrapCall]) -> tuple[int, list[str]]:
    """Return what a wrap frees when the plain step's memory peaks, in bytes, and findings."""
    call, plain = calls[key], wrapping.recording
    (wrap,), storages = wrapping.modules[call.name], plain.storages
    # What its policy saves of what it would free.
    saved = {n for n in wrap.inside if call.decided.get(plain.operators.get(storages[n].born))}
    live = wrapping.live()
    fewer = live - wrapping.live((call.name,))

    def freed(event: int) -> int:
        stays = (n for n in saved if storages[n].born <= event <= wrap.inside[n])
        return int(fewer[event]) - sum(storages[n].nbytes for n in stays)

    findings = []
    evaluated = [
        str(plain.operators[event])
        for event in range(wrap.begin, wrap.end + 1)
        if plain.flops[event] or str(plain.operators.get(event)).startswith(ATTENTION)
    ]
    if len(key) > 1:
        findings.append(f"lies inside another wrap, {calls[key[:-1]].name}, which recomputes it")
    elif freed(plain.forward - 1) <= 0 and not any(call.decided.values()):
        findings.append(reason(wrapping, call.name))
    if call.decided and not any(call.decided.values()):
        findings.append(f"its policy matches no operator{suggestion(call, evaluated)}")
    if evaluated and all(name.startswith(ATTENTION) for name in evaluated):
        findings.append("recomputes attention that keeps no scores (fused)")
    return freed(int((live + wrapping.workspace).argmax())), findings


def reason(wrapping: Wrapping, name: str) -> str:
    """Return why a wrap frees nothing between the forward and the backward pass."""
    plain, (wrap,) = wrapping.recording, wrapping.modules[name]
    keepers: dict[str, None] = {}
    for number in wrap.inside:
        elsewhere = [
            saved.saved
            for saved in plain.saved
            if saved.storage == number and not wrap.begin <= saved.saved <= wrap.end
        ]
        if not elsewhere:
            return "saves nothing, because what it keeps to be recomputed is no less than it frees"
        keepers[plain.owners[elsewhere[0]] or "the model itself"] = None
    if keepers:
        by = shortened_list(list(keepers))
        return f"saves nothing, because what autograd saves in it is kept by {by} anyway"
    return "saves nothing, because autograd saves no more in it than its input, which stays"


def suggestion(call: WrapCall, evaluated: Collection[str]) -> str:
    """Return which operator a policy that matches none may mean, of those evaluated in the wrap."""
    words = words_of(call.policy)
    ordered = [*dict.fromkeys(evaluated), *map(str, call.decided)]
    meant = [name for name in ordered if name.split(".")[1] in words]
    return f" (did you mean {meant[0]}?)" if meant else f"; it saw {shortened_list(ordered)}"


def words_of(policy: Any) -> set[str]:
    """Return the names in a function's code, and in the values that it refers to."""
    while isinstance(policy, partial):
        policy = policy.func
    code = getattr(policy, "__code__", None)
    if code is None:
        return set()
    values = [cell.cell_contents for cell in policy.__closure__ or ()]
    values += [policy.__globals__[name] for name in code.co_names if name in policy.__globals__]
    values = [value for value in values if not callable(value) or hasattr(value, "overloads")]
    return {*code.co_names, *re.findall(r"\w+", repr((values, code.co_consts)))}


# Calls of checkpoint ------------------------------------------------------------------------------

Key = tuple[int, ...]  # the number of a call within the wrap that it lies in, after that wrap's key


@dataclass(slots=True)
class WrapCall:
    """A call of ``checkpoint``: its name, events and, of a selective one, its policy's decisions.

    Attributes:
        decided: whether results are saved, by operator.
    """

    name: str
    call: ModuleCall
    policy: Any = None
    decided: dict[Any, bool] = field(default_factory=dict)


class CheckpointWatch:
    """Watches calls of ``checkpoint`` in a recorded step, and bypasses some.

    Attributes:
        calls: of the forward pass.
        within: keys of the wraps that are evaluated, the outermost first.
        counts: the number of calls in each.
    """

    def __init__(self, model: nn.Module, step: StepWatch, bypass: Callable[[Key], bool]) -> None:
        self.names = {module: name for name, module in model.named_modules()}
        self.step, self.bypass = step, bypass
        self.calls: dict[Key, WrapCall] = {}
        self.within: list[Key] = [()]
        self.counts: dict[Key, int] = {(): 0}

    def watching(self) -> AbstractContextManager[None]:
        """Return a context in which calls of ``checkpoint`` are watched."""
        reentrant = SimpleNamespace(apply=self.reentrant)
        return checkpoint_calls_replaced(self.without_reentry, reentrant)

    @contextmanager
    def entered(self, key: Key) -> Iterator[None]:
        """Number the calls within a wrap, in its first evaluation or another one."""
        self.within.append(key)
        self.counts[key] = 0
        try:
            yield
        finally:
            self.within.pop()

    @contextmanager
    def called(self, function: Any, given: Any) -> Iterator[tuple[Key, Any]]:
        """Note a call within this context; yields its key, and the function, to be recomputed."""
        outer = self.within[-1]
        key = (*outer, self.counts[outer])
        self.counts[outer] += 1

        def again(*args: Any, **kwargs: Any) -> Any:
            with self.entered(key):
                return function(*args, **kwargs)

        if self.step.recording.forward:  # a recomputation, of the wrap around it
            with self.entered(key):
                yield key, again
            return
        noted = self.step.begin_call((given, bound_in(function)))
        self.calls[key] = WrapCall(self.name_of(function), noted)
        try:
            with self.entered(key):
                yield key, again
        finally:
            noted.end = self.step.tick()

    def without_reentry(
        self, fn: Any, preserve: Any, context_fn: Any, *options: Any, **kwargs: Any
    ) -> Any:
        """Stand in for what ``checkpoint`` calls with ``use_reentrant=False``: a generator."""
        check, debug, early_stop, *args = options
        with self.called(fn, (args, kwargs)) as (key, again):
            if self.bypass(key):
                yield
                return
            contexts = partial(self.contexts, key, context_fn)
            yield from checkpoint_generator(
                again, preserve, contexts, check, debug, early_stop, *args, **kwargs
            )

    def reentrant(self, function: Any, preserve: Any, *args: Any) -> Any:
        """Stand in for what ``checkpoint`` calls with ``use_reentrant=True``."""
        with self.called(function, args) as (key, again):
            if self.bypass(key):
                return function(*args)
            return CheckpointFunction.apply(again, preserve, *args)

    def contexts(self, key: Key, context_fn: Any) -> Any:
        """Return a wrap's contexts, of which a selective one's policy is noted."""
        contexts = context_fn()
        parts = [contexts[0], *getattr(contexts[0], "contexts", ())]
        selective = next((part for part in parts if hasattr(part, "policy_fn")), None)
        call = self.calls.get(key)
        if selective is not None and call is not None:
            policy = selective.policy_fn

            def noting(context: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
                found = policy(context, operator, *args, **kwargs)
                call.decided[operator] = call.decided.get(operator, False) or found in SAVING
                return found

            call.policy, selective.policy_fn = policy, noting
        return contexts

    def name_of(self, function: Any) -> str:
        """Return the name of a function: of the module whose forward it is, if there is one."""
        inner = function
        while isinstance(inner, partial):
            known = [each for each in inner.args if isinstance(each, nn.Module)]
            inner = known[0] if known else inner.func
        module = getattr(inner, "__self__", inner)
        method = getattr(inner, "__name__", "forward")
        assert self.step.owners is not None
        running = self.step.owners.running[-1:] or [""]
        name = self.names.get(module) if isinstance(module, nn.Module) else None
        if name is None or method not in ("forward", "__call__"):
            name = f"{running[0] if name is None else name}.{method}".strip(".")
        name = name or type(module).__name__
        taken = sum(call.name.split(" #")[0] == name for call in self.calls.values())
        return f"{name} #{taken + 1}" if taken else name


def bound_in(function: Any) -> list[Any]:
    """Return what a function keeps alive: arguments of a partial, variables of a closure."""
    bound: list[Any] = []
    while isinstance(function, partial):
        bound += [*function.args, *function.keywords.values()]
        function = function.func
    bound += [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return [value for value in bound if not isinstance(value, nn.Module)]
