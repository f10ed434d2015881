"""The argparse parser of the ``tinyckpt`` command: subcommands, their arguments and help."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from tinyckpt.base.display import printable
from tinyckpt.base.errors import did_you_mean
from tinyckpt.cli.common_args import (
    add_naming,
    add_network,
    add_page,
    add_planning,
    add_policies,
    add_policy,
    seconds,
)
from tinyckpt.cli.lab import add_lab
from tinyckpt.cli.measured_args import add_measured
from tinyckpt.cli.pipe import add_pipe
from tinyckpt.cli.techniques import add_techniques
from tinyckpt.cli.torch_command import OPTIMIZERS
from tinyckpt.core.backend import BACKENDS
from tinyckpt.networks import NETWORKS
from tinyckpt.pipeline.rank_supervisor import after_rank_0
from tinyckpt.planner.portfolio.policies import POLICIES

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
TORCH_HELP = """FUNCTION takes nothing and returns a model in training and its arguments, as in
  def make():
      return MyModelWithItsLoss(), (tokens, labels)
where the model's forward returns the loss.
BUDGET is for everything, parameters and the optimizer's state included: '24 GiB', a number of
bytes, or '50 %' of what it takes now"""
EXAMPLES = """start here
  tinyckpt demo                                  see everything, in seconds
  tinyckpt compare chain:16                      what each policy costs
  tinyckpt compare transformer:12x768 --techniques --budget 50%  and not policies alone
  tinyckpt plan chain:4 --policy sqrt_n          one schedule, step by step
  tinyckpt plan resnet50 --budget '1.5 GiB' --cost flops --explain
  tinyckpt plan chain:16 --frontier              the best at every budget
  tinyckpt gif chain:16 -o sqrt.gif              watch it
  tinyckpt play chain:16 -o sqrt.html            step through it, in a browser
  tinyckpt lab chain:16 -o lab.html              drag the budget, click what to keep
  tinyckpt torch model.py:make --budget '24 GiB'  will it fit, and what to write
  tinyckpt pipe mlp:8x64 --stages 4 --micro-batches 16
  tinyckpt gif mlp:6x64 --policy store_all --policy sqrt_n -o both.gif
  tinyckpt play mlp:6x64 --policy store_all --policy sqrt_n -o both.html"""
Job = Callable[[Any], int]


class Parser(argparse.ArgumentParser):
    """ArgumentParser that suggests corrections of typos, and escapes unprintable characters."""

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse the arguments, or exit with 2."""
        options, rest = self.parse_known_args(arguments)
        if rest:
            parser = getattr(options, "parser", self)
            known = re.findall(r"--[\w-]+", parser.format_usage())
            question = did_you_mean(rest[0].partition("=")[0], known)
            parser.error(f"unrecognized arguments: {' '.join(rest)}{question}")
        return options

    def error(self, message: str) -> NoReturn:
        """Print an error, with a suggestion for a misspelt choice; exit with 2."""
        found = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
        if found:
            message += did_you_mean(found[1], re.findall(r"\w+", found[2]))
        after_rank_0()
        super().error(printable(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a text; a failure to write to stdout raises, where argparse would ignore it."""
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def make_parser(jobs: Mapping[str, Job]) -> Parser:
    """Build the parser.

    Args:
        jobs: the function of each subcommand, by name.
    """
    version = import_module("tinyckpt").__version__  # here, since the package imports this module
    parser = Parser(
        prog="tinyckpt",
        description="See, understand and plan gradient checkpointing.",
        epilog=f"{EXAMPLES}\n\n{NETWORK_HELP}\n\n{POLICY_HELP}\n\n{BUDGET_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tinyckpt {version}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, text: str, *, policies: bool = True) -> Any:
        sub = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"{NETWORK_HELP}\n\n{POLICY_HELP}\n\n{BUDGET_HELP}"
            if policies
            else NETWORK_HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(job=jobs[name], parser=sub)
        return sub

    sub = command("demo", "see everything, in seconds", policies=False)
    sub.add_argument("-o", "--output", default="demo-out", metavar="FOLDER", help="for pictures")

    sub = command("plan", "print one schedule, and what it costs")
    add_network(sub)
    add_policy(sub)
    add_planning(sub)
    sub.add_argument("--explain", action="store_true", help="print why, instead of the steps")
    sub.add_argument(
        "--frontier", action="store_true", help="print the best known at every budget instead"
    )
    sub.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the trace as the suffix says: .json to read it again; .csv, one row per step; "
        ".chrome.json for ui.perfetto.dev; .png, .svg or .pdf, evaluations over time; with "
        "--frontier, a chart of it",
    )

    sub = command("run", "execute one schedule on random arrays, and measure it")
    add_network(sub)
    add_policy(sub)
    add_planning(sub)
    sub.add_argument("--backend", default="numpy", choices=BACKENDS)

    sub = command("compare", "compare policies, or memory-saving techniques: peak, time")
    add_network(sub)
    add_policies(sub)
    add_planning(sub)
    add_techniques(sub)
    sub.add_argument("--backend", default="numpy", choices=BACKENDS)
    sub.add_argument(
        "-o", "--output", metavar="FILE", help="draw live memory: a .png, .svg or .pdf"
    )

    sub = command("graph", "print a summary of a network's graph, and write it", policies=False)
    add_network(sub)
    sub.add_argument("-o", "--output", metavar="FILE.json", help="write the graph as JSON")

    sub = command("gif", "draw policies as an animation, in step: GIF, APNG, WebP or MP4")
    add_network(sub, "NETWORK, or a trace that plan wrote, ending in .json")
    add_policies(sub)
    add_planning(sub)
    add_pictures(sub)

    sub = command("play", "write policies as one HTML page that steps, scrubs and plays")
    add_network(sub, "NETWORK, or a trace that plan wrote, ending in .json")
    add_policies(sub)
    add_planning(sub)
    sub.add_argument("-o", "--output", required=True, metavar="OUT.html")
    add_page(sub)
    add_measured(sub)

    add_lab(command("lab", "write a page on which one drags the budget and picks what to keep"))
    pipe = command("pipe", "cut a network into the stages of a pipeline; time it, or run it")
    add_pipe(pipe)
    add_torch(command("torch", "say whether a PyTorch model fits, and what to write"))
    return parser


def add_torch(parser: Any) -> None:
    """Add the arguments of ``tinyckpt torch``."""
    parser.epilog = TORCH_HELP
    parser.add_argument("model", metavar="FILE.py:FUNCTION", help="what makes it, see below")
    parser.add_argument("--budget", required=True, metavar="BUDGET", help="for all, see below")
    parser.add_argument(
        "--optimizer", default="adamw", choices=tuple(OPTIMIZERS),
        help="whose state counts too; adamw by default, two values per parameter",
    )  # fmt: skip
    parser.add_argument(
        "--advise", action="store_true",
        help="for plain training: which modules to wrap in torch.utils.checkpoint",
    )  # fmt: skip
    parser.add_argument(
        "--no-workspace", action="store_true",
        help="run no kernel: workspace, which kernels use beyond inputs and outputs, counts as 0",
    )  # fmt: skip
    parser.add_argument("--explain", action="store_true", help="print why the plan is as it is")
    parser.add_argument("--play", metavar="OUT.html", help="write a page that plays it")
    parser.add_argument(
        "--time-limit", type=seconds, metavar="S", help="seconds to search for plans; 6 by default"
    )


def add_pictures(parser: Any) -> None:
    """Add the style of an animation, its frames, and its file."""
    parser.add_argument("-o", "--output", required=True, metavar="OUT.gif")
    parser.add_argument(
        "--format", metavar="FORMAT",
        help="gif, apng, webp, or mp4 or webm (pip install 'tinyckpt[mp4]'); by default what OUT "
        "ends in",
    )  # fmt: skip
    parser.add_argument("--theme", default="light", choices=("light", "dark"))
    parser.add_argument("--scale", type=int, default=1, choices=(1, 2, 3), help="800 pixels each")
    parser.add_argument("--width", type=int, metavar="PIXELS", help="320 to 3840, not a scale")
    parser.add_argument("--aspect", metavar="W:H", help="such as 16:9; as high as needed without")
    parser.add_argument(
        "--arrange", choices=("stacked", "side by side"),
        help="several policies; with --aspect by default what is larger, else stacked",
    )  # fmt: skip
    add_naming(parser)
    parser.add_argument(
        "--fps", type=float, metavar="N",
        help="frames a second, at most 50; 4 by default",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, metavar="S", help="how long it lasts, 1 to 600")
    parser.add_argument(
        "--hold", type=holds, metavar="S[,S]",
        help="seconds that the first and the last frame stay; 1.5,2 by default",
    )  # fmt: skip
    parser.add_argument("--from", type=int, dest="first", metavar="STEP", help="begin there")
    parser.add_argument("--to", type=int, dest="last", metavar="STEP", help="end there")
    parser.add_argument(
        "--every", type=int, metavar="K",
        help="draw every K-th frame, 1 for all; by default at most 72, of evaluations",
    )  # fmt: skip
    parser.add_argument(
        "--title", action="append", help="in place of the policy's name; one for each, in order"
    )
    parser.add_argument(
        "--still",
        type=int,
        metavar="STEP",
        help="also write OUT.png: this step, as plan numbers them from 0; where OUT ends in .svg, "
        "only that, by default the step of the peak",
    )


def holds(text: str) -> tuple[float, float]:
    """Parse ``S``, seconds for both ends, or ``FIRST,LAST``."""
    first, _, last = text.partition(",")
    try:
        return float(first), float(last or first)
    except ValueError:
        message = f"{text!r}: expected seconds, such as 2, or 0.5,2 for the first and the last"
        raise argparse.ArgumentTypeError(message) from None
