"""Benchmark: run time of loss and gradients, against NumPy, HIPS/autograd, PyTorch and JAX.

NumPy is written by hand, PyTorch runs eagerly, JAX under jit. All run interleaved, in one process,
on two threads; ratios are medians over rounds. Gradients are compared with each other before
anything is timed. Frameworks that are not installed are left out, and the first line of the table
says so.

    pip install autograd torch jax

Source of the baseline with checkpoints: ``torch.utils.checkpoint``, around each stage of a model.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "2"
os.environ["MKL_NUM_THREADS"] = "2"

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import by_hand
import models
import numpy as np
import peers
import table

import tinyckpt as tc
from tinyckpt.base.units import size_text

THREADS = 2  # as above
ERROR = 1e-4  # of an array in float32, as a share of its norm
# Of parameters after a step of Adam: it divides by gradients, which vanish in the first layers.
ERROR_OF_ADAM = 1e-3
# Where a value before a relu is 0 but for rounding, frameworks take different sides of the kink,
# which of them depends on the processor. In ResNet-18 one such value is 8e-3 of a gradient.
ERROR_AT_KINKS = 2e-2
SEED = 2
BY_HAND = 1.05  # how many times as long as NumPy by hand compile may take
SHOWN = 6  # kinds of operators of which the time is shown
Runners = dict[str, Callable[[], Any]]
Seconds = Mapping[str, list[float]]

# Each with its loss and gradients by hand, if somebody has written them.
MODELS: dict[models.Model, Callable[..., Any] | None] = {
    models.perceptron(): by_hand.perceptron,
    models.gpt_block(): partial(by_hand.gpt_block, batch=4, heads=4),
    models.conv_block(): by_hand.conv_block,
    models.resnet18(): None,
}


def schedules(graph: tc.TrainingGraph) -> dict[str, tc.Schedule]:
    """Return the schedules that are timed: store-all, sqrt(n), and half of store-all's peak.

    Where half is infeasible, the budget is the least that the planner found to be feasible.
    """
    store_all = tc.plan(graph, "store_all")
    budget = tc.replay(store_all).peak_bytes // 2
    try:
        planned = tc.plan(graph, budget=budget)
    except tc.BudgetError as error:
        if error.smallest is None:
            raise
        budget = error.smallest
        planned = tc.plan(graph, budget=budget)
    return {
        "store_all": store_all,
        "sqrt_n": tc.plan(graph, "sqrt_n"),
        f"budget {size_text(budget)}": planned,
    }


def agree(name: str, found: Any, expected: Any, most: float = ERROR) -> None:
    """Check that arrays are the expected ones but for an error of ``most``."""
    for gradient, other in zip(tc.tree.leaves(found), tc.tree.leaves(expected), strict=True):
        error = np.linalg.norm(np.asarray(gradient) - other) / np.linalg.norm(other)
        assert error <= most, f"{name}: an array of {other.shape} is off by {error:.1e}"


def measured(
    model: models.Model, written: Callable[..., Any] | None, rounds: int
) -> tuple[str, Seconds]:
    """Return the section of one model, and the seconds of every runner."""
    parameters, x = tc.networks.random_arrays((model.parameters, model.x), seed=SEED)
    dialect = peers.of_tinyckpt()

    def loss(parameters: Any, x: Any) -> Any:
        return model.loss(dialect, parameters, x)

    graph = tc.differentiate(tc.build(loss, parameters, x))
    plans = schedules(graph)
    runners: Runners = {}
    gradients: dict[str, Any] = {}  # the first are those that the others are compared with
    most = ERROR_AT_KINKS if model.title.startswith("ResNet") else ERROR
    if written is not None:
        runners["NumPy by hand"] = partial(written, parameters, x)
    for name, schedule in plans.items():
        runners[f"compile, {name}"] = partial(tc.compile(schedule).function, parameters, x)
    for name, schedule in plans.items():
        runners[f"run, {name}"] = partial(tc.run, schedule, parameters, x)
    runners.update(peers.steps(model, parameters, x, THREADS))
    for name, runner in runners.items():
        result = runner()
        found = result.gradients if isinstance(result, tc.RunResult) else result[1]
        gradients[name] = found
        agree(name, found, next(iter(gradients.values())), most)
    gradients.clear()
    seconds = table.interleaved(runners, rounds, settling=1)
    peaks = {
        f"{by}, {name}": size_text(tc.replay(schedule).peak_bytes)
        for name, schedule in plans.items()
        for by in ("compile", "run")
    }
    section = f"## {model.title}\n\n{times(model.title, seconds, peaks)}\n\n"
    return section + where(graph, parameters, x, rounds), seconds


def times(what: str, seconds: Seconds, peaks: Mapping[str, str]) -> str:
    """Return the table of medians, with the ratio to NumPy by hand and to PyTorch."""
    body = []
    for name, own in seconds.items():
        line = [name, f"{1e3 * statistics.median(own):.1f}"]
        for baseline in ("NumPy by hand", "PyTorch"):
            known = baseline in seconds
            line.append(f"{table.median_ratio(own, seconds[baseline]):.2f}" if known else "")
        body.append([*line, peaks.get(name, "")])
    header = [what, "ms", "times NumPy by hand", "times PyTorch", "counted peak"]
    return table.rows(header, body)


def where(graph: tc.TrainingGraph, parameters: Any, x: Any, rounds: int) -> str:
    """Return the table of the kinds of operators that take longest, by the trace of ``tc.run``."""
    schedule = tc.plan(graph, "store_all")
    rows = [tc.run(schedule, parameters, x, timed=True).trace.seconds for _ in range(rounds)]
    medians = [statistics.median(column) for column in zip(*rows, strict=True)]
    kinds: dict[str, float] = defaultdict(float)
    for step, taken in zip(schedule.steps, medians, strict=True):
        if isinstance(step, tc.Compute):
            kinds[graph.operators[step.operator].kind] += taken
    longest = sorted(kinds, key=lambda kind: -kinds[kind])[:SHOWN]
    share = {kind: f"{kinds[kind] / sum(medians):.0%}" for kind in longest}
    body = [["ms", *(f"{1e3 * kinds[kind]:.1f}" for kind in longest)], ["share", *share.values()]]
    return table.rows(["store_all, where the time goes", *longest], body)


def summary(results: Mapping[models.Model, Seconds]) -> str:
    """Return the table of all models beside their targets."""
    body = []
    for model, seconds in results.items():
        own = seconds["compile, store_all"]
        line = [model.title]
        if "NumPy by hand" in seconds:
            line.append(verdict(table.median_ratio(own, seconds["NumPy by hand"]), BY_HAND))
        else:
            line.append("not written")
        if "PyTorch" in seconds:
            torch = table.median_ratio(own, seconds["PyTorch"])
            line.append(verdict(torch, model.most))
        else:
            line.append("not installed")
        line.append(f"{table.median_ratio(seconds['compile, sqrt_n'], own):.2f}")
        if "PyTorch" in seconds:
            again = table.median_ratio(seconds["PyTorch, checkpoints"], seconds["PyTorch"])
            line.append(f"{again:.2f}")
        else:
            line.append("not installed")
        body.append(line)
    header = ["compile, store_all", "times NumPy by hand (target)", "times PyTorch (target)",
              "sqrt_n / store_all", "PyTorch, checkpoints / without"]  # fmt: skip
    return table.rows(header, body)


def verdict(ratio: float, most: float) -> str:
    """Return a ratio with its target, and whether it misses it."""
    return f"{ratio:.2f} ({most:.2f}{', missed' if ratio > most else ''})"


def training(rounds: int) -> str:
    """Return the table of a whole step of training of the perceptron, with Adam."""
    model = models.perceptron()
    parameters, x = tc.networks.random_arrays((model.parameters, model.x), seed=SEED)
    dialect = peers.of_tinyckpt()
    own = [leaf.copy() for leaf in tc.tree.leaves(parameters)]
    layers = [{"w": w, "b": b} for w, b in zip(own[::2], own[1::2], strict=True)]
    hand = {"step": 0, "p": own, "m": [np.zeros_like(p) for p in own],
            "v": [np.zeros_like(p) for p in own]}  # fmt: skip

    def written() -> None:
        by_hand.adam(hand, tc.tree.leaves(by_hand.perceptron(layers, x)[1]))

    runners: Runners = {"NumPy by hand": written}
    found: dict[str, Callable[[], Any]] = {}
    for kind in ("consumed", "held"):
        step = tc.train_step(
            lambda parameters, x: model.loss(dialect, parameters, x),
            tc.adam(1e-3),
            gradients=kind,  # type: ignore[arg-type]
        )
        state = step.init(parameters)
        name = f"train_step, gradients {kind}"
        runners[name] = partial(step, state, x)
        found[name] = partial(tc.tree.leaves, state["parameters"])
    for name, (take, after) in peers.training(model, parameters, x, THREADS).items():
        runners[name], found[name] = take, after
    for runner in runners.values():
        runner()
    for name, after in found.items():
        agree(name, after(), own, ERROR_OF_ADAM)
    seconds = table.interleaved(runners, rounds, settling=1)
    return f"## A step of training, with Adam\n\n{times(model.title, seconds, {})}"


def main() -> None:
    """Measure all; write the table."""
    parser = argparse.ArgumentParser(description="networks beside other frameworks")
    parser.add_argument("--rounds", type=int, default=15, help="of which medians are taken")
    rounds = parser.parse_args().rounds
    if hasattr(os, "sched_setaffinity"):  # JAX has no option: it counts where it may run
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    before = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    sections, results = [], {}
    for model, written in MODELS.items():
        print(model.title, file=sys.stderr)
        section, results[model] = measured(model, written, rounds)
        sections.append(section)
    sections.append(training(rounds))
    after = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    notes = (
        f"Loss and gradients in float32 on {THREADS} threads: medians of {rounds} rounds, by "
        "turns; ratios are medians over rounds, and a checkpoint of PyTorch's is around each stage "
        f"of a model. Other work on the machine: its load was {before:.1f} before and {after:.1f} "
        f"after, and this benchmark is {THREADS} of it at most."
    )
    table.write(
        "networks",
        "Networks beside other frameworks",
        [notes, summary(results), *sections],
        ["numpy", "autograd", "torch", "jax"],
    )


if __name__ == "__main__":
    main()
