"""Differential tests of zoo models: training by advice or by a plan, against plain PyTorch.

Each trial makes the model anew from the same seed, trains it for a few steps by plain PyTorch and
by tinyckpt's advice or plan, and compares losses, gradients, parameters and buffers, bit by bit,
and the predicted peak with the allocator's. Each call of tinyckpt must leave the model, its
arguments and all random states unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tinyckpt as tc
from benchmarks.zoo.entry import Entry
from tests.torch_fingerprint import changes, fingerprint
from tinyckpt.interop import torch as tct

STEPS = 3
RATE = 0.01  # of gradient descent
SECONDS = 0.5  # to search for a plan
ROUNDING = 8  # bytes: numbers of no dimension, such as the 1 with which backward begins
Taken = tuple[Tensor, dict[str, Tensor | None]]  # a step's loss, and gradients by names
Trained = tuple[int, list[Taken], dict[str, Tensor]]


@dataclass(slots=True)
class Step:
    """The first of some training steps beside its prediction.

    Attributes:
        what: which one, in a few words.
        predicted, measured: bytes at the peak; what was there before the step is not in it.
        apart: how far losses, gradients and state of all steps are from plain PyTorch's, as a share
            of the largest number of a tensor.
        where: what is furthest apart.
    """

    what: str
    predicted: int
    measured: int
    apart: float
    where: str

    @property
    def miss(self) -> int:
        """By how many bytes the prediction misses; 0 if only by numbers of no dimension."""
        far = abs(self.predicted - self.measured)
        return far if far > ROUNDING else 0


@dataclass(slots=True)
class Outcome:
    """What came of a trial.

    Attributes:
        refused: the error with which the model was refused, if it was.
        changed: what was not left as it was, and by which call.
        steps: the training steps.
        size: operators of the traced step, or modules that may be wrapped.
    """

    refused: str = ""
    changed: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    size: int = 0


class Kept:
    """A model, and what it and its surroundings are to be after each call."""

    def __init__(self, entry: Entry, outcome: Outcome) -> None:
        self.model, self.args = entry.made()
        self.outcome = outcome

    def call(self, what: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function; note what it has changed, even if it raises."""
        before = fingerprint(self.model, *self.args)
        try:
            return function(*args, **options)
        finally:
            after = fingerprint(self.model, *self.args)
            self.outcome.changed += [f"{what}: {change}" for change in changes(before, after)]


# Training ----------------------------------------------------------------------------------------


def trained(model: nn.Module, take: Callable[[], Taken], measured: bool = True) -> Trained:
    """Train for some steps; return the first one's peak, losses and gradients, the state after.

    Random numbers are the same in each call. Without ``measured`` the peak is 0.
    """
    peak, taken = 0, []
    for number in range(STEPS):
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number)
        model.zero_grad(set_to_none=True)
        if measured and not number:
            peak, (loss, gradients) = tct.allocator_peak(take)
        else:
            loss, gradients = take()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                gradient = gradients.get(name)
                if gradient is not None:
                    parameter.add_(gradient, alpha=-RATE)
        taken.append((loss, {n: None if g is None else g.clone() for n, g in gradients.items()}))
        del loss, gradients
    return peak, taken, state_of(model)


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and all buffers, those that are not saved too."""
    every = (*model.named_parameters(), *model.named_buffers())
    return {name: value.detach().clone() for name, value in every}


def plain(model: nn.Module, args: tuple[Any, ...], forward: Any = None) -> Callable[[], Taken]:
    """Return what takes a step in plain PyTorch, or of a model that was compiled."""

    def take() -> Taken:
        loss: Tensor = (model if forward is None else forward)(*args)
        loss.backward()
        named = model.named_parameters()
        return loss.detach(), {name: each.grad for name, each in named if each.requires_grad}

    return take


def apart(found: Trained, expected: Trained) -> tuple[float, str]:
    """Return the largest difference between two trainings, and where it is.

    Gradients are compared with the largest of their step: some are nothing but rounding.
    """
    worst = (0.0, "")
    for number, (one, other) in enumerate(zip(found[1], expected[1], strict=True)):
        worst = max(worst, (distance(one[0], other[0]), f"the loss of step {number}"))
        largest = max(map(largest_of, other[1].values()))
        for name in {**one[1], **other[1]}:
            far = distance(one[1].get(name), other[1].get(name), largest)
            worst = max(worst, (far, f"the gradient of {name} in step {number}"))
    learning = {
        name for _, gradients in expected[1] for name in gradients
    }  # what follows from them
    for name in {**found[2], **expected[2]}.keys() - learning:
        # The mean of what a norm centred is nothing but rounding: numbers below 1 count as 1.
        far = distance(found[2].get(name), expected[2].get(name), 1.0)
        worst = max(worst, (far, f"{name} after the last step"))
    return worst if worst[0] else (0.0, "")


def distance(one: Tensor | None, other: Tensor | None, scale: float = 0.0) -> float:
    """Return how far two tensors are apart, as a share of the largest number, or of a larger one.

    0 is the same bits. One that is missing is zero: a gradient that nobody computes, and one that
    is computed and 0.
    """
    if one is None or other is None:
        present = one if other is None else other
        return 0.0 if present is None or not present.any() else float("inf")
    one, other = (each.to_dense() if each.is_sparse else each for each in (one, other))
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if torch.equal(one, other):
        return 0.0
    far = float((one - other).abs().max()) / max(largest_of(other), scale, 1e-30)
    return far if far == far else float("inf")


def largest_of(value: Tensor | None) -> float:
    """Return the largest number of a tensor."""
    return float(value.abs().max()) if value is not None and value.numel() else 0.0


# Trials ------------------------------------------------------------------------------------------


def advised(entry: Entry, halved: bool = True) -> Outcome:
    """Train as it is, as advised to save all bytes that can be and, if ``halved``, half of them."""
    outcome = Outcome()
    kept = Kept(entry, outcome)
    try:
        advice = leanest(kept)
    except tc.GraphError as error:
        outcome.refused = str(error)
        return outcome
    outcome.size = len(advice.candidates)
    model, args = entry.made()
    expected = trained(model, plain(model, args))
    outcome.steps.append(Step("plain", advice.plain_peak, expected[0], 0.0, ""))
    half = (advice.peak + advice.plain_peak) // 2
    while advice.modules:
        model, args = entry.made()
        advice.apply(model)
        found = trained(model, plain(model, args))
        what = f"{len(advice.modules)} of {len(advice.candidates)} modules"
        outcome.steps.append(Step(what, advice.peak, found[0], *apart(found, expected)))
        if len(outcome.steps) > halved + 1:
            break
        advice = kept.call("advise", tct.advise, kept.model, *kept.args, budget=half)
    return outcome


def leanest(kept: Kept) -> tct.Advice:
    """Return the advice with the smallest peak that wrapping modules reaches."""
    budget = 1
    for _ in range(3):  # a kernel may need more when it runs for the second time
        try:
            return kept.call("advise", tct.advise, kept.model, *kept.args, budget=budget)
        except tc.BudgetError as error:
            budget = int(error.smallest or 0)
    raise AssertionError("the smallest peak is not reached by whoever asks for it")


def planned(entry: Entry) -> Outcome:
    """Train by a plan that stores all, and by one that is to do with a third less."""
    outcome = Outcome()
    kept = Kept(entry, outcome)
    try:
        traced = kept.call("trace", tct.trace, kept.model, *kept.args)
    except tc.GraphError as error:
        outcome.refused = str(error)
        return outcome
    kept.call("min_cut_schedules", tct.min_cut_schedules, traced, budgets=(0.5,))
    graph = traced.graph
    outcome.size = len(graph.operators)
    model, args = entry.made()
    expected = trained(model, plain(model, args))
    first = state_of(kept.model)
    for what, schedule in (("store-all", tc.plan(graph)), ("plan", lower(graph))):
        peak = tc.replay(schedule).peak_bytes
        step = tct.step(schedule, traced)
        found = trained(kept.model, lambda step=step: step(*kept.args))
        outcome.steps.append(Step(what, peak, found[0], *apart(found, expected)))
        reset(kept.model, first)
    return outcome


def reset(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Give parameters and buffers back the numbers that they had."""
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            value.copy_(state[name])


def lower(graph: tc.TrainingGraph) -> tc.Schedule:
    """Return a plan within two thirds of store-all's peak, or within the least that is found."""
    try:
        return tc.plan(graph, budget=0.67, time_limit=SECONDS)
    except tc.BudgetError as error:
        return tc.plan(graph, budget=int(error.smallest or 0), time_limit=SECONDS)


def compiled(entry: Entry) -> Outcome:
    """Train compiled, by a plan within nine tenths of store-all's peak."""
    outcome = Outcome()
    model, args = entry.made()
    expected = trained(model, plain(model, args))
    model, args = entry.made()
    plans: list[tc.Schedule] = []
    backend = tct.backend(0.9, time_limit=SECONDS, on_plan=plans.append)
    torch.compiler.reset()
    forward = torch.compile(model, backend=backend, fullgraph=True)
    found = trained(model, plain(model, args, forward), measured=False)
    torch.compiler.reset()
    (schedule,) = plans
    outcome.size = len(schedule.graph.operators)
    # Its first step compiles, which is measured by nobody.
    peak = tc.replay(schedule).peak_bytes
    outcome.steps.append(Step("compiled", peak, peak, *apart(found, expected)))
    return outcome
