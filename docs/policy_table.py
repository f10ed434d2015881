"""Table of policies for the pages of the site, generated from ``POLICIES``.

``python docs/policy_table.py`` updates ``choosing.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

# From this checkout.
from tinyckpt.planner.portfolio.policies import POLICIES  # noqa: E402

PAGE = HERE / "choosing.md"
BEGIN, END = "<!-- policies -->", "<!-- end of policies -->"
HEADER = ("policy", "what it does", "how good it is")


def policy_table() -> str:
    """Return the table of all policies, in Markdown."""
    rows = [(f"`{p.name}`", p.summary, p.optimality) for p in POLICIES.values()]
    return as_table([HEADER, ("---",) * len(HEADER), *rows])


def as_table(lines: Iterable[Sequence[str]]) -> str:
    """Return rows as a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def policies_page() -> str:
    """Return the policies page: the table, and the options of each policy."""
    known = POLICIES.values()
    parts = [
        "# Policies",
        'A policy turns a graph into a schedule: `tc.plan(graph, "sqrt_n")`, or'
        " `tinyckpt plan chain:16 --policy sqrt_n`. With a budget and without a policy, `tc.plan`"
        " tries them all and returns the cheapest schedule that fits. A custom policy is"
        " [a function](../your_own.md). `--set NAME=VALUE` sets an option on the command line.",
        as_table(
            [
                HEADER,
                ("---",) * len(HEADER),
                *((f"[`{p.name}`](#policy-{p.name})", p.summary, p.optimality) for p in known),
            ]
        ),
    ]
    for policy in known:
        function = f"{policy.plan.__module__}.{policy.plan.__qualname__}"
        parts += [
            f"(policy-{policy.name})=\n## {policy.name}",
            f"{policy.summary[0].upper()}{policy.summary[1:]}.",
            f"- How good it is: {policy.optimality}.\n- Time to plan: {policy.complexity}.\n"
            f"- Source: {policy.source}.",
            f"```{{eval-rst}}\n.. autofunction:: {function}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def with_table(text: str) -> str:
    """Return a page with the table inserted between its two markers."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{policy_table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
