"""argparse arguments shared by subcommands: network, policies, costs, budget, labels, theme."""

from __future__ import annotations

import argparse
import math
from typing import Any

from tinyckpt.base.errors import did_you_mean
from tinyckpt.cli.resolve_options import COSTS
from tinyckpt.planner.portfolio.policies import POLICIES


def add_network(parser: Any, text: str = "what to plan, see below") -> None:
    """Add the positional argument NETWORK."""
    parser.add_argument("network", metavar="NETWORK", help=text)


def add_policy(parser: Any) -> None:
    """Add ``--policy``, one policy."""
    parser.add_argument(
        "--policy",
        type=policy_name,
        metavar="POLICY",
        help="see below; sqrt_n, or with a budget the best of all",
    )


def add_policies(parser: Any) -> None:
    """Add ``--policy``, repeatable."""
    parser.add_argument(
        "--policy",
        action="append",
        type=policy_name,
        metavar="POLICY",
        help="may be given several times",
    )


def add_costs(parser: Any) -> None:
    """Add ``--cost``, the objective of plans, and ``--time-limit``, of the search."""
    parser.add_argument(
        "--cost", default="given", choices=tuple(COSTS),
        help="what to save: the graph's own costs or evaluations, FLOPs, or bytes moved",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="S",
        help="total seconds to search for plans and to measure; without, 6 for each",
    )


def add_planning(parser: Any) -> None:
    """Add the budget, the costs, and options of policies."""
    parser.add_argument("--budget", metavar="BUDGET", help="the peak to stay within, see below")
    add_costs(parser)
    parser.add_argument("--segments", type=int, metavar="N", help="for sqrt_n: how many segments")
    parser.add_argument(
        "--keep",
        action="append",
        metavar="NAME",
        help="for retain and regions: a value to keep, by its name, label or a pattern",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="another option of the policy, such as slots=5 for revolve",
    )


def add_page(parser: Any) -> None:
    """Add the style of a page."""
    parser.add_argument("--theme", default="auto", choices=("auto", "light", "dark"))
    parser.add_argument("--title", help="of the page; for one policy, in place of its name too")
    add_naming(parser)


def add_naming(parser: Any) -> None:
    """Add the labels of nodes, and their grouping."""
    parser.add_argument(
        "--labels", type=labels, metavar="WHAT",
        help="what operators are called: name or symbol; or NAME=TEXT,NAME=TEXT for some of them, "
        "by name or id",
    )  # fmt: skip
    parser.add_argument(
        "--group", choices=("scope", "operator"),
        help="one node per scope, or per operator; by default chosen by the size of the graph",
    )  # fmt: skip


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


def known_policy(text: str) -> str:
    """Validate the name of a policy, where a function in a file is not accepted."""
    if ".py:" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r}: here policies are chosen by name; known are {', '.join(POLICIES)}"
        )
    return policy_name(text)


def policy_name(text: str) -> str:
    """Validate the name of a policy; the function of a file is loaded later."""
    if text not in POLICIES and ".py:" not in text:
        raise argparse.ArgumentTypeError(
            f"unknown policy {text!r}{did_you_mean(text, POLICIES)}; known are "
            f"{', '.join(POLICIES)} and path/to/file.py:function"
        )
    return text
