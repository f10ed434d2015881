"""The table of the command's options: every command, with what it takes, in the order of its help.

An option that several commands have stands once, as a name or in a group of names. ``parser``
builds the argparse parsers of the table, and docs/command.py the reference page.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from tinyckpt.base.errors import BudgetError, did_you_mean
from tinyckpt.cli import pipe, torch_command
from tinyckpt.cli.resolve_options import COSTS
from tinyckpt.core.backend import BACKENDS
from tinyckpt.networks import NETWORKS
from tinyckpt.pipeline import PIPELINES
from tinyckpt.pipeline.mpi import DEFAULT_TIMEOUT
from tinyckpt.planner.model.budget import parse_written_budget
from tinyckpt.planner.portfolio.policies import POLICIES
from tinyckpt.techniques import CHUNKS, STAGES

# Texts below the options --------------------------------------------------------------------------

FORMS = "\n".join(f"  {form:26} {what}" for form, _, what in NETWORKS.values())
NETWORK_HELP = f"""NETWORK is one of
{FORMS}
  {"path/to/graph.json":26} a graph: a profile of your model, or what graph -o writes
  {"path/to/file.py:function":26} a function that returns a tinyckpt.networks.Network"""
POLICY_HELP = "POLICY is one of\n" + "\n".join(
    [
        *(f"  {policy.name:26} {policy.summary}" for policy in POLICIES.values()),
        f"  {'path/to/file.py:function':26} a function of your own, as plan takes it",
    ]
)
BUDGET_HELP = """BUDGET is the peak to stay within: '64 MiB', a number of bytes, '9 nodes',
or '50 %' or 0.5 of store-all's peak"""
ALL_HELP = f"{NETWORK_HELP}\n\n{POLICY_HELP}\n\n{BUDGET_HELP}"
TORCH_HELP = """FUNCTION takes nothing and returns a model in training and its arguments, as in
  def make():
      return MyModelWithItsLoss(), (tokens, labels)
where the model's forward returns the loss, alone, in a tuple, or as loss of a dict or of
an object, as a model of transformers does; for one of those, the arguments are a batch, a dict.
Of a model of transformers its config.json is enough, without weights:
  tinyckpt torch --hf config.json --batch 1x2048 --budget '24 GiB'
BUDGET is for everything, parameters and the optimizer's state included: '24 GiB', a number of
bytes, or '50 %' of what it takes now"""
PIPE_HELP = """NETWORK is of one micro-batch. Counted, unless an MPI launcher starts it: then each
process is a device, and works on random arrays, as in
  mpiexec -n 4 tinyckpt pipe mlp:8x64 --micro-batches 16
with --optimizer it trains, on the same batch in every step, as in
  mpiexec -n 4 tinyckpt pipe mlp:8x64 --micro-batches 16 --optimizer adam --steps 3
with --replicas R, R times as many processes, which share out what --zero says; then stages are
what is gathered and scattered at a time, so have several a device, as in
  mpiexec -n 4 tinyckpt pipe mlp:8x64 --stages 1 --micro-batches 2 --schedule interleaved
    --chunks 8 --replicas 4 --zero 3
What is counted is what runs, but for time, which is in units of --cost and not measured, and the
copies that MPI makes. With --zero 3 each process holds all parameters of its stages for a moment,
when it begins."""
COURSE_HELP = """The file runs in a process of its own, with 10 s of CPU time for all and 1 GiB;
on Linux without network. Its schedules and numbers are replayed and scored outside of that process.
The exit status is 0 for all points, and 1 otherwise."""
EXAMPLES = """start here
  tinyckpt demo                                  see everything, in seconds
  tinyckpt compare chain:16                      what each policy costs
  tinyckpt compare transformer:12x768 --techniques --budget 50%  offload, compression too
  tinyckpt plan chain:4 --policy sqrt_n          one schedule, step by step
  tinyckpt plan resnet50 --budget '1.5 GiB' --cost flops --explain
  tinyckpt plan chain:16 --frontier              the best at every budget
  tinyckpt gif chain:16 -o sqrt.gif              watch it
  tinyckpt play chain:16 -o sqrt.html            step through it, in a browser
  tinyckpt lab chain:16 -o lab.html              drag the budget, click what to keep
  tinyckpt torch model.py:make --budget '24 GiB'  will it fit, and what to write
  tinyckpt torch --hf config.json --batch 1x2048 --budget '40 GiB'  a Hugging Face model
  tinyckpt pipe mlp:8x64 --stages 4 --micro-batches 16
  tinyckpt gif mlp:6x64 --policy store_all --policy sqrt_n -o both.gif
  tinyckpt play mlp:6x64 --policy store_all --policy sqrt_n -o both.html"""


# Types: the text of an option to its value, or an error that says what is expected ----------------

BASE = "'1.5 GiB', a number of bytes, or 'start' for what is held at the start"


def policy_name(text: str) -> str:
    """Validate the name of a policy; the function of a file is loaded later."""
    if text not in POLICIES and ".py:" not in text:
        raise argparse.ArgumentTypeError(
            f"unknown policy {text!r}{did_you_mean(text, POLICIES)}; known are "
            f"{', '.join(POLICIES)} and path/to/file.py:function"
        )
    return text


def opened_first(text: str) -> str:
    """Validate what a page opens with: a policy, or a view of several."""
    return text if text in ("difference", "all") else policy_name(text)


def known_policy(text: str) -> str:
    """Validate the name of a policy, where a function in a file is not accepted."""
    if ".py:" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r}: here policies are chosen by name; known are {', '.join(POLICIES)}"
        )
    return policy_name(text)


def labels(text: str) -> str | dict[int | str, str]:
    """Parse ``NAME=TEXT,NAME=TEXT`` to a dict; any other text is returned as it is."""
    if "=" not in text:
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=TEXT, with commas between them")
    return {int(name) if name.isdecimal() else name: label for name, _, label in pairs}


def seconds(text: str) -> float:
    """Parse a nonnegative number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 0 or more, such as 6")
    return number


def moments(text: str) -> tuple[float, float]:
    """Parse the two times of ``FROM,TO``."""
    try:
        begin, end = map(float, text.split(","))
    except ValueError:
        message = f"{text!r}: expected two moments, such as 1.5,2.25"
        raise argparse.ArgumentTypeError(message) from None
    return begin, end


def holds(text: str) -> tuple[float, float]:
    """Parse ``S``, seconds for both ends, or ``FIRST,LAST``."""
    first, _, last = text.partition(",")
    try:
        return float(first), float(last or first)
    except ValueError:
        message = f"{text!r}: expected seconds, such as 2, or 0.5,2 for the first and the last"
        raise argparse.ArgumentTypeError(message) from None


def base(text: str) -> int | str:
    """Parse a number of bytes, or ``start``."""
    try:
        budget = parse_written_budget(text, BASE)
    except BudgetError:
        budget = None
    if text != "start" and (budget is None or budget.unit not in ("bytes", "unsaid")):
        raise argparse.ArgumentTypeError(f"{text!r}: expected {BASE}")
    return text if budget is None else int(budget.amount)


# Options ------------------------------------------------------------------------------------------

# The type of an option by its placeholder; text if it is not listed.
TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("K", "M", "N", "R", "V", "PIXELS", "STEP"), int),
    **dict.fromkeys(("X", "SECONDS"), float),
    "BYTES": base, "POLICY": policy_name, "S": seconds, "S,S": moments, "S[,S]": holds,
    "WHAT": labels,
}  # fmt: skip


class Option(NamedTuple):
    """An option or a positional argument, of one command or several.

    Attributes:
        flags: such as ``-o`` and ``--output``; none of a positional argument.
        settings: the other arguments of ``ArgumentParser.add_argument``.
        group: title of the part of the help that it stands in; empty for the main part.
    """

    flags: list[str]
    settings: dict[str, Any]
    group: str


def option(form: str, help: str | None = None, group: str = "", **settings: Any) -> Option:
    """Return a row of the table.

    Args:
        form: flags and placeholder, as in ``-o, --output FILE``; a placeholder alone is positional.
        help: what the option is for.
        group: title of the part of the help that it stands in.
        settings: as of ``ArgumentParser.add_argument``, in addition to these or in place of them.
    """
    words = form.split()
    flags = [word.rstrip(",") for word in words if word.startswith("-")]
    value = {"metavar": words[-1], "type": TYPES.get(words[-1])} if words[len(flags) :] else {}
    return Option(flags, {"help": help, **value, **settings}, group)


class DeprecatedFlag(argparse.Action):
    """The deprecated flag ``--means``, as version 0.1 called ``--techniques``; to be removed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Set ``techniques``, and print the new name."""
        print("note: --means is now --techniques", file=sys.stderr)
        namespace.techniques = True


# fmt: off
FLAG: dict[str, Any] = {"action": "store_true"}
NETWORK = option("NETWORK", "what to plan, see below", dest="network")
NETWORK_OR_TRACE = option("NETWORK", "NETWORK, or a trace that plan wrote, ending in .json",
                          dest="network")
POLICY = option("--policy POLICY", "see below; sqrt_n, or with a budget the best of all")
POLICIES_IN_TURN = option("--policy POLICY", "may be given several times", action="append")
BACKEND = option("--backend", default="numpy", choices=BACKENDS)
COST = [
    option("--cost", "what to save: the graph's own costs or evaluations, FLOPs, or bytes moved",
           default="given", choices=tuple(COSTS)),
    option("--time-limit S",
           "total seconds to search for plans and to measure; without, 6 for each"),
]
PLANNING = [
    option("--budget BUDGET", "the peak to stay within, see below"),
    *COST,
    option("--segments N", "for sqrt_n: how many segments"),
    option("--keep NAME",
           "for retain and regions: a value to keep, by its name, label or a pattern",
           action="append"),
    option("--set OPTION=VALUE", "another option of the policy, such as slots=5 for revolve; or of "
           "every plan, in_place=True; or of one for a budget without a policy, order=given and "
           "improve=True", action="append", default=[]),
]
NAMING = [
    option("--labels WHAT", "what operators are called: name or symbol; or NAME=TEXT,NAME=TEXT "
           "for some of them, by name or id"),
    option("--group",
           "one node per scope, or per operator; by default chosen by the size of the graph",
           choices=("scope", "operator")),
]
PAGE = [
    option("-o, --output OUT.html", required=True),
    option("--theme", default="auto", choices=("auto", "light", "dark")),
    option("--title", "of the page; for one policy, in place of its name too"),
    *NAMING,
    option("--measured FILE", "draw memory that was measured over the plan: a PyTorch snapshot, "
           "or a list of seconds and bytes, as .json or .csv"),
    option("--device N", "of the snapshot, if several ran"),
    option("--between S,S", "only this part of it, such as one training step"),
    option("--base BYTES", "what the plan does not count, such as parameters, and is left out: "
           f"{BASE}, which is the default; 0 for nothing", default="start"),
]
COMPARED_TECHNIQUES = [
    option("--techniques", "compare memory-saving techniques, not policies: recomputation, "
           "offload, codes of few bits, and others; within half of store-all's peak, if no budget "
           "is given, and in FLOPs, if the graph carries no costs; -o draws them, or writes a "
           ".json", **FLAG),
    option("--means", argparse.SUPPRESS, dest="techniques", action=DeprecatedFlag),
    option("--bandwidth X", "with --techniques: bytes that a link copies per unit of cost; PCI "
           "Express 4.0 of an A100 by default, where costs are FLOPs, bytes moved or seconds"),
    option("--stages K", f"with --techniques: of the pipeline; {STAGES} if not given"),
    option("--chunks N", f"with --techniques: of the loss; {CHUNKS} if not given"),
]
PICTURES = [
    option("-o, --output OUT.gif", required=True),
    option("--style", "graph: step by step; explainer: the policy below one that keeps everything, "
           "in 13 seconds, a still if OUT ends in .svg or .png", default="graph",
           choices=("graph", "explainer")),
    option("--format FORMAT", "gif, apng, webp, or mp4 or webm (pip install 'tinyckpt[mp4]'); by "
           "default what OUT ends in"),
    option("--theme", default="light", choices=("light", "dark")),
    option("--scale", "800 pixels each", type=int, default=1, choices=(1, 2, 3)),
    option("--width PIXELS", "320 to 3840, not a scale"),
    option("--aspect W:H", "such as 16:9; as high as needed without"),
    option("--arrange", "several policies; with --aspect by default what is larger, else stacked",
           choices=("stacked", "side by side")),
    *NAMING,
    option("--fps N", "frames a second, at most 50; 4 by default", type=float),
    option("--seconds S", "how long it lasts, 1 to 600", type=float),
    option("--hold S[,S]", "seconds that the first and the last frame stay; 1.5,2 by default"),
    option("--from STEP", "begin there", dest="first"),
    option("--to STEP", "end there", dest="last"),
    option("--every K", "draw every K-th frame, 1 for all; by default at most 72, of evaluations"),
    option("--align", "several policies: progress, so that those that are ahead wait while another "
           "recomputes; or step; by default progress, unless a part is drawn",
           choices=("progress", "step")),
    option("--title", "in place of the policy's name; one for each, in order", action="append"),
    option("--still STEP", "also write OUT.png: this step, as plan numbers them from 0; where OUT "
           "ends in .svg, only that, by default the step of the peak"),
]
# fmt: on


# Commands -----------------------------------------------------------------------------------------


class Command(NamedTuple):
    """A command: what it does, in a few words; its options; the text below them."""

    help: str
    options: list[Option]
    epilog: str = ALL_HELP


STOPS = ("start", "peak", "first recomputation", "end")  # as viz.player's


def stop_of(text: str) -> str:
    """Return the name of a stop; without quotes, the first recomputation is ``recomputation``."""
    return "first recomputation" if text == "recomputation" else text


LAUNCHED = "under an MPI launcher"  # a part of the help
# fmt: off
COMMANDS = {
    "demo": Command("see everything, in seconds", [
        option("-o, --output FOLDER", "for pictures", default="demo-out"),
    ], NETWORK_HELP),
    "plan": Command("print one schedule, and what it costs", [
        NETWORK, POLICY, *PLANNING,
        option("--explain", "print why, instead of the steps", **FLAG),
        option("--frontier", "print the best known at every budget instead", **FLAG),
        option("-o, --output FILE", "write the trace as the suffix says: .json to read it again; "
               ".csv, one row per step; .chrome.json for ui.perfetto.dev; .png, .svg or .pdf, "
               "evaluations over time; with --frontier, a chart of it"),
    ]),
    "run": Command("execute one schedule on random arrays, and measure it", [
        NETWORK, POLICY, *PLANNING, BACKEND,
    ]),
    "compare": Command("compare policies, or memory-saving techniques: peak, time", [
        NETWORK, POLICIES_IN_TURN, *PLANNING, *COMPARED_TECHNIQUES, BACKEND,
        option("-o, --output FILE", "draw live memory: a .png, .svg or .pdf"),
    ]),
    "graph": Command("print a summary of a network's graph, and write it", [
        NETWORK, option("-o, --output FILE.json", "write the graph as JSON"),
    ], NETWORK_HELP),
    "gif": Command("draw policies as an animation, aligned by progress: GIF, APNG, WebP or MP4", [
        NETWORK_OR_TRACE, POLICIES_IN_TURN, *PLANNING, *PICTURES,
    ]),
    "play": Command("write policies as one HTML page that steps, scrubs and plays", [
        NETWORK_OR_TRACE, POLICIES_IN_TURN, *PLANNING, *PAGE,
        option("--show POLICY", "what is open at first: a policy, difference, or all",
               type=opened_first),
        option("--stop", "the moment at which the page opens", default="peak", choices=STOPS,
               type=stop_of),
    ]),
    "lab": Command("write a page on which one drags the budget and picks what to keep", [
        option("NETWORK", "what to plan, see below", dest="network", nargs="?"),
        option("--empty", "instead of NETWORK: a page onto which one drops a graph, a trace or a "
               "snapshot", **FLAG),
        option("--policy POLICY",
               "to be shown beside the frontier; store_all, sqrt_n and recompute_all by default",
               action="append", type=known_policy),
        option("--points N", "schedules along the frontier, at most; 2 to 200"),
        option("--challenge BUDGET",
               "begin with nothing kept, and ask to get within '9 nodes', '64 MiB', '50 %%'"),
        *COST, *PAGE,
    ]),
    "pipe": Command("cut a network into the stages of a pipeline; time it, or run it", [
        option("NETWORK", "what to cut, see below", dest="network"),
        option("--stages K",
               "devices; under a launcher as many as processes for a replica, if not given"),
        option("--micro-batches M", "micro-batches that a batch is split into, of each replica",
               required=True),
        option("--schedule", "1f1b by default; may be given several times, to be compared",
               action="append", choices=tuple(PIPELINES)),
        option("--recompute", "compute the insides of stages again as the policy or the budget "
               "says, while waiting or after", choices=("early", "late")),
        option("--policy POLICY", "of each stage; store_all by default"),
        option("--budget BUDGET", "of a micro-batch in a stage"),
        option("--cost",
               "what stages are balanced by, and time is counted in; flops by default",
               default="flops", choices=tuple(COSTS)),
        option("--replicas R", "for data parallelism", default=1),
        option("--zero",
               "whether replicas share out the optimizer's state (1), gradients too (2), all (3)",
               type=int, default=0, choices=range(4)),
        option("--optimizer",
               "what updates the parameters; with several replicas adam by default, else none",
               choices=("none", *pipe.OPTIMIZERS)),
        option("--chunks V", "stages a device, if interleaved"),
        option("-o, --output FILE",
               "draw devices against time: a .png, .svg or .pdf; or an .html, which plays it"),
        option("--theme", "auto for pages only", choices=("auto", "light", "dark")),
        option("--steps S", "of the optimizer; 1 by default", LAUNCHED, type=int),
        option("--rate X", f"of the optimizer; {pipe.RATE} by default", LAUNCHED),
        option("--patience SECONDS", "how long a process waits for another before all are ended; "
               f"{DEFAULT_TIMEOUT:g} by default", LAUNCHED),
    ], f"{ALL_HELP}\n\n{PIPE_HELP}"),
    "torch": Command("say whether a PyTorch model fits, and what to write", [
        option("FILE.py:FUNCTION", "what makes it, see below", dest="model", nargs="?"),
        option("--hf CONFIG.json", "instead: a language model of transformers, for plain training"),
        option("--batch BxT", "of it: sequences and tokens each, such as 1x2048"),
        option("--device NAME", "a CUDA device that is not here, such as H100-80GB, or the file of "
               "its calibration; for plain training"),
        option("--calibrate FILE.json", "measure the CUDA device that is here, for --device"),
        option("--budget BUDGET", "for all, see below"),
        option("--modules", "instead of a plan: what each module takes in plain training", **FLAG),
        option("--optimizer", "whose state counts too; adamw by default, two values per parameter",
               default="adamw", choices=tuple(torch_command.OPTIMIZERS)),
        option("--advise", "for plain training: which modules to wrap in torch.utils.checkpoint",
               **FLAG),
        option("--code FORM", "what that advice is written for; plain PyTorch by default",
               choices=("torch", "transformers", "torchtitan", "torch_remat")),
        option("--no-workspace", "run no kernel: workspace, which kernels use beyond inputs and "
               "outputs, counts as 0", **FLAG),
        option("--explain", "print why the plan is as it is", **FLAG),
        option("--play OUT.html", "write a page that plays it"),
        option("--time-limit S", "seconds to search for plans; 6 by default"),
    ], TORCH_HELP),
    "lessons": Command("list the lessons, which run as they are; or write them to a folder", [
        option("--copy DIR", "write them to this folder, which is new or empty"),
    ], ""),
    "course": Command("write the course's folder, for students or teachers; or a leaderboard", [
        option("--copy DIR", "for students: pages, files to fill in, tests and hints"),
        option("--teacher DIR", "for teachers: with solutions, and files for pytest, nbgrader, "
               "Otter and Gradescope"),
        option("--board FILE", "a page from what puzzle --json and grade --json wrote, a row per "
               "file", nargs="+"),
        option("-o, --output OUT.html", "the page"),
    ], ""),
    "puzzle": Command("list the puzzles, state one, or check your answer to it", [
        option("N", "which; without it, all are listed", dest="number", nargs="?"),
        option("ANSWER.py", "the file that defines `answer`", dest="file", nargs="?"),
        option("--picture FILE", "draw your schedule beside the best: a .png or .svg at your peak, "
               "or an animation; a pipeline as .png, .svg or .pdf"),
        option("--json FILE", "write points, peak, cost and gap"),
        option("--lab FILE.html", "write a page on which values to keep are clicked and scored; of "
               "puzzles whose answer is a keep set"),
    ], COURSE_HELP),
    "grade": Command("grade your file of a part of the course", [
        option("FILE", "such as part_2.py", dest="file"),
        option("--part N", "which part it is, if its name does not say"),
        option("--json FILE", "write points per task and why"),
        option("--gradescope FILE", "write the same as results.json of Gradescope"),
    ], COURSE_HELP),
}
# fmt: on
