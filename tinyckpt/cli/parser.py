"""The argparse parser of the ``tinyckpt`` command, built of the table in ``options``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from tinyckpt.base.display import printable
from tinyckpt.base.errors import did_you_mean
from tinyckpt.cli.options import ALL_HELP, COMMANDS, EXAMPLES
from tinyckpt.pipeline.rank_supervisor import after_rank_0

Job = Callable[[Any], int]


class Parser(argparse.ArgumentParser):
    """ArgumentParser that suggests corrections of typos, and escapes unprintable characters."""

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse the arguments, or exit with 2."""
        options, rest = self.parse_known_args(arguments)
        if rest:
            parser = getattr(options, "parser", self)
            known = re.findall(r"--[\w-]+", parser.format_usage())
            policies = import_module("tinyckpt.planner.portfolio.policies").POLICIES
            if "--policy" in known and rest[0] in policies:
                question = f" (did you mean --policy {rest[0]}?)"
            else:
                question = did_you_mean(rest[0].partition("=")[0], known)
            parser.error(f"unrecognized arguments: {' '.join(rest)}{question}")
        return options

    def error(self, message: str) -> NoReturn:
        """Print an error, with a suggestion for a misspelt choice; exit with 2."""
        found = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
        if found:
            message += did_you_mean(found[1], [name.strip(" '") for name in found[2].split(",")])
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
        epilog=f"{EXAMPLES}\n\n{ALL_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tinyckpt {version}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(job=jobs[name], parser=sub)
        groups: dict[str, Any] = {"": sub}
        for option in command.options:
            if option.group not in groups:
                groups[option.group] = sub.add_argument_group(option.group)
            groups[option.group].add_argument(*option.flags, **option.settings)
    return parser
