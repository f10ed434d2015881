"""Survey of other people's models: what is predicted and advised, against meters that are not ours.

    python -m benchmarks.zoo.survey              all subjects of ``collection``, resumed
    python -m benchmarks.zoo.survey Llama timm   those whose names contain a word
    python -m benchmarks.zoo.survey --times      seconds to advice, of all surveyed, one at a time

Each subject has a process of its own, a limit of time, and a JSON file under build/survey; the
table is written of all that are there. In a process, the plain step is run by PyTorch and
measured by memray, which counts what the process asks malloc for, and by PyTorch's profiler;
FLOPs are counted by PyTorch's own counter while steps run. Rivals are what people use today: the
package's own switch for checkpointing, every second element of the longest module list,
``activation_memory_budget`` of compiled steps, and for the plain peak
``torch.distributed._tools``. Advice is asked for the peak that a rival reaches, and both are run.
"""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import tinyckpt as tc
from benchmarks import table
from benchmarks.zoo import operators  # noqa: F401  (before whatever imports torchvision)
from benchmarks.zoo.collection import SUBJECTS, TABLES, Subject
from tinyckpt.base.files import write_atomically
from tinyckpt.interop import torch as tct
from tinyckpt.interop.torch.advising import RecordedStep, cheapest, record_steps
from tinyckpt.interop.torch.call_with_loss import loss_in, returning_loss
from tinyckpt.interop.torch.costs import attention_flops

FOLDER = Path(__file__).parents[2] / "build" / "survey"
SECONDS = 900  # for one subject
SHARES = (0.6, 0.4)  # of the plain peak: budgets
PLANNING = 1.0  # seconds to search for a plan
COMPILED = 0.5  # PyTorch's activation_memory_budget
STRIDE = 7  # subjects from one to the next, so that what is interrupted has some of each kind
COMPARED = 4  # the step from one subject to the next that is compiled so: it takes half of the time
Result = dict[str, Any]
Step = Callable[[], Tensor]


# A subject ---------------------------------------------------------------------------------------


def made(name: str) -> Subject:
    """Return a subject in training, the same each time."""
    torch.manual_seed(0)
    subject = SUBJECTS[name]()
    subject.model.train()
    return subject


def step_of(subject: Subject, forward: Callable[..., Any] | None = None) -> Step:
    """Return what takes a training step: forward, loss, backward; gradients are in ``grad``."""
    targets = subject.targets if isinstance(subject.targets, tuple) else (subject.targets,)

    def step() -> Tensor:
        call = subject.model if forward is None else forward
        output = call(*subject.args, **subject.named)
        loss: Tensor = loss_in(output, subject.loss, targets)
        del output
        loss.backward()
        return loss.detach()

    return step


def started(subject: Subject) -> None:
    """Drop gradients, and set what draws random numbers."""
    subject.model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    gc.collect()


# Meters ------------------------------------------------------------------------------------------


def profiled_peak(subject: Subject, step: Step) -> int:
    """Return a step's peak by the events of PyTorch's profiler."""
    started(subject)
    return tct.allocator_peak(step)[0]


def malloc_peak(subject: Subject, step: Step) -> int:
    """Return a step's peak by memray, which counts calls of malloc, of whoever calls it."""
    import memray

    started(subject)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "step"
        with memray.Tracker(file):
            loss = step()
        peak = int(memray.FileReader(file).metadata.peak_memory)
    del loss
    return peak


def counted_flops(subject: Subject, step: Step) -> int:
    """Return a step's FLOPs by PyTorch's counter, to which attention on a CPU is made known."""
    started(subject)
    aten = torch.ops.aten
    counter = FlopCounterMode(
        display=False,
        custom_mapping={
            aten._scaled_dot_product_flash_attention_for_cpu: by_values(0, 1, 2),
            aten._scaled_dot_product_flash_attention_for_cpu_backward: by_values(1, 2, 5),
        },
    )
    with counter:
        step()
    return int(counter.get_total_flops())


def by_values(query: int, key: int, products: int) -> Callable[..., int]:
    """Return a count of an attention's FLOPs for PyTorch's counter, which asks with tensors."""

    def count(*args: Any, **_: Any) -> int:
        return attention_flops(args[query], args[key], products)

    count._get_raw = True  # type: ignore[attr-defined]
    return count


def processor_seconds(subject: Subject, step: Step) -> float:
    """Return the processor time of a step, the least of two."""
    found = []
    for _ in range(2):
        started(subject)
        begin = time.process_time()
        step()
        found.append(time.process_time() - begin)
    return min(found)


def outcome(subject: Subject, step: Step) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Return a step's loss and gradients."""
    started(subject)
    loss = step()
    return loss, {name: each.grad for name, each in subject.model.named_parameters()}


def is_equal(one: Any, other: Any) -> bool:
    """Whether two steps have the same bits."""
    return (
        torch.equal(one[0], other[0])
        and one[1].keys() == other[1].keys()
        and all(same_bits(one[1][name], other[1][name]) for name in one[1])
    )


def same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two gradients are the same, or both absent."""
    if one is None or other is None:
        return one is other
    return torch.equal(one, other)


# Rivals ------------------------------------------------------------------------------------------


def package_switch(model: nn.Module) -> bool:
    """Turn on a package's own checkpointing; say whether it has one."""
    for holder in (model, getattr(model, "model", None)):
        for name in ("gradient_checkpointing_enable", "enable_gradient_checkpointing",
                     "set_grad_checkpointing"):  # fmt: skip
            switch = getattr(holder, name, None)
            if switch is not None:
                with suppress(Exception):
                    switch()
                    return True
    return False


def every_second(model: nn.Module) -> bool:
    """Wrap every second element of the longest module list by hand; say whether there is one."""
    lists = [
        each
        for each in model.modules()
        if isinstance(each, nn.ModuleList | nn.Sequential) and len(each) > 1
    ]
    if not lists:
        return False
    for module in list(max(lists, key=len))[::2]:
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)  # type: ignore[method-assign]
    return True


def tracked_peak(subject: Subject) -> int:
    """Return the plain peak by PyTorch's MemTracker; parameters and buffers are not in it."""
    from torch.distributed._tools.mem_tracker import MemTracker

    started(subject)
    tracker = MemTracker()
    tracker.track_external(subject.model)
    with tracker:
        step_of(subject)()
    (found,) = tracker.get_tracker_snapshot("peak").values()  # of one device
    sources = ("Parameter", "Buffer")
    return int(found["Total"]) - sum(int(found.get(each, 0)) for each in sources)


# The survey of one -------------------------------------------------------------------------------


class Survey:
    """What is found out about one subject."""

    def __init__(self, name: str) -> None:
        self.name, self.found = name, {"name": name}
        self.steps: list[RecordedStep] = []  # with modules of the first depth, the second, …
        self.recorded: Iterator[RecordedStep] = iter(())  # with those of further depths

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Note the error with which a part ends, and its seconds of processor time."""
        begin = time.process_time()
        try:
            yield
        except Exception as error:
            self.found[f"{what}: error"] = f"{type(error).__name__}: {shorten(str(error), 300)}"
        self.found[f"{what}: seconds"] = round(time.process_time() - begin, 2)

    def take(self) -> Result:
        """Survey it."""
        subject = made(self.name)
        step = step_of(subject)
        found = self.found
        with self.part("plain"):
            started(subject)
            step()
            found["plain: profiler"] = profiled_peak(subject, step)
            found["plain: malloc"] = malloc_peak(subject, step)
            found["plain: flops"] = counted_flops(subject, step)
            found["plain: processor"] = processor_seconds(subject, step)
            self.expected = outcome(subject, step)
        if "plain: error" in found:
            return found
        with self.part("tracker"):
            found["tracker: peak"] = tracked_peak(made(self.name))
        with self.part("advice"):
            self.recorded = recorded(made(self.name))
            self.steps.append(next(self.recorded))
            found["advice: plain"] = self.steps[0].wrapping.evaluate(())[0]
            found["advice: modules"] = len(self.steps[0].choosing.names)
        if "advice: error" not in found:
            self.budgets()
        for what, switch in (("package", package_switch), ("every second", every_second)):
            with self.part(what):
                self.rival(what, switch)
        with self.part("dynamo"):
            found["dynamo: graph"], found["dynamo: stopped"] = dynamo(self.name)
        with self.part("trace"):
            subject = made(self.name)
            traced = tct.trace(
                subject.model, *subject.args, loss=subject.loss, targets=subject.targets,
                **subject.named,
            )  # fmt: skip
            found["trace: operators"] = len(traced.graph.operators)
            found["trace: plain"] = tc.replay(tc.plan(traced.graph)).peak_bytes
            with self.part("plan"):
                schedule = tc.plan(traced.graph, budget=0.6, time_limit=PLANNING)
                found["plan: peak"] = tc.replay(schedule).peak_bytes
        if "trace: error" not in found and [*SUBJECTS].index(self.name) % COMPARED == 0:
            with self.part("compiled"):
                self.compiled()
        return found

    def budgets(self) -> None:
        """Run what is advised for some shares of the plain peak."""
        for share in SHARES:
            with self.part(f"advice {share:.0%}"):
                self.run_advice(f"advice {share:.0%}", share)

    def within(self, budget: float) -> tct.Advice:
        """Return advice as ``advise`` does, of steps that are recorded once for all budgets."""

        def steps() -> Iterator[RecordedStep]:
            yield from self.steps
            for step in self.recorded:
                self.steps.append(step)
                yield step

        return cheapest(steps(), lambda step: step.within(budget))

    def run_advice(self, what: str, budget: float) -> None:
        """Run what is advised within a budget, or the least that can be had."""
        found = self.found
        try:
            advice = self.within(budget)
        except tc.BudgetError as error:
            advice = self.within(int(error.smallest or 0))
            found[f"{what}: least"] = True
        subject = made(self.name)
        advice.apply(subject.model)
        step = step_of(subject)
        ran, self.ran = getattr(self, "ran", None), (what, advice.modules)
        if ran and ran[1] == advice.modules:  # as for the share before
            known = {key: each for key, each in found.items() if key.startswith(f"{ran[0]}: ")}
            for key, each in known.items():
                found.setdefault(f"{what}{key.removeprefix(ran[0])}", each)
            return
        found[f"{what}: modules"] = len(advice.modules)
        found[f"{what}: predicted"], found[f"{what}: cost"] = advice.peak, advice.cost
        started(subject)
        step()
        found[f"{what}: profiler"] = profiled_peak(subject, step)
        found[f"{what}: flops"] = counted_flops(subject, step)
        found[f"{what}: processor"] = processor_seconds(subject, step)
        # A model of its own: buffers of this one have gone on.
        subject, plain = made(self.name), made(self.name)
        advice.apply(subject.model)
        taken = [outcome(each, step_of(each)) for each in (subject, plain)]
        found[f"{what}: bits"] = is_equal(*taken)

    def rival(self, what: str, switch: Callable[[nn.Module], bool]) -> None:
        """Run a rival, and what is advised within its peak."""
        found, subject = self.found, made(self.name)
        if not switch(subject.model):
            return
        step = step_of(subject)
        started(subject)
        step()
        found[f"{what}: profiler"] = peak = profiled_peak(subject, step)
        found[f"{what}: flops"] = counted_flops(subject, step)
        if "advice: error" not in found:
            with self.part(f"within {what}"):
                advice = self.within(peak)
                found[f"within {what}: predicted"] = advice.peak
                found[f"within {what}: flops"] = advice.cost * found["plain: flops"]

    def compiled(self) -> None:
        """Compare plans with PyTorch's setting of compiled steps."""
        subject = made(self.name)
        compared = tct.compare(
            subject.model, *subject.args, budgets=(COMPILED,), time_limit=PLANNING,
            loss=subject.loss, targets=subject.targets, **subject.named,
        )  # fmt: skip
        (row,) = compared.rows
        if row.failed:
            raise RuntimeError(row.failed)
        self.found["compiled: peak"], self.found["compiled: cost"] = row.peak, row.cost
        self.found["within compiled: cost"] = row.planned


def recorded(subject: Subject) -> Iterator[RecordedStep]:
    """Record a subject's step; yield it with the modules that advice offers, then finer ones."""
    model, loss, targets = subject.model, subject.loss, subject.targets
    with returning_loss(model, subject.args, subject.named, loss, targets) as packed:
        yield from record_steps(model, packed, None, True)


def seconds_to_advice(name: str) -> float:
    """Return the seconds of a clock that a first call of advise takes to answer."""
    subject = made(name)
    begin = time.perf_counter()
    with suppress(tc.BudgetError):  # an answer too: it names the least that can be had
        tct.advise(
            subject.model, *subject.args, budget=SHARES[0], loss=subject.loss,
            targets=subject.targets, **subject.named,
        )  # fmt: skip
    return time.perf_counter() - begin


def dynamo(name: str) -> tuple[str, list[str]]:
    """Say whether torch.compile runs a subject, in one graph or several; and the errors."""
    stopped: list[str] = []
    for fullgraph, words in ((True, "one"), (False, "several")):
        subject = made(name)
        torch.compiler.reset()
        compiled = torch.compile(subject.model, backend="aot_eager", fullgraph=fullgraph)
        try:
            step_of(subject, compiled)()
        except Exception as error:
            stopped.append(f"{type(error).__name__}: {shorten(str(error), 300)}")
            continue
        return words, stopped
    return "fails", stopped


# All of them -------------------------------------------------------------------------------------


HEADER = (
    "model", "compiles", "plain peak", "predicted", "malloc", "MemTracker", "modules", "seconds",
    "60 %: peak, FLOPs, time", "40 %: peak, FLOPs, time", "package's own", "advised in that",
    "every second", "advised in that", "operators", "plan in 60 %", "compiled at 0.5",
    "a plan in that",
)  # fmt: skip
INTRODUCTION = """\
Each model is as its package makes it, with random weights; nothing is adapted. *compiles*:
whether `torch.compile` runs a step in one graph, in several, or not. *plain peak*: of a step by
the events of PyTorch's profiler, which three columns are divided by: what is *predicted* without
running it, what memray sees of *malloc*, and PyTorch's own *MemTracker*. *seconds*: from the call
of `advise` for 60 % of the plain peak to its answer, advice or the least that can be had, in a
process that ran nothing before. For 60 and 40 % (or that least: *least*), what was measured of a
step as advised, over plain: peak, FLOPs, processor time; gradients have the same bits unless it
says otherwise. *package's own*: its switch for checkpointing; *every
second* element of the longest list of modules; *compiled* with `activation_memory_budget=0.5`:
share of the plain peak, and FLOPs; after each, the FLOPs of what is advised, or planned, within
the same peak. A dash: there is none."""


def share(found: Result, above: str, below: str = "plain: profiler") -> float | None:
    """Return a quotient of two findings; None if one of them is not there."""
    if not found.get(below) or above not in found:
        return None
    return float(found[above] / found[below])


def text_of(*shares: float | None, digits: int = 3) -> str:
    """Return shares as text; a dash if one is missing."""
    if any(each is None for each in shares):
        return "-"
    return ", ".join(f"{each:.{digits}f}" for each in shares)


def advised_text(found: Result, what: str) -> str:
    """Return the cell about a step as advised."""
    parts = [share(found, f"{what}: profiler"), share(found, f"{what}: flops", "plain: flops"),
             share(found, f"{what}: processor", "plain: processor")]  # fmt: skip
    text = text_of(*parts, digits=2)
    if text != "-":
        text += "" if found.get(f"{what}: bits") else "; other bits"
        text += "; least" if found.get(f"{what}: least") else ""
    return text


def row_of(found: Result) -> list[str]:
    """Return a subject's row."""
    short = found["name"].split(": ", 1)[1]
    if "plain: error" in found:
        return [short, f"does not run here: {shorten(found['plain: error'], 60)}", *[""] * 16]
    rivals = []
    for what in ("package", "every second"):
        peak, flops = f"{what}: profiler", f"{what}: flops"
        rivals += [
            text_of(share(found, peak), share(found, flops, "plain: flops")),
            text_of(share(found, f"within {what}: flops", "plain: flops")),
        ]
    refused = "advice: error" in found
    return [
        short,
        found.get("dynamo: graph", "-"),
        f"{found['plain: profiler'] / 2**20:.1f} MiB",
        "refused" if refused else text_of(share(found, "advice: plain"), digits=4),
        text_of(share(found, "plain: malloc")),
        text_of(share(found, "tracker: peak")),
        str(found.get("advice: modules", "-")),
        f"{found['seconds']:.1f}" if "seconds" in found else "-",
        *(advised_text(found, f"advice {each:.0%}") for each in SHARES),
        *rivals,
        str(found.get("trace: operators", "refused")),
        text_of(share(found, "plan: peak", "trace: plain")),
        text_of(share(found, "compiled: peak"), found.get("compiled: cost")),
        text_of(found.get("within compiled: cost")),
    ]


def is_never_dearer(found: Result, what: str) -> bool | None:
    """Whether advice costs no more FLOPs than a rival in its peak; None if it has no rival."""
    rival = found.get(f"{what}: flops")
    if rival is None or "advice: error" in found:
        return None
    return bool(found.get(f"within {what}: flops", float("inf")) <= rival * 1.0001)


def counts(every: Sequence[Result]) -> list[str]:
    """Return what the table says in a few lines."""
    ran = [each for each in every if "plain: error" not in each]
    compiles = [each for each in ran if each.get("dynamo: graph") in ("one", "several")]
    advised = [each for each in ran if "advice: error" not in each]
    traced = [each for each in compiles if "trace: error" not in each]
    off = [abs((share(each, "advice: plain") or 0) - 1) for each in advised]
    below = [each for each in advised if (share(each, "advice: plain") or 0) < 0.9999]
    bits = [each[f"advice {s:.0%}: bits"] for each in advised for s in SHARES
            if f"advice {s:.0%}: bits" in each]  # fmt: skip
    timed = [each["seconds"] for each in advised if "seconds" in each]
    lines = [
        f"{len(every)} of {len(SUBJECTS)} models so far, {len(ran)} of which train here; "
        f"`torch.compile` runs "
        f"{len(compiles)} of them, {sum(e['dynamo: graph'] == 'one' for e in compiles)} in one "
        "graph.",
        f"Advice on {len(advised)}: {portion([e for e in compiles if e in advised], compiles)} of "
        f"what compiles; traced and planned: {portion(traced, compiles)}.",
        "The plain peak is predicted within 0.5 % on "
        f"{portion([x for x in off if x <= 0.005], off)}, within 2 % on "
        f"{portion([x for x in off if x <= 0.02], off)}; below what is measured on {len(below)}.",
        f"Steps as advised have the bits of plain ones in {sum(bits)} of {len(bits)} trials.",
    ]
    if timed:
        lines.append(
            f"`advise` answers within 5 s on {portion([x for x in timed if x < 5], timed)}; "
            f"on half of them within {median(timed):.1f} s."
        )
    for what, words in (("package", "the package's own switch"),
                        ("every second", "every second module")):  # fmt: skip
        held = [is_never_dearer(each, what) for each in ran]
        known = [each for each in held if each is not None]
        lines.append(
            f"In the peak of {words}, advice costs no more FLOPs on {sum(known)} of {len(known)}."
        )
    held = [each["within compiled: cost"] <= each["compiled: cost"] * 1.0001
            for each in ran if each.get("within compiled: cost")]  # fmt: skip
    lines.append(
        f"In the peak of `activation_memory_budget=0.5`, a plan costs no more on {sum(held)} of "
        f"{sum('compiled: cost' in each for each in ran)}."
    )
    return lines


def portion(some: Sequence[Any], every: Sequence[Any]) -> str:
    """Return a share as text."""
    return f"{len(some)} of {len(every)} ({len(some) / max(len(every), 1):.0%})"


def report() -> None:
    """Write the table of all findings that are there."""
    every = [json.loads(file_of(name).read_text()) for name in SUBJECTS if file_of(name).exists()]
    sections = ["\n".join(f"- {line}" for line in counts(every)), INTRODUCTION]
    for group, _ in TABLES:
        rows = [row_of(each) for each in every if each["name"].startswith(f"{group}: ")]
        if rows:
            sections.append(f"## {group}\n\n{table.rows(HEADER, rows)}")
    errors = [
        [each["name"], part.removesuffix(": error"), brief(each[part])]
        for each in every
        for part in each
        if part in ("advice: error", "trace: error", "plan: error")
    ]
    sections.append("## Refused\n\n" + table.rows(("model", "what", "because"), errors))
    packages = ["torch", "torchvision", "timm", "transformers", "diffusers", "peft",
                "torch-geometric", "memray"]  # fmt: skip
    table.write("survey", "Models of other people's packages", sections, packages)


def brief(error: str) -> str:
    """Return an error in a cell's width, with files as they are named in their packages."""
    return shorten(re.sub(r"/\S*/site-packages/", "", error), 200).replace("|", "\\|")


def file_of(name: str) -> Path:
    """Return where the findings about a subject are."""
    return FOLDER / ("".join(each if each.isalnum() else "_" for each in name) + ".json")


def survey(names: Sequence[str], what: str) -> None:
    """Survey subjects that have no file yet, or take their times, each in a process of its own."""
    for name in names:
        if file_of(name).exists() is (what == "--one"):
            continue
        begin = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.zoo.survey", what, name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            ended = "" if done.returncode == 0 else (done.stderr.strip() or "killed")[-300:]
        except subprocess.TimeoutExpired:
            ended = f"more than {SECONDS} s"
        if ended and what == "--one":
            written(name, {"name": name, "plain: error": ended})
        print(f"{name} {time.perf_counter() - begin:.0f} s {ended}", flush=True)


def written(name: str, found: Result) -> None:
    """Write the findings about a subject."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_atomically(file_of(name), json.dumps(found, indent=1).encode())


def main(args: Sequence[str]) -> None:
    """Do what the command line says."""
    if args[:1] in (["--one"], ["--time"]):
        what, name = args
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        quiet()
        if what == "--one":
            written(name, Survey(name).take())
            return
        found = json.loads(file_of(name).read_text())
        if "plain: error" not in found and "advice: error" not in found:
            written(name, {**found, "seconds": round(seconds_to_advice(name), 2)})
        return
    again = args[:1] == ["--times"]
    words = args[again:]
    names = [name for name in SUBJECTS if not words or any(word in name for word in words)]
    order = [name for first in range(STRIDE) for name in names[first::STRIDE]]
    survey(order, "--time" if again else "--one")
    report()


def quiet() -> None:
    """Keep transformers from telling of kernels that are not installed."""
    with suppress(ImportError):
        import transformers

        transformers.logging.set_verbosity_error()


if __name__ == "__main__":
    main(sys.argv[1:])
