"""``tinyckpt demo``: a tour of policies on a chain and on real data, plans in budgets, pictures."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tinyckpt.base.errors import FormatError, TinyckptError
from tinyckpt.base.text_table import table
from tinyckpt.base.units import size_text
from tinyckpt.cli.compare import TRACE_HEADER, trace_row
from tinyckpt.core.costs import flops
from tinyckpt.core.replay import replay
from tinyckpt.core.trace import Trace
from tinyckpt.networks import chain, random_arrays, resnet50
from tinyckpt.networks.char_gpt import LENGTH, batches, load_text, tiny_gpt, unigram_entropy
from tinyckpt.networks.digits import (
    IMAGES,
    STEPS,
    TEST_IMAGES,
    accuracy,
    cnn_accuracy,
    digits_cnn,
    digits_network,
    load_digit_images,
    train,
)
from tinyckpt.planner.portfolio.plan import plan
from tinyckpt.training import (
    Ledger,
    TrainStep,
    adamw,
    ledger,
    linear_rate,
    momentum,
    train_step,
)

POLICIES = ("store_all", "sqrt_n", "recompute_all")
GOAL = 0.95
PLANNING = 3.0  # seconds
CNN_BATCH, CNN_STEPS = 100, 100
GPT_BATCH, GPT_STEPS = 32, 60
LAST = 10  # final losses that are averaged
TRAINED_HEADER = ("network", "plan", "peak", "steps", "time", "loss", "reached")
LESSON = Path(__file__).parents[2] / "lessons" / "01_the_graph.py"  # in a clone, not in a wheel


def demo(viz: Any, folder: Path, say: Callable[[str], None]) -> None:
    """Draw pictures and train networks; print results, and the paths of the pictures.

    Args:
        viz: the package viz.
        folder: for the pictures; created if missing.
        say: prints a paragraph.

    Raises:
        TinyckptError: if the folder cannot be created, the policies' losses differ in a single bit,
            or the network does not learn the digits.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"cannot make the folder {folder}: {error.strerror}") from error
    say("1. A chain of 16 layers under three policies: the same gradient, three prices.\n")
    traces = [replay(plan(chain(16), policy)) for policy in POLICIES]
    say(table(TRACE_HEADER, [trace_row(trace) for trace in traces]))
    say(f"\n   watch it: {viz.gif(traces, folder / 'chain16.gif', progress=True)}")
    page = viz.player(traces, folder / "chain16.html", show="sqrt_n")
    say(f"   step through it, in a browser: {page}")
    say(f"   memory, as a chart: {viz.timeline(traces, folder / 'chain16.svg')}\n")

    say("2. An MLP learns 1,797 handwritten digits, once under each policy.\n")
    graph = digits_network().graph()
    traces = [replay(plan(graph, policy)) for policy in POLICIES]
    say(train_under_all(viz, traces))
    say(f"\n   watch it: {viz.gif(traces, folder / 'digits.gif', progress=True)}")

    say("\n3. ResNet-50, a batch of 32, in half the memory that it takes to store all.\n")
    network = resnet50()
    planned = plan(network, budget=0.5, costs=flops(network), time_limit=PLANNING)
    traces = [replay(plan(network)), replay(planned)]
    for trace in traces:
        say(f"   {trace.summary()}")
    say(f"   {planned.certificate}")
    say(f"\n   step through both: {viz.player(traces, folder / 'resnet50.html')}")

    say("\n4. A CNN learns the digits, a GPT the lessons' characters, each within a budget.\n")
    trained = [train_cnn(viz), train_gpt(viz)]
    say(table(TRAINED_HEADER, [row for row, _ in trained]))
    ledgers = [ledger for _, ledger in trained]
    titles = ["a CNN", "a GPT"]
    say(f"\n   what the bytes are: {viz.breakdown(ledgers, folder / 'bytes.svg', title=titles)}")
    say(f"\nNext, from this folder:\n\n{next_steps()}")


def train_under_all(viz: Any, traces: list[Trace]) -> str:
    """Train under each policy; return the table of evaluations, peak, time and accuracy."""
    rows = []
    losses: dict[str, list[float]] = {}
    for trace in traces:
        policy = trace.schedule.policy
        begin = perf_counter()
        steps = list(viz.with_bar(train(policy), STEPS, f"training, {policy}", "step"))
        seconds = perf_counter() - begin
        losses[policy] = [loss for loss, _ in steps]
        reached = accuracy(steps[-1][1])
        if reached <= GOAL:
            raise TinyckptError(f"{policy}: test accuracy {reached:.3f}; expected above {GOAL}")
        rows.append([*trace_row(trace), f"{seconds:.2f} s", f"{100 * reached:.1f} %"])
    first = losses[POLICIES[0]]
    for policy, found in losses.items():
        if found != first:
            raise TinyckptError(f"the losses under {policy} are not those under {POLICIES[0]}")
    header = [*TRACE_HEADER, "time", "accuracy"]
    return (
        f"{table(header, rows)}\n\n   evaluations and peak are those of one step; all {len(first)} "
        f"losses are equal to the last bit,\n   from {first[0]:.3f} to {first[-1]:.3f}"
    )


def train_cnn(viz: Any) -> tuple[list[str], Ledger]:
    """Train a CNN for a few epochs; return a row of the table, and the ledger of its memory."""
    digits, network = load_digit_images(), digits_cnn(CNN_BATCH)
    rate = linear_rate(0.05, steps=CNN_STEPS)
    step = train_step(network.loss, momentum(rate), budget="90 %", time_limit=PLANNING, carry=True)
    params, statistics, *_ = random_arrays(network.specs, seed=0)
    generator = np.random.default_rng(0)
    picks = [generator.choice(IMAGES - TEST_IMAGES, CNN_BATCH) for _ in range(CNN_STEPS)]
    batches = [(digits.images[pick], digits.labels[pick]) for pick in picks]
    state, row = train_on(viz, "digits_cnn", step, step.init(params, statistics), batches)
    reached = cnn_accuracy(state["parameters"], state["carried"])
    if reached <= GOAL:
        raise TinyckptError(f"digits_cnn: test accuracy {reached:.3f}; expected above {GOAL}")
    held = ledger(step.schedule(state, *batches[0]))
    return [*row, f"{100 * reached:.1f} % of the test part"], held


def train_gpt(viz: Any) -> tuple[list[str], Ledger]:
    """Train a GPT for some steps; return a row of the table, and the ledger of its memory."""
    text, network = load_text(), tiny_gpt()
    step = train_step(network.loss, adamw(3e-3), budget="50 %", time_limit=PLANNING)
    params, *_ = random_arrays(network.specs, seed=0)
    sampled = list(islice(batches(text, GPT_BATCH, LENGTH), GPT_STEPS))
    state, row = train_on(viz, "tiny_gpt", step, step.init(params), sampled)
    share = float(row[-1].split()[-1]) / unigram_entropy(text)
    if share >= 1:
        raise TinyckptError(f"tiny_gpt: {share:.2f} of the unigram entropy; expected less than it")
    held = ledger(step.schedule(state, *sampled[0]))
    return [*row, f"{100 * share:.0f} % of the unigram entropy"], held


def train_on(
    viz: Any, name: str, step: TrainStep, state: Any, batches: Sequence[Any]
) -> tuple[Any, list[str]]:
    """Train on a list of batches; return the state, and a row of the table."""
    begin = perf_counter()
    losses = []
    for batch in viz.with_bar(iter(batches), len(batches), f"training, {name}", "step"):
        state, loss = step(state, *batch)
        losses.append(float(loss))
    seconds = perf_counter() - begin
    planned = step.schedule(state, *batches[0])
    first, last = losses[0], sum(losses[-LAST:]) / LAST
    row = [name, planned.policy, size_text(replay(planned).peak_bytes), str(len(losses))]
    return state, [*row, f"{seconds:.1f} s", f"{first:.2f} to {last:.2f}"]


def next_steps() -> str:
    """Return commands that work in the current folder and terminal."""
    scripts = Path(sysconfig.get_path("scripts"))
    python = command_for(Path(sys.executable))
    found = [path for path in scripts.glob("tinyckpt*") if path.stem == "tinyckpt"]
    tinyckpt = command_for(found[0]) if found else f"{python} -m tinyckpt"
    steps = [
        (f"{tinyckpt} compare chain:64", "what each policy costs"),
        (f"{tinyckpt} plan resnet50 --budget 50% --explain", "a plan, and why"),
        (f"{tinyckpt} --help", "everything that it can do"),
    ]
    if LESSON.exists():
        steps.insert(0, (f"{python} {shell_path(LESSON)}", "the first of the lessons"))
    else:
        steps.insert(1, (f"{tinyckpt} lessons --copy lessons", "scripts that run as they are"))
    width = max(len(step) for step, _ in steps)
    return "\n".join(f"   {step:{width}}  # {what}" for step, what in steps)


def command_for(program: Path) -> str:
    """Return how to call a program in a shell: its name, if PATH finds this one; else its path.

    The commands shown thus stay in this environment even if it is not activated.
    """
    on_path = shutil.which(program.stem)
    # Not resolved: an environment's interpreter is a link to one outside the environment.
    if on_path and Path(on_path).absolute().parent == program.absolute().parent:
        return program.stem
    return shell_path(program)


def shell_path(path: Path) -> str:
    """Return a path, relative if below the current folder, quoted for a shell where needed."""
    path = path.absolute()
    below = path.is_relative_to(Path.cwd())
    return shlex.quote(os.path.relpath(path) if below else str(path))
