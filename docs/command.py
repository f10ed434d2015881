"""The page about the command line, from the parser itself: every command, every option."""

from __future__ import annotations

import argparse
import re
from textwrap import dedent
from typing import Any

from tinyckpt.cli.main import JOBS
from tinyckpt.cli.parser import BUDGET_HELP, EXAMPLES, NETWORK_HELP, POLICY_HELP, make_parser

INTRODUCTION = """# Command line

`tinyckpt COMMAND --help` says the same in a terminal. The command ends with 0, with 1 if something
could not be done, and with 2 if it was asked for wrongly.

Whatever it draws needs the extra `viz`: [install](../install.md)."""
COLUMNS = 96  # of a usage


def command_page() -> str:
    """Return the page, in Markdown."""
    parser = make_parser(JOBS)
    parts = [INTRODUCTION, listing(below(EXAMPLES))]
    links = (f"[{word}](#command-{word.lower()})" for word in ("NETWORK", "POLICY", "BUDGET"))
    parts += [f"At the end: {', '.join(links)}."]
    for name, sub in commands(parser).items():
        parts += command_parts(name, sub)
    policies = "What each of them does, takes and is good for: [policies](policies.md)."
    parts += [heading("NETWORK"), "One of these:", listing(below(NETWORK_HELP))]
    parts += [heading("POLICY"), policies, listing(below(POLICY_HELP))]
    parts += [heading("BUDGET"), said(BUDGET_HELP)]
    return "\n\n".join(parts) + "\n"


def heading(word: str) -> str:
    """Return the heading of what stands for a word of the usages."""
    return f"(command-{word.lower()})=\n## {word}"


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    (sub,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(sub.choices)


def command_parts(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return the section of a command: what it does, its usage, each argument and option."""
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
    """Return an argument or an option as Sphinx knows them: it can be linked to, and found."""
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
    """Return what stands for an option's value."""
    if isinstance(action.metavar, str):
        return action.metavar
    return action.dest.upper()


def said(text: str) -> str:
    """Return words as Markdown takes them: nothing in them is markup but code in backquotes."""
    for mark in "*<[":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")


def below(text: str) -> str:
    """Return a list without the line above it, and as far to the left as it goes."""
    return dedent(text.partition("\n")[2])


def listing(text: Any) -> str:
    """Return a text that keeps its lines."""
    return f"```text\n{str(text).rstrip()}\n```"
