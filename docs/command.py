"""Generator of the command-line reference: every command and option, from the argparse parser."""

from __future__ import annotations

import argparse
import re
from textwrap import dedent
from typing import Any

from tinyckpt.cli.main import JOBS
from tinyckpt.cli.options import BUDGET_HELP, EXAMPLES, NETWORK_HELP, POLICY_HELP
from tinyckpt.cli.parser import make_parser

INTRODUCTION = """# Command line

`tinyckpt COMMAND NETWORK` plans, runs, compares and draws schedules from a terminal:"""
ENDING = """`tinyckpt COMMAND --help` prints what is on this page. Pictures need the extra `viz`:
[install](../install.md). The exit status is 0 on success, 1 on failure, and 2 for a usage error."""
COLUMNS = 96  # width of a usage message


def command_page() -> str:
    """Return the page, in Markdown."""
    parser = make_parser(JOBS)
    parts = [INTRODUCTION, listing(below(EXAMPLES))]
    links = (f"[{word}](#command-{word.lower()})" for word in ("NETWORK", "POLICY", "BUDGET"))
    parts += [f"Placeholders: {', '.join(links)}. {ENDING}"]
    for name, sub in commands(parser).items():
        parts += command_parts(name, sub)
    policies = "Description, options and optimality of each: [policies](policies.md)."
    parts += [heading("NETWORK"), "One of these:", listing(below(NETWORK_HELP))]
    parts += [heading("POLICY"), policies, listing(below(POLICY_HELP))]
    parts += [heading("BUDGET"), said(BUDGET_HELP)]
    return "\n\n".join(parts) + "\n"


def heading(word: str) -> str:
    """Return the heading of a placeholder in usage messages, with its anchor."""
    return f"(command-{word.lower()})=\n## {word}"


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    (sub,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(sub.choices)


def command_parts(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return the section of a command: description, usage, each argument and option."""
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=COLUMNS)
    usage = re.sub(r"(?m)^(usage: | {7})", "", parser.format_usage())
    shared = NETWORK_HELP in (parser.epilog or "")
    return [
        f"## {name}",
        said(parser.description or ""),
        listing(usage),
        f"```{{program}} tinyckpt {name}\n```",
        *(option(parser, action) for action in parser._actions if action.dest != "help"),
        *([] if shared or not parser.epilog else [listing(parser.epilog)]),
    ]


def option(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return an argument or option as a Sphinx ``option`` directive: linkable and searchable."""
    value = "" if action.nargs == 0 else value_of(action)
    if action.option_strings:
        shown = ", ".join(" ".join(filter(None, (s, value))) for s in action.option_strings)
    else:
        shown = value
    facts = [parser._get_formatter()._expand_help(action)] if action.help else []
    if action.choices:
        facts.append("one of " + ", ".join(f"`{choice}`" for choice in action.choices))
    if action.default not in (None, False, [], argparse.SUPPRESS):
        facts.append(f"`{action.default}` by default")
    if action.option_strings and action.required:
        facts.append("required")
    return f"````{{option}} {shown}\n{said('; '.join(facts))}\n````"


def value_of(action: argparse.Action) -> str:
    """Return the placeholder of an option's value."""
    if isinstance(action.metavar, str):
        return action.metavar
    return action.dest.upper()


def said(text: str) -> str:
    """Return text escaped for Markdown: only code in backquotes stays markup."""
    for mark in "*<[":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")


def below(text: str) -> str:
    """Return a list without its title line, dedented."""
    return dedent(text.partition("\n")[2])


def listing(text: Any) -> str:
    """Return a preformatted block of text."""
    return f"```text\n{str(text).rstrip()}\n```"
