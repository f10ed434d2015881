"""Write the README's table of policies from what each policy says of itself.

python docs/policy_table.py
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tinyckpt.policies import POLICIES  # noqa: E402  # the checkout that this file is in

README = HERE.parent / "README.md"
BEGIN, END = "<!-- policies -->", "<!-- end of policies -->"
HEADER = ("policy", "what it does", "how good it is", "time to plan", "source")


def policy_table() -> str:
    """Return the table of all policies, in Markdown."""
    rows = [
        (f"`{p.name}`", p.summary, p.optimality, p.complexity, p.source) for p in POLICIES.values()
    ]
    lines = [HEADER, ("---",) * len(HEADER), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_table(text: str) -> str:
    """Return a page with the table between its two marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{policy_table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
